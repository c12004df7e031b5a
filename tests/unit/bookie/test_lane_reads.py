"""Reads over the lane: the same answers, bounds of their own, and ends that say why."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest
from daybook_bookie.lane.reading import MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN

from daybook.core.errors import Code
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import FRAME_BYTES_TARGET, split_message
from daybook.core.format.parted import split_parted
from daybook.wire import bookie_pb2 as pb
from daybook.wire.lane import END_OF_READ, HELLO_BYTES_MAX, LENGTH, encode_lane
from daybook.wire.messages import READ_MESSAGE_BYTES_TARGET, decode_read, encode_client_control
from tests.unit.bookie.server_kit import (
    READ_ALL,
    READ_ONE,
    RunningBookie,
    eventually,
    filled,
    frame_of,
    read_connections,
)
from tests.unit.bookie.stream_kit import KEY, WAIT_S, LaneReader, StreamEndedError

StartBookie = Callable[..., RunningBookie]
ENTRY_BYTES = 400_000
"""Those of a bookie that is `filled`."""


def reader_of(bookie: RunningBookie) -> LaneReader:
    """A connection for reads."""
    assert bookie.server.lane_address is not None
    return LaneReader(bookie.server.lane_address)


def test_the_messages_are_those_of_grpc_byte_for_byte_one_read_after_the_other(
    start_bookie: StartBookie,
) -> None:
    """Where one connection may have a message of the size that gRPC's have."""
    bookie = filled(start_bookie(read_answers_bytes=READ_MESSAGE_BYTES_TARGET))
    reader = reader_of(bookie)
    for request in (READ_ALL, READ_ONE, READ_ALL):
        assert list(reader.read(request)) == list(bookie.stub.read(request, timeout=WAIT_S))
    reader.close()
    assert eventually(lambda: read_connections(bookie) == 0)


def test_messages_are_the_smaller_the_more_connections_share_their_memory(start_bookie: StartBookie) -> None:
    bookie = filled(start_bookie(read_answers_bytes=MESSAGE_BYTES_MAX, streams_max=64))
    reader, *others = [reader_of(bookie) for _ in range(20)]
    assert max(len(message) for message in reader.read(READ_ALL)) > MESSAGE_BYTES_MAX // 2, (
        "idle ones have no part"
    )
    for each in others[:4]:
        each.ask(READ_ALL)
        each.take()
    beside_others = max(len(message) for message in reader.read(READ_ALL))
    assert beside_others < MESSAGE_BYTES_MAX // 5 + ENTRY_BYTES + FRAME_BYTES_TARGET
    for each in others[4:]:
        each.ask(READ_ALL)
        each.take()
    assert bookie.server._lane is not None
    assert bookie.server._lane._reads.message_bytes() == MESSAGE_BYTES_MIN, "none is smaller"


def test_an_answer_in_parts_is_right_whatever_the_size_of_its_messages(start_bookie: StartBookie) -> None:
    """Its parts are views of the store, and some of what was read for one message is for the next one."""
    bookie = start_bookie()
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    stream.attach(1)
    sent = [b"%d" % n * 300 for n in range(3000)]
    for first in range(0, len(sent), 100):
        assert stream.add(frame_of(1, first, sent[first : first + 100])) == {}
    assert bookie.flush()
    request = pb.ReadRequest(ledger_id=1, first_entry=0, last_entry=len(sent) - 1, bytes_max=1 << 24, key=KEY)
    for request.payloads_last in (False, True):
        for message_bytes, as_views in product((1, 300_000, 1 << 24), (True, False)):
            found: list[bytes] = []
            messages = views = 0
            size = partial(int, message_bytes)
            for parts in bookie.bookie.reads.read_in_parts(request, size, as_views):
                views += any(isinstance(each, memoryview) and each.obj is None for each in parts)  # LMDB's
                header, frames = decode_read(bytearray().join(parts))
                assert header.payloads_last == request.payloads_last
                found += _payloads(frames, payloads_last=header.payloads_last)
                messages += 1
            assert found == sent
            assert bool(views) == as_views
            assert (messages == 1) == (message_bytes == 1 << 24)


def _payloads(frames: memoryview, *, payloads_last: bool) -> list[bytes]:
    split = split_parted(frames) if payloads_last else [(*each, None) for each in split_message(frames)]
    runs = [decode_entries(frames, header, offset, payloads_at=at) for header, offset, at in split]
    assert not any(bad for _, bad in runs)
    return [entry.data for good, _ in runs for entry in good]


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
    bookie = filled(start_bookie(read_workers=1, call_timeout_ms=1_500, read_answers_bytes=1))
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

    def fail(request: pb.ReadRequest, *_: object) -> Iterator[bytes]:
        raise OverflowError(request.ledger_id)

    reader, other = reader_of(bookie), reader_of(bookie)
    with monkeypatch.context() as patch:
        patch.setattr(lane._reads, "_read", fail)
        with pytest.raises(StreamEndedError, match="failed to read"):
            list(reader.read(READ_ONE))
    assert len(list(other.read(READ_ONE))) == 1


def test_a_bookie_that_stops_ends_connections_for_reads(start_bookie: StartBookie) -> None:
    """It waits for the answers that are under way, which are views of its store."""
    bookie = filled(start_bookie())
    reader, busy = reader_of(bookie), reader_of(bookie)
    busy.ask(READ_ALL)
    busy.take()
    bookie.stop()
    assert read_connections(bookie) == 0
    with pytest.raises((StreamEndedError, ConnectionError)):
        reader.take()
