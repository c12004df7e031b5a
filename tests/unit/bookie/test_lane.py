"""The lane's own port: who gets in, with which protection, and what a client that takes nothing costs."""

import os
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from daybook_bookie.lane import listener
from daybook_bookie.lane.connection import LaneConnection

from daybook.core.errors import Code
from daybook.runtime.ports import Address
from daybook.runtime.tls import TlsContexts, TlsFiles, server_credentials
from daybook.wire import bookie_pb2 as pb
from daybook.wire.lane import PREFACE, encode_lane
from daybook.wire.messages import encode_client_control
from tests.unit.bookie.server_kit import RunningBookie, eventually, frame_of
from tests.unit.bookie.stream_kit import WAIT_S, LanePipe, Stream, StreamEndedError
from tests.unit.runtime.certificates import new_authority

StartBookie = Callable[..., RunningBookie]


def lane_of(bookie: RunningBookie) -> Address:
    """Where its lane is."""
    address = bookie.server.lane_address
    assert address is not None
    return address


def is_hung_up(connection: socket.socket) -> bool:
    """Whether the bookie ends the connection and says nothing."""
    connection.settimeout(WAIT_S)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        encode_lane(b"DBL0"),
        encode_lane(PREFACE) + encode_lane(b"DBC1"),
        b"\x16\x03\x01",
    ],
    ids=["HTTP", "another preface", "no hello", "TLS where there is none"],
)
def test_who_says_something_else_is_hung_up_on(bookie: RunningBookie, greeting: bytes) -> None:
    with socket.create_connection(lane_of(bookie)) as connection:
        connection.sendall(greeting)
        assert is_hung_up(connection)
    assert bookie.bookie.streams.count == 0


def test_who_says_nothing_is_hung_up_on_and_keeps_nobody_away(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_HELLO_TIMEOUT_MS", 300)
    monkeypatch.setattr(listener, "_GREETING_MAX", 2)
    bookie = start_bookie(over="lane")
    bookie.create_ledger(1)
    with (
        socket.create_connection(lane_of(bookie)) as silent,
        socket.create_connection(lane_of(bookie)) as slow,
    ):
        slow.sendall(encode_lane(PREFACE)[:3])
        assert is_hung_up(silent)
        assert is_hung_up(slow)

    def is_served() -> bool:
        try:
            return bookie.open_stream().attach(1) is Code.OK
        except StreamEndedError:  # the bookie has hung up, and counts the two for a moment more
            return False

    assert eventually(is_served)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """The certificates of a bookie that wants some of its clients."""
    return AUTHORITY.issue(tmp_path, "server")


AUTHORITY, STRANGER = new_authority(), new_authority("another CA")


def secure(start_bookie: StartBookie, files: TlsFiles) -> RunningBookie:
    """A bookie with TLS alone."""
    context = TlsContexts(files, server_side=True).current()
    bookie = start_bookie(credentials=server_credentials(files), tls_context=context)
    bookie.create_ledger(1)
    return bookie


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """What a client with these files connects with."""
    return TlsContexts(files, server_side=False).current()


def test_entries_travel_over_tls(start_bookie: StartBookie, files: TlsFiles, tmp_path: Path) -> None:
    bookie = secure(start_bookie, files)
    stream = Stream(LanePipe(lane_of(bookie), client_context(AUTHORITY.issue(tmp_path, "client"))))
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [bytes(300_000), b"b"])) == {}
    stream.close()


def test_without_tls_and_with_a_strangers_certificate_nobody_gets_in(
    start_bookie: StartBookie, files: TlsFiles, tmp_path: Path
) -> None:
    bookie = secure(start_bookie, files)
    with pytest.raises(StreamEndedError):
        Stream(LanePipe(lane_of(bookie)))
    stranger = client_context(STRANGER.issue(tmp_path, "stranger", trusts=AUTHORITY))
    with pytest.raises((StreamEndedError, ssl.SSLError)):
        Stream(LanePipe(lane_of(bookie), stranger))
    assert bookie.bookie.streams.count == 0


def test_what_a_client_does_not_take_waits_in_order_and_ends_with_it() -> None:
    ours, theirs = socket.socketpair()
    lane = LaneConnection(ours, None)
    message = bytes(100_000)
    for _ in range(20):
        lane.put(message)
    assert lane.waiting > 0, "more than the kernel takes"
    assert 0 < lane.waiting_bytes <= len(encode_lane(message)) * lane.waiting
    with theirs:
        expected = encode_lane(message) * 20
        received = b""
        while len(received) < len(expected):
            received += theirs.recv(1 << 20)
        assert received == expected
        assert eventually(lambda: lane.waiting == lane.waiting_bytes == 0)
        for _ in range(20):
            lane.put(message)
    lane.release()
    assert eventually(lambda: not any(thread.name == "lane-write" for thread in threading.enumerate()))


def test_sending_to_a_client_that_broke_tls_ends_its_connection_alone(
    files: TlsFiles, tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair()
    lane = LaneConnection(ours, TlsContexts(files, server_side=True).current())
    context = client_context(AUTHORITY.issue(tmp_path, "client"))
    with ThreadPoolExecutor(1) as pool:
        shaking = pool.submit(context.wrap_socket, theirs, server_hostname="127.0.0.1")
        lane.shake_hands()
        client = shaking.result(WAIT_S)
    os.write(client.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))  # a record that decrypts to nothing
    with pytest.raises(ssl.SSLError):
        next(lane.messages())
    for _ in range(3):
        lane.put(b"answer")
    client.close()
    lane.release()


def test_a_client_that_takes_nothing_gives_way_like_any_other(start_bookie: StartBookie) -> None:
    bookie = start_bookie(over="lane", streams_max=1)
    bookie.create_ledger(1)
    hello = encode_client_control(pb.ClientControl(hello=pb.ClientHello(client="deaf")))
    with socket.create_connection(lane_of(bookie)) as deaf:
        deaf.sendall(encode_lane(PREFACE) + encode_lane(hello))
        assert eventually(lambda: bookie.bookie.streams.count == 1)
        (stream,) = bookie.bookie.streams.all()
        for _ in range(200):
            stream._outgoing.put(bytes(100_000))  # more than the kernel takes
        assert bookie.open_stream().attach(1) is Code.OK
        assert eventually(lambda: bookie.bookie.streams.count == 1)
    assert eventually(lambda: not any(thread.name == "lane-write" for thread in threading.enumerate()))


def test_a_stopped_bookie_listens_no_more(start_bookie: StartBookie) -> None:
    bookie = start_bookie(over="lane")
    bookie.create_ledger(1)
    stream, address = bookie.open_stream(), lane_of(bookie)
    bookie.stop()
    with pytest.raises(StreamEndedError):
        stream.take()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "127.0.0.1"),
        ({"advertised_address": "bookie.example:3181"}, "bookie.example"),
        (
            {"advertised_address": "bookie.example:3181", "advertised_lane_address": "lane.example:1"},
            "lane.example",
        ),
    ],
)
def test_the_lane_is_advertised_on_the_host_that_clients_use(
    start_bookie: StartBookie, settings: dict[str, str], expected: str
) -> None:
    bookie = start_bookie(**settings)
    assert bookie.server.advertised_lane.rpartition(":")[0] == expected
    assert bookie.open_stream().hello.lane_address == bookie.server.advertised_lane
