"""A client's end of an append stream, over gRPC or over the lane, one message at a time."""

import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

import grpc

from daybook.core.errors import Code
from daybook.core.ledger.metadata import hash_password
from daybook.core.stream import StreamAnswer
from daybook.runtime.ports import Address
from daybook.wire import bookie_pb2 as pb
from daybook.wire.channel import WIRE_MESSAGE_BYTES_MAX
from daybook.wire.lane import END_OF_READ, PREFACE, READ_PREFACE, encode_lane, lane_buffer
from daybook.wire.messages import decode_from_bookie, encode_client_control, is_control
from daybook.wire.service import BookieStub

KEY = hash_password(b"secret", b"salt")
"""Of the ledgers that tests write to."""
WAIT_S = 40.0


class StreamEndedError(Exception):
    """The bookie ended an append stream; the text is its reason."""


class Pipe(Protocol):
    """What an append stream's messages travel through."""

    def send(self, message: bytes) -> None:
        """Send a message."""

    def end(self) -> None:
        """Send no more."""

    def messages(self) -> Iterator[bytes | bytearray]:
        """What the bookie sends. Raises StreamEndedError."""


class GrpcPipe:
    """A call of Append."""

    def __init__(self, stub: BookieStub) -> None:
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._call = stub.append(iter(self._outgoing.get, None))

    def send(self, message: bytes) -> None:
        """See Pipe."""
        self._outgoing.put(message)

    def end(self) -> None:
        """See Pipe."""
        self._outgoing.put(None)

    def messages(self) -> Iterator[bytes]:
        """See Pipe."""
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise StreamEndedError(error.details()) from error


class LanePipe:
    """A connection of the lane."""

    def __init__(self, address: Address, context: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(address)
        self._lock = threading.Lock()  # OpenSSL allows no two threads at one connection
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=address.host)
            self.socket.settimeout(0)
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()  # the bookie may take nothing for a while
        self.send(PREFACE)

    def send(self, message: bytes) -> None:
        """See Pipe."""
        self._outgoing.put(message)

    def end(self) -> None:
        """See Pipe."""
        self._outgoing.put(None)

    def _send(self) -> None:
        with suppress(OSError):  # whoever receives learns that the connection is gone
            for message in iter(self._outgoing.get, None):
                rest = memoryview(encode_lane(message))
                while rest:
                    rest = rest[self._do(partial(self.socket.send, rest)) :]
            self.socket.shutdown(socket.SHUT_WR)

    def messages(self) -> Iterator[bytes | bytearray]:
        """See Pipe."""
        buffer = lane_buffer(WIRE_MESSAGE_BYTES_MAX)
        with self.socket:
            while size_bytes := self._receive(buffer.room()):
                yield from buffer.received(size_bytes)

    def _do(self, call: Callable[[], int]) -> int:
        """Call until it need not wait for the other end."""
        if not isinstance(self.socket, ssl.SSLSocket):
            return call()
        while True:
            try:
                with self._lock:
                    return call()
            except ssl.SSLWantReadError:
                select.select(
                    [self.socket], [], [], 0.05
                )  # the other thread may have read what is waited for
            except ssl.SSLWantWriteError:
                select.select([], [self.socket], [], 0.05)

    def _receive(self, room: memoryview) -> int:
        try:
            return self._do(partial(self.socket.recv_into, room))
        except OSError as error:
            raise StreamEndedError(str(error)) from error


class Stream:
    """A client's end of an append stream, one message at a time."""

    def __init__(self, pipe: Pipe, name: str = "test") -> None:
        """Take the hello."""
        self.pipe = pipe
        self._incoming: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._receive, daemon=True).start()
        self.sent = 0
        self.say(pb.ClientControl(hello=pb.ClientHello(client=name)))
        hello = self.take()
        assert isinstance(hello, pb.ServerControl)
        self.hello = hello.hello

    def _receive(self) -> None:
        try:
            for message in self.pipe.messages():
                decoded = decode_from_bookie(message)
                if isinstance(decoded, pb.ServerControl) and decoded.HasField("ended"):
                    raise StreamEndedError(decoded.ended.detail)
                self._incoming.put(decoded)
            self._incoming.put(StreamEndedError("the bookie ended the stream"))
        except StreamEndedError as error:
            self._incoming.put(error)
        finally:
            self.pipe.end()  # the thread that sends ends too

    def say(self, control: pb.ClientControl) -> None:
        """Send a control message."""
        self.pipe.send(encode_client_control(control))

    def take(self, timeout_s: float = WAIT_S) -> Any:
        """The next message; raises what ended the stream, and queue.Empty."""
        message = self._incoming.get(timeout=timeout_s)
        if isinstance(message, Exception):
            raise message
        return message

    def is_quiet(self, for_s: float) -> bool:
        """Whether nothing comes for a while."""
        try:
            message = self._incoming.get(timeout=for_s)
        except Exception:  # noqa: BLE001 - queue.Empty is private to the C module's class
            return True
        self._incoming.put(message)
        return False

    def attach(self, ledger_id: int, *, key: str = KEY, recovery: bool = False) -> Code:
        """Attach and take the answer."""
        purpose = pb.PURPOSE_RECOVERY if recovery else pb.PURPOSE_WRITE
        self.say(pb.ClientControl(attach=pb.Attach(ledger_id=ledger_id, key=key, purpose=purpose)))
        answer = self.take()
        assert answer.attached.ledger_id == ledger_id
        return Code(answer.attached.code)

    def send(self, *frames: bytes) -> int:
        """Send a message of frames; its number."""
        self.sent += 1
        self.pipe.send(b"".join(frames))
        return self.sent

    def settle(self, message: int) -> dict[int, Code]:
        """Wait until `message` is decided; the codes of its frames that failed."""
        failed: dict[int, Code] = {}
        through = -1
        while through < message:
            answer = self.take()
            assert isinstance(answer, StreamAnswer)
            failed |= {f.frame: f.code for f in answer.failures if f.message == message}
            through = answer.through
        return failed

    def add(self, *frames: bytes) -> dict[int, Code]:
        """Send a message and wait for its outcome."""
        return self.settle(self.send(*frames))

    def close(self) -> None:
        """End it from this side, and wait for the other."""
        self.pipe.end()
        while True:
            try:
                self.take()
            except StreamEndedError:
                return


class LaneReader:
    """A client's connection for reads over the lane."""

    def __init__(self, address: Address) -> None:
        """Connect, and take the hello."""
        self.socket = socket.create_connection(address, WAIT_S)
        self._buffer = lane_buffer(WIRE_MESSAGE_BYTES_MAX)
        self._received: deque[bytes | bytearray] = deque()
        hello = encode_client_control(pb.ClientControl(hello=pb.ClientHello(client="test")))
        self.socket.sendall(encode_lane(READ_PREFACE) + encode_lane(hello))
        self.hello = self.take()

    def ask(self, request: pb.ReadRequest) -> None:
        """Send a request."""
        self.socket.sendall(encode_lane(request.SerializeToString()))

    def take(self) -> bytes | bytearray:
        """The next message. Raises StreamEndedError, also for a reason that the bookie gives."""
        while not self._received:
            size_bytes = self.socket.recv_into(self._buffer.room())
            if not size_bytes:
                raise StreamEndedError("the bookie ended the connection")
            self._received.extend(self._buffer.received(size_bytes))
        message = self._received.popleft()
        if is_control(message):
            control = decode_from_bookie(message)
            assert isinstance(control, pb.ServerControl)
            if control.HasField("ended"):
                raise StreamEndedError(control.ended.detail)
        return message

    def read(self, request: pb.ReadRequest) -> Iterator[bytes | bytearray]:
        """The messages of the answer to `request`."""
        self.ask(request)
        yield from iter(self.take, END_OF_READ)

    def close(self) -> None:
        """Go away."""
        self.socket.close()
