"""A table of LACs: what a client's idle writers publish to one bookie, as one message and as one record of the journal.

Little-endian: magic and number of rows, then for each row the ledger, its LAC, the length at the LAC, and the CRC32C of the
three. A row has a checksum of its own, because it is about a ledger of its own (rule 44): a damaged one is dropped, and
the others count. The writer encodes its row once for all bookies (rule 48).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from daybook.core.errors import FrameError
from daybook.core.format.frame import Buffer, encode_frame
from daybook.core.ids import EntryId, LedgerId

LAC_TABLE_MAGIC: Final = b"DBL1"
LAC_ROWS_MAX: Final = 4096
"""Rows of a table. A bookie decides all of them under its one lock, in about 10 ms."""
LAC_ROW_BYTES: Final = 28

_HEAD: Final = struct.Struct("<4sI")
_BODY: Final = struct.Struct("<qqq")
_ROW: Final = struct.Struct(f"<{_BODY.size}sI")
assert _ROW.size == LAC_ROW_BYTES


class LacRow(NamedTuple):
    """The LAC of one ledger, from 0, and the payload bytes up to it."""

    ledger_id: LedgerId
    last_add_confirmed: EntryId
    length_at_lac: int


def encode_lac_row(row: LacRow) -> bytes:
    """A row with its checksum."""
    body = _BODY.pack(*row)
    return _ROW.pack(body, crc32c(body))


def encode_lac_table(rows: Sequence[bytes]) -> bytes:
    """A table of encoded rows."""
    assert len(rows) <= LAC_ROWS_MAX
    return b"".join([_HEAD.pack(LAC_TABLE_MAGIC, len(rows)), *rows])


def lac_table(rows: Iterable[LacRow]) -> bytes:
    """A table of `rows`."""
    return encode_lac_table([encode_lac_row(row) for row in rows])


def decode_lac_row(row: bytes) -> LacRow:
    """A row that this process has encoded."""
    return LacRow(*_BODY.unpack_from(row))


def lac_frame(row: LacRow) -> bytes:
    """The same as a frame without entries, which is answered."""
    ledger_id, lac, length = row
    return encode_frame(ledger_id, lac + 1, [], [], last_add_confirmed=lac, length_at_lac=length)


def decode_lac_table(buffer: Buffer) -> tuple[list[LacRow], int]:
    """The sound rows of a table, and how many others it has.

    Raises FrameError, before anything is allocated, for what is no table, or one of another size than it says.
    """
    size_bytes = len(buffer)
    if size_bytes < _HEAD.size:
        msg = f"a table of LACs begins with {_HEAD.size} bytes, only {size_bytes} are here"
        raise FrameError(msg)
    magic, count = _HEAD.unpack_from(buffer)
    if magic != LAC_TABLE_MAGIC:
        msg = f"no table of LACs begins here: the magic is {bytes(magic)!r}, not {LAC_TABLE_MAGIC!r}"
        raise FrameError(msg)
    if count > LAC_ROWS_MAX or size_bytes != _HEAD.size + count * LAC_ROW_BYTES:
        msg = (
            f"a table of {count} LACs in {size_bytes} bytes: at most {LAC_ROWS_MAX} are allowed, of {LAC_ROW_BYTES} bytes "
            f"each after the first {_HEAD.size}"
        )
        raise FrameError(msg)
    rows = [
        LacRow(*_BODY.unpack(body))
        for body, crc in _ROW.iter_unpack(memoryview(buffer)[_HEAD.size :])
        if crc32c(body) == crc
    ]
    sound = [row for row in rows if min(row) >= 0]
    return sound, count - len(sound)
