"""Entries of a topic in order, from the first that a subscription has not delivered: what is asked for, and what waits for permits.

One read is under way at a time. It asks for about as many messages as there are permits for, by the size of the batches that came
before, so that little waits in memory for a consumer that takes no more.

A subscription that reads what is compacted asks for entries up to the horizon whether they exist or not: the compacted ledgers reach
further back than the topic's own. What they lack counts as acknowledged, so that the mark-delete position passes it. That
may be an entry that was delivered before a later compaction, or before what was compacted was given up.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from daybook.core.topics.acks import AckState
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.dispatch.events import CompactedPart, EntriesRead, ReadEntries
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, Position

_FIRST_ENTRY_BYTES: Final = 64 * 1024
"""What an entry is taken for before one was read."""


Horizon: TypeAlias = Callable[[], Position]
"""Up to where a topic is compacted now."""


class Pace:
    """How large entries are, by those that were read last."""

    __slots__ = ("_entry_bytes", "_messages", "_policy")

    def __init__(self, policy: DispatchPolicy) -> None:
        self._policy = policy
        self._entry_bytes = _FIRST_ENTRY_BYTES
        self._messages = 1

    def saw(self, entries: Sequence[TopicEntry]) -> None:
        """These were read, at least one."""
        self._entry_bytes = max(1, sum(len(entry.data) for entry in entries) // len(entries))
        self._messages = max(1, sum(entry.messages for entry in entries) // len(entries))

    def entries_for(self, permits: int) -> int:
        """How many entries to read for so many permits, at least one."""
        return max(
            1,
            min(
                -(-permits // self._messages),
                self._policy.read_entries_max,
                self._policy.read_bytes_max // self._entry_bytes,
            ),
        )


class NewEntries:
    """What a subscription has not delivered yet."""

    __slots__ = ("_acks", "_extent", "_horizon", "_next", "_policy", "left", "pace", "waiting")

    def __init__(
        self, extent: TopicExtent, acks: AckState, policy: DispatchPolicy, horizon: Horizon | None = None
    ) -> None:
        """With `horizon` what is compacted is read up to it."""
        self._horizon = horizon
        self.left: dict[Position, Sequence[int]] = {}
        """The words of batches that wait and lost a part to a compaction."""
        self._extent = extent
        self._acks = acks
        self._policy = policy
        self.pace = Pace(policy)
        self.waiting: list[TopicEntry] = []
        """Read, and not delivered: one read's entries at most, so a list will do, which takes nothing while it is empty."""
        self._next = acks.mark_delete
        """No entry before it is to be read."""
        self._lose_early()

    def rewind(self) -> None:
        """Begin again behind the mark-delete position: what is acknowledged beyond it is left out, and the holes between are delivered."""
        self.waiting.clear()
        self.left.clear()
        self._lose_early()
        self._next = self._acks.mark_delete

    def _lose_early(self) -> None:
        """Take as acknowledged what is not compacted any more, or is not read by consumers of what the topic itself has."""
        horizon = NO_POSITION if self._horizon is None else self._horizon()
        self._acks.lose_early(horizon.behind, self._extent.first)

    def request(self, request_id: int, permits: int) -> ReadEntries | None:
        """What to read for so many permits; None if nothing that is to be delivered exists yet."""
        if self._next > self._extent.last_confirmed:
            return None
        if self._horizon is not None:
            start = max(self._next, self._acks.mark_delete.behind)
            if start <= self._horizon():
                self._next = start
                entries_max = self.pace.entries_for(permits)
                return ReadEntries(request_id, start, entries_max, self._policy.read_bytes_max)
        run = self._acks.run(self._next, self.pace.entries_for(permits))
        if run is None:
            return None
        ledger_id, first, last = run
        self._next = Position(ledger_id, first)
        return ReadEntries(request_id, self._next, last - first + 1, self._policy.read_bytes_max)

    def read(self, event: EntriesRead) -> None:
        """Take what was read."""
        entries, compacted = event.entries, event.compacted
        if compacted is not None:
            self._drop_removed(entries, compacted)
        if entries:
            assert entries[0].position >= self._next, f"{entries[0].position} was read before {self._next}"
            self.pace.saw(entries)
            self.waiting.extend(entries)
        self._next = (entries[-1].position if compacted is None else compacted.through).behind

    def _drop_removed(self, entries: Sequence[TopicEntry], compacted: CompactedPart) -> None:
        """Take as acknowledged what a compaction has removed, whole entries and parts of batches."""
        first = self._next
        for entry in entries:
            self._acks.ack_absent(first, entry.position)
            self._acks.delivers(entry.position, compacted.left.get(entry.position, ()), entry.messages)
            first = entry.position.behind
        self._acks.ack_absent(first, compacted.through.behind)
        kept = {entry.position for entry in entries}
        self._acks.lose_early(self._next, compacted.through.behind, kept)
        self.left.update(compacted.left)

    def take(self) -> TopicEntry | None:
        """The next entry that is not acknowledged; None if nothing waits."""
        acks = self._acks
        while self.waiting:
            entry = self.waiting.pop(0)
            if not acks.is_acked(entry.position):
                return entry
            self.left.pop(entry.position, None)
        return None

    def words(self, position: Position) -> Sequence[int]:
        """The words of what `take` returned: of a batch, the messages that are neither acknowledged nor removed; () for all of them."""
        left = self.left.pop(position, ())
        return self._acks.ack_set(position) or left
