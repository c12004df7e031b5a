"""When a cursor is persisted next, and where: at most once a second, in its ledger while positions move and in its node otherwise."""

from dataclasses import dataclass

from daybook.core.machine import RetryTimer
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_phases import CursorPhase
from daybook.core.topics.cursor_record import NODE_RANGES_MAX
from daybook.core.topics.ledger_list import NO_POSITION, Position


@dataclass(frozen=True, slots=True)
class CursorPolicy:
    """The limits of a cursor. Pulsar has the same for a record's pace and for its ledger."""

    persist_ms: int = 1_000
    """At most one record in this time."""
    entries_max: int = 50_000
    age_ms_max: int = 14_400_000
    """A ledger that is fuller or older is replaced."""
    idle_ms: int = 60_000
    """A cursor that has not moved for so long rests in its node, and its next move goes there as well."""
    retry_ms: int = 1_000
    """The pause before a request that failed is made again."""
    recoveries_max: int = 3
    """How often the cursor's ledger is recovered and read before the node's older record has to do."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The state of the acknowledgements that a record has."""

    version: int = 0
    resets: int = 0
    mark_delete: Position = NO_POSITION

    @classmethod
    def of(cls, acks: AckState) -> "Taken":
        """As it is now."""
        return cls(acks.version, acks.resets, acks.mark_delete)


class CursorPace:
    """What one cursor has persisted and when, and what its ledger takes."""

    __slots__ = (
        "_entries",
        "_floor",
        "_opened_ms",
        "_pause",
        "_policy",
        "_taken",
        "_taken_ms",
        "is_closing",
        "is_flushing",
        "is_writable",
        "node_resets",
        "now_ms",
        "stored",
    )

    def __init__(self, policy: CursorPolicy, now_ms: int) -> None:
        self._policy = policy
        self.now_ms = now_ms
        self._pause = RetryTimer(policy.retry_ms)
        """After a ledger that failed: until another one is created."""
        self.stored = self._taken = Taken()
        """What is durable; what the record has that is under way, or was last."""
        self._taken_ms = now_ms
        self._floor = NO_POSITION
        """The smallest mark-delete position that the next owner may find: a record without an answer may count, too."""
        self.node_resets = 0
        """Of the state that the node's record has: an older record in it may pass what a later seek went back to."""
        self.is_writable = False
        """Whether the ledger that the node names takes more."""
        self._entries = self._opened_ms = 0
        self.is_flushing = False
        self.is_closing = False

    def tick(self, now_ms: int) -> None:
        """Let time pass."""
        self.now_ms = now_ms
        self._pause.fires(now_ms)

    def opened(self, acks: AckState) -> None:
        """The state was read: it is durable."""
        self.take(acks)
        self.persisted()

    def safe_mark(self, acks: AckState) -> Position:
        """What is durable whichever record counts, and was not taken back by a seek."""
        return min(self._floor, acks.mark_delete)

    def take(self, acks: AckState) -> None:
        """A record of the state as it is now leaves."""
        self._taken = Taken.of(acks)
        self._floor = min(self._floor, self._taken.mark_delete)
        self._taken_ms = self.now_ms
        self.is_flushing = False

    def persisted(self) -> None:
        """What was taken last is durable, and is what the next owner finds."""
        self.stored = self._taken
        self._floor = self._taken.mark_delete

    def appended(self) -> None:
        """The ledger has another record."""
        self._entries += 1
        self.persisted()

    def node_written(self, *, names_ledger: bool) -> None:
        """The node has what was taken last; `names_ledger`: and a new ledger has it."""
        self.node_resets = self._taken.resets
        self.is_writable = names_ledger
        self._entries, self._opened_ms = 1, self.now_ms
        self.persisted()

    def ledger_failed(self) -> None:
        """A ledger could not be created or written: no other one is created for a while."""
        self._pause.start(self.now_ms)

    def next_phase(self, acks: AckState, *, is_named: bool) -> CursorPhase | None:
        """What is to be done now, if anything; `is_named`: the node names a ledger."""
        fits = acks.fits(NODE_RANGES_MAX)
        since_ms = self.now_ms - self._taken_ms
        is_idle = since_ms >= self._policy.idle_ms
        if acks.version != self.stored.version:
            if not (self.is_closing or self.is_flushing or since_ms >= self._policy.persist_ms):
                return None
            to_node = fits and (self.is_closing or (is_idle and not self.is_writable))
            return CursorPhase.STORING if to_node or acks.resets != self.node_resets else self._to_ledger()
        self.is_flushing = False
        if is_named and fits and (self.is_closing or is_idle):
            return CursorPhase.STORING
        if self.is_closing:
            return CursorPhase.CLOSING if self.is_writable else CursorPhase.ENDED
        return None

    def _to_ledger(self) -> CursorPhase | None:
        if self.is_writable and (self._pause.is_running or not self._is_full):
            return CursorPhase.APPENDING
        if not self._pause.is_running:
            return CursorPhase.CREATING
        return CursorPhase.STORING if self.is_closing else None

    @property
    def _is_full(self) -> bool:
        is_old = self.now_ms - self._opened_ms >= self._policy.age_ms_max
        return is_old or self._entries >= self._policy.entries_max
