"""Reading the blocks of one ledger within a snapshot, checked against the interval index.

Everything that a block says of itself is verified before use: its key, its header, its body's checksum, and that it holds
what the index has in its range. Of a damaged block the entries with a sound checksum are still served, and so are the
entries of a sound block beside a lost one, since they may be the last copy; the others are an I/O error (rule 26).
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import lmdb

from daybook.core.errors import FrameError
from daybook.core.format.block import (
    Block,
    block_entry_ids,
    cut_payload_bytes,
    cut_rows,
    decode_block,
    is_regular,
    regular_stripe,
    rows_between,
    rows_that_fit,
    sound_parts,
)
from daybook.core.format.frame import Buffer
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook_bookie.disk.errors import CorruptStoreError

_KEY: Final = struct.Struct(">QQ")


def block_key(ledger_id: LedgerId, first: EntryId) -> bytes:
    """The key of the block that begins with `first`: big-endian, so that a ledger is one sorted range."""
    return _KEY.pack(ledger_id, first)


class BlockReader:
    """A cursor over one ledger's blocks. The blocks' data are views that end with the snapshot."""

    def __init__(self, cursor: Any, ledger_id: LedgerId) -> None:
        self._cursor = cursor
        self._ledger_id = ledger_id
        self._ends: dict[EntryId, EntryId] = {}
        """Where blocks end whose bodies were checked for it, by first entry: a flush asks for a growing range."""

    def seek(self, entry: EntryId) -> Block | None:
        """The last block that begins at or before `entry`; if there is none, the ledger's first one after it.

        Raises CorruptStoreError for a block whose header is damaged or whose key belongs to another block.
        """
        return self._current() if self._move_to(entry) else None

    def next(self) -> Block | None:
        """The ledger's next block; raises CorruptStoreError."""
        return self._current() if self._cursor.next() else None

    def overlapping(self, first: EntryId, last: EntryId, limit: int | None = None) -> list[Block]:
        """See Blocks."""
        found: list[Block] = []
        for _ in self._keys(first, last):
            block = self._current()
            if block is not None:
                following = self._following()
                if block.last < first or NO_ENTRY < following <= block.last:
                    block = bounded(block, following)
                found += [block] if block.last >= first else []
            if len(found) == limit:
                break
        return found

    def readable(self, first: EntryId, last: EntryId) -> tuple[list[Block], list[EntryId]]:
        """See Blocks."""
        found: list[Block] = []
        unreadable: list[EntryId] = []
        with suppress(CorruptStoreError):  # of the walk itself: LMDB finds nothing behind such damage
            for begin in self._keys(first, last):
                try:
                    block = self._current()
                except CorruptStoreError:
                    if begin >= first:
                        unreadable.append(begin)
                    continue
                if block is not None:
                    if begin not in self._ends:
                        self._ends[begin] = bounded(block, self._following()).last
                    block = block._replace(last=self._ends[begin])
                    found += [block] if block.last >= first else []
        return found, unreadable

    def read(
        self, index: IntervalSet, first: EntryId, last: EntryId, max_bytes: int, overshoot_bytes: int
    ) -> list[Buffer]:
        """See `EntryStore.read_blocks`; the frames are views that end with the snapshot."""
        try:
            return self._read(index, first, last, max_bytes, overshoot_bytes)
        except lmdb.Error as error:
            raise self._unreadable(first, error) from error

    def _read(
        self, index: IntervalSet, first: EntryId, last: EntryId, room: int, overshoot_bytes: int
    ) -> list[Buffer]:
        wanted = index.next_from(first)
        frames: list[Buffer] = []
        block: Block | None = None
        while wanted != NO_ENTRY and wanted <= last and room > 0:
            try:
                block = self.seek(wanted) if block is None else self.next()
                if block is None or wanted < block.first:
                    raise self._lost(wanted, "is in no block of the store")
                if frames and block.first < wanted:
                    break  # blocks that overlap, as earlier releases stored them beside damage: the next read begins here
                if frames and block.size_bytes > room:
                    break  # a part of it would be checked again, and cut again, for the next read
                sound = self._checked(index, block, wanted)
            except CorruptStoreError:
                if frames:
                    break  # return what was found; the next read meets the damage again
                raise
            part = _part(sound, wanted, last, room, overshoot_bytes)
            frames.append(part.data)
            room -= part.size_bytes
            wanted = index.next_from(part.last + 1)
            if part.last < block.last:
                break  # cut short, or damaged further on
        return frames

    def _checked(self, index: IntervalSet, block: Block, wanted: EntryId) -> Block:
        """The block, or its sound part around `wanted`; raises CorruptStoreError if there is none."""
        for part in sound_parts(block):
            begin, end = rows_between(part, wanted, wanted)
            if begin >= end:
                continue
            if index.count_between(part.first, part.last) == part.header.count:
                return part
            if not holds_all(index, part):
                raise self._lost(wanted, "lies in a block that holds more than the index says")
            return run_without_gap(index, part, begin)
        raise self._lost(wanted, "fails its checksum, or is in no block of the store")

    def _keys(self, first: EntryId, last: EntryId) -> Iterator[EntryId]:
        """Move the cursor over the blocks that may overlap first … last, and give where each begins.

        No block is decoded, so damage of one says nothing of the others. Raises CorruptStoreError.
        """
        try:
            found = self._move_to(first)
            while found:
                ledger_id, begin = self._key()
                if ledger_id != self._ledger_id or begin > last:
                    return
                yield begin
                found = self._cursor.next()
        except lmdb.Error as error:
            raise self._unreadable(first, error) from error

    def _move_to(self, entry: EntryId) -> bool:
        """Put the cursor where `seek` finds its block, or on another ledger's; False if there is no block there."""
        cursor = self._cursor
        key = block_key(self._ledger_id, entry)
        if not cursor.set_range(key):
            return bool(cursor.last())
        if cursor.key() == key:
            return True
        if not cursor.prev():
            return bool(cursor.first())
        if self._key()[0] != self._ledger_id:
            cursor.next()
        return True

    def _following(self) -> EntryId:
        """Where the ledger's next block begins, NO_ENTRY if nothing shows it; the cursor stays where it is."""
        here, following = bytes(self._cursor.key()), NO_ENTRY
        with suppress(CorruptStoreError, lmdb.Error):
            if self._cursor.next():
                ledger_id, first = self._key()
                following = first if ledger_id == self._ledger_id else NO_ENTRY
        self._cursor.set_key(here)
        return following

    def _key(self) -> tuple[LedgerId, EntryId]:
        """The ledger and the first entry that the key under the cursor names; raises CorruptStoreError."""
        try:
            ledger_id, first = _KEY.unpack(self._cursor.key())
        except struct.error as error:
            raise self._damaged(error) from error
        return ledger_id, first

    def _current(self) -> Block | None:
        """The block under the cursor, None if it is another ledger's."""
        ledger_id, first = self._key()
        if ledger_id != self._ledger_id:
            return None
        try:
            block = decode_block(self._cursor.value())
        except (FrameError, struct.error, lmdb.Error) as error:
            raise self._damaged(error) from error
        if (block.header.ledger_id, block.first) != (ledger_id, first):
            raise self._lost(
                first, f"was misdirected: its block says ledger {block.header.ledger_id}, {block.first}"
            )
        return block

    def _damaged(self, error: Exception) -> CorruptStoreError:
        msg = (
            f"a block of ledger {self._ledger_id} is damaged ({error}): take its entries from another replica"
        )
        return CorruptStoreError(msg)

    def _unreadable(self, entry: EntryId, error: lmdb.Error) -> CorruptStoreError:
        return CorruptStoreError(f"LMDB cannot read entry {entry} of ledger {self._ledger_id} ({error})")

    def _lost(self, entry: EntryId, what: str) -> CorruptStoreError:
        msg = f"entry {entry} of ledger {self._ledger_id} {what}: take it from another replica"
        return CorruptStoreError(msg)


def bounded(block: Block, following: EntryId) -> Block:
    """The block; a damaged one ends just before `following`, where the ledger's next one begins.

    Only the body's checksum covers the row that names its last entry, so a damaged one may name any. Without a next block
    (NO_ENTRY) it ends where it says, and not before its sound entries.
    """
    parts = sound_parts(block)
    if parts == [block]:
        return block
    if following != NO_ENTRY:
        return block._replace(last=following - 1)
    return block._replace(last=max([block.last, *[part.last for part in parts]]))


def holds_all(index: IntervalSet, block: Block) -> bool:
    """Whether `index` has every entry of the block."""
    if is_regular(block):
        return index.covers(block.first, block.last, regular_stripe(block))
    return all(map(index.contains, block_entry_ids(block)))


def add_block(intervals: IntervalSet, block: Block) -> None:
    """Add the block's entries to `intervals`."""
    if is_regular(block):
        intervals.add(block.first, block.last, regular_stripe(block))
    else:
        intervals.add_ids(block_entry_ids(block))


def run_without_gap(index: IntervalSet, block: Block, begin: int) -> Block:
    """A sound block's rows from `begin` on, up to the first entry of the index that the block lacks.

    A repair that overwrites an unreadable block leaves such entries: no block has them, and a reader must get an error.
    """
    ids = block_entry_ids(block)
    end = begin + 1
    while end < len(ids) and ids[end] == index.next_from(ids[end - 1] + 1):
        end += 1
    run = cut_rows(block, begin, end)
    assert run is not None, "the row at which it begins is there"
    return run


def _part(block: Block, first: EntryId, last: EntryId, room: int, overshoot_bytes: int) -> Block:
    """The block, cut to first … last if more than `overshoot_bytes` of it was not asked for, and to fit `room`."""
    if first == block.first and block.last <= last and block.size_bytes <= room:
        return block
    begin, end = rows_between(block, first, last)
    if block.size_bytes > room:
        end = rows_that_fit(block, begin, end, room)
    elif cut_payload_bytes(block, begin, end) <= overshoot_bytes:
        return block
    part = cut_rows(block, begin, end)
    assert part is not None, "the block holds the entry that is wanted"
    return part
