"""What the owner of a topic knows about it, as it travels from a broker to the operator, to `kubectl daybook`, and to jobs.

The broker makes these records from its memory alone, so that one request for thousands of topics costs no request to ZooKeeper or to a
bookie. Both sides share the classes. A reader ignores the fields of a later release.
"""

from enum import Enum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class _Record(BaseModel):
    """JSON has the names of the fields in camel case."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )


class Serving(Enum):
    """What a broker does with a topic that it has in memory."""

    TAKING_OVER = "taking-over"
    """The list is being read, or the former owner's ledger recovered; figures are of what is known so far."""
    SERVED = "served"
    UNLOADING = "unloading"
    """It takes no more clients: another broker is to own it, or it ended with `error`."""


class SubscriptionReport(_Record):
    """One subscription. `kind` is None before its first consumer."""

    name: str
    kind: str | None = None
    is_durable: bool = True
    backlog_entries: int = 0
    """Entries that are not acknowledged; a batch is one entry, as in Pulsar's statistics."""
    oldest_age_s: int | None = None
    """The age of the oldest of them, an estimate by the owner's clock (daybook/core/topics/confirm_times.py); None without a backlog."""
    mark_delete: str = ""
    """Everything up to this position is acknowledged."""
    holes: int = 0
    """Ranges that are acknowledged beyond it."""
    last_active_ms: int = 0
    consumers: int = 0
    permits: int = 0
    """Messages that its consumers take now."""
    unacked_messages: int = 0
    """Messages that the consumers of a shared subscription received and did not acknowledge; 0 for other kinds, which count none."""
    is_blocked: bool = False
    """Whether nobody receives anything until half of `unacked_messages` are acknowledged."""
    blocked_consumers: int = 0
    """Consumers that receive nothing until they acknowledge half of what they have."""
    paused_consumers: int = 0
    """Consumers whose connections take nothing now."""


class OpenLedgerReport(_Record):
    """The ledger that the owner writes."""

    ledger_id: int
    ensemble: tuple[str, ...]
    missing: tuple[str, ...] = ()
    """Bookies of the ensemble that do not answer; the writer continues without them (rule 45)."""
    write_quorum: int
    ack_quorum: int
    ensemble_changes: int = 0
    size_bytes: int = 0
    pending_bytes: int = 0
    """Sent, and not acknowledged."""
    error: str | None = None
    """Why it takes nothing more: somebody fenced it, or too few bookies answer."""


class QuotaReport(_Record):
    """The backlog of the slowest subscription, and what the policy allows; −1 is no limit."""

    backlog_bytes: int = 0
    limit_bytes: int = -1
    limit_ms: int = -1
    action: str = ""
    refusal: str | None = None
    """Why producers are held off or refused."""


class TopicReport(_Record):
    """One topic on its owner."""

    topic: str
    serving: Serving
    error: str | None = None
    """Why the owner serves the topic no more."""
    taken_over_at_ms: int = 0
    """When the broker began to take the topic over, in ms since 1970."""
    phase: str = ""
    """What the owner does with the ledgers: the name of a phase of daybook/core/topics/phases.py."""
    list_version: int = -1
    owner_token: str = ""
    """What the owner wrote into the list; another token there means that another broker owns the topic (rule 38)."""
    producer_epoch: int = -1
    """How often the topic had another exclusive producer."""
    state: str = ""
    """Of the list: LedgerOpened, ClosedLedger or Terminated."""
    ledgers: int = 0
    bytes: int = 0
    """Of one copy of all ledgers."""
    entries: int = 0
    last_position: str = ""
    """Of the last acknowledged entry."""
    durability: str = ""
    degrade: str = ""
    """Both hold for the ledger that is written, or for the next one; a broker of an earlier release reports neither."""
    is_degraded: bool = False
    """Whether what is written has fewer copies than the policy says (rule 45)."""
    refusal: str | None = None
    """Why nothing may be published."""
    held_receipts: int = 0
    """Entries whose receipts wait until the broker is certain of its session (rule 46)."""
    messages_in: int = 0
    bytes_in: int = 0
    """Since the take-over."""
    message_rate_in: float = 0.0
    byte_rate_in: float = 0.0
    producers: int = 0
    waiting_producers: int = 0
    """Those that wait to be the exclusive one."""
    consumers: int = 0
    open_ledger: OpenLedgerReport | None = None
    quota: QuotaReport = QuotaReport()
    subscriptions: tuple[SubscriptionReport, ...] = ()
    """Of a list of topics the largest backlogs; of one topic a page, by name."""
    subscription_count: int = 0
    """All that are open, those of readers too."""
    unopened_subscriptions: tuple[str, ...] = ()
    """Stored ones that are not open, at most as many as `subscriptions` may have: they hold the trimming back."""
    next_subscription: str | None = None
    """Ask for the next page with `after` of this name; None: there is none."""


class BrokerReport(_Record):
    """The broker that answers, and how certain it is to own what it reports."""

    broker: str
    boot_id: str = ""
    """Drawn anew by each process."""
    session_id: str = ""
    """Of ZooKeeper, in hexadecimal; `0x0` while the broker is not registered."""
    is_certain: bool = False
    """Whether its session certainly lives: no receipt leaves while it does not (rule 46)."""
    leader: str | None = None
    version: str = ""
    started_at_ms: int = 0
    now_ms: int = 0
    bundles: int = 0
    topics: int = 0
    """In memory; an idle topic that nobody used since the broker gained its bundle is not."""


class TopicPage(_Record):
    """A part of a broker's topics, by name."""

    broker: BrokerReport
    topics: tuple[TopicReport, ...]
    next: str | None = None
    """Ask for the next page with `after` of this name; None: this is the last one."""
