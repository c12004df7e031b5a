"""The second pass: the entries of a part beside the places that stay, both in order, so that a task holds neither.

A place that no entry of the part has means that the two passes read different things: then nothing may be written.
"""

from collections.abc import Iterator
from typing import NamedTuple

from daybook.core.errors import CompactionError
from daybook.core.topics.compaction.keys import KeyedEntry
from daybook.core.topics.ledger_list import Position


class MessagePlace(NamedTuple):
    """Where a message is; `batch_index` is 0 for what is no batch."""

    ledger_id: int
    entry_id: int
    batch_index: int


class KeptPlaces:
    """Which messages stay; asked for the entries in order."""

    def __init__(self, places: Iterator[MessagePlace], *, keeps_keyless: bool) -> None:
        """`places` are in order; one that comes twice counts once. `keeps_keyless`: whether messages without a key stay."""
        self._places = places
        self._keeps_keyless = keeps_keyless
        self._next = next(places, None)
        self.count = 0
        """How many places that stay were found."""

    def kept(self, entry: KeyedEntry) -> tuple[bool, ...]:
        """For each message of the entry whether it stays; () for an entry that cannot be judged and stays whole."""
        return self.judge(entry, self.indexes_of(entry.position))

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
        if self._next is not None:
            raise _differs(f"there is no entry {self._next.ledger_id}:{self._next.entry_id}")

    def indexes_of(self, position: Position) -> set[int]:
        """Which messages of the next entry have places that stay. Raises CompactionError."""
        found: set[int] = set()
        while self._next is not None and self._next[:2] <= position:
            if self._next[:2] < position:
                raise _differs(f"there is no entry {self._next.ledger_id}:{self._next.entry_id}")
            found.add(self._next.batch_index)
            self._next = next(self._places, None)
        self.count += len(found)
        return found


def _differs(what: str) -> CompactionError:
    return CompactionError(
        f"the second pass over a topic does not find what the first one found: {what}; run the job again"
    )
