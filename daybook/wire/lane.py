"""The lane: the messages of an append stream over a TCP connection of their own, beside gRPC.

gRPC costs both ends of a small message four times what the kernel and the interpreter need for it (ADR 8), and an append
stream needs nothing of what it adds. So a bookie also serves the same messages, byte for byte, on a second port, each behind its
length as four bytes, little-endian. A client begins with a message of its own, the preface; then both ends say hello, as on
gRPC. The connection is encrypted if its first byte begins a TLS handshake; certificates are those of gRPC.

`MessageBuffer` is all that both ends share: it gives the socket room to write into and cuts out what is complete.
"""

import socket
import struct
from typing import Final

from daybook.core.stream import StreamError
from daybook.wire.channel import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS

PREFACE: Final = b"DBL1"
LENGTH: Final = struct.Struct("<I")
TLS_HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection (RFC 8446, section 5.1); a preface begins with its length, 4."""
HELLO_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 2.0
HELLO_BYTES_MAX: Final = 4096
"""No message is longer until both ends have said hello."""
_BUFFER_BYTES: Final = 64 * 1024


class MessageBuffer:
    """Receives bytes and cuts messages out of them.

    A message that does not fit into the buffer gets one of its own, into which the socket writes directly. Messages are
    never written to again.
    """

    __slots__ = ("_buffer", "_end", "_large", "_view", "bytes_max")

    def __init__(self, bytes_max: int = HELLO_BYTES_MAX) -> None:
        """Refuse messages longer than `bytes_max`, which may be raised later."""
        self.bytes_max = bytes_max
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        """How many bytes wait in the buffer, or in the large message."""
        self._large: bytearray | None = None

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._end :]
        return self._view[self._end :]

    def received(self, size_bytes: int) -> list[bytes | bytearray]:
        """So many bytes were written to `room`: the messages that are complete now. Raises StreamError for one that is too long."""
        self._end += size_bytes
        if self._large is not None:
            if self._end < len(self._large):
                return []
            messages: list[bytes | bytearray] = [self._large]
            self._large = None
            self._end = 0
            return messages
        return self._cut()

    def _cut(self) -> list[bytes | bytearray]:
        messages: list[bytes | bytearray] = []
        view, start, end = self._view, 0, self._end
        while end - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(view, start)
            if not 0 < length <= self.bytes_max:
                msg = f"a message of {length} bytes, and at most {self.bytes_max} are allowed: is this the port of a bookie's lane?"
                raise StreamError(msg)
            body = start + LENGTH.size
            if end - body < length:
                if LENGTH.size + length > _BUFFER_BYTES:
                    self._large = bytearray(length)
                    self._large[: end - body] = view[body:end]
                    self._end = end - body
                    return messages
                break
            messages.append(bytes(view[body : body + length]))
            start = body + length
        self._end = end - start
        if start and self._end:
            self._buffer[: self._end] = bytes(view[start:end])
        return messages


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
