"""The frame: many entries of one ledger as one run of bytes, on the wire, in the journal and in the store alike.

One layout serves all three, so that a bookie moves entries from socket to disk without touching them one by one.
Everything is little-endian:

    header (64 bytes)   magic, version, flags, stripe period, ledger, first entry, count, payload size,
                        LAC, length at LAC, stripe mask, CRC32C of the body, CRC32C of the header
    body                deltas u32 × count, lengths u32 × count, CRC32Cs u32 × count, then the payloads

The table is stored by columns: the deltas of a frame without striping are then one constant run of bytes, compared and
copied in one call. A delta is the distance from the first entry; a striped bookie holds 0, 2, 3, 5 … and the stripe in
the header says which residues those are, so that runs of frames merge into one interval. Count 0 publishes a LAC.

Three checksums, three jobs (rule 44). The header's and the body's find damage in transit and in the journal at the
cost of one call. The entry's covers ledger id, entry id and payload, is computed once by the writer and checked by
every reader and by the scrubber: swapped keys and misdirected blocks do not get past it.
"""

from __future__ import annotations  # array[int] is no run-time expression before 3.12

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

from crc32c import crc32c

from daybook.core.errors import FrameError
from daybook.core.ids import ENTRY_BYTES_MAX, MAX_ID, MESSAGE_BYTES_MAX, NO_ENTRY, EntryId, LedgerId
from daybook.core.quorum import DENSE, Stripe

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = b"DBF1"
VERSION: Final = 1
FLAG_RECOVERY: Final = 1  # bypasses the fence (rule 10)
FLAG_DEFERRED_SYNC: Final = 2  # answered before fsync; only a force makes it durable (rule 22)
_KNOWN_FLAGS: Final = FLAG_RECOVERY | FLAG_DEFERRED_SYNC

_HEADER: Final = struct.Struct("<4sBBBxqqIIqqQII")
HEADER_BYTES: Final = _HEADER.size
_UNSEALED_HEADER: Final = struct.Struct("<4sBBBxqqIIqqQI")
"""A header without its own checksum, which follows it."""
_CRC: Final = struct.Struct("<I")
_ROW: Final = struct.Struct("<III")
_ID: Final = struct.Struct("<q")
_DELTA_AND_LENGTH: Final = struct.Struct("<II")
COLUMN_BYTES: Final = 4
ROW_BYTES: Final = 3 * COLUMN_BYTES
FRAME_ENTRIES_MAX: Final = 16_384
MESSAGE_FRAMES_MAX: Final = 16_384
"""As many as fit into what a client sends at once. Each becomes an object and is decided under the bookie's one lock, so a message of empty ones would hold up all."""
FRAME_BYTES_TARGET: Final = 256 * 1024
"""Where a writer seals a frame: larger ones gain nothing and wait longer (docs/architecture.md)."""

assert HEADER_BYTES == 64
assert sys.byteorder == "little", "columns are packed in native order, which must be little-endian"

_DENSE_DELTAS: Final = array("I", range(FRAME_ENTRIES_MAX)).tobytes()
_FIRST_ENTRY_MAX: Final = MAX_ID - FRAME_ENTRIES_MAX * 64


@dataclass(init=False, slots=True)
class FrameHeader:
    """A frame's header, checked. `size_bytes` is the whole frame's.

    Nobody changes one. A bookie makes one for each frame, so it has an `__init__` of its own (see daybook.core.effects).
    """

    flags: int
    stripe: Stripe
    ledger_id: LedgerId
    first_entry: EntryId
    count: int
    payload_bytes: int
    last_add_confirmed: EntryId
    length_at_lac: int
    body_crc: int

    def __init__(
        self,
        flags: int,
        stripe: Stripe,
        ledger_id: LedgerId,
        first_entry: EntryId,
        count: int,
        payload_bytes: int,
        last_add_confirmed: EntryId,
        length_at_lac: int,
        body_crc: int,
    ) -> None:
        self.flags = flags
        self.stripe = stripe
        self.ledger_id = ledger_id
        self.first_entry = first_entry
        self.count = count
        self.payload_bytes = payload_bytes
        self.last_add_confirmed = last_add_confirmed
        self.length_at_lac = length_at_lac
        self.body_crc = body_crc

    @property
    def size_bytes(self) -> int:
        """The size of header and body."""
        return HEADER_BYTES + ROW_BYTES * self.count + self.payload_bytes

    @property
    def is_recovery(self) -> bool:
        """Whether the fence lets it pass (rule 10)."""
        return bool(self.flags & FLAG_RECOVERY)


def encode_frame(
    ledger_id: LedgerId,
    first_entry: EntryId,
    payloads: Sequence[Buffer],
    crcs: Sequence[int],
    *,
    last_add_confirmed: EntryId = NO_ENTRY,
    length_at_lac: int = 0,
    flags: int = 0,
    stripe: Stripe = DENSE,
    entry_ids: Sequence[EntryId] | None = None,
) -> bytes:
    """Encode a frame of `payloads`, whose checksums are `crcs` (see `entry_crcs`).

    `entry_ids` names the entries of a striped frame, rising, the first one equal to `first_entry`; without it they
    are consecutive. No payloads: a frame that publishes the LAC (rule 48); `first_entry` is then ignored by bookies.
    """
    count = len(payloads)
    assert count == len(crcs) <= FRAME_ENTRIES_MAX
    lengths = array("I", map(len, payloads))
    if entry_ids is None:
        deltas = _DENSE_DELTAS[: COLUMN_BYTES * count]
    else:
        deltas = array("I", [entry - first_entry for entry in entry_ids]).tobytes()
    return assemble_frame(
        FrameHeader(
            flags, stripe, ledger_id, first_entry, count, sum(lengths), last_add_confirmed, length_at_lac, 0
        ),
        [deltas, lengths.tobytes(), array("I", crcs).tobytes(), *payloads],
    )


def encode_entry(
    ledger_id: LedgerId,
    entry_id: EntryId,
    payload: Buffer,
    seed: int,
    *,
    last_add_confirmed: EntryId,
    length_at_lac: int,
    flags: int,
) -> bytes:
    """`encode_frame` of one entry without striping, in a quarter of the time; `seed` is the ledger's `ledger_seed`."""
    size_bytes = len(payload)
    row = _ROW.pack(0, size_bytes, crc32c(payload, crc32c(_ID.pack(entry_id), seed)))
    header = _UNSEALED_HEADER.pack(
        MAGIC,
        VERSION,
        flags,
        DENSE.period,
        ledger_id,
        entry_id,
        1,
        size_bytes,
        last_add_confirmed,
        length_at_lac,
        DENSE.mask,
        crc32c(payload, crc32c(row)),
    )
    return b"".join((header, _CRC.pack(crc32c(header)), row, payload))


def assemble_frame(header: FrameHeader, body: Sequence[Buffer]) -> bytes:
    """Put `header` (its body_crc is computed here) before the parts of `body`."""
    body_crc = 0
    for part in body:
        body_crc = crc32c(part, body_crc)
    stripe = header.stripe
    packed = bytearray(
        _HEADER.pack(
            MAGIC,
            VERSION,
            header.flags,
            stripe.period,
            header.ledger_id,
            header.first_entry,
            header.count,
            header.payload_bytes,
            header.last_add_confirmed,
            header.length_at_lac,
            stripe.mask,
            body_crc,
            0,
        )
    )
    _CRC.pack_into(packed, HEADER_BYTES - 4, crc32c(memoryview(packed)[: HEADER_BYTES - 4]))
    return b"".join([packed, *body])


def decode_header(buffer: Buffer, offset: int = 0) -> FrameHeader:
    """Read and check the header at `offset`; nothing is allocated for the body.

    Raises FrameError if it is no frame's header, its checksum fails, a bound does not hold, or the body would reach
    beyond the buffer.
    """
    room = len(buffer) - offset
    if room < HEADER_BYTES:
        msg = f"a frame's header has {HEADER_BYTES} bytes, only {room} are left"
        raise FrameError(msg)
    (
        magic,
        version,
        flags,
        period,
        ledger_id,
        first_entry,
        count,
        payload_bytes,
        lac,
        length_at_lac,
        mask,
        body_crc,
        header_crc,
    ) = _HEADER.unpack_from(buffer, offset)
    if magic != MAGIC:
        msg = f"no frame begins here: the magic is {bytes(magic)!r}, not {MAGIC!r}"
        raise FrameError(msg)
    if crc32c(memoryview(buffer)[offset : offset + HEADER_BYTES - 4]) != header_crc:
        msg = "the frame's header fails its checksum"
        raise FrameError(msg)
    if version != VERSION:
        msg = f"frame version {version} is not known here (known: {VERSION}): upgrade the bookies before the clients"
        raise FrameError(msg)
    header = FrameHeader(
        flags,
        DENSE if period == mask == 1 else Stripe(period, mask),
        ledger_id,
        first_entry,
        count,
        payload_bytes,
        lac,
        length_at_lac,
        body_crc,
    )
    size_bytes = HEADER_BYTES + ROW_BYTES * count + payload_bytes
    _check_bounds(header, size_bytes)
    if room < size_bytes:
        msg = f"the frame says it has {size_bytes} bytes, only {room} are here"
        raise FrameError(msg)
    return header


def _check_bounds(header: FrameHeader, size_bytes: int) -> None:
    """Raise FrameError for a header that no writer of ours would make."""
    flags, ledger_id, first, count = header.flags, header.ledger_id, header.first_entry, header.count
    period, mask = header.stripe
    lac, length_at_lac = header.last_add_confirmed, header.length_at_lac
    if flags & ~_KNOWN_FLAGS:
        msg = f"frame flags {flags:#x} are not known here (known: {_KNOWN_FLAGS:#x})"
        raise FrameError(msg)
    if not 1 <= period <= 64 or not 1 <= mask < 1 << period:
        msg = f"stripe period {period} with mask {mask:#x}: need 1 ≤ period ≤ 64 and 1 ≤ mask < 2^period"
        raise FrameError(msg)
    if ledger_id < 0 or not 0 <= first <= _FIRST_ENTRY_MAX:
        msg = f"ledger {ledger_id}, first entry {first}: ids are not negative and leave room for the frame"
        raise FrameError(msg)
    if lac < NO_ENTRY or length_at_lac < 0:
        msg = f"LAC {lac} with length {length_at_lac}: the smallest are −1 and 0"
        raise FrameError(msg)
    if count > FRAME_ENTRIES_MAX or size_bytes > MESSAGE_BYTES_MAX:
        msg = (
            f"a frame of {count} entries and {size_bytes} bytes: at most {FRAME_ENTRIES_MAX} entries "
            f"and {MESSAGE_BYTES_MAX} bytes are allowed"
        )
        raise FrameError(msg)


def check_body(buffer: Buffer, header: FrameHeader, offset: int = 0) -> None:
    """Check the body of the frame at `offset`: its checksum, rising deltas, and lengths.

    Costs a few calls for the frame, none per entry. Raises FrameError.
    """
    view = memoryview(buffer)
    body_start = offset + HEADER_BYTES
    if crc32c(view[body_start : offset + header.size_bytes]) != header.body_crc:
        msg = f"the frame of ledger {header.ledger_id} at entry {header.first_entry} fails its checksum"
        raise FrameError(msg)
    count = header.count
    if count == 1:  # the frame of a quiet ledger: anything unusual is judged below
        delta, length = _DELTA_AND_LENGTH.unpack_from(view, body_start)
        if not delta and length == header.payload_bytes <= ENTRY_BYTES_MAX:
            return
    column = COLUMN_BYTES * count
    deltas = view[body_start : body_start + column].tobytes()
    _check_lengths(header, view[body_start + column : body_start + 2 * column].tobytes())
    if deltas != _DENSE_DELTAS[:column]:
        _check_rising(header, array("I", deltas))


def _check_lengths(header: FrameHeader, column: bytes) -> None:
    """Raise FrameError unless the entries' lengths add up to what the header says, and none is too long."""
    if column == column[:COLUMN_BYTES] * header.count:  # one size: without a number for each
        lengths = array("I", column[:COLUMN_BYTES])
        total = sum(lengths) * header.count
    else:
        lengths = array("I", column)
        total = sum(lengths)
    if total != header.payload_bytes:
        msg = f"the lengths of the entries add up to {total}, the header says {header.payload_bytes}"
        raise FrameError(msg)
    if max(lengths, default=0) > ENTRY_BYTES_MAX:
        msg = f"an entry of {max(lengths)} bytes: at most {ENTRY_BYTES_MAX} are allowed"
        raise FrameError(msg)


def damaged_frames(message: Buffer, frames: Sequence[tuple[FrameHeader, int]]) -> dict[int, FrameError]:
    """Of the frames of a message (see `split_message`) those whose body is not what the header says, by index, and why."""
    damaged: dict[int, FrameError] = {}
    for index, (header, offset) in enumerate(frames):
        try:
            check_body(message, header, offset)
        except FrameError as error:
            damaged[index] = error
    return damaged


def _check_rising(header: FrameHeader, deltas: array[int]) -> None:
    """Raise FrameError unless `deltas` begin at 0 and rise."""
    if deltas[0] != 0 or any(a >= b for a, b in pairwise(deltas)):
        msg = f"the entries of the frame at {header.first_entry} do not rise from its first entry"
        raise FrameError(msg)
    if header.first_entry + deltas[-1] > MAX_ID:
        msg = "the frame's last entry id is out of range"
        raise FrameError(msg)


def split_message(message: Buffer) -> list[tuple[FrameHeader, int]]:
    """The frames of a message, as (header, offset); frames follow each other without anything between.

    Raises FrameError, also for more than MESSAGE_FRAMES_MAX; bodies are not checked (see `check_body`).
    """
    frames: list[tuple[FrameHeader, int]] = []
    offset = 0
    end = len(message)
    while offset < end:
        if len(frames) == MESSAGE_FRAMES_MAX:
            msg = f"a message of more than {MESSAGE_FRAMES_MAX} frames: send them in several messages"
            raise FrameError(msg)
        header = decode_header(message, offset)
        frames.append((header, offset))
        offset += header.size_bytes
    return frames


def frame_columns(
    buffer: Buffer, header: FrameHeader, offset: int = 0
) -> tuple[array[int], array[int], array[int]]:
    """The frame's table: deltas, lengths and CRCs."""
    view = memoryview(buffer)
    start = offset + HEADER_BYTES
    column = COLUMN_BYTES * header.count
    return (
        array("I", view[start : start + column].tobytes()),
        array("I", view[start + column : start + 2 * column].tobytes()),
        array("I", view[start + 2 * column : start + 3 * column].tobytes()),
    )


def last_entry(buffer: Buffer, header: FrameHeader, offset: int = 0) -> EntryId:
    """The id of the frame's last entry; NO_ENTRY for a frame without entries."""
    if not header.count:
        return NO_ENTRY
    (delta,) = _CRC.unpack_from(buffer, offset + HEADER_BYTES + COLUMN_BYTES * (header.count - 1))
    return header.first_entry + int(delta)


def is_dense(buffer: Buffer, header: FrameHeader, offset: int = 0) -> bool:
    """Whether the frame's entries are consecutive."""
    return last_entry(buffer, header, offset) == header.first_entry + header.count - 1


def frame_payloads(buffer: Buffer, header: FrameHeader, offset: int = 0) -> list[bytes]:
    """The payloads, copied out of the buffer in order; checksums are not checked.

    A damaged table costs only the entries from its damage on: the others are cut out one by one.
    """
    _, lengths, _ = frame_columns(buffer, header, offset)
    end = offset + HEADER_BYTES + ROW_BYTES * header.count
    if sum(lengths) == header.payload_bytes:
        return list(_cutter(lengths.tobytes()).unpack_from(buffer, end))
    data = memoryview(buffer)
    ends = list(accumulate(lengths, initial=end))
    return [bytes(data[a:b]) for a, b in pairwise(ends)]


@lru_cache(maxsize=8)
def _cutter(lengths: bytes) -> struct.Struct:
    """Cuts payloads of these lengths apart. To make it takes as long as to cut, and frames of many entries of one size have the same."""
    column = array("I", lengths)
    return struct.Struct("%ds" * len(column) % tuple(column))


def frame_entry_ids(buffer: Buffer, header: FrameHeader, offset: int = 0) -> Sequence[EntryId]:
    """The entry ids, in order. Raises FrameError if one is out of range: a reader has not checked the body."""
    if is_dense(buffer, header, offset):
        return range(header.first_entry, header.first_entry + header.count)
    deltas, _, _ = frame_columns(buffer, header, offset)
    if header.first_entry + max(deltas, default=0) > MAX_ID:
        msg = f"an entry id of the frame of ledger {header.ledger_id} at {header.first_entry} is out of range"
        raise FrameError(msg)
    return [header.first_entry + delta for delta in deltas]
