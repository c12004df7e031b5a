"""Nobody starves anybody: slow readers, idle streams, calls that say nothing, and what occupies a bookie for long."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from daybook_bookie.service.append import ANSWERS_WAITING_BYTES_MAX
from daybook_bookie.service.budget import ByteBudget
from daybook_bookie.service.deadlines import Deadlines

from daybook.core.errors import Code
from daybook.wire import bookie_pb2 as pb
from daybook.wire import service
from daybook.wire.channel import CLIENT_OPTIONS, open_channel
from tests.unit.bookie.server_kit import (
    MIB,
    OVER_BOTH,
    READ_ALL,
    READ_ONE,
    RunningBookie,
    StalledJournal,
    eventually,
    filled,
    frame_of,
)
from tests.unit.bookie.stream_kit import KEY, WAIT_S, Stream, StreamEndedError

StartBookie = Callable[..., RunningBookie]
FENCING = pb.ReadRequest(ledger_id=1, first_entry=0, last_entry=0, bytes_max=1, key=KEY, fence=True)


def slow_reads(bookie: RunningBookie, count: int) -> list[Any]:
    """Reads that take one message and no more; they have no deadline of their own."""
    reads = []
    for _ in range(count):
        options = (*CLIENT_OPTIONS, ("grpc.http2.bdp_probe", 0))  # or its window may grow beyond the answer
        call = service.BookieStub(grpc.insecure_channel(bookie.address, options)).read(READ_ALL)
        next(call)
        reads.append(call)
    return reads


def status(call: Any) -> grpc.StatusCode:
    """How a call ends."""
    code: grpc.StatusCode = call.code()
    return code


def test_a_slow_reader_keeps_nobody_from_reading(start_bookie: StartBookie) -> None:
    bookie = filled(start_bookie(read_workers=1))
    slow = slow_reads(bookie, 3)
    assert len(list(bookie.stub.read(READ_ONE, timeout=WAIT_S))) == 1
    for call in slow:
        call.cancel()


def test_slow_readers_of_all_workers_keep_no_recovery_from_fencing_and_reading(
    start_bookie: StartBookie,
) -> None:
    bookie = filled(start_bookie(read_workers=1, call_timeout_ms=60_000))
    slow = slow_reads(bookie, 4)
    waits = bookie.stub.read(READ_ONE, timeout=0.5)
    assert status(waits) is grpc.StatusCode.DEADLINE_EXCEEDED, "all workers are held"
    assert len(list(bookie.stub.recovery_read(FENCING, timeout=WAIT_S))) == 1
    assert Code(bookie.fence(1).code) is Code.OK
    for call in slow:
        call.cancel()


def test_a_read_that_is_not_taken_in_time_ends(start_bookie: StartBookie) -> None:
    bookie = filled(start_bookie(read_workers=1, call_timeout_ms=1_500))
    slow = slow_reads(bookie, 4)
    assert len(list(bookie.stub.read(READ_ONE, timeout=WAIT_S))) == 1, "a worker is free again"
    assert eventually(lambda: bookie.server._read_pool._pending == 0)
    for call in slow:
        with pytest.raises(grpc.RpcError):
            list(call)
        assert status(call) is grpc.StatusCode.CANCELLED


def test_a_read_that_fences_nothing_gets_no_worker_of_recovery(bookie: RunningBookie) -> None:
    call = bookie.stub.recovery_read(READ_ONE, timeout=WAIT_S)
    assert status(call) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", [service.FENCE, service.GET_INFO, service.READ_LAC, service.SCRUB])
def test_a_call_without_a_request_holds_a_worker_for_a_while_only(
    start_bookie: StartBookie, method: service.UnaryMethod
) -> None:
    bookie = start_bookie(control_workers=2, recovery_workers=2, call_timeout_ms=1_500)
    path = f"/{service.SERVICE}/{method.name}"
    never = threading.Event()

    def say_nothing() -> Iterator[bytes]:
        never.wait(WAIT_S)
        yield from ()

    talk: Any = bookie.channel.stream_stream(path)
    silent = [talk(say_nothing()) for _ in range(3)]
    call = bookie.channel.unary_unary(path, method.request.SerializeToString, method.response.FromString)
    request = method.request() if method is service.GET_INFO else method.request(ledger_id=1)
    assert isinstance(call(request, timeout=WAIT_S), method.response)
    assert {status(each) for each in silent} == {grpc.StatusCode.CANCELLED}
    never.set()
    assert status(talk(iter(()), timeout=WAIT_S)) is grpc.StatusCode.INVALID_ARGUMENT


def test_what_takes_long_keeps_no_question_waiting(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = start_bookie(control_workers=1, recovery_workers=1)
    go_on = threading.Event()
    scrub_now = bookie.bookie.scrubber.scrub_now

    def hang(ledger_id: int | None) -> Any:
        assert go_on.wait(WAIT_S)
        return scrub_now(ledger_id)

    monkeypatch.setattr(bookie.bookie.scrubber, "scrub_now", hang)
    scrubs = [bookie.stub.scrub.future(pb.ScrubRequest(ledger_id=-1), timeout=2 * WAIT_S) for _ in range(18)]
    assert bookie.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S).bookie_id == "b0"
    assert Code(bookie.fence(1).code) is Code.OK

    def another_is_refused() -> bool:
        call = bookie.stub.scrub.future(pb.ScrubRequest(ledger_id=-1), timeout=0.2)
        return status(call) is grpc.StatusCode.RESOURCE_EXHAUSTED

    assert eventually(another_is_refused)
    go_on.set()
    assert {Code(scrub.result().code) for scrub in scrubs} == {Code.OK}


# Streams


@OVER_BOTH
def test_streams_that_nothing_is_attached_to_give_way_to_writers(start_bookie: StartBookie) -> None:
    bookie = start_bookie(streams_max=3)
    bookie.create_ledger(1)
    writer, quiet, talks = bookie.open_stream(), bookie.open_stream(), bookie.open_stream()
    assert writer.attach(1) is Code.OK
    talks.say(pb.ClientControl(hello=pb.ClientHello(client="again")))
    assert talks.attach(999) is Code.NO_SUCH_LEDGER
    newcomer = bookie.open_stream()
    with pytest.raises(StreamEndedError, match="no ledger was attached"):
        quiet.take()
    assert newcomer.attach(1, recovery=True) is Code.OK
    assert writer.add(frame_of(1, 0, [b"a"])) == {}
    assert bookie.open_stream().attach(1, recovery=True) is Code.OK
    with pytest.raises(StreamEndedError, match="no ledger was attached"):
        talks.take()
    with pytest.raises(StreamEndedError, match="3 append streams are open"):
        bookie.open_stream()


@OVER_BOTH
def test_a_stream_that_waits_for_its_attachment_gives_no_way(start_bookie: StartBookie) -> None:
    bookie = start_bookie(streams_max=1)
    bookie.create_ledger(1)
    bookie.metadata.suspend()
    try:
        waits = bookie.open_stream()
        waits.say(pb.ClientControl(attach=pb.Attach(ledger_id=1, key=KEY)))
        (stream,) = bookie.bookie.streams.all()
        assert eventually(lambda: stream.attaching == 1)
        with pytest.raises(StreamEndedError, match="1 append streams are open"):
            bookie.open_stream()
    finally:
        bookie.metadata.resume()
    assert Code(waits.take().attached.code) in (Code.OK, Code.UNAVAILABLE)
    assert eventually(lambda: stream.attaching == 0)


def test_a_stream_that_takes_nothing_is_ended_all_the_same(start_bookie: StartBookie) -> None:
    bookie = filled(start_bookie(streams_max=1, call_timeout_ms=1_500))
    go_on = threading.Event()

    def messages() -> Iterator[bytes]:
        go_on.wait(WAIT_S)
        yield from ()

    stuck = service.BookieStub(open_channel(bookie.address)).append(messages())
    assert eventually(lambda: bookie.bookie.streams.count == 1)
    (stream,) = bookie.bookie.streams.all()
    for _ in range(200):
        stream._outgoing.put(bytes(100_000))  # never taken, so the worker waits for flow control
    newcomer = bookie.open_stream()
    assert newcomer.attach(1) is Code.OK
    assert eventually(lambda: bookie.server._append_pool._pending == 1), "its worker is free again"
    stuck.cancel()
    go_on.set()


def test_a_stream_that_ends_because_nobody_takes_its_answers_frees_its_place(
    start_bookie: StartBookie,
) -> None:
    bookie = start_bookie(call_timeout_ms=1_500)
    go_on = threading.Event()

    def messages() -> Iterator[bytes]:
        assert go_on.wait(WAIT_S)
        yield b"DBF1 is no frame"

    stuck = service.BookieStub(open_channel(bookie.address)).append(messages())
    assert eventually(lambda: bookie.bookie.streams.count == 1)
    (stream,) = bookie.bookie.streams.all()
    answer = bytes(1_000_000)
    for _ in range(1 + ANSWERS_WAITING_BYTES_MAX // len(answer) + 20):
        stream._outgoing.put(answer)  # never taken, so the worker waits for flow control
    go_on.set()
    assert eventually(lambda: bookie.bookie.streams.count == 0)
    assert eventually(lambda: bookie.server._append_pool._pending == 0), "its worker is free again"
    stuck.cancel()


# Memory


@OVER_BOTH
def test_messages_count_from_their_arrival_and_not_without_bound(bookie: RunningBookie) -> None:
    budget = bookie.bookie.budget
    budget._limit_bytes, budget._waiting_bytes_max = MIB, 3 * MIB
    streams = [bookie.open_stream() for _ in range(6)]
    for stream in streams:
        assert stream.attach(1, recovery=stream is not streams[0]) is Code.OK
    with StalledJournal(bookie) as stalled:
        number = streams[0].send(frame_of(1, 0, [bytes(900_000)]))
        assert stalled.reached.wait(WAIT_S)
        for stream in streams[1:]:
            stream.send(frame_of(1, 0, [bytes(900_000)], flags=1))
        assert eventually(lambda: bookie.metric("received_bytes") > 2 * MIB)
        assert eventually(lambda: bookie.bookie.streams.count == 4), "two of them were too many"
        assert bookie.metric("received_bytes") <= 3 * MIB
    assert streams[0].settle(number) == {}
    assert eventually(lambda: bookie.metric("received_bytes") == 0)
    refused = [stream for stream in streams if has_ended(stream)]
    assert len(refused) == 2


def has_ended(stream: Stream) -> bool:
    """Whether the bookie ended the stream for want of memory."""
    try:
        while not stream.is_quiet(0.2):
            stream.take()
    except StreamEndedError as error:
        return "more messages wait in the bookie than" in str(error)
    return False


def test_a_message_that_is_alone_is_never_too_much() -> None:
    budget = ByteBudget(10, 20)
    with budget.received(100) as first:
        assert first
        with budget.received(1) as second:
            assert not second
        assert budget.waiting_bytes == 100
    assert budget.waiting_bytes == 0


# Deadlines


def test_deadlines_that_are_met_leave_nothing_behind_and_one_that_fails_stops_no_other() -> None:
    deadlines = Deadlines()
    missed: list[int] = []
    fired = threading.Event()

    def fail() -> None:
        raise RuntimeError("gone already")

    for _ in range(500):
        with deadlines.within(3_600_000, fired.set):
            pass
    assert len(deadlines._heap) < 100
    deadlines.after(1, fail)
    deadlines.after(5, lambda: missed.append(1))
    with deadlines.within(20, fired.set):
        assert fired.wait(WAIT_S)
    assert missed == [1]
    deadlines.after(3_600_000, fail)
    deadlines.close()
