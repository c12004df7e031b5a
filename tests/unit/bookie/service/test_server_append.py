"""Appending over the wire: attach, frames in, answers out, and everything a client may do wrong."""

from collections.abc import Callable

import pytest
from daybook_bookie.journal.format import Record
from daybook_bookie.journal.thread import JournalThread
from daybook_bookie.service.append import MessageItem

from daybook.core.bookie.machine import BookieMachine
from daybook.core.errors import Code
from daybook.core.format.frame import FLAG_DEFERRED_SYNC, HEADER_BYTES, Buffer, FrameHeader
from daybook.core.ids import ENTRY_BYTES_MAX, MESSAGE_BYTES_MAX
from daybook.core.stream import WHOLE_MESSAGE
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, StalledJournal, eventually, frame_of
from tests.unit.bookie.stream_kit import WAIT_S, StreamEndedError

pytestmark = OVER_BOTH

StartBookie = Callable[..., RunningBookie]


def flipped(frame: bytes, at: int) -> bytes:
    """The frame with one bit flipped."""
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def test_what_was_appended_is_read_back(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    assert stream.hello.bookie_id == "b0"
    assert stream.hello.boot_id == bookie.bookie.boot_id
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a", b"b"]), frame_of(1, 2, [b"c"], lac=1, length=2)) == {}
    header, entries, damaged = bookie.read(1, 0, 10)
    assert (header.code, header.through, header.last_add_confirmed, header.length_at_lac) == (
        Code.OK,
        10,
        1,
        2,
    )
    assert entries == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert damaged == []


def test_a_wrong_password_is_refused_everywhere(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    assert stream.attach(1, key="wrong") is Code.UNAUTHORIZED
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    assert bookie.open_stream().attach(1, key="wrong") is Code.UNAUTHORIZED
    assert bookie.open_stream().attach(1, key="wrong", recovery=True) is Code.UNAUTHORIZED
    assert Code(bookie.fence(1, key="wrong").code) is Code.UNAUTHORIZED
    assert bookie.read(1, 0, 0, key="wrong")[0].code is Code.UNAUTHORIZED
    assert bookie.read(1, 0, 0, key="wrong", fence=True)[0].code is Code.UNAUTHORIZED
    lac = bookie.stub.read_lac(pb.ReadLacRequest(ledger_id=1, key="wrong"), timeout=WAIT_S)
    assert Code(lac.code) is Code.UNAUTHORIZED
    assert stream.add(frame_of(1, 1, [b"b"])) == {}, "nothing of that fenced the ledger"


def test_the_password_is_known_again_after_a_restart(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"]))
    bookie.restart()
    assert bookie.open_stream().attach(1, key="wrong") is Code.UNAUTHORIZED
    assert bookie.open_stream().attach(1) is Code.OK


def test_without_metadata_new_writers_wait_and_others_go_on(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    stream = bookie.open_stream()
    stream.attach(1)
    bookie.metadata.suspend()
    try:
        assert stream.attach(2) is Code.UNAVAILABLE
        assert stream.add(frame_of(1, 0, [b"a"])) == {}
        assert Code(bookie.fence(1).code) is Code.OK
    finally:
        bookie.metadata.resume()
    assert stream.attach(2) is Code.OK


def test_a_damaged_frame_fails_alone(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    good, damaged = frame_of(1, 0, [b"aaaa"]), flipped(frame_of(1, 1, [b"bbbb"]), -1 % 80)
    assert stream.add(good, damaged) == {1: Code.BAD_FRAME}
    assert bookie.read(1, 0, 9)[1] == [(0, b"aaaa")]
    assert stream.add(frame_of(1, 1, [b"bbbb"])) == {}, "the stream lives"


def test_a_message_whose_frames_cannot_be_told_apart_fails_as_a_whole(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    first, second = frame_of(1, 0, [b"a"]), frame_of(1, 1, [b"b"])
    assert stream.add(first, flipped(second, 20)) == {WHOLE_MESSAGE: Code.BAD_FRAME}
    assert stream.add(first, second[: HEADER_BYTES + 3]) == {WHOLE_MESSAGE: Code.BAD_FRAME}
    assert bookie.read(1, 0, 9)[1] == []
    assert stream.add(first, second) == {}


def test_an_oversized_entry_is_refused_and_the_largest_passes(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [bytes(ENTRY_BYTES_MAX + 1)])) == {0: Code.BAD_FRAME}
    assert stream.add(frame_of(1, 0, [bytes(ENTRY_BYTES_MAX)])) == {}
    _, entries, _ = bookie.read(1, 0, 0)
    assert [len(entry.data) for entry in entries] == [ENTRY_BYTES_MAX]


def test_a_message_over_the_limit_ends_the_stream(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.send(bytes(MESSAGE_BYTES_MAX + 1024 * 1024))
    with pytest.raises(StreamEndedError, match=r"larger than max|at most .* are allowed|reset|[Bb]roken"):
        stream.take()


def test_a_message_of_another_kind_ends_the_stream_with_a_reason(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.send(b"GET / HTTP/1.1")
    with pytest.raises(StreamEndedError, match="neither frames nor a control message"):
        stream.take()


def test_too_many_streams_are_refused_until_one_ends(start_bookie: StartBookie) -> None:
    bookie = start_bookie(streams_max=2)
    bookie.create_ledger(1)
    first, second = bookie.open_stream(), bookie.open_stream()
    for stream in (first, second):
        assert stream.attach(1, recovery=True) is Code.OK
    with pytest.raises(StreamEndedError, match="2 append streams are open"):
        bookie.open_stream()
    first.close()
    assert eventually(lambda: bookie.bookie.streams.count == 1), (
        "the client may see the end before the bookie counts it"
    )
    third = bookie.open_stream()
    assert third.hello.bookie_id == "b0"


def test_a_stream_that_ends_leaves_no_attachment(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"]))
    stream.close()
    assert eventually(lambda: not bookie.bookie.streams.count)
    assert bookie.metric("streams") == 0


def test_rule_23_nothing_is_answered_before_the_sync(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    with StalledJournal(bookie) as stalled:
        number = stream.send(frame_of(1, 0, [b"a"]))
        assert stalled.reached.wait(WAIT_S)
        assert stream.is_quiet(0.1)
    assert stream.settle(number) == {}


def test_rule_23_a_failed_sync_stops_the_bookie_without_an_answer(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"]))
    file = bookie.bookie.storage.journal._file
    assert file is not None

    def fail() -> None:
        raise OSError(5, "Input/output error")

    file.fdatasync = fail  # type: ignore[method-assign]  # a disk that fails
    stream.send(frame_of(1, 1, [b"b"]))
    assert bookie.failed.wait(WAIT_S)
    assert "fdatasync of the journal failed" in bookie.failures[0]
    assert bookie.bookie.has_failed
    assert stream.is_quiet(0.1)


def test_rule_22_deferred_frames_are_answered_at_once_and_a_force_after_the_sync(
    bookie: RunningBookie,
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    with StalledJournal(bookie) as stalled:
        assert stream.add(frame_of(1, 0, [b"a"], flags=FLAG_DEFERRED_SYNC)) == {}
        assert stalled.reached.wait(WAIT_S)
        force = bookie.stub.force.future(pb.ForceRequest(ledger_id=1), timeout=WAIT_S)
        durable = stream.send(frame_of(1, 1, [b"b"]))
        assert stream.is_quiet(0.1)
        assert not force.done()
    answer = force.result()
    assert (Code(answer.code), answer.boot_id) == (Code.OK, bookie.bookie.boot_id)
    assert stream.settle(durable) == {}


def test_rule_22_a_restart_shows_in_the_boot_id(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"]))
    before = stream.hello.boot_id
    bookie.restart()
    answer = bookie.stub.force(pb.ForceRequest(ledger_id=1), timeout=WAIT_S)
    assert Code(answer.code) is Code.OK
    assert answer.boot_id not in ("", before)


def test_rule_49_mixed_success_and_error_in_one_message(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    stream = bookie.open_stream()
    stream.attach(1)
    stream.attach(2)
    assert Code(bookie.fence(2).code) is Code.OK
    outcome = stream.add(frame_of(1, 0, [b"a"]), frame_of(2, 0, [b"x"]), frame_of(1, 1, [b"b"]))
    assert outcome == {1: Code.FENCED}
    assert [entry.entry_id for entry in bookie.read(1, 0, 9)[1]] == [0, 1]
    assert bookie.read(2, 0, 9)[1] == []


def test_rule_54_a_resend_is_answered_only_when_it_is_durable(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    with StalledJournal(bookie) as stalled:
        stream.send(frame_of(1, 0, [b"a"]))
        assert stalled.reached.wait(WAIT_S)
        again = stream.send(frame_of(1, 0, [b"a"]))
        assert stream.is_quiet(0.1)
    assert stream.settle(again) == {}


def test_back_pressure_bounds_what_waits_for_the_journal(start_bookie: StartBookie) -> None:
    bookie = start_bookie(journal_queue_bytes=32 * 1024 * 1024)
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    stream.attach(1)
    frame_bytes = 4 * 1024 * 1024
    with StalledJournal(bookie) as stalled:
        numbers = [stream.send(frame_of(1, entry, [bytes(frame_bytes)])) for entry in range(12)]
        assert stalled.reached.wait(WAIT_S)
        assert stream.is_quiet(0.5)
        assert bookie.bookie.budget.taken_bytes <= 32 * 1024 * 1024
    assert stream.settle(numbers[-1]) == {}


@pytest.mark.parametrize(
    "where",
    [
        "daybook_bookie.service.append.damaged_frames",
        pytest.param("daybook.core.bookie.machine.BookieMachine._judge", marks=pytest.mark.pure),
    ],
)
def test_an_error_on_the_way_to_the_journal_gives_back_what_the_message_took(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(where, fail)
        stream.send(frame_of(1, 0, [b"a"]))
        assert eventually(lambda: not bookie.bookie.streams.count)
    assert eventually(lambda: bookie.bookie.budget.taken_bytes == 0)


@pytest.mark.pure
def test_what_was_cached_when_an_error_came_is_journalled(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that counts as journalled, or a frame that a read finds, must not be in memory alone."""
    stream = bookie.open_stream()
    stream.attach(1)
    cache_frame = BookieMachine._cache_frame

    def cache_and_fail(machine: BookieMachine[Record], header: FrameHeader, data: Buffer) -> Record:
        if header.first_entry:
            raise MemoryError
        return cache_frame(machine, header, data)

    journalled: list[int] = []
    put = JournalThread.put

    def watch(journal: JournalThread, item: MessageItem) -> None:
        journalled.append(len(item.records))
        put(journal, item)

    monkeypatch.setattr(BookieMachine, "_cache_frame", cache_and_fail)
    monkeypatch.setattr(JournalThread, "put", watch)
    stream.send(frame_of(1, 0, [b"a"]) + frame_of(1, 1, [b"b"]))
    assert eventually(lambda: not bookie.bookie.streams.count)
    assert journalled == [2], "the ledger's key and its first frame"
    assert eventually(lambda: bookie.bookie.budget.taken_bytes == 0)
