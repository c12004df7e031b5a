"""What a shared subscription has to deliver again, the lowest position first, and how often each entry was requested again.

A position is here from the moment at which its consumer left or gave it back until another consumer receives it; the count stays until the
entry is acknowledged. What consumers may have unacknowledged bounds both.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from daybook.core.topics.ledger_list import Position


class Redelivery:
    """The positions that are due, and the counts."""

    __slots__ = ("_counts", "_due", "_heap")

    def __init__(self) -> None:
        self._due: set[Position] = set()
        self._heap: list[Position] = []
        """All that are due, and some that no longer are."""
        self._counts: dict[Position, int] = {}

    def __len__(self) -> int:
        """How many are due."""
        return len(self._due)

    def __contains__(self, position: Position) -> bool:
        """Whether it is due."""
        return position in self._due

    def add(self, positions: Iterable[Position], *, is_counted: bool) -> None:
        """Nobody has these any more. They count where a consumer requested them again, not where it left."""
        for position in positions:
            assert position not in self._due, f"{position} was with a consumer, and due as well"
            self._due.add(position)
            heappush(self._heap, position)
            if is_counted:
                self._counts[position] = self._counts.get(position, 0) + 1

    @property
    def lowest(self) -> Position | None:
        """The one that comes next."""
        while self._heap and self._heap[0] not in self._due:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def first(self, count: int) -> list[Position]:
        """The lowest `count` of them, in order."""
        found: list[Position] = []
        while len(found) < count and (position := self.lowest) is not None:
            heappop(self._heap)
            if not found or found[-1] != position:
                found.append(position)
        for position in found:
            heappush(self._heap, position)
        return found

    def delivered(self, position: Position) -> None:
        """A consumer received it."""
        self._due.discard(position)

    def count(self, position: Position) -> int:
        """How often a consumer requested it again."""
        return self._counts.get(position, 0)

    def forget(self, position: Position) -> None:
        """It is acknowledged, or cannot be read any more."""
        self._due.discard(position)
        self._counts.pop(position, None)
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = list(self._due)
            heapify(self._heap)

    def forget_where(self, is_gone: Callable[[Position], bool]) -> None:
        """Forget all of which this holds."""
        for position in [each for each in self._due | self._counts.keys() if is_gone(each)]:
            self.forget(position)

    def clear(self) -> None:
        """Forget everything."""
        self._due.clear()
        self._heap.clear()
        self._counts.clear()
