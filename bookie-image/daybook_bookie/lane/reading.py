"""Reads over the lane: connections for reads alone, on each of which a client reads one range after the other.

A connection has a thread, which reads and sends, so that it waits for the client where the client is slow, and nobody else does. Whoever asks
nothing for as long as a call may take, or takes nothing, is hung up on. Reads that fence have their own threads, in gRPC's server.

A message costs both ends much the same whatever its size, and may be in the bookie's memory until its client has taken it. So messages are
large while few reads are answered, and smaller the more there are.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from daybook.core.format.frame import FRAME_BYTES_TARGET, Buffer
from daybook.core.stream import StreamError
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook.wire.lane import END_OF_READ
from daybook.wire.messages import encode_server_control
from daybook_bookie.lane.connection import LaneConnection

_LOG: Final = get_logger(__name__)
MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024
"""A client asks for 4 MiB of payload at once, which have tables and blocks that it has not asked for whole."""
MESSAGE_BYTES_MIN: Final = 2 * FRAME_BYTES_TARGET
"""In less there may be no room for a whole block."""
STOP_TIMEOUT_S: Final = 5.0
"""To send on a connection that is closed fails at once, so only a read of a slow disk takes longer than a moment."""

Read: TypeAlias = Callable[[pb.ReadRequest, Callable[[], int], bool], Generator[Sequence[Buffer], None, None]]
"""Gives the messages of an answer in parts, each of about so many bytes, and whether parts may be views: see `Reads.read_in_parts`."""


class LaneReads:
    """The connections for reads."""

    def __init__(
        self,
        read: Read,
        reading: AbstractContextManager[object],
        *,
        connections_max: int,
        answers_bytes_max: int,
        call_timeout_ms: int,
    ) -> None:
        """Each message is made inside `reading`, which bounds how many reads work at once. `answers_bytes_max`: see `message_bytes`."""
        self._read = read
        self._reading = reading
        self._connections_max = connections_max
        self._answers_bytes_max = answers_bytes_max
        self._timeout_s = call_timeout_ms / 1000
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._open: set[LaneConnection] = set()
        self._answers = 0
        """How many connections are being answered."""
        self._closed = False

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def message_bytes(self) -> int:
        """How large the next message is, so that all answers together hold about `answers_bytes_max`."""
        share = self._answers_bytes_max // max(1, self._answers)
        return max(MESSAGE_BYTES_MIN, min(share, MESSAGE_BYTES_MAX))

    def serve(
        self, lane: LaneConnection, requests: Iterator[bytes | bytearray], hello: pb.ServerControl
    ) -> None:
        """Answer until the client ends the connection, or this object is closed."""
        if not self._enter(lane):
            return
        try:
            lane.put(encode_server_control(hello))
            lane.end_waits_after(self._timeout_s)
            for request in requests:
                self._answer(lane, request)
        except OSError as error:
            _LOG.debug("a connection for reads ends", reason=str(error))
        except StreamError as error:
            _LOG.warning("a client broke the rules of a connection for reads", reason=str(error))
            lane.put(_ended(str(error)))
        except Exception:  # noqa: BLE001 - whatever it is, the client receives a reason and asks another bookie
            _LOG.exception("a read failed")
            lane.put(_ended("the bookie failed to read; its log says why"))
        finally:
            with self._lock:
                self._open.discard(lane)
                self._ended.notify_all()

    def _enter(self, lane: LaneConnection) -> bool:
        with self._lock:
            fits = len(self._open) < self._connections_max
            if fits and not self._closed:
                self._open.add(lane)
                return True
        if not fits:
            text = f"{self._connections_max} connections for reads are open: use gRPC, or raise streams_max"
            lane.put(_ended(text))
        return False

    def _answer(self, lane: LaneConnection, message: bytes | bytearray) -> None:
        """Answer one request. Raises StreamError, OSError."""
        try:
            request = pb.ReadRequest.FromString(bytes(message))
        except DecodeError as error:
            text = "no request for a read"
            raise StreamError(text) from error
        if request.fence:
            text = "a read that fences goes over gRPC"
            raise StreamError(text)
        with self._counted(), closing(self._read(request, self.message_bytes, lane.sends_parts)) as answer:
            while True:
                with self._reading:
                    parts = next(answer, None)
                if parts is None:
                    break
                lane.send(parts, is_last=False)
        lane.send([END_OF_READ], is_last=True)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._answers += 1
        try:
            yield
        finally:
            with self._lock:
                self._answers -= 1

    def close(self) -> None:
        """End all connections, and every one that comes; wait for those that are still answered, which look at the store."""
        with self._lock:
            self._closed = True
            lanes = list(self._open)
        for lane in lanes:
            lane.close()
        with self._lock:
            if not self._ended.wait_for(lambda: not self._open, STOP_TIMEOUT_S):
                _LOG.warning("reads have not ended", connections=len(self._open))


def _ended(detail: str) -> bytes:
    return encode_server_control(pb.ServerControl(ended=pb.Ended(detail=detail)))
