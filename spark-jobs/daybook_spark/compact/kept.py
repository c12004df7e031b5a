"""The second pass: the entries of a part beside the places that stay, both in order, so that a task holds neither.

A place that no entry of the part has means that the two passes read different things: then nothing may be written.
"""

from collections.abc import Iterator
from typing import Final

from daybook.core.errors import CompactionError
from daybook.core.topics.compaction.keys import KeyedEntry
from daybook_spark.compact.places import ENTRY_BITS, INDEX_BITS

_NONE_LEFT: Final = 1 << ENTRY_BITS + INDEX_BITS
"""Behind all places of a part."""


class KeptPlaces:
    """Which messages stay; asked for the entries in order."""

    def __init__(self, places: Iterator[int], *, keeps_keyless: bool) -> None:
        """`places` are those `within_part`, in order; one that comes twice counts once. `keeps_keyless`: whether messages without a key stay."""
        self._places = places
        self._keeps_keyless = keeps_keyless
        self._next = next(places, _NONE_LEFT)
        self.count = 0
        """How many places that stay were found."""

    def kept(self, number: int, entry: KeyedEntry) -> tuple[bool, ...]:
        """For each message of the `number`-th entry whether it stays; () for an entry that cannot be judged and stays whole."""
        return self.judge(entry, self.indexes_of(number))

    def judge(self, entry: KeyedEntry, indexes: set[int]) -> tuple[bool, ...]:
        """As `kept`, where the places of the entry were asked for before. Raises CompactionError."""
        if entry.chunk is not None:
            return (0 in indexes,)
        kept = tuple(
            message is not None and (self._keeps_keyless if message.key is None else index in indexes)
            for index, message in enumerate(entry.messages)
        )
        if len(indexes) > sum(message is not None and message.key is not None for message in entry.messages):
            raise _differs(f"entry {entry.position} has no messages with keys at {sorted(indexes)}")
        return kept

    def finish(self) -> None:
        """All entries were asked for. Raises CompactionError."""
        if self._next != _NONE_LEFT:
            raise _no_entry(self._next)

    def indexes_of(self, number: int) -> set[int]:
        """Which messages of the next entry have places that stay. Raises CompactionError."""
        found: set[int] = set()
        begin, end = number << INDEX_BITS, (number + 1) << INDEX_BITS
        if self._next < begin:
            raise _no_entry(self._next)
        while self._next < end:
            found.add(self._next - begin)
            self._next = next(self._places, _NONE_LEFT)
        self.count += len(found)
        return found


def _no_entry(place: int) -> CompactionError:
    return _differs(f"entry {place >> INDEX_BITS} of a part was not there in its turn")


def _differs(what: str) -> CompactionError:
    return CompactionError(
        f"the second pass over a topic does not find what the first one found: {what}; run the job again"
    )
