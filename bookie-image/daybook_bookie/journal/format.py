"""The journal's bytes: a file header, then groups of records, each group at a page boundary.

A record is a frame as it came, or a decision about a ledger that must survive a crash. A frame has checksums of its own,
so the journal adds none; any other record is small, and the group's checksum covers it. A LAC that a writer publishes is a
frame without entries, or a row of a table.

A group is what one write call stores: a header, a table of its records, the records. The header names the group's own
place (file, offset, sequence), so that a group is never taken for another one, and the position that was durable before
the group was written: with that position a replay distinguishes a torn tail from damage (rule 25). The header's checksum is
seeded with the file's salt, so that no payload can imitate a group. Groups never share a page, so no write touches bytes
that were acknowledged.
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from crc32c import crc32c

from daybook.core.bookie.questions import KEY_BYTES_MAX
from daybook.core.errors import FrameError
from daybook.core.format.frame import Buffer, check_body, decode_header
from daybook.core.format.lac_table import LacRow, decode_lac_table, lac_table
from daybook.core.ids import LedgerId
from daybook_bookie.disk.errors import JournalCorruptError

NONCE_BYTES: Final = 16
PAGE_BYTES: Final = 4096
DATA_START: Final = PAGE_BYTES
RECORDS_MAX: Final = 1000
"""Records of a group: with header and table it stays one write call (1024 buffers)."""

_LEDGER: Final = struct.Struct("<q")
_LIMBO: Final = struct.Struct(f"<q{NONCE_BYTES}s")
_INTRO: Final = struct.Struct("<qqB")
_FILE: Final = struct.Struct("<4sIQQQI")
_GROUP: Final = struct.Struct("<4sIQQQQQIII")
_ROW: Final = struct.Struct("<II")
_CRC: Final = struct.Struct("<I")
_FILE_MAGIC: Final = b"DBJ1"
GROUP_MAGIC: Final = b"DBG1"
GROUP_HEADER_BYTES: Final = _GROUP.size
FILE_HEADER_BYTES: Final = _FILE.size
ROW_BYTES: Final = _ROW.size


# -- records


class RecordKind(IntEnum):
    """Numbers are part of the journal's format and are never reused."""

    FRAME = 1
    FENCE = 2
    LIMBO = 3
    LIMBO_CLEAR = 4
    LEDGER_INTRO = 5
    DELETION = 6
    FENCE_DROPPED = 7
    LAC_TABLE = 8


class Record(NamedTuple):
    """A record as it is stored in the journal."""

    kind: RecordKind
    body: Buffer


_as_record: Final[Callable[[tuple[RecordKind, Buffer]], Record]] = partial(tuple.__new__, Record)
"""A record in a third of the time: the constructor of a NamedTuple is a function in Python."""
_FRAME: Final = RecordKind.FRAME
"""Every frame asks for it, and a global name costs less than an enum's member."""


class LedgerIntro(NamedTuple):
    """How a bookie came to know a ledger (rule 20 asks metadata before the first normal frame)."""

    ledger_id: LedgerId
    first_seen_ms: int
    password_hash: bytes


_SIZES: Final[dict[int, int]] = {
    RecordKind.FENCE: _LEDGER.size,
    RecordKind.FENCE_DROPPED: _LEDGER.size,
    RecordKind.DELETION: _LEDGER.size,
    RecordKind.LIMBO: _LIMBO.size,
    RecordKind.LIMBO_CLEAR: _LIMBO.size,
}


def frame_record(frame: Buffer) -> Record:
    """A whole frame; the caller has checked its body."""
    return _as_record((_FRAME, frame))


def lac_table_record(rows: Sequence[LacRow]) -> Record:
    """LACs that writers published without entries (rule 48)."""
    return Record(RecordKind.LAC_TABLE, lac_table(rows))


def fence_record(ledger_id: LedgerId) -> Record:
    """The ledger is fenced (rule 4)."""
    return Record(RecordKind.FENCE, _LEDGER.pack(ledger_id))


def fence_dropped_record(ledger_id: LedgerId) -> Record:
    """The fences before this record came with a wrong password: the fences and that password are void (rule 3)."""
    return Record(RecordKind.FENCE_DROPPED, _LEDGER.pack(ledger_id))


def limbo_record(ledger_id: LedgerId, nonce: bytes) -> Record:
    """The bookie cannot vouch for the ledger; the nonce distinguishes this limbo mark from an earlier one (rule 29)."""
    assert len(nonce) == NONCE_BYTES
    return Record(RecordKind.LIMBO, _LIMBO.pack(ledger_id, nonce))


def limbo_clear_record(ledger_id: LedgerId, nonce: bytes) -> Record:
    """The limbo mark with this nonce is cleared; a mark with another nonce stays."""
    assert len(nonce) == NONCE_BYTES
    return Record(RecordKind.LIMBO_CLEAR, _LIMBO.pack(ledger_id, nonce))


def intro_record(intro: LedgerIntro) -> Record:
    """A ledger that this bookie did not know."""
    assert len(intro.password_hash) <= KEY_BYTES_MAX
    head = _INTRO.pack(intro.ledger_id, intro.first_seen_ms, len(intro.password_hash))
    return Record(RecordKind.LEDGER_INTRO, head + intro.password_hash)


def deletion_record(ledger_id: LedgerId) -> Record:
    """The ledger is no longer in the metadata: a replay does not restore what came before this record."""
    return Record(RecordKind.DELETION, _LEDGER.pack(ledger_id))


def record_ledger(record: Record) -> LedgerId:
    """The ledger of a record that is about one, and no frame."""
    assert record.kind not in (RecordKind.FRAME, RecordKind.LAC_TABLE)
    (ledger_id,) = _LEDGER.unpack_from(record.body)
    return int(ledger_id)


def record_lacs(record: Record) -> list[LacRow]:
    """The rows of a table of LACs."""
    assert record.kind is RecordKind.LAC_TABLE
    rows, damaged = decode_lac_table(record.body)
    assert not damaged, "a bookie journals sound rows, and the group's checksum covers them"
    return rows


def record_nonce(record: Record) -> bytes:
    """The nonce of a limbo record."""
    assert record.kind in (RecordKind.LIMBO, RecordKind.LIMBO_CLEAR)
    _, nonce = _LIMBO.unpack(record.body)
    return bytes(nonce)


def record_intro(record: Record) -> LedgerIntro:
    """The content of an intro record."""
    assert record.kind is RecordKind.LEDGER_INTRO
    ledger_id, first_seen_ms, size = _INTRO.unpack_from(record.body)
    return LedgerIntro(ledger_id, first_seen_ms, bytes(record.body[_INTRO.size : _INTRO.size + size]))


# -- files


class Position(NamedTuple):
    """A place in the journal; positions are ordered."""

    file_id: int
    offset: int


START: Final = Position(1, DATA_START)
"""Where a bookie's first journal file begins."""


class FileHeader(NamedTuple):
    """The first bytes of a file. `previous_end` is where the file before it ends: all of that was durable."""

    file_id: int
    previous_end: int
    first_sequence: int
    salt: int


def file_name(file_id: int) -> str:
    """The name of a journal file; names sort like ids."""
    return f"journal-{file_id:016x}.log"


def file_id_of(name: str) -> int | None:
    """The id in a journal file's name; None for any other file."""
    if len(name) != 28 or not name.startswith("journal-") or not name.endswith(".log"):
        return None
    try:
        return int(name[8:24], 16)
    except ValueError:
        return None


def page_end(offset: int) -> int:
    """The first page boundary at or after `offset`."""
    return -(-offset // PAGE_BYTES) * PAGE_BYTES


def pack_file_header(header: FileHeader) -> bytes:
    """The header's bytes, with a checksum."""
    packed = _FILE.pack(
        _FILE_MAGIC, header.salt, header.file_id, header.previous_end, header.first_sequence, 0
    )
    packed = packed[: -_CRC.size]
    return packed + _CRC.pack(crc32c(packed))


def unpack_file_header(data: bytes) -> FileHeader | None:
    """The header, None if it is damaged."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, salt, file_id, previous_end, first_sequence, crc = _FILE.unpack_from(data)
    if magic != _FILE_MAGIC or crc32c(data[: FILE_HEADER_BYTES - _CRC.size]) != crc:
        return None
    return FileHeader(file_id, previous_end, first_sequence, salt)


# -- groups


class GroupHeader(NamedTuple):
    """A group's header, its checksum checked."""

    records: int
    file_id: int
    offset: int
    sequence: int
    durable: Position
    payload_bytes: int
    table_crc: int

    @property
    def size_bytes(self) -> int:
        """Header, table and records, without the rest of the last page."""
        return GROUP_HEADER_BYTES + self.records * _ROW.size + self.payload_bytes


class DamagedGroupError(Exception):
    """There is no whole group here: a torn tail or damage. Only the journal's later groups show which of the two."""


def group_bytes(records: Sequence[Record]) -> int:
    """How much room a group of these records takes, in whole pages."""
    return page_end(GROUP_HEADER_BYTES + _ROW.size * len(records) + sum([len(body) for _, body in records]))


def pack_group(
    records: Sequence[Record], place: Position, sequence: int, durable: Position, salt: int
) -> list[Buffer]:
    """The group's buffers for one gathering write; frames are not copied."""
    assert 0 <= len(records) <= RECORDS_MAX
    bodies = [body for _, body in records]
    sizes = list(map(len, bodies))
    kinds = [kind for kind, _ in records]
    table = struct.pack(f"<{2 * len(records)}I", *chain.from_iterable(zip(kinds, sizes, strict=True)))
    table_crc = crc32c(table)
    if kinds.count(RecordKind.FRAME) < len(kinds):
        for kind, body in records:
            if kind is not RecordKind.FRAME:
                table_crc = crc32c(body, table_crc)
    header = _GROUP.pack(
        GROUP_MAGIC,
        len(records),
        place.file_id,
        place.offset,
        sequence,
        durable.file_id,
        durable.offset,
        sum(sizes),
        table_crc,
        0,
    )[: -_CRC.size]
    return [header + _CRC.pack(crc32c(header, salt)) + table, *bodies]


def unpack_group_header(data: bytes, place: Position, salt: int) -> GroupHeader | None:
    """The header of the group at `place`; None if there is none, or it belongs elsewhere."""
    if len(data) < GROUP_HEADER_BYTES or data[:4] != GROUP_MAGIC:
        return None
    _, records, file_id, offset, sequence, durable_file, durable_offset, payload, table_crc, crc = (
        _GROUP.unpack_from(data)
    )
    if crc32c(memoryview(data)[: GROUP_HEADER_BYTES - _CRC.size], salt) != crc or (file_id, offset) != place:
        return None
    durable = Position(durable_file, durable_offset)
    return GroupHeader(records, file_id, offset, sequence, durable, payload, table_crc)


def unpack_records(group: GroupHeader, data: bytes) -> list[Record]:
    """The records of a group whose bytes after the header are `data`.

    Raises DamagedGroupError, and JournalCorruptError for a sound group with a record of another release: it was
    acknowledged, so it is no torn tail.
    """
    table_bytes = group.records * _ROW.size
    if len(data) != table_bytes + group.payload_bytes:
        msg = "the file ends within the group"
        raise DamagedGroupError(msg)
    view = memoryview(data)
    table_crc = crc32c(view[:table_bytes])
    records = []
    at = table_bytes
    for number, size in _ROW.iter_unpack(view[:table_bytes]):
        body = view[at : at + size]
        at += size
        if number == RecordKind.FRAME:
            check_frame(body, size)
        else:
            table_crc = crc32c(body, table_crc)
        records.append((number, body))
    if at != len(data) or table_crc != group.table_crc:
        msg = "the group's table or a record fails its checksum"
        raise DamagedGroupError(msg)
    for number, body in records:
        if number != RecordKind.FRAME and not _is_known(number, body):
            msg = (
                f"journal file {file_name(group.file_id)} holds a record of kind {number} and {len(body)} bytes at "
                f"{group.offset}, which this release does not know: start the release that wrote it"
            )
            raise JournalCorruptError(msg)
    return [Record(RecordKind(number), body) for number, body in records]


def _is_known(kind: int, body: Buffer) -> bool:
    """Whether this release can read a record of `kind` with this body; `kind` is not FRAME."""
    if kind == RecordKind.LEDGER_INTRO:
        return len(body) >= _INTRO.size and len(body) == _INTRO.size + _INTRO.unpack_from(body)[-1]
    if kind == RecordKind.LAC_TABLE:
        return _is_sound_table(body)
    return _SIZES.get(kind) == len(body)


def _is_sound_table(body: Buffer) -> bool:
    try:
        _, damaged = decode_lac_table(body)
    except FrameError:
        return False
    return not damaged


def check_frame(body: memoryview, size: int) -> None:
    """Raise DamagedGroupError unless `body` is a sound frame, of the record's `size` in bytes."""
    try:
        header = decode_header(body)
        check_body(body, header)
    except FrameError as error:
        raise DamagedGroupError(str(error)) from error
    if header.size_bytes != size:
        msg = f"a frame of {header.size_bytes} bytes in a record of {size}"
        raise DamagedGroupError(msg)
