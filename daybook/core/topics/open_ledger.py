"""The ledger that an owner writes to: when it has had enough, and what the list says of it in the end."""

from dataclasses import dataclass, replace
from typing import Final

from daybook.core.ids import LedgerId
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, ListState
from daybook.core.topics.pending import PendingPublishes

_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class ManagedLedgerPolicy:
    """When a topic begins another ledger; the defaults are Pulsar's."""

    entries_max: int = 50_000
    size_bytes_max: int = 2048 * 1024 * 1024
    age_ms_max: int = 240 * _MINUTE_MS
    age_ms_min: int = 10 * _MINUTE_MS
    """However full it is, a ledger is used for so long."""
    idle_ms_max: int = 10 * _MINUTE_MS
    """A ledger that takes no message for so long is closed, so that a fail-over has nothing to recover."""
    retry_ms: int = 1_000
    """The pause before a request that failed is made again."""
    pending_bytes_max: int = 64 * 1024 * 1024
    """Where `ManagedLedger.has_room` ends."""


class OpenLedger:
    """A ledger of this owner, or of the former one, which is only recovered."""

    __slots__ = (
        "_first_published_ms",
        "_last_published_ms",
        "_last_send_ms",
        "_opened_ms",
        "failed",
        "is_superseded",
        "listed",
    )

    def __init__(self, listed: ListedLedger) -> None:
        self.listed = listed
        """What the list says of it."""
        self.failed = False
        """Whether its handle takes no more."""
        self.is_superseded = False
        """Whether another ledger would be better for what comes next."""
        self._opened_ms = self._last_send_ms = 0
        self._first_published_ms: int | None = None
        self._last_published_ms: int | None = None

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self.listed.ledger_id

    def open(self, now_ms: int) -> None:
        """The list names it: it is written from now on."""
        self._opened_ms = self._last_send_ms = now_ms

    def sent(self, now_ms: int, unix_ms: int) -> None:
        """Messages were sent to it."""
        self._last_send_ms = now_ms
        self._last_published_ms = unix_ms
        if self._first_published_ms is None:
            self._first_published_ms = unix_ms

    def is_full(self, policy: ManagedLedgerPolicy, pending: PendingPublishes, now_ms: int) -> bool:
        """Whether another ledger is to be used."""
        age_ms = now_ms - self._opened_ms
        return self.is_superseded or (
            age_ms >= policy.age_ms_min
            and (
                pending.next_entry >= policy.entries_max
                or pending.sent_bytes >= policy.size_bytes_max
                or age_ms >= policy.age_ms_max
            )
        )

    def is_idle(self, policy: ManagedLedgerPolicy, pending: PendingPublishes, now_ms: int) -> bool:
        """Whether nobody has published for so long that it is to be closed."""
        return not pending.is_sent and now_ms - self._last_send_ms >= policy.idle_ms_max

    def ended(self, entries: int, size_bytes: int, unix_ms: int) -> None:
        """It is closed for good. The publish times of a former owner's ledger are not known."""
        self.listed = replace(
            self.listed,
            entries=entries,
            size_bytes=size_bytes,
            closed_at_ms=unix_ms,
            first_published_at_ms=self._first_published_ms,
            last_published_at_ms=self._last_published_ms,
        )

    def named_in(self, before: LedgerList) -> LedgerList:
        """The list with this ledger, open, as its last one."""
        return replace(
            before,
            state=ListState.OPEN,
            ledgers=(*before.ledgers, self.listed),
            last_ledger_created_at_ms=self.listed.created_at_ms,
        )

    def recorded_in(self, current: LedgerList) -> LedgerList:
        """The list with the end of this ledger, which is closed; unchanged if it does not name an open ledger."""
        if current.state is not ListState.OPEN:
            return current
        assert current.ledgers[-1].ledger_id == self.id
        ends = [current.last_confirmed]
        if self.listed.entries:
            ends.append(self.listed.last_position)
        if current.compaction is not None:  # behind the ledger's end if a person gave that up (rule 61)
            ends.append(current.compaction.horizon)
        return replace(
            current,
            state=ListState.CLOSED,
            ledgers=(*current.ledgers[:-1], self.listed),
            last_confirmed=max(ends),
        )
