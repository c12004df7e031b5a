"""The lane's port: takes connections, greets who comes, and gives each stream a thread to receive with.

Whoever connects has a few seconds to say hello and a bounded number of places to do it in, so that connections that say
nothing cost little and keep nobody else away. From the hello on a connection is an append stream like those over gRPC: it counts
against `streams_max`, and it is evicted and refused by the same rules.
"""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final

from daybook.core.stream import StreamError
from daybook.runtime.logs import get_logger
from daybook.runtime.ports import Address, check_port_free
from daybook.wire import bookie_pb2 as pb
from daybook.wire.lane import HELLO_TIMEOUT_S, PREFACE, READ_PREFACE, TLS_HANDSHAKE, configure_socket
from daybook.wire.messages import decode_client_control, encode_server_control
from daybook_bookie.lane.connection import LaneConnection
from daybook_bookie.lane.reading import LaneReads
from daybook_bookie.service.append import AppendStream
from daybook_bookie.service.deadlines import Deadlines
from daybook_bookie.service.streams import AppendStreams

_LOG: Final = get_logger(__name__)
_GREETING_MAX: Final = 64
"""Connections that may be in the middle of their hello."""
_HELLO_TIMEOUT_MS: Final = int(1000 * HELLO_TIMEOUT_S)
_BACKLOG: Final = 128
_ACCEPT_RETRY_S: Final = 0.5


class LaneListener:
    """Serves append streams, and reads, on a port of their own."""

    def __init__(
        self,
        address: Address,
        streams: AppendStreams,
        reads: LaneReads,
        hello: Callable[[], pb.ServerControl],
        *,
        deadlines: Deadlines,
        tls_context: Callable[[], ssl.SSLContext] | None,
        allows_plain: bool,
    ) -> None:
        """Listen on `address` (port 0: a free one); nothing is answered before `start`. Raises PortInUseError.

        `hello` makes what the bookie says first. `tls_context` is asked for each connection; None: there is no TLS here.
        """
        check_port_free(address, "lane_address")
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._listener = socket.create_server(tuple(address), family=family, backlog=_BACKLOG)
        self.address = Address(address.host, self._listener.getsockname()[1])
        self._streams = streams
        self._reads = reads
        self._hello = hello
        self._deadlines = deadlines
        self._tls_context = tls_context
        self._allows_plain = allows_plain
        self._greeting = threading.BoundedSemaphore(_GREETING_MAX)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="lane", daemon=True)

    def start(self) -> None:
        """Begin to take connections."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more connections and end those for reads; whoever owns the streams ends those that are there."""
        self._stopping.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reads.close()
        if self._thread.is_alive():
            self._thread.join()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, peer = self._listener.accept()
            except OSError as error:
                if not self._stopping.is_set():
                    _LOG.warning("the lane takes no connection", reason=str(error))
                    self._stopping.wait(_ACCEPT_RETRY_S)
                continue
            if not self._greeting.acquire(blocking=False):
                _LOG.warning(
                    "a connection to the lane is refused: too many have not said hello", peer=peer[0]
                )
                connection.close()
                continue
            thread = threading.Thread(
                target=self._serve, args=(connection, peer[0]), name="lane-read", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the process may have no more threads
                _LOG.warning("a connection to the lane is refused", peer=peer[0], reason=str(error))
                connection.close()
                self._greeting.release()

    def _serve(self, connection: socket.socket, peer: str) -> None:
        """The life of one connection."""
        try:
            with self._deadlines.within(_HELLO_TIMEOUT_MS, partial(_shut, connection)):
                lane, messages, is_for_reads = self._greet(connection)
        except (OSError, StreamError) as error:
            _LOG.info("a connection to the lane ends before its hello", peer=peer, reason=str(error))
            connection.close()
            return
        finally:
            self._greeting.release()
        try:
            if is_for_reads:
                self._reads.serve(lane, messages, self._hello())
            else:
                self._run(lane, messages)
        finally:
            lane.release()

    def _greet(self, connection: socket.socket) -> tuple[LaneConnection, Iterator[bytes | bytearray], bool]:
        """Take the preface, which says whether the connection is for reads, and the client's hello. Raises OSError, StreamError."""
        configure_socket(connection)
        lane = LaneConnection(connection, self._context_for(connection))
        lane.shake_hands()
        messages = lane.messages()
        preface = next(messages, b"")
        if preface not in (PREFACE, READ_PREFACE):
            msg = "it does not begin with the preface of a lane: a client of gRPC belongs to the bookie's other port"
            raise StreamError(msg)
        hello = next(messages, b"")
        if decode_client_control(bytes(hello)).WhichOneof("message") != "hello":
            msg = "it says something else before hello"
            raise StreamError(msg)
        if preface == READ_PREFACE:
            return lane, messages, True
        lane.allow_long_messages()
        return lane, chain([hello], messages), False

    def _context_for(self, connection: socket.socket) -> ssl.SSLContext | None:
        """What decrypts the connection; None if it is not encrypted. Raises StreamError where it must be, or cannot be."""
        first = connection.recv(1, socket.MSG_PEEK)
        if first[:1] == bytes([TLS_HANDSHAKE]):
            if self._tls_context is None:
                msg = "it speaks TLS, and the bookie has no certificate: set tls_certificate and tls_key"
                raise StreamError(msg)
            return self._tls_context()
        if not self._allows_plain:
            msg = "it does not speak TLS, which the bookie requires"
            raise StreamError(msg)
        return None

    def _run(self, lane: LaneConnection, messages: Iterator[bytes | bytearray]) -> None:
        stream = self._streams.open(lane)
        if stream is None:
            lane.put(_ended(self._streams.refusal))
            return
        stream.send_control(self._hello())
        stream.on_evicted = lambda: lane.put(_ended(stream.evicted))
        if stream.evicted:  # before it could be said
            stream.on_evicted()
        try:
            if reason := stream.run(_until_lost(stream, messages)):
                lane.put(_ended(reason))
        finally:
            stream.close()
            self._streams.ended(stream)


def _until_lost(stream: AppendStream, messages: Iterator[bytes | bytearray]) -> Iterator[bytes | bytearray]:
    """The messages of a client, until it ends the stream or its connection ends."""
    try:
        yield from messages
    except OSError as error:
        _LOG.info("an append stream lost its connection", client=stream.client, reason=str(error))


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # it may have ended by itself
        connection.shutdown(socket.SHUT_RDWR)


def _ended(detail: str) -> bytes:
    return encode_server_control(pb.ServerControl(ended=pb.Ended(detail=detail)))
