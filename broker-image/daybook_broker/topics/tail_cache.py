"""What was published a moment ago: consumers who keep up with their producers never touch a bookie.

One cache serves all topics of a broker, so that a busy topic may use what idle ones do not need. It is bounded in bytes, and whole
runs leave it, the oldest first. Entries are put in once they are acknowledged, so a reader never sees what may still be lost. An
acknowledged entry never changes, and no two topics share a ledger's id: nothing in the cache can become wrong.

An entry here is a tuple of what no garbage collection has to visit: most entries are never read, and the cache holds very many of them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from daybook.core.format.frame import Buffer
from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.ledger_list import Position

ENTRY_COST_BYTES: Final = 400
"""What an entry in memory takes beside its bytes: its objects and its place in a dictionary."""

as_entry: Final[Callable[[tuple[Position, Buffer, int]], TopicEntry]] = partial(tuple.__new__, TopicEntry)
as_position: Final[Callable[[tuple[LedgerId, EntryId]], Position]] = partial(tuple.__new__, Position)
"""A NamedTuple in a third of the time: its own constructor is a function in Python."""


class TailCache:
    """The newest entries of all topics of a broker."""

    def __init__(self, bytes_max: int) -> None:
        """Keep at most `bytes_max` bytes, each entry counted with its cost in memory."""
        self.bytes_max = bytes_max
        self.size_bytes = 0
        """What is held now."""
        self._tails: dict[LedgerId, dict[EntryId, tuple[Buffer, int]]] = {}
        self._runs: deque[tuple[LedgerId, EntryId, int]] = deque()

    def add(self, ledger_id: LedgerId, first_entry: EntryId, entries: Sequence[tuple[Buffer, int]]) -> None:
        """Put in entries that follow each other and are acknowledged; each with its number of messages."""
        tail = self._tails.get(ledger_id)
        if tail is None:
            tail = self._tails[ledger_id] = {}
        size_bytes = len(entries) * ENTRY_COST_BYTES
        for entry_id, entry in enumerate(entries, first_entry):
            tail[entry_id] = entry
            size_bytes += len(entry[0])
        self._runs.append((ledger_id, first_entry, len(entries)))
        self.size_bytes += size_bytes
        while self.size_bytes > self.bytes_max:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        ledger_id, first_entry, count = self._runs.popleft()
        tail = self._tails[ledger_id]
        for entry_id in range(first_entry, first_entry + count):
            self.size_bytes -= len(tail.pop(entry_id)[0]) + ENTRY_COST_BYTES
        if not tail:
            del self._tails[ledger_id]

    def has(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        """Whether the entry is in the cache."""
        tail = self._tails.get(ledger_id)
        return tail is not None and entry_id in tail

    def find(
        self, ledger_id: LedgerId, first: EntryId, last: EntryId, bytes_max: int
    ) -> list[TopicEntry] | None:
        """The entries from `first` to at most `last` that are here, at least one and as many as fit; None without the first."""
        tail = self._tails.get(ledger_id)
        entry = None if tail is None else tail.get(first)
        if tail is None or entry is None:
            return None
        data, messages = entry
        found = [as_entry((as_position((ledger_id, first)), data, messages))]
        room_bytes = bytes_max - len(data)
        for entry_id in range(first + 1, last + 1):
            entry = tail.get(entry_id)
            if entry is None:
                break
            data, messages = entry
            room_bytes -= len(data)
            if room_bytes < 0:
                break
            found.append(as_entry((as_position((ledger_id, entry_id)), data, messages)))
        return found
