"""What a hostile client does to the port of a bookie's lane, as `attacks` does to that of gRPC.

A lane has no status: the bookie says why in a last message (`Ended`), or closes the connection of who has not said hello.
"""

import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from random import Random
from typing import Final

from daybook.core.ids import MESSAGE_BYTES_MAX
from daybook.runtime.ports import parse_address
from daybook.wire import bookie_pb2 as pb
from daybook.wire.channel import WIRE_MESSAGE_BYTES_MAX
from daybook.wire.lane import (
    END_OF_READ,
    HELLO_BYTES_MAX,
    LENGTH,
    PREFACE,
    READ_PREFACE,
    TLS_HANDSHAKE,
    encode_lane,
    lane_buffer,
)
from daybook.wire.messages import READ_MAGIC, decode_from_bookie, decode_read, encode_client_control
from tests.process.fuzz.attacks import HEALTHY, LEDGER, ODD_IDS, attach, damaged
from tests.process.fuzz.targets import TARGETS
from tests.unit.bookie.server_kit import eventually, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S, LanePipe, Stream

HELLO: Final = encode_client_control(pb.ClientControl(hello=pb.ClientHello(client="hostile")))
GREETING: Final = encode_lane(PREFACE) + encode_lane(HELLO)


class _Connection:
    """A connection that sends any bytes; no wait of it lasts longer than a test may."""

    def __init__(self, address: str) -> None:
        self.socket = socket.create_connection(parse_address(address), WAIT_S)

    def send(self, data: bytes) -> bool:
        """Send `data`; False once the bookie has ended the connection."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def finish(self) -> None:
        """Half-close and read to the end. Raises TimeoutError if the bookie does not end it, StreamError for what is no message."""
        buffer = lane_buffer(WIRE_MESSAGE_BYTES_MAX)
        with self.socket, suppress(ConnectionError):
            with suppress(OSError):  # the bookie was faster
                self.socket.shutdown(socket.SHUT_WR)
            while size_bytes := self.socket.recv_into(buffer.room()):
                for message in buffer.received(size_bytes):
                    _check(message)


def _check(message: bytes | bytearray) -> None:
    """Raise StreamError for what a bookie never sends."""
    if message.startswith(READ_MAGIC):
        decode_read(message)
    elif message != END_OF_READ:
        decode_from_bookie(message)


def damaged_messages(address: str, random: Random, count: int) -> int:
    """Damaged frames and controls on streams that are attached, each stream until the bookie ends it."""
    sent = 0
    while sent < count:
        connection = _Connection(address)
        connection.send(GREETING + encode_lane(attach()))
        for _ in range(random.randint(1, 20)):
            sent += 1
            if not connection.send(encode_lane(damaged(TARGETS["from_client"], random))):
                break
        connection.finish()
    return sent


def damaged_bytes(address: str, random: Random, count: int) -> int:
    """Bytes that begin no stream, or that end in the middle of a message."""
    absurd = [LENGTH.pack(length) for length in (0, 5, HELLO_BYTES_MAX + 1, 2**31, 2**32 - 1)]
    beginnings = [
        b"",
        PREFACE,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes([TLS_HANDSHAKE, 3, 1, 2, 0, 1]),
        encode_lane(b"DBL9"),
        encode_lane(PREFACE),
        encode_lane(PREFACE) + encode_lane(attach()),
        GREETING,
        GREETING + encode_lane(attach()),
        GREETING[:-3],
    ]
    for _ in range(count):
        data = (
            random.choice(beginnings)
            + random.choice((b"", *absurd))
            + random.randbytes(random.choice((0, 1, 9, 5000)))
        )
        connection = _Connection(address)
        connection.send(data)
        connection.finish()
    return count


def oversized_messages(address: str, random: Random, count: int) -> int:
    """Lengths over the limit, the largest that are allowed, of nothing but tiny frames, and such that never arrive."""
    tiny = frame_of(LEDGER, 0, [])
    allowed = encode_lane(attach()) + encode_lane(tiny * (MESSAGE_BYTES_MAX // len(tiny)))
    for number in range(count):
        connection = _Connection(address)
        connection.send(GREETING)
        connection.send(
            (
                LENGTH.pack(WIRE_MESSAGE_BYTES_MAX + 1) + bytes(2**20),
                LENGTH.pack(WIRE_MESSAGE_BYTES_MAX) + random.randbytes(2**16),
                allowed,
            )[number % 3]
        )
        connection.finish()
    return count


def half_open_connections(address: str, random: Random, count: int) -> int:
    """Connections that say nothing, half of a greeting, or hello and no more; then all go away, and a client finds room."""
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(_Connection(address).socket)
            with suppress(ConnectionError):  # too many at once are closed
                connection.sendall(GREETING[: random.choice((0, 1, 7, 9, len(GREETING)))])
    assert eventually(lambda: _is_served(address)), "those that went away hold no place"
    return count


def _is_served(address: str) -> bool:
    try:
        Stream(LanePipe(parse_address(address)), "after them").close()
    except Exception:  # noqa: BLE001 - the bookie may still refuse, in several ways
        return False
    return True


def deaf_streams(address: str, random: Random, count: int) -> int:
    """Questions without end on a connection whose answers nobody reads, until the bookie has had enough."""
    wrong = encode_client_control(pb.ClientControl(attach=pb.Attach(ledger_id=LEDGER, key="wrong")))
    questions = encode_lane(wrong) + encode_lane(b"DBF1 no frame")
    connection = _Connection(address)
    with connection.socket:
        connection.send(GREETING)
        sent = 0
        while sent < count and connection.send(questions):
            sent += 2
    return sent


def absurd_reads(address: str, random: Random, count: int) -> int:
    """Reads with numbers that no client of ours sends, and bytes that are no request, on connections for reads."""
    for _ in range(count):
        connection = _Connection(address)
        connection.send(encode_lane(READ_PREFACE) + encode_lane(HELLO))
        for _ in range(random.randint(1, 5)):
            request = pb.ReadRequest(
                ledger_id=random.choice([each for each in ODD_IDS if each not in HEALTHY]),
                first_entry=random.choice(ODD_IDS),
                last_entry=random.choice(ODD_IDS),
                bytes_max=random.choice(ODD_IDS),
                key=random.choice((KEY, "", "k" * 300)),
                fence=random.random() < 0.1,
            )
            noise = random.randbytes(random.choice((1, 10, 1000)))
            connection.send(encode_lane(random.choice((request.SerializeToString() or b"?", noise))))
        connection.finish()
    return count


def slow_readers(address: str, random: Random, count: int) -> int:
    """Reads of everything whose answers nobody takes; more of them than the bookie allows, then they go away."""
    everything = pb.ReadRequest(ledger_id=LEDGER, last_entry=2**63 - 1, bytes_max=2**63 - 1, key=KEY)
    greeting = encode_lane(READ_PREFACE) + encode_lane(HELLO)
    with ExitStack() as stack:
        for _ in range(count):
            connection = _Connection(address)
            stack.enter_context(connection.socket)
            connection.send(greeting + encode_lane(everything.SerializeToString()))
    return count


LANE_ATTACKS: Final[dict[str, tuple[Callable[[str, Random, int], int], int]]] = {
    "lane: damaged messages": (damaged_messages, 200),
    "lane: damaged bytes": (damaged_bytes, 100),
    "lane: oversized messages": (oversized_messages, 3),
    "lane: half-open connections": (half_open_connections, 100),
    "lane: deaf streams": (deaf_streams, 4000),
    "lane: absurd reads": (absurd_reads, 40),
    "lane: slow readers": (slow_readers, 60),
}
"""As `attacks.ATTACKS`; the address is that of the lane."""
