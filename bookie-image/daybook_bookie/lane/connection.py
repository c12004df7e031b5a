"""One client's connection of the lane: a thread receives its messages, and any thread sends.

What fits into the kernel's buffer is sent by whoever has it, mostly the journal's thread: a thread of its own for it would cost
each answer a change of threads. Only what does not fit waits for a thread that is started for it.
"""

import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from daybook.core.format.frame import Buffer
from daybook.wire.channel import WIRE_MESSAGE_BYTES_MAX
from daybook.wire.lane import LENGTH, encode_lane, lane_buffer
from daybook_bookie.lane.parts import send_parts
from daybook_bookie.lane.tls import TlsCodec

_MORE: Final = getattr(socket, "MSG_MORE", 0)
_RECEIVE_BYTES: Final = 256 * 1024


class LaneConnection:
    """A connected socket, which this object closes. It is the `Outgoing` of an append stream.

    Whatever the client does, sending raises nothing: who sends serves all other clients as well.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        """`context` if the client speaks TLS: call `shake_hands` first then."""
        self._socket = connection
        self._tls = None if context is None else TlsCodec(context)
        self._buffer = lane_buffer()
        self._early: list[bytes | bytearray] = []
        self._lock = threading.Lock()
        self._unsent: deque[tuple[bytes, int]] = deque()
        self._unsent_messages = self._unsent_bytes = 0
        self._has_unsent = threading.Condition(self._lock)
        self._has_writer = False
        self._closed = False

    # Receiving, by one thread

    def shake_hands(self) -> None:
        """Complete the TLS handshake, if there is one. Raises OSError, of which ssl.SSLError is one."""
        if self._tls is None:
            return
        complete = False
        while not complete:
            received = self._socket.recv(_RECEIVE_BYTES)
            if not received:
                msg = "the client closed the connection during the TLS handshake"
                raise ConnectionError(msg)
            try:
                complete = self._tls.shake_hands(received)
            finally:
                self._socket.sendall(
                    self._tls.unsent()
                )  # after an error, the alert that tells the client why
        self._early = self._tls.decrypt(b"", self._buffer)

    def allow_long_messages(self) -> None:
        """The client has said hello."""
        self._buffer.bytes_max = WIRE_MESSAGE_BYTES_MAX

    def messages(self) -> Iterator[bytes | bytearray]:
        """What the client sends, until it or this side ends the connection. Raises StreamError, OSError."""
        yield from self._early
        while (messages := self._receive()) is not None:
            yield from messages

    def _receive(self) -> list[bytes | bytearray] | None:
        if self._tls is None:
            size_bytes = self._socket.recv_into(self._buffer.room())
            return self._buffer.received(size_bytes) if size_bytes else None
        received = self._socket.recv(_RECEIVE_BYTES)
        if not received:
            return None
        with self._lock:
            messages = self._tls.decrypt(received, self._buffer)
            if unsent := self._tls.unsent():
                self._send(unsent, 1)
        return messages

    # Sending, by any thread

    @property
    def waiting(self) -> int:
        """How many messages did not fit into the kernel's buffer."""
        return self._unsent_messages

    @property
    def waiting_bytes(self) -> int:
        """How many bytes did not fit into the kernel's buffer, those of TLS too."""
        return self._unsent_bytes

    def put(self, *messages: bytes) -> None:
        """Send `messages` without waiting for the client; they are dropped once the connection is closed."""
        data = b"".join(map(encode_lane, messages)) if len(messages) > 1 else encode_lane(messages[0])
        with self._lock:
            if self._closed:
                return
            if self._tls is not None:
                try:
                    data = self._tls.encrypt(data)
                except ssl.SSLError:  # the client broke TLS: that must not reach the journal's thread
                    self._shut()
                    return
            self._send(data, len(messages))

    def send(self, parts: Sequence[Buffer], *, is_last: bool) -> None:
        """Send a message, given in parts, and wait until the kernel has taken it, where one thread alone sends. Raises OSError.

        Unless it `is_last`, the kernel may join it with the next one.
        """
        flags = 0 if is_last else _MORE
        framed = [LENGTH.pack(sum(map(len, parts))), *parts]
        if self._tls is not None:
            self._socket.sendall(self._tls.encrypt(b"".join(framed)), flags)
        else:
            send_parts(self._socket, framed, flags)

    @property
    def sends_parts(self) -> bool:
        """Whether `send` waits with the parts themselves, not with a copy."""
        return self._tls is None

    def end_waits_after(self, timeout_s: float) -> None:
        """Nothing waits longer for the client from now on: receiving and `send` raise TimeoutError."""
        self._socket.settimeout(timeout_s)

    def _send(self, data: bytes, messages: int) -> None:
        """Send what fits of some `messages`, queue the rest. With the lock held."""
        if not self._unsent:
            try:
                sent = self._socket.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._shut()
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._unsent.append((data, messages))
        self._unsent_messages += messages
        self._unsent_bytes += len(data)
        self._has_unsent.notify()
        if not self._has_writer:
            self._start_writer()

    def _start_writer(self) -> None:
        try:
            threading.Thread(target=self._write, name="lane-write", daemon=True).start()
        except RuntimeError:  # the process may have no more threads
            self._shut()
        else:
            self._has_writer = True

    def _write(self) -> None:
        """Send what waits, until the connection is closed."""
        while True:
            with self._lock:
                while not self._unsent and not self._closed:
                    self._has_unsent.wait()
                if self._closed:
                    return
                data, messages = self._unsent[0]  # it stays there, so that nobody else sends meanwhile
            try:
                self._socket.sendall(data)
            except OSError:
                self.close()
                return
            with self._lock:
                self._unsent.popleft()
                self._unsent_messages -= messages
                self._unsent_bytes -= len(data)

    # The end

    def close(self) -> None:
        """End the connection: both threads of it return. What the kernel has is still delivered."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        if not self._closed:
            self._closed = True
            self._has_unsent.notify()
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # the client was faster

    def release(self) -> None:
        """Free the socket, once no thread receives from it any more."""
        self.close()
        self._socket.close()
