"""What `explain` judges: a topic as it was read at one moment, from wherever the command that asks can read.

`daybook topic explain` reads ZooKeeper and the brokers, `kubectl daybook topic explain` the API server and, through it, the brokers.
What one of them cannot read is None, and `unread` says why under the name of the step that misses it, so that nothing that was not
read counts as fine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from daybook.client.topic_reports import BrokerReport, TopicReport
from daybook.core.ids import BookieId, LedgerId
from daybook.core.topics.manager import Manager
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.load import BrokerId
from daybook.core.topics.ownership.lookup import BundleOwner
from daybook.core.topics.policy import Policy


@dataclass(frozen=True, slots=True)
class Resource:
    """A Topic resource that names the topic. `problems`: its conditions that are not as they should be, in words."""

    namespace: str
    name: str
    uid: str
    problems: tuple[str, ...] = ()
    is_managing: bool = True
    """Whether it is to manage the topic (`spec.managed`), or only to report it."""

    def __str__(self) -> str:
        """`Topic data/orders`, for messages."""
        return f"Topic {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """What only ZooKeeper has: who last wrote the topic's list, and the metadata of the ledger that the list has as open.

    `open_ledger` is None if the list has none. `ledger_state` is OPEN, IN_RECOVERY or CLOSED, empty if that ledger has no metadata.
    """

    owner_token: str
    open_ledger: LedgerId | None = None
    ledger_state: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A topic at the moment `now_ms`, in ms since 1970."""

    topic: TopicName
    now_ms: int
    manager: Manager | None = None
    """Of the topic's policy."""
    resources: Sequence[Resource] | None = None
    """The Topic resources that name the topic; None: nobody asked an API server."""
    policy: Policy | None = None
    policy_problem: str = ""
    """Why what is set cannot hold: it does not go together, or cannot be read."""
    owner: BundleOwner | None = None
    """Who has the lease of the topic's bundle."""
    brokers: Mapping[BrokerId, str] | None = None
    """The registered brokers, each with why it does not serve; empty: it does."""
    broker: BrokerReport | None = None
    """The owner, as it reports itself."""
    report: TopicReport | None = None
    """The topic, as its owner reports it."""
    refusal: str = ""
    """Why no broker reports the topic, as a broker answered."""
    under_replicated: tuple[LedgerId, ...] = ()
    """The topic's ledgers that the auditor found to lack a replica."""
    stored: StoredTopic | None = None
    bookies: Mapping[BookieId, bool] | None = None
    """The registered bookies, and whether each takes writes."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Why a step lacks what it needs, by the step's name."""
