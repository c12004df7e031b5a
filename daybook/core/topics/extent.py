"""Which entries of a topic exist for its readers: the acknowledged ones of the ledgers that its list names.

Positions of a topic rise, but they have gaps: a ledger ends where it was closed, some ledgers are empty, and trimming takes the first
ones. So whoever moves along a topic (a cursor, a dispatcher, a reader) asks here what comes next and how much lies between.
An entry that is sent and not acknowledged may still be lost, so it does not exist yet.

Every question costs a binary search over the ledgers, and `confirm`, which follows each publish, costs nothing that grows.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate

from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListState, Position


class TopicExtent:
    """The entries of one topic on its owner. `last_confirmed` never falls, whatever is trimmed."""

    __slots__ = ("_before", "_counts", "_ids", "_is_open", "is_terminated", "last_confirmed", "ledger_list")

    def __init__(self, ledger_list: LedgerList | None = None) -> None:
        self._ids: list[LedgerId] = []
        """The ledgers that have entries, and the open one."""
        self._counts: list[int] = []
        """How many entries each of them has."""
        self._before: list[int] = []
        """How many entries lie before each of them."""
        self._is_open = False
        self.last_confirmed: Position = NO_POSITION
        """The last acknowledged entry, also if it was trimmed; NO_POSITION before the first one."""
        self.is_terminated = False
        """Whether no entry will come any more."""
        self.ledger_list = LedgerList()
        """As it was known last."""
        if ledger_list is not None:
            self.update(ledger_list)

    # What changes

    def update(self, ledger_list: LedgerList) -> None:
        """The topic's list is `ledger_list` now; what `confirm` said of its open ledger still holds."""
        known = dict(zip(self._ids, self._counts, strict=True))
        last = max(self.last_confirmed, ledger_list.last_confirmed)
        ids, counts = [], []
        for ledger in ledger_list.ledgers:
            before = known.get(ledger.ledger_id, 0)
            if ledger.is_open:
                count = max(before, last.entry_id + 1 if last.ledger_id == ledger.ledger_id else 0)
            else:
                count = ledger.entries
                assert count >= before, (
                    f"ledger {ledger.ledger_id} lost acknowledged entries: {before}, {count}"
                )
            if count or ledger.is_open:
                ids.append(ledger.ledger_id)
                counts.append(count)
        self._ids, self._counts = ids, counts
        self._before = list(accumulate(counts, initial=0))[:-1]
        self._is_open = ledger_list.state is ListState.OPEN
        self.is_terminated = ledger_list.state is ListState.TERMINATED
        self.last_confirmed = last
        self.ledger_list = ledger_list

    def confirm(self, position: Position) -> None:
        """The entries of the open ledger up to `position` are acknowledged. News that came late changes nothing."""
        if position <= self.last_confirmed:
            return
        assert self._is_open, f"{position} is acknowledged, and no ledger is open"
        assert position.ledger_id == self._ids[-1], (
            f"{position} is not in ledger {self._ids[-1]}, which is open"
        )
        self._counts[-1] = position.entry_id + 1
        self.last_confirmed = position

    # What is there

    @property
    def first(self) -> Position:
        """The first entry that exists, or where the next one will be."""
        return Position(self._ids[0], 0) if self._counts and self._counts[0] else self.end

    @property
    def end(self) -> Position:
        """Where the next entry will be, as far as that is known: a ledger that is yet to be created has a larger position."""
        if self._is_open:
            return Position(self._ids[-1], self._counts[-1])
        return self.last_confirmed.behind

    def contains(self, position: Position) -> bool:
        """Whether the entry exists."""
        ledger_id, entry_id = position
        if self._ids and ledger_id == self._ids[-1]:
            return 0 <= entry_id < self._counts[-1]
        index = bisect_left(self._ids, ledger_id)
        return (
            index < len(self._ids) and self._ids[index] == ledger_id and 0 <= entry_id < self._counts[index]
        )

    # What comes next

    def at_or_after(self, position: Position) -> Position:
        """The first entry that exists from `position` on, or where it will be: `end`, or `position` if that is beyond."""
        ledger_id, entry_id = position
        index = bisect_left(self._ids, ledger_id)
        if index < len(self._ids) and self._ids[index] == ledger_id:
            if entry_id < self._counts[index]:
                return position if entry_id >= 0 else Position(ledger_id, 0)
            index += 1
        if index < len(self._ids) and self._counts[index]:
            return Position(self._ids[index], 0)
        return max(position if entry_id >= 0 else Position(ledger_id, 0), self.end)

    def after(self, position: Position) -> Position:
        """Where the entry after `position` is, or will be."""
        return self.at_or_after(position.behind)

    def before(self, position: Position) -> Position:
        """The last entry that exists before `position`; if there is none, the position just before `first`."""
        rank = self._rank(position.before)
        if rank:
            return self._at_rank(rank)
        first = self.first
        return first.before

    def nth_after(self, position: Position, n: int) -> Position:
        """The `n`-th entry after `position`, or the last one that there is; `position` itself if nothing is after it."""
        rank = self._rank(position)
        wanted = min(rank + n, self._total)
        return position if wanted == rank else self._at_rank(wanted)

    # How much there is

    def count(self, after: Position, through: Position | None = None) -> int:
        """How many entries exist after `after`, up to and with `through`, or all: a backlog."""
        end = self._total if through is None else self._rank(through)
        return max(0, end - self._rank(after))

    def run(self, position: Position, entries_max: int) -> tuple[LedgerId, EntryId, EntryId] | None:
        """At most `entries_max` entries of one ledger, from the first that exists at or after `position`: ledger, first, last.

        None if nothing is there yet.
        """
        ledger_id, first = self.at_or_after(position)
        index = bisect_left(self._ids, ledger_id)
        if index == len(self._ids) or self._ids[index] != ledger_id or first >= self._counts[index]:
            return None
        return ledger_id, first, min(self._counts[index], first + entries_max) - 1

    @property
    def _total(self) -> int:
        return self._before[-1] + self._counts[-1] if self._counts else 0

    def _rank(self, position: Position) -> int:
        """How many entries exist up to and with `position`."""
        ledger_id, entry_id = position
        index = bisect_right(self._ids, ledger_id) - 1
        if index < 0:
            return 0
        if self._ids[index] == ledger_id:
            return self._before[index] + min(max(entry_id + 1, 0), self._counts[index])
        return self._before[index] + self._counts[index]

    def _at_rank(self, rank: int) -> Position:
        """The entry up to and with which `rank` entries exist."""
        index = bisect_left(self._before, rank) - 1
        return Position(self._ids[index], rank - self._before[index] - 1)
