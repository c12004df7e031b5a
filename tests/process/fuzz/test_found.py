"""What hostile input found, each as the smallest input that shows it."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from daybook_bookie.disk.errors import CookieError, JournalCorruptError, StoreRefusedError
from daybook_bookie.identity.cookies import parse_cookie
from daybook_bookie.journal.format import (
    DATA_START,
    PAGE_BYTES,
    START,
    Record,
    RecordKind,
    fence_record,
    file_name,
)
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.service import append
from daybook_bookie.service.append import AppendStream, MessageQueue
from daybook_bookie.store.stored_ledger import ledger_of_key

from daybook.client.transport.frame_sender import MESSAGE_BYTES_TARGET
from daybook.core.errors import Code, FrameError, MetadataError
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import HEADER_BYTES, MESSAGE_FRAMES_MAX, decode_header, split_message
from daybook.core.format.lac_table import LacRow, lac_table
from daybook.core.ids import MAX_ID
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import Stripe
from daybook.core.stream import FrameFailure, StreamAnswer, StreamError, StreamWindow
from tests.process.fuzz.mutations import nested
from tests.process.fuzz.targets import TARGETS
from tests.unit.bookie.server_kit import RunningBookie
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import frame


def test_rule_44_a_read_answer_with_an_entry_id_out_of_range_is_no_frame() -> None:
    """A reader takes frames whose body nobody checked: the id did not fit 64 bits, and that was an OverflowError."""
    first = MAX_ID - 2**31
    data = bytearray(frame(7, [first, first + 2], stripe=Stripe(2, 0b10)))
    struct.pack_into("<I", data, HEADER_BYTES + 4, 2**32 - 1)
    with pytest.raises(FrameError, match="out of range"):
        decode_entries(data, decode_header(data))


def test_rule_49_an_answer_that_breaks_the_rules_decides_nothing() -> None:
    """The frames that it named before its mistake were neither decided nor unknown: their writer waited for ever."""
    window: StreamWindow[str] = StreamWindow()
    window.send(["a", "b"], 10)
    wrong = StreamAnswer(0, (FrameFailure(1, 0, Code.FENCED), FrameFailure(9, 0, Code.FENCED)))
    with pytest.raises(StreamError):
        window.settle(wrong)
    assert window.close() == ["a", "b"]


@pytest.mark.parametrize(
    "changes",
    [{"lastEntryId": 2**63}, {"lastEntryId": -2}, {"length": -1}, {"length": 10**30}, {"createdAtMs": 2**64}],
)
def test_metadata_with_numbers_that_cannot_travel_is_refused(changes: dict[str, Any]) -> None:
    record = json.loads(TARGETS["metadata"].samples[0])
    with pytest.raises(MetadataError, match=r"bits|smallest|ends at"):
        LedgerMetadata.from_json(json.dumps({**record, "state": "OPEN", **changes}).encode())


def test_metadata_of_great_depth_is_refused() -> None:
    with pytest.raises(MetadataError, match="no ledger metadata"):
        LedgerMetadata.from_json(nested(100_000))


@pytest.mark.parametrize(
    "text", [b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "layout": 5}', nested(100_000)]
)
def test_rule_29_a_cookie_with_a_sound_checksum_and_odd_content_is_refused(text: bytes) -> None:
    with pytest.raises(CookieError, match="journal"):
        parse_cookie(TARGETS["cookie"].seal(text + b"\n"), "journal")


def test_rule_26_the_key_of_a_record_that_no_ledger_has_refuses_the_store() -> None:
    """One flipped bit of a ledger's key ended the start with an error of `struct`, not with what to do."""
    with pytest.raises(StoreRefusedError, match="no ledger id"):
        ledger_of_key(struct.pack(">Q", 2**63 | 1))


def journal_of(*records: Record) -> SimDisk:
    """A journal that was closed in order; its salt is 7."""
    disk = SimDisk()
    replay = JournalReplay(disk, START, new=True)
    assert not list(replay)
    journal = Journal(disk, replay, file_bytes=4 * PAGE_BYTES, new_salt=lambda: 7)
    journal.append(list(records))
    journal.close()
    return disk


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (9, bytes(8)),
        (2, bytes(7)),
        (3, bytes(8)),
        (5, bytes(3)),
        (5, bytes(16) + b"\1"),
        (8, bytes(8)),
        (8, lac_table([LacRow(-1, 0, 0)])),
    ],
)
def test_rule_25_a_record_of_another_release_is_refused_and_no_torn_tail(kind: int, body: bytes) -> None:
    """The group is sound, so it was acknowledged; an unknown kind was a ValueError, a short body one of `struct`."""
    record = Record(kind, body)  # type: ignore[arg-type]  # a number of another release
    disk = journal_of(fence_record(1), record)
    with pytest.raises(JournalCorruptError, match="release"):
        list(JournalReplay(disk, START))


def test_rule_25_a_group_that_says_it_is_huge_is_measured_before_it_is_read() -> None:
    """It was read first, with as much memory as it said."""

    disk = journal_of(Record(RecordKind.FENCE, bytes(8)))
    file = disk.files[file_name(1)]
    struct.pack_into("<I", file.seen, DATA_START + 48, 2**32 - 1)
    struct.pack_into(
        "<I", file.seen, DATA_START + 56, crc32c(bytes(file.seen[DATA_START : DATA_START + 56]), 7)
    )
    asked: list[int] = []
    read = file.read

    def metered(offset: int, size_bytes: int) -> bytes:
        asked.append(size_bytes)
        return read(offset, size_bytes)

    file.read = metered  # type: ignore[method-assign]  # to see what is asked for
    with pytest.raises(JournalCorruptError, match="ends within the group"):
        list(JournalReplay(disk, START))
    assert max(asked) <= PAGE_BYTES


def test_a_message_of_too_many_frames_is_refused_before_any_is_decided() -> None:
    """16 MiB of empty frames were a quarter of a million objects, decided under the lock that everybody waits for."""
    empty = frame(7, [])
    assert len(split_message(empty * MESSAGE_FRAMES_MAX)) == MESSAGE_FRAMES_MAX
    assert MESSAGE_BYTES_TARGET // len(empty) <= MESSAGE_FRAMES_MAX, "a client of ours never sends so many"
    with pytest.raises(FrameError, match="several messages"):
        split_message(empty * (MESSAGE_FRAMES_MAX + 1))


@pytest.mark.parametrize(
    ("bound", "most", "message"),
    [
        ("ANSWERS_WAITING_MAX", 20, b"DBF1 is no frame"),
        ("ANSWERS_WAITING_BYTES_MAX", 500_000, frame(7, []) * MESSAGE_FRAMES_MAX),
    ],
    ids=["many", "large"],
)
def test_a_client_that_does_not_read_its_answers_loses_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, message: bytes
) -> None:
    """They were kept for it without a bound; later the bound counted messages, and one answer may have 262,160 bytes."""
    monkeypatch.setattr(append, bound, most)
    bookie = RunningBookie(tmp_path)
    try:
        outgoing = MessageQueue()
        stream = AppendStream(bookie.bookie.append, outgoing)
        reason = stream.run(iter([message] * 100))
        assert reason is not None
        assert "does not read" in reason
        assert outgoing.waiting <= 21
        assert outgoing.waiting_bytes <= most + 262_160
        stream.close()
        assert sum(map(len, outgoing)) > outgoing.waiting_bytes == 0
    finally:
        bookie.stop()
