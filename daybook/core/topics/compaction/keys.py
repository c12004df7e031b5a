"""Which messages of a topic a compaction keeps: the last one of each key, by ledger, entry and index within a batch.

A compaction reads a topic twice. The first pass records where each key was last (`add`), the second one asks for each entry what stays
(`kept`), so neither needs the values in memory. An empty value deletes its key: neither it nor what came before it stays. Whoever
has read an older value and then reads what is compacted does not learn of the deletion.

What nobody can judge stays as it is: messages without a key (unless the setting says otherwise), encrypted batches, and a message in
chunks of which the last one is not there yet. All chunks of a message have its fate, and that is decided at the place of the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from daybook.core.errors import CompactionError
from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.dispatch.chunks import Chunk
from daybook.core.topics.ledger_list import Position

KEY_COST_BYTES: Final = 250
"""What a key takes in memory beside its characters."""
KEYS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Memory for the keys of one compaction, unless the caller says otherwise."""

_Place: TypeAlias = tuple[LedgerId, EntryId, int]
"""Ledger, entry, and index within the batch: places compare as the topic has them."""


class KeyedMessage(NamedTuple):
    """A message as compaction knows it."""

    key: str | bytes | None
    """Bytes where it is no UTF-8."""
    is_empty: bool
    """Whether it deletes its key."""


@dataclass(frozen=True, slots=True)
class KeyedEntry:
    """An entry as compaction knows it."""

    position: Position
    messages: Sequence[KeyedMessage | None]
    """Those of a batch, or the one that the entry is; None: an earlier compaction removed it. Nothing: the entry cannot be judged."""
    chunk: Chunk | None = None


class LastOfKeys:
    """Where each key of a topic was last."""

    def __init__(self, *, keeps_keyless: bool = True, bytes_max: int = KEYS_BYTES_MAX) -> None:
        """`keeps_keyless`: whether messages without a key stay. `bytes_max` bounds the memory for keys."""
        self._keeps_keyless = keeps_keyless
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._last: dict[str | bytes, _Place] = {}
        self._ends: dict[bytes, _Place] = {}
        """Where messages in chunks end."""

    def add(self, entry: KeyedEntry) -> None:
        """Record an entry of the first pass, which has them in order. Raises CompactionError for more keys than fit."""
        ledger_id, entry_id = entry.position
        if entry.chunk is not None:
            if not entry.chunk.is_last:
                return
            if entry.chunk.message not in self._ends:
                self._grow(len(entry.chunk.message))
            self._ends[entry.chunk.message] = (ledger_id, entry_id, 0)
        for index, message in enumerate(entry.messages):
            if message is not None and message.key is not None:
                self._record(message.key, (ledger_id, entry_id, index), is_deletion=message.is_empty)

    def _record(self, key: str | bytes, place: _Place, *, is_deletion: bool) -> None:
        before = self._last.get(key)
        assert before is None or before < place, f"{place} comes after {before}"
        if is_deletion:
            if before is not None:
                del self._last[key]
                self._size_bytes -= KEY_COST_BYTES + len(key)
            return
        if before is None:
            self._grow(len(key))
        self._last[key] = place

    def _grow(self, key_bytes: int) -> None:
        self._size_bytes += KEY_COST_BYTES + key_bytes
        if self._size_bytes > self._bytes_max:
            count = len(self._last) + len(self._ends)
            msg = f"more than {count} keys take more than the {self._bytes_max} bytes that a compaction may use for them: raise the bound"
            raise CompactionError(msg)

    def kept(self, entry: KeyedEntry) -> tuple[bool, ...]:
        """For each message of an entry of the second pass whether it stays; () for an entry that cannot be judged and stays whole."""
        ledger_id, entry_id = entry.position
        if entry.chunk is None:
            return tuple(
                message is not None and self._stays(message, (ledger_id, entry_id, index))
                for index, message in enumerate(entry.messages)
            )
        end = self._ends.get(entry.chunk.message)
        if end is None:
            return ()
        (message,) = entry.messages
        assert message is not None, "a chunk is no batch, of which a part could have been removed"
        return (self._stays(message, end),)

    def _stays(self, message: KeyedMessage, place: _Place) -> bool:
        return self._keeps_keyless if message.key is None else self._last.get(message.key) == place
