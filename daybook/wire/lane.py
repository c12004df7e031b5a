"""The lane: the messages of append streams and of reads over TCP connections of their own, beside gRPC.

gRPC costs both ends of a small message four times what the kernel and the interpreter need for it (ADR 8), and an append
stream needs nothing of what it adds. So a bookie also serves the same messages, byte for byte, on a second port, each behind its
length as four bytes, little-endian. A client begins with a message of its own, the preface; then both ends say hello, as on
gRPC. The connection is encrypted if its first byte begins a TLS handshake; certificates are those of gRPC.

Another preface begins a connection for reads, so that no large answer stands before the answers of a stream: request after
request, each answered by the messages of gRPC's answer and then `END_OF_READ`.

Both ends receive into a `MessageBuffer` (message_buffer.py).
"""

import socket
import struct
from typing import Final

from daybook.core.stream import StreamError
from daybook.wire.channel import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS
from daybook.wire.message_buffer import MessageBuffer

PREFACE: Final = b"DBL1"
READ_PREFACE: Final = b"DBL1 reads"
END_OF_READ: Final = b"."
LENGTH: Final = struct.Struct("<I")
TLS_HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection (RFC 8446, section 5.1); a preface begins with its length, 4."""
HELLO_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 2.0
HELLO_BYTES_MAX: Final = 4096
"""No message is longer until both ends have said hello."""


def lane_buffer(bytes_max: int = HELLO_BYTES_MAX) -> MessageBuffer:
    """A buffer for the messages of a lane. It raises StreamError for a message longer than `bytes_max`, which may be raised later."""
    return MessageBuffer(bytes_max, LENGTH, _too_long)


def _too_long(length: int, bytes_max: int) -> StreamError:
    msg = f"a message of {length} bytes, and at most {bytes_max} are allowed: is this the port of a bookie's lane?"
    return StreamError(msg)


def configure_socket(connection: socket.socket) -> None:
    """Send at once, and find a peer that is gone as soon as gRPC does: one that is silent, and one that acknowledges nothing."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_MS // 1000),
        ("TCP_KEEPINTVL", KEEPALIVE_TIMEOUT_MS // 1000),
        ("TCP_KEEPCNT", 1),
        ("TCP_USER_TIMEOUT", KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS),
    ):
        option = getattr(socket, name, None)
        if option is not None:  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def encode_lane(message: bytes) -> bytes:
    """`message` as it goes over a lane."""
    return LENGTH.pack(len(message)) + message
