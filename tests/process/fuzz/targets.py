"""Everything that reads bytes of others: a good sample, the reader, and the errors that it may answer with."""

import json
import struct
from typing import Final
from zlib import crc32

from crc32c import crc32c
from daybook_bookie.disk.errors import (
    CookieError,
    CorruptStoreError,
    JournalCorruptError,
    StoreRefusedError,
)
from daybook_bookie.identity.cookies import pack_cookie, parse_cookie
from daybook_bookie.journal.format import (
    DATA_START,
    FILE_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    PAGE_BYTES,
    START,
    LedgerIntro,
    fence_record,
    file_name,
    frame_record,
    intro_record,
    lac_table_record,
    limbo_record,
)
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.store.checkpoint import CheckpointFile, refuse_unless_current
from daybook_bookie.store.index import ROOT_BYTES, Root
from daybook_bookie.store.stored_ledger import StoredLedger, pack_record, unpack_record
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.errors import Code, FrameError, IntervalError, MetadataError
from daybook.core.format.block import block_entry_ids, cut_rows, decode_block, rows_between, sound_parts
from daybook.core.format.checksums import entry_crc
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import HEADER_BYTES, check_body, last_entry, split_message
from daybook.core.format.intervals import IntervalSet
from daybook.core.format.lac_table import LAC_ROW_BYTES, LAC_ROWS_MAX, LacRow, decode_lac_table, lac_table
from daybook.core.ids import MAX_ID
from daybook.core.ledger.metadata import Fragment, LedgerMetadata, LedgerState
from daybook.core.quorum import DENSE, Quorum, Stripe
from daybook.core.stream import FrameFailure, StreamAnswer, StreamError, StreamWindow
from daybook.metadata.bookies import Cookie
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import (
    ReadHeader,
    decode_client_control,
    decode_from_bookie,
    decode_read,
    encode_answer,
    encode_client_control,
    encode_read,
    encode_server_control,
    is_frames,
    is_lac_table,
)
from tests.process.fuzz.mutations import Edit, mutate_document
from tests.process.fuzz.target import Target
from tests.process.fuzz.topic_targets import TOPIC_TARGETS
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import frame

LEDGER: Final = 7
_CRC: Final = struct.Struct("<I")


# -- frames ------------------------------------------------------------------------------------------------------------


def _read_frames(message: bytes) -> None:
    """As a bookie takes a message, and as a reader takes an answer, whose bodies nobody has checked before."""
    for header, offset in split_message(message):
        good, _ = decode_entries(message, header, offset)
        for entry_id, data in good:
            assert 0 <= entry_id <= MAX_ID
            assert entry_crc(header.ledger_id, entry_id, data) is not None
        check_body(message, header, offset)
        assert last_entry(message, header, offset) <= MAX_ID
        if header.count:
            block = decode_block(message[offset : offset + header.size_bytes])
            ids = block_entry_ids(block)
            assert len(ids) == header.count
            assert sum(part.header.count for part in sound_parts(block)) == header.count
            middle = ids[len(ids) // 2]
            part = cut_rows(block, *rows_between(block, middle, block.last))
            assert part is not None
            assert part.first == middle


def _seal_frames(message: bytes) -> bytes:
    data = bytearray(message)
    offset = 0
    while offset + HEADER_BYTES <= len(data):
        count, payload_bytes = struct.unpack_from("<II", data, offset + 24)
        end = offset + HEADER_BYTES + 12 * count + payload_bytes
        if end <= len(data):
            _CRC.pack_into(data, offset + HEADER_BYTES - 8, crc32c(data[offset + HEADER_BYTES : end]))
        _CRC.pack_into(data, offset + HEADER_BYTES - 4, crc32c(data[offset : offset + HEADER_BYTES - 4]))
        offset = end
    return bytes(data)


_FRAMES: Final = (
    frame(LEDGER, range(5)),
    frame(LEDGER, [0, 2, 3, 5], stripe=Stripe(3, 0b101)) + frame(8, range(3), lac=4, length=9),
    frame(LEDGER, [], lac=2, length=80) * 3,
    frame(LEDGER, range(MAX_ID - 2**33, MAX_ID - 2**33 + 4)),
)

# -- messages ----------------------------------------------------------------------------------------------------------


def _read_from_client(message: bytes) -> None:
    if is_frames(message):
        _read_frames(message)
    elif is_lac_table(message):
        rows, damaged = decode_lac_table(message)
        assert len(rows) + damaged <= LAC_ROWS_MAX
        assert all(min(row) >= 0 for row in rows)
    else:
        decode_client_control(message)


def _seal_from_client(message: bytes) -> bytes:
    if not is_lac_table(message):
        return _seal_frames(message)
    data = bytearray(message)
    for at in range(8, len(data) - LAC_ROW_BYTES + 1, LAC_ROW_BYTES):
        _CRC.pack_into(data, at + LAC_ROW_BYTES - 4, crc32c(data[at : at + LAC_ROW_BYTES - 4]))
    return bytes(data)


def _read_from_bookie(message: bytes) -> None:
    """Whatever a bookie says, each frame under way is decided once, or is unknown when the stream ends."""
    window: StreamWindow[int] = StreamWindow()
    for number in range(4):
        window.send([2 * number, 2 * number + 1], 100)
    decided: list[int] = []
    try:
        answer = decode_from_bookie(message)
        if isinstance(answer, StreamAnswer):
            decided = [token for token, _ in window.settle(answer)]
    finally:
        assert sorted([*decided, *window.close()]) == list(range(8))


def _read_answer(message: bytes) -> None:
    header, frames = decode_read(message)
    assert isinstance(header.code, Code)
    _read_frames(bytes(frames))


def _seal_answer(message: bytes) -> bytes:
    if len(message) < 40:
        return message
    (count,) = struct.unpack_from("<I", message, 12)
    at = 40 + 16 * count
    return message[:at] + _seal_frames(message[at:])


_FROM_CLIENT: Final = (
    encode_client_control(pb.ClientControl(hello=pb.ClientHello(client="writer"))),
    encode_client_control(
        pb.ClientControl(attach=pb.Attach(ledger_id=LEDGER, key="a$b", purpose=pb.PURPOSE_RECOVERY))
    ),
    _FRAMES[1],
    lac_table([LacRow(LEDGER, 4, 400), LacRow(8, 0, 1), LacRow(MAX_ID, MAX_ID, MAX_ID)]),
)
_FROM_BOOKIE: Final = (
    encode_answer(StreamAnswer(2)),
    encode_answer(
        StreamAnswer(3, (FrameFailure(1, 0, Code.FENCED), FrameFailure(2, 2**32 - 1, Code.BAD_FRAME)))
    ),
    encode_server_control(pb.ServerControl(hello=pb.ServerHello(bookie_id="b0", boot_id="x"))),
    encode_server_control(pb.ServerControl(attached=pb.Attached(ledger_id=LEDGER, code=1, detail="no"))),
)
_ANSWERS: Final = (
    encode_read(ReadHeader(Code.OK, 4, 3, 100, damaged=((1, 2), (4, 4))), [_FRAMES[0]]),
    encode_read(ReadHeader(Code.NO_SUCH_LEDGER), []),
)

# -- metadata ----------------------------------------------------------------------------------------------------------


def _read_metadata(data: bytes) -> None:
    metadata = LedgerMetadata.from_json(data)
    assert LedgerMetadata.from_json(metadata.to_json()).fragments == metadata.fragments
    for number in (metadata.last_entry, metadata.length, *(f.first_entry for f in metadata.fragments)):
        assert -1 <= number <= MAX_ID, "numbers travel as signed 64 bit"
    for bookie in metadata.bookies():
        metadata.stripes_of(bookie)


_METADATA: Final = (
    LedgerMetadata(
        LEDGER,
        Quorum(3, 2, 2),
        (Fragment(0, 0, ("a.b-0", "a.b-1", "a.b-2")), Fragment(10, 100, ("a.b-0", "a.b-3", "a.b-2"))),
        LedgerState.CLOSED,
        last_entry=19,
        length=200,
        password_hash="00$11",
        custom_metadata={"key": b"value"},
    ).to_json(),
)

# -- what lies on disk -------------------------------------------------------------------------------------------------


def _journal_sample() -> bytes:
    disk = SimDisk()
    replay = JournalReplay(disk, START, new=True)
    assert not list(replay)
    journal = Journal(disk, replay, file_bytes=6 * PAGE_BYTES, new_salt=lambda: 7)
    for group in range(3):
        journal.append(
            [
                intro_record(LedgerIntro(group, 1, b"hash")),
                frame_record(frame(group, range(4))),
                limbo_record(group, bytes(16)),
                fence_record(group),
                lac_table_record([LacRow(group, 3, 30), LacRow(group + 1, 0, 1)]),
            ]
        )
        journal.sync()
    journal.close()
    return bytes(disk.files[file_name(START.file_id)].seen)


def _compact(journal: bytes) -> bytes:
    """Without the padding of pages: edits find the fields."""
    parts = [journal[at : at + PAGE_BYTES].rstrip(b"\0") for at in range(0, len(journal), PAGE_BYTES)]
    return b"".join(struct.pack("<H", len(part)) + part for part in parts)


def _expand(data: bytes) -> bytes:
    pages: list[bytes] = []
    at = 0
    while at + 2 <= len(data) and len(pages) < 16:
        (size,) = struct.unpack_from("<H", data, at)
        pages.append(data[at + 2 : at + 2 + size][:PAGE_BYTES].ljust(PAGE_BYTES, b"\0"))
        at += 2 + size
    return b"".join(pages)


def _read_journal(data: bytes) -> None:
    disk = SimDisk()
    disk.open(file_name(START.file_id), create=True).seen.extend(_expand(data))
    cache = WriteCache()
    for record in JournalReplay(disk, START):
        cache.apply(record)


def _seal_journal(data: bytes) -> bytes:
    pages = bytearray(_expand(data))
    if len(pages) < PAGE_BYTES:
        return data
    end = FILE_HEADER_BYTES - _CRC.size
    _CRC.pack_into(pages, end, crc32c(pages[:end]))
    (salt,) = struct.unpack_from("<I", pages, 4)
    for at in range(DATA_START, len(pages), PAGE_BYTES):
        if pages[at : at + 4] == GROUP_MAGIC:
            _seal_group(pages, at, salt)
    return _compact(bytes(pages))


def _seal_group(pages: bytearray, at: int, salt: int) -> None:
    (records,) = struct.unpack_from("<I", pages, at + 4)
    table = at + GROUP_HEADER_BYTES
    rows = min(records, (len(pages) - table) // 8)
    crc = crc32c(pages[table : table + 8 * rows])
    place = table + 8 * rows
    for kind, size in struct.iter_unpack("<II", bytes(pages[table : table + 8 * rows])):
        if kind != 1:
            crc = crc32c(pages[place : place + size], crc)
        place += size
    _CRC.pack_into(pages, table - 8, crc)
    _CRC.pack_into(pages, table - 4, crc32c(pages[at : table - 4], salt))


def _intervals() -> IntervalSet:
    entries = IntervalSet()
    entries.add(0, 9, DENSE)
    entries.add(12, 30, Stripe(3, 0b011))
    entries.add(40, 40, DENSE)
    return entries


def _read_intervals(data: bytes) -> None:
    entries = IntervalSet.from_bytes(data)
    assert IntervalSet.from_bytes(entries.to_bytes()).to_bytes() == entries.to_bytes()
    assert entries.count >= 0
    assert entries.next_from(0) <= MAX_ID
    assert entries.next_from(MAX_ID) <= MAX_ID
    entries.count_between(5, MAX_ID)


def _seal_tail(data: bytes) -> bytes:
    """A checksum of all before it in the last four bytes."""
    return data[:-4] + _CRC.pack(crc32c(data[:-4])) if len(data) >= 4 else data


def _read_record(data: bytes) -> None:
    record = unpack_record(LEDGER, data)
    assert unpack_record(LEDGER, pack_record(LEDGER, record)) == record


def _seal_record(data: bytes) -> bytes:
    body = bytearray(data)
    if len(body) < 56:
        return data
    seed = crc32c(struct.pack("<q", LEDGER))
    lac, length = struct.unpack_from("<qq", body, 12)
    _CRC.pack_into(body, 28, crc32c(struct.pack("<qqq", LEDGER, lac, length)))
    _CRC.pack_into(body, len(body) - 4, crc32c(bytes(body[:-4]), seed))
    return bytes(body)


_ROOT: Final = Root(generation=9, count=3, digest=2**100, checkpoint=START)


def _read_checkpoint(data: bytes) -> None:
    """The first half is one slot, the second the other."""
    disk = SimDisk()
    half = len(data) // 2
    slots = data[:half][:PAGE_BYTES].ljust(PAGE_BYTES, b"\0") + data[half:][:PAGE_BYTES]
    disk.open("checkpoint", create=True).seen.extend(slots)
    refuse_unless_current(_ROOT, CheckpointFile(disk).read())


def _seal_checkpoint(data: bytes) -> bytes:
    half = len(data) // 2
    return _seal_tail(data[:half][:ROOT_BYTES]) + _seal_tail(data[half:][:ROOT_BYTES])


def _read_cookie(data: bytes) -> None:
    cookie = parse_cookie(data, "journal")
    assert parse_cookie(pack_cookie(cookie), "journal") == cookie


def _seal_cookie(data: bytes) -> bytes:
    text, _, _ = data.partition(b"\n")
    return text + b"\n" + f"crc32 {crc32(text):08x}\n".encode()


def _mutate_cookie(sample: bytes, edits: list[Edit]) -> bytes:
    text, _, rest = sample.partition(b"\n")
    return mutate_document(text, edits) + b"\n" + rest


_RECORD: Final = StoredLedger(
    _intervals(), fenced=True, limbo=bytes(16), last_add_confirmed=9, length_at_lac=90, password_hash=b"hash"
)

TARGETS: Final = {
    target.name: target
    for target in (
        Target("frames", _FRAMES, _read_frames, (FrameError,), _seal_frames),
        Target("from_client", _FROM_CLIENT, _read_from_client, (StreamError, FrameError), _seal_from_client),
        Target("from_bookie", _FROM_BOOKIE, _read_from_bookie, (StreamError,)),
        Target("read_answer", _ANSWERS, _read_answer, (StreamError, FrameError), _seal_answer),
        Target("metadata", _METADATA, _read_metadata, (MetadataError,), mutate=mutate_document),
        Target(
            "journal", (_compact(_journal_sample()),), _read_journal, (JournalCorruptError,), _seal_journal
        ),
        Target(
            "ledger_record", (pack_record(LEDGER, _RECORD),), _read_record, (CorruptStoreError,), _seal_record
        ),
        Target("intervals", (_intervals().to_bytes(),), _read_intervals, (IntervalError,), _seal_tail),
        Target(
            "checkpoint",
            (_ROOT.pack() + Root(8, 3, 1).pack(), Root(8, 3, 1).pack() + _ROOT.pack()),
            _read_checkpoint,
            (StoreRefusedError,),
            _seal_checkpoint,
        ),
        Target(
            "cookie",
            (pack_cookie(Cookie("b0", "instance", "1", ("journal", "store"), "uid")),),
            _read_cookie,
            (CookieError,),
            _seal_cookie,
            _mutate_cookie,
        ),
        *TOPIC_TARGETS,
    )
}
assert json.loads(_METADATA[0]), "a sample that is none would test nothing"
