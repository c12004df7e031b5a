"""A message that is sent in parts arrives as it would have joined, however the kernel takes it."""

import socket
from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import pytest
from daybook_bookie.lane.parts import PARTS_MAX, send_parts

PARTS = {
    "one": [b"x"],
    "none at all": [b""],
    "empty ones between": [b"", b"a", b"", b"", b"bc", b""],
    "more than one call takes": [bytes([n % 256]) * (n % 3) for n in range(3 * PARTS_MAX)],
    "more than a buffer takes": [
        b"a" * 3_000_000,
        b"b",
        memoryview(b"c" * 2_000_000),
        bytearray(b"d" * 100_000),
    ],
}


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection."""
    here, there = socket.socketpair()
    with closing(here), closing(there):
        yield here, there


@pytest.mark.parametrize("timeout_s", [None, 10.0])
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_all_parts_arrive_in_order(
    ends: tuple[socket.socket, socket.socket], parts: list[bytes], timeout_s: float | None
) -> None:
    here, there = ends
    here.settimeout(timeout_s)
    received: list[bytes] = []
    thread = Thread(target=lambda: received.extend(iter(lambda: there.recv(65_536), b"")))
    thread.start()
    send_parts(here, parts)
    here.shutdown(socket.SHUT_WR)
    thread.join()
    assert b"".join(received) == b"".join(parts)


def test_who_takes_nothing_is_not_waited_for(ends: tuple[socket.socket, socket.socket]) -> None:
    here, _ = ends
    here.settimeout(0.05)
    with pytest.raises(TimeoutError):
        send_parts(here, [b"x" * 1_000_000] * 5)


def test_who_takes_a_little_at_a_time_has_no_longer_than_who_takes_nothing(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    here, there = ends
    here.settimeout(0.2)
    thread = Thread(target=lambda: [None for _ in iter(lambda: there.recv(1_000), b"")])
    thread.start()
    with pytest.raises(TimeoutError, match="has not taken a message within"):
        send_parts(here, [b"x" * 1_000_000] * 10_000)
    here.close()
    thread.join()
