"""A model of the entry store: what LMDB must do for a bookie, in a dictionary, so that a simulator can run thousands.

`StorePlatter` is what survives a crash; `StoreModel` is a process's view of it. One commit is one step, so there is
nothing torn here: LMDB's own pages are beyond the model, and the tests of the real store damage those.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from daybook_bookie.disk.errors import BookieMustStopError, CorruptStoreError, StorageFullError
from daybook_bookie.journal.format import START, Position
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store.entry_store import LedgerChange, Space
from daybook_bookie.store.reading import block_key, bounded, run_without_gap
from daybook_bookie.store.stored_ledger import StoredLedger

from daybook.core.errors import FrameError
from daybook.core.format.block import Block, decode_block, rows_between, sound_parts
from daybook.core.format.frame import Buffer
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId

ENDLESS: Final = 1 << 40
_ID_BYTES: Final = 8


@dataclass(slots=True)
class StorePlatter:
    """What is durable."""

    checkpoint: Position = START
    records: dict[LedgerId, StoredLedger] = field(default_factory=dict)
    blocks: dict[LedgerId, dict[EntryId, bytes]] = field(default_factory=dict)
    """By first entry. Whoever wants damage puts other bytes here, or takes some out."""


class _Blocks:
    """One ledger's blocks."""

    def __init__(self, ledger_id: LedgerId, blocks: dict[EntryId, bytes]) -> None:
        self._ledger_id = ledger_id
        self._blocks = blocks

    def overlapping(self, first: EntryId, last: EntryId, limit: int | None = None) -> list[Block]:
        """See Blocks."""
        found: list[Block] = []
        for key in self._keys(first, last):
            block = self._block(key)
            if block.last < first or NO_ENTRY < self._following(key) <= block.last:
                block = bounded(block, self._following(key))
            if block.last >= first:
                found.append(block)
            if len(found) == limit:
                break
        return found

    def readable(self, first: EntryId, last: EntryId) -> tuple[list[Block], list[EntryId]]:
        """See Blocks."""
        found: list[Block] = []
        unreadable: list[EntryId] = []
        for key in self._keys(first, last):
            try:
                block = bounded(self._block(key), self._following(key))
            except CorruptStoreError:
                unreadable += [key] if key >= first else []
                continue
            if block.last >= first:
                found.append(block)
        return found, unreadable

    def _following(self, key: EntryId) -> EntryId:
        return min((other for other in self._blocks if other > key), default=NO_ENTRY)

    def _keys(self, first: EntryId, last: EntryId) -> list[EntryId]:
        keys = sorted(key for key in self._blocks if key <= last)
        return keys[max(0, bisect_right(keys, first) - 1) :]

    def sound_part(self, index: IntervalSet, entry: EntryId) -> Block:
        """The sound entries of a block from `entry` on, none left out that `index` has; raises CorruptStoreError."""
        key = max((key for key in self._blocks if key <= entry), default=NO_ENTRY)
        if key != NO_ENTRY:
            for part in sound_parts(self._block(key)):
                begin, end = rows_between(part, entry, entry)
                if begin < end:
                    return run_without_gap(index, part, begin)
        raise self._lost(entry)

    def _block(self, key: EntryId) -> Block:
        try:
            block = decode_block(self._blocks[key])
        except FrameError as error:
            raise self._lost(key) from error
        if (block.header.ledger_id, block.first) != (self._ledger_id, key):
            raise self._lost(key)
        return block

    def _lost(self, entry: EntryId) -> CorruptStoreError:
        return CorruptStoreError(f"entry {entry} of ledger {self._ledger_id} is damaged")


def _always() -> None:
    """Every commit succeeds."""


class StoreModel:
    """An EntryStore over a platter."""

    def __init__(self, platter: StorePlatter, settings: StorageSettings) -> None:
        self.platter = platter
        self.settings = settings
        self.room_bytes = ENDLESS
        self.before_commit: Callable[[], None] = _always
        """May raise OSError: the commit fails and did not happen."""
        self.after_commit: Callable[[], None] = _always
        """May raise OSError: the commit fails although it happened."""
        self.needs_confirmation = False
        """Never: a commit is one step here."""
        self._failed = False

    @property
    def checkpoint(self) -> Position:
        """See EntryStore."""
        return self.platter.checkpoint

    def ledger(self, ledger_id: LedgerId) -> StoredLedger | None:
        """See EntryStore."""
        record = self.platter.records.get(ledger_id)
        return None if record is None or record.deleting else record

    def stored(self, ledger_id: LedgerId) -> StoredLedger | None:
        """See EntryStore."""
        return self.platter.records.get(ledger_id)

    def ledgers(self) -> dict[LedgerId, StoredLedger]:
        """See EntryStore."""
        return {
            ledger_id: record for ledger_id, record in self.platter.records.items() if not record.deleting
        }

    def deletions(self) -> list[LedgerId]:
        """See EntryStore."""
        return sorted(ledger_id for ledger_id, record in self.platter.records.items() if record.deleting)

    def limbo_marks(self) -> dict[LedgerId, bytes]:
        """See EntryStore."""
        return {ledger_id: record.limbo for ledger_id, record in self.ledgers().items() if record.limbo}

    def read_blocks(
        self,
        ledger_id: LedgerId,
        first: EntryId,
        last: EntryId,
        max_bytes: int,
        *,
        views: ExitStack | None = None,
    ) -> list[Buffer]:
        """See EntryStore."""
        record = self.ledger(ledger_id)
        if record is None:
            return []
        blocks = self._blocks(ledger_id)
        frames: list[Buffer] = []
        wanted = record.intervals.next_from(first)
        while NO_ENTRY < wanted <= last and max_bytes > 0:
            try:
                part = blocks.sound_part(record.intervals, wanted)
            except CorruptStoreError:
                if frames:
                    break
                raise
            if frames and part.size_bytes > max_bytes:
                break
            frames.append(bytes(part.data))
            max_bytes -= part.size_bytes
            wanted = record.intervals.next_from(part.last + 1)
        return frames

    def _blocks(self, ledger_id: LedgerId) -> _Blocks:
        return _Blocks(ledger_id, self.platter.blocks.get(ledger_id, {}))

    @contextmanager
    def blocks(self, ledger_id: LedgerId) -> Iterator[_Blocks]:
        """See EntryStore."""
        yield self._blocks(ledger_id)

    def block_keys(self, ledger_id: LedgerId, limit: int) -> list[bytes]:
        """See EntryStore."""
        firsts = sorted(self.platter.blocks.get(ledger_id, {}))
        return [block_key(ledger_id, first) for first in firsts[:limit]]

    def commit(self, changes: Iterable[LedgerChange], checkpoint: Position) -> None:
        """See EntryStore."""
        if self._failed:
            msg = "a commit failed before"
            raise BookieMustStopError(msg)
        wanted = list(changes)
        size = sum(len(data) for change in wanted for _, data in change.puts)
        if size > self.room_bytes:
            msg = "the model has no room"
            raise StorageFullError(msg)
        try:
            self.before_commit()
            for change in wanted:
                self._apply(change)
            self.platter.checkpoint = checkpoint
            self.after_commit()
        except OSError as error:
            self._failed = True
            raise BookieMustStopError(str(error)) from error

    def _apply(self, change: LedgerChange) -> None:
        blocks = self.platter.blocks.setdefault(change.ledger_id, {})
        for key in change.deletes:
            blocks.pop(_first_of(key), None)
        for key, data in change.puts:
            blocks[_first_of(key)] = bytes(data)
        if change.record is None:
            self.platter.records.pop(change.ledger_id, None)
        else:
            self.platter.records[change.ledger_id] = change.record
        if not blocks:
            del self.platter.blocks[change.ledger_id]

    def confirm(self) -> None:
        """See EntryStore."""

    def check_room(self, size_bytes: int) -> None:
        """See EntryStore."""
        if size_bytes > self.room_bytes:
            msg = f"the model has {self.room_bytes} bytes left, {size_bytes} are too many"
            raise StorageFullError(msg)

    def space(self) -> Space:
        """See EntryStore."""
        return Space(self.room_bytes, 0, self.room_bytes)

    def close(self) -> None:
        """Nothing is held."""


def _first_of(key: bytes) -> EntryId:
    return int.from_bytes(key[_ID_BYTES:], "big")
