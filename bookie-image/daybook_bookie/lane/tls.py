"""TLS over bytes that somebody else moves.

One thread of a connection receives while another one sends, and OpenSSL's connections are not safe for that. So the bytes
pass through memory, and whoever calls holds the connection's lock; the system calls, which wait, are outside of it.
"""

import ssl
from typing import Final, cast

from daybook.wire.message_buffer import MessageBuffer

_ENDED: Final = (ssl.SSLZeroReturnError, ssl.SSLEOFError)


class TlsCodec:
    """The server's side of one TLS connection. Raises ssl.SSLError where the client breaks its rules."""

    def __init__(self, context: ssl.SSLContext) -> None:
        """Nothing has arrived."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self, received: bytes) -> bool:
        """Continue the handshake with what was received: whether it is complete. Then, and after an error, send `unsent`."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def unsent(self) -> bytes:
        """What TLS itself has to send now."""
        return self._outgoing.read()

    def decrypt(self, received: bytes, buffer: MessageBuffer) -> list[bytes | bytearray]:
        """The messages that are complete with what was received; send `unsent` then."""
        if received:
            self._incoming.write(received)
        messages: list[bytes | bytearray] = []
        while True:
            room = buffer.room()
            try:
                size_bytes = cast("int", self._tls.read(len(room), room))  # typeshed knows no buffer here
            except ssl.SSLWantReadError:
                break
            except _ENDED:
                self._incoming.write_eof()
                break
            if not size_bytes:
                break
            messages.extend(buffer.received(size_bytes))
        return messages

    def encrypt(self, message: bytes) -> bytes:
        """What to send for `message`."""
        self._tls.write(message)
        return self._outgoing.read()
