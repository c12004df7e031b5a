"""Blocks: frames at rest, cut and joined by columns without touching entries one by one.

A store that keeps frames as they came would keep the small ones of a quiet ledger small, and duplicates of a resent
frame twice. So blocks are merged up to a good reading size and trimmed of what already exists. A new block gets a new
body checksum, which must never launder damage (rule 44): every input's own checksum is verified first. The entries'
checksums are the writer's and pass through unchanged.
"""

from __future__ import annotations  # array[int] is no run-time expression before 3.12

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import Final, NamedTuple

from crc32c import crc32c

from daybook.core.errors import FrameError
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry, decode_entries
from daybook.core.format.frame import (
    COLUMN_BYTES,
    FRAME_ENTRIES_MAX,
    HEADER_BYTES,
    ROW_BYTES,
    Buffer,
    FrameHeader,
    assemble_frame,
    decode_header,
    encode_frame,
    frame_columns,
    last_entry,
)
from daybook.core.format.intervals import first_held
from daybook.core.ids import NO_ENTRY, EntryId
from daybook.core.quorum import DENSE, Stripe

_DELTA_MAX: Final = 2**32 - 1
_DENSE_DELTAS: Final = array("I", range(FRAME_ENTRIES_MAX)).tobytes()


class Block(NamedTuple):
    """A frame on its own in a buffer, its header decoded and checked; the body may still be damaged."""

    first: EntryId
    last: EntryId
    header: FrameHeader
    data: Buffer

    @property
    def size_bytes(self) -> int:
        """Header and body."""
        return self.header.size_bytes


as_block: Final[Callable[[tuple[EntryId, EntryId, FrameHeader, Buffer]], Block]] = partial(
    tuple.__new__, Block
)
"""A block in a third of the time: the constructor of a NamedTuple is a function in Python."""


def decode_block(data: Buffer) -> Block:
    """The block in `data`, which holds nothing else; raises FrameError. The body is not checked."""
    header = decode_header(data)
    if header.size_bytes != len(data):
        msg = f"a block of {header.size_bytes} bytes in a value of {len(data)}"
        raise FrameError(msg)
    if not header.count:
        msg = f"a block of ledger {header.ledger_id} without entries"
        raise FrameError(msg)
    return Block(header.first_entry, last_entry(data, header), header, data)


def verify_block(block: Block) -> None:
    """Raise FrameError unless the body has the checksum that the header names."""
    if crc32c(memoryview(block.data)[HEADER_BYTES:]) != block.header.body_crc:
        msg = f"the block of ledger {block.header.ledger_id} at entry {block.first} fails its checksum"
        raise FrameError(msg)


def is_dense_block(block: Block) -> bool:
    """Whether the block's entries are consecutive."""
    return block.last - block.first + 1 == block.header.count


@lru_cache(maxsize=1024)
def _pattern(stripe: Stripe, residue: int, count: int) -> bytes:
    """The deltas of `count` entries of a stripe, from one with this residue on."""
    whole, rest = divmod(count, stripe.mask.bit_count())
    cycle = [n for n in range(stripe.period) if stripe.holds(residue + n)]
    deltas = array(
        "I", [turn * stripe.period + n for turn in range(whole + bool(rest)) for n in cycle][:count]
    )
    return deltas.tobytes()


def is_regular(block: Block) -> bool:
    """Whether the block holds everything that its stripe holds between its first entry and its last."""
    if is_dense_block(block):
        return True
    header = block.header
    column = memoryview(block.data)[HEADER_BYTES : HEADER_BYTES + COLUMN_BYTES * header.count]
    return header.stripe.holds(block.first) and column == _pattern(
        header.stripe, block.first % header.stripe.period, header.count
    )


def regular_stripe(block: Block) -> Stripe:
    """The stripe under which a regular block is one interval."""
    return DENSE if is_dense_block(block) and not _fills(block) else block.header.stripe


def _fills(block: Block) -> bool:
    """Whether a dense block is also everything that its header's stripe holds of its range."""
    stripe = block.header.stripe
    return stripe == DENSE or stripe.count_between(block.first, block.last) == block.header.count


def block_entry_ids(block: Block) -> Sequence[EntryId]:
    """The block's entries, rising."""
    if is_dense_block(block):
        return range(block.first, block.last + 1)
    deltas, _, _ = frame_columns(block.data, block.header)
    return [block.first + delta for delta in deltas]


def rows_between(block: Block, first: EntryId, last: EntryId) -> tuple[int, int]:
    """The rows [begin, end) of the block's entries within first … last."""
    if is_dense_block(block):
        return max(0, first - block.first), max(0, min(block.header.count, last - block.first + 1))
    ids = block_entry_ids(block)
    return bisect_left(ids, first), bisect_right(ids, last)


def rows_that_fit(block: Block, begin: int, end: int, payload_bytes: int) -> int:
    """The largest end' ≤ end with at most `payload_bytes` in rows [begin, end'); at least one row."""
    _, lengths, _ = frame_columns(block.data, block.header)
    return begin + max(1, bisect_right(list(accumulate(lengths[begin:end])), payload_bytes))


def cut_rows(block: Block, begin: int, end: int) -> Block | None:
    """The block of the rows [begin, end), None if there are none; raises FrameError if the body is damaged."""
    if begin >= end:
        return None
    header = block.header
    if begin == 0 and end == header.count:
        return block
    verify_block(block)
    view = memoryview(block.data)
    _, lengths, _ = frame_columns(block.data, header)
    count = end - begin
    payload = HEADER_BYTES + ROW_BYTES * header.count + sum(lengths[:begin])
    payload_bytes = sum(lengths[begin:end])
    if is_dense_block(block):
        first, deltas = block.first + begin, _DENSE_DELTAS[: COLUMN_BYTES * count]
    else:
        ids = block_entry_ids(block)[begin:end]
        first, deltas = ids[0], array("I", [n - ids[0] for n in ids]).tobytes()
    columns = [
        view[HEADER_BYTES + COLUMN_BYTES * (header.count * column + begin) :][: COLUMN_BYTES * count]
        for column in (1, 2)
    ]
    body: list[Buffer] = [deltas, *columns, view[payload : payload + payload_bytes]]
    data = assemble_frame(
        replace(header, flags=0, first_entry=first, count=count, payload_bytes=payload_bytes), body
    )
    return decode_block(data)


def sound_parts(block: Block) -> list[Block]:
    """The block itself if its body is sound; otherwise its runs of entries whose own checksum holds.

    What is given back of a damaged block was checked entry by entry against the writer's checksums, so building new
    blocks of it launders nothing.
    """
    try:
        verify_block(block)
    except FrameError:
        good, _ = decode_entries(block.data, block.header)  # one by one, as the body's checksum fails
    else:
        return [block]
    parts: list[Block] = []
    run: list[Entry] = []
    for entry in good:
        if run and entry.entry_id != run[-1].entry_id + 1:
            parts.append(_encode_run(block.header, run))
            run = []
        run.append(entry)
    if run:
        parts.append(_encode_run(block.header, run))
    return parts


def _encode_run(header: FrameHeader, run: Sequence[Entry]) -> Block:
    """A dense block of entries just checked, with the header's ledger, stripe and LAC."""
    ids = [entry.entry_id for entry in run]
    payloads = [entry.data for entry in run]
    data = encode_frame(
        header.ledger_id,
        ids[0],
        payloads,
        entry_crcs(header.ledger_id, ids, payloads),
        last_add_confirmed=header.last_add_confirmed,
        length_at_lac=header.length_at_lac,
        stripe=header.stripe,
    )
    return decode_block(data)


def cut_payload_bytes(block: Block, begin: int, end: int) -> int:
    """How many payload bytes lie outside the rows [begin, end)."""
    _, lengths, _ = frame_columns(block.data, block.header)
    return block.header.payload_bytes - sum(lengths[begin:end])


def follows(before: Block, after: Block) -> bool:
    """Whether two blocks of one ledger may become one: same stripe, and nothing of it lies between them."""
    stripe = before.header.stripe
    if after.header.stripe != stripe or after.last - before.first > _DELTA_MAX:
        return False
    return after.first == before.last + 1 or (
        after.first > before.last and first_held(stripe, before.last + 1) == after.first
    )


def join(blocks: Sequence[Block]) -> Block:
    """One block of many that follow each other; raises FrameError if a body is damaged.

    The result has the largest LAC of the inputs, with its own length.
    """
    if len(blocks) == 1:
        return blocks[0]
    start = blocks[0].first
    deltas: list[Buffer] = []
    lengths: list[Buffer] = []
    crcs: list[Buffer] = []
    payloads: list[Buffer] = []
    payload_bytes = 0
    newest = blocks[0].header
    count = sum([block.header.count for block in blocks])
    dense = blocks[-1].last - start + 1 == count
    are_single = count == len(blocks)
    for first, _, header, data in blocks:
        view = data if isinstance(data, memoryview) else memoryview(data)
        body = view[HEADER_BYTES:]
        rows = COLUMN_BYTES * header.count
        if crc32c(body) != header.body_crc:
            msg = f"the block of ledger {header.ledger_id} at entry {first} fails its checksum: it cannot be merged"
            raise FrameError(msg)
        if not dense:
            deltas.append(_moved(body[:rows], first - start))
        if not are_single:
            lengths.append(body[rows : 2 * rows])
        crcs.append(body[2 * rows : 3 * rows])
        payloads.append(body[3 * rows :])
        payload_bytes += header.payload_bytes
        if header.last_add_confirmed > newest.last_add_confirmed:
            newest = header
    if are_single:  # an entry's length is in its frame's header too
        lengths = [array("I", [block.header.payload_bytes for block in blocks]).tobytes()]
    if dense:
        deltas = [_DENSE_DELTAS[: COLUMN_BYTES * count]]
    merged = replace(newest, flags=0, first_entry=start, count=count, payload_bytes=payload_bytes)
    data = assemble_frame(merged, [b"".join([*deltas, *lengths, *crcs]), *payloads])
    return Block(start, blocks[-1].last, decode_header(data), data)


def _moved(deltas: memoryview, distance: int) -> bytes:
    """A column of deltas, moved by `distance`."""
    if not distance:
        return bytes(deltas)
    return array("I", [delta + distance for delta in array("I", deltas.tobytes())]).tobytes()


def merge_small(blocks: Iterable[Block], target_bytes: int) -> list[Block]:
    """Join neighbours as long as the result stays within `target_bytes`; `blocks` rise and do not overlap."""
    merged: list[Block] = []
    run: list[Block] = []
    size = count = 0
    for block in blocks:
        grown = size + block.header.size_bytes
        if (
            run
            and grown <= target_bytes
            and count + block.header.count <= FRAME_ENTRIES_MAX
            and follows(run[-1], block)
            and block.last - run[0].first <= _DELTA_MAX
        ):
            run.append(block)
            size, count = grown, count + block.header.count
            continue
        if run:
            merged.append(join(run))
        run, size, count = [block], block.header.size_bytes, block.header.count
    if run:
        merged.append(join(run))
    return merged


def untangle(blocks: Iterable[Block], target_bytes: int) -> list[Block]:
    """The union of blocks whose ranges overlap, as blocks whose ranges do not; raises FrameError if one is damaged.

    Of an entry that is there twice the first is kept: the bytes are the same by protocol. The cost is per entry; it is
    the rare case of a resend after an ensemble change, or of two stripes in one range.
    """
    rows: dict[EntryId, Block] = {}
    for block in blocks:
        verify_block(block)
        for entry in block_entry_ids(block):
            rows.setdefault(entry, block)
    pieces: list[Block] = []
    previous: Block | None = None
    begin = end = NO_ENTRY
    for entry in sorted(rows):
        source = rows[entry]
        row, _ = rows_between(source, entry, entry)
        if source is previous and row == end:
            end = row + 1
            continue
        _append_cut(pieces, previous, begin, end)
        previous, begin, end = source, row, row + 1
    _append_cut(pieces, previous, begin, end)
    return merge_small(pieces, target_bytes)


def _append_cut(pieces: list[Block], block: Block | None, begin: int, end: int) -> None:
    piece = cut_rows(block, begin, end) if block is not None else None
    if piece is not None:
        pieces.append(piece)
