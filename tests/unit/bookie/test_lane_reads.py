"""Reads over the lane: the same answers, bounds of their own, and ends that say why."""

from collections.abc import Callable, Iterator

import pytest

from daybook.core.errors import Code
from daybook.wire import bookie_pb2 as pb
from daybook.wire.lane import END_OF_READ, HELLO_BYTES_MAX, LENGTH, encode_lane
from daybook.wire.messages import encode_client_control
from tests.unit.bookie.server_kit import (
    READ_ALL,
    READ_ONE,
    RunningBookie,
    eventually,
    filled,
    read_connections,
)
from tests.unit.bookie.stream_kit import WAIT_S, LaneReader, StreamEndedError

StartBookie = Callable[..., RunningBookie]


def reader_of(bookie: RunningBookie) -> LaneReader:
    """A connection for reads."""
    assert bookie.server.lane_address is not None
    return LaneReader(bookie.server.lane_address)


def test_the_messages_are_those_of_grpc_byte_for_byte_one_read_after_the_other(
    start_bookie: StartBookie,
) -> None:
    bookie = filled(start_bookie())
    reader = reader_of(bookie)
    for request in (READ_ALL, READ_ONE, READ_ALL):
        assert list(reader.read(request)) == list(bookie.stub.read(request, timeout=WAIT_S))
    reader.close()
    assert eventually(lambda: read_connections(bookie) == 0)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (encode_lane(b"\xff\xff"), "no request for a read"),
        (encode_lane(pb.ReadRequest(ledger_id=1, fence=True).SerializeToString()), "goes over gRPC"),
        (encode_lane(encode_client_control(pb.ClientControl())), "no request for a read"),
        (LENGTH.pack(HELLO_BYTES_MAX + 1), "at most"),
    ],
    ids=["no protobuf", "a fence", "a control message", "too long"],
)
def test_what_is_no_read_ends_the_connection_with_a_reason(
    start_bookie: StartBookie, message: bytes, why: str
) -> None:
    bookie = start_bookie()
    reader = reader_of(bookie)
    reader.socket.sendall(message)
    with pytest.raises(StreamEndedError, match=why):
        reader.take()
    with pytest.raises(StreamEndedError, match="ended the connection"):
        reader.take()
    assert eventually(lambda: read_connections(bookie) == 0)
    assert bookie.failures == []


def test_slow_readers_keep_nobody_from_reading_and_are_hung_up_on(start_bookie: StartBookie) -> None:
    bookie = filled(start_bookie(read_workers=1, call_timeout_ms=1_500))
    slow = [reader_of(bookie) for _ in range(3)]
    for reader in slow:
        reader.ask(READ_ALL)
        reader.take()
    fast = reader_of(bookie)
    assert len(list(fast.read(READ_ONE))) == 1
    assert eventually(lambda: read_connections(bookie) == 0), "also the one that asks nothing more"
    for reader in slow:
        with pytest.raises((StreamEndedError, ConnectionError)):
            list(iter(reader.take, END_OF_READ))


def test_connections_are_bounded_apart_from_append_streams(start_bookie: StartBookie) -> None:
    bookie = start_bookie(streams_max=2)
    bookie.create_ledger(1)
    readers = [reader_of(bookie) for _ in range(2)]
    with pytest.raises(StreamEndedError, match="2 connections for reads are open"):
        reader_of(bookie)
    assert bookie.open_stream().attach(1) is Code.OK
    readers[0].close()
    assert eventually(lambda: read_connections(bookie) == 1)
    assert len(list(reader_of(bookie).read(READ_ONE))) == 1


def test_a_read_that_fails_says_so_and_harms_no_other(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = filled(start_bookie())
    lane = bookie.server._lane
    assert lane is not None

    def fail(request: pb.ReadRequest) -> Iterator[bytes]:
        raise OverflowError(request.ledger_id)

    reader, other = reader_of(bookie), reader_of(bookie)
    with monkeypatch.context() as patch:
        patch.setattr(lane._reads, "_read", fail)
        with pytest.raises(StreamEndedError, match="failed to read"):
            list(reader.read(READ_ONE))
    assert len(list(other.read(READ_ONE))) == 1


def test_a_bookie_that_stops_ends_connections_for_reads(start_bookie: StartBookie) -> None:
    bookie = start_bookie()
    reader = reader_of(bookie)
    bookie.stop()
    with pytest.raises((StreamEndedError, ConnectionError)):
        reader.take()
