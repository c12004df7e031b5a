"""A connection of a Pulsar client: bytes in, frames cut out of them, commands passed to their handlers, answers out.

SEND, which comes for every entry, is read here without protobuf and goes to its producer; every other command has a handler in a table.
What one turn of the event loop sends leaves in one write.

A connection is not read from while it, its topics or the whole broker have too many entries without a receipt, and while the client
does not take what was sent to it: then the client's own back-pressure sets in. A wrong frame ends the connection, because where the
next one begins is unknown; any other mistake of a client is answered, and harms nobody else.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.runtime.logs import get_logger
from daybook.wire.pulsar.by_hand import Send, parse_send
from daybook.wire.pulsar.errors import PulsarFrameError, UnknownCommandError
from daybook.wire.pulsar.frames import (
    FRAME_PADDING_BYTES,
    decode_command,
    encode_frame,
    frame_buffer,
    split_frame,
)
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandError
from daybook_broker.auth.tokens import Identity
from daybook_broker.connection.credentials import Credentials
from daybook_broker.connection.keep_alive import KeepAlive
from daybook_broker.connection.requests import Requests
from daybook_broker.connection.topic_lists import Watchers
from daybook_broker.errors import NotAllowedError, server_error
from daybook_broker.topics.consumer import Consumer
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.producer import Producer

if TYPE_CHECKING:
    from daybook_broker.connection.listener import Connections

log = get_logger(__name__)

NO_REQUEST: Final = 2**64 - 1
"""The request id of an error that answers no request; Pulsar's brokers use the same (−1)."""
CONNECT_TIMEOUT_S: Final = 10.0
"""How long a client may take for CONNECT."""
_TO_CLOSED_PRODUCERS_MAX: Final = 10_000
_JOINED_BYTES_MAX: Final = 64 * 1024
"""What one turn sends is copied into one piece up to this size: a piece for each receipt costs asyncio more."""
_PENDING: Final = "pending bytes of the connection"
_BUDGET: Final = "pending bytes of the broker"
_WRITING: Final = "the client does not take what was sent to it"


Handler: TypeAlias = Callable[["Connection", BaseCommand, Buffer], None]
"""Carries out a command; what stands behind it in its frame is mostly empty. It may raise a DaybookError, which answers the request."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection. Its address and its consumers are for handlers; `Peer` (topics/peer.py) is what topics know of it."""

    def __init__(self, connections: "Connections", handlers: Mapping[int, Handler]) -> None:
        self.broker = connections.broker
        self.address = ""
        self.client_version = ""
        self.protocol_version = 0
        self.role = ""
        """Who the client is; empty while nobody is asked."""
        self.listener: str | None = None
        """The name of the listener that the client's lookups ask for, "" for no name; None: it sent no lookup."""
        self.is_connected = False
        """Whether CONNECT was answered."""
        self.is_lost = False
        self._is_ending = False
        self.is_writable = True
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        self.pending_bytes = 0
        settings = self.broker.settings
        self.requests = Requests(settings.requests_max, self.refuse)
        self.keep_alive = KeepAlive(self, settings.keep_alive_ms / 1000)
        self.credentials = Credentials(self)
        self.watchers = Watchers(self)
        self._connections = connections
        self._budget = connections.budget
        self._handlers = handlers
        self._pending_bytes_max = settings.connection_pending_bytes
        self._counted_bytes = 0
        self._buffer = frame_buffer()
        self._transport: asyncio.Transport | None = None
        self._pauses: set[object] = set()
        self._totals = self.broker.metrics.totals
        self._out: list[Buffer] = []
        self._waiting_to_write: list[Callable[[], None]] = []
        self._closed_producers: dict[int, None] = {}
        """What still arrives for them was sent before the client knew."""
        self._connect_timer: asyncio.TimerHandle | None = None
        """Ends the connection unless CONNECT comes."""

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.address = f"{host}:{port}"
        transport.set_write_buffer_limits(self.broker.settings.send_buffer_bytes)
        if (refusal := self._connections.add(self)) is not None:
            self.fail(refusal)
            return
        self._connect_timer = asyncio.get_running_loop().call_later(CONNECT_TIMEOUT_S, self._connect_late)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature; why does not matter
        """The client is gone: so are its producers and consumers."""
        self.is_lost = self._is_ending = True
        self.is_writable = False
        self._transport = None
        self._out.clear()
        self._connections.remove(self)
        if self._connect_timer is not None:
            self._connect_timer.cancel()
        self.keep_alive.stop()
        self.credentials.stop()
        self.requests.cancel()
        self.watchers.stop()
        self._budget.forget(self)
        self.count_pending()
        producers, self.producers = self.producers, {}
        for producer in producers.values():
            producer.topic.remove_producer(producer)
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            consumer.detach()
        self._call_writers()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature; the buffer has its own size
        """Where the next bytes go."""
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self.keep_alive.has_read = True
        try:
            for frame in self._buffer.received(nbytes):
                if self._is_ending:
                    return
                self._take(frame)
        except PulsarFrameError as error:
            self.fail(error)
        if self.pending_bytes != self._counted_bytes:
            self.count_pending()

    def eof_received(self) -> bool:
        """The client has closed its side: so do we."""
        return False

    # Commands

    def _take(self, frame: bytes | bytearray) -> None:
        command, entry = split_frame(frame)
        send = parse_send(command)
        if send is not None and self.is_connected:
            producer = self.producers.get(send[0])
            if producer is not None:
                producer.send(send, entry)
            else:
                self.send_to_nobody(send)
            return
        self._totals.commands += 1
        try:
            decoded = decode_command(command)
        except UnknownCommandError as error:
            self.refuse(NO_REQUEST, error)
            return
        if not self.is_connected and decoded.type != BaseCommand.CONNECT:
            name = BaseCommand.Type.Name(decoded.type)
            self.fail(
                NotAllowedError(f"{name} came before CONNECT: a client says CONNECT first"),
                _request_id(decoded),
            )
            return
        handler = self._handlers.get(decoded.type)
        try:
            if handler is None:
                name = BaseCommand.Type.Name(decoded.type)
                msg = f"this broker has no {name}: use a client without that feature, or switch it off"
                raise NotAllowedError(msg)
            handler(self, decoded, entry)
        except DaybookError as error:
            self.refuse(_request_id(decoded), error)

    def send_to_nobody(self, send: Send) -> None:
        """An entry for a producer that is not there."""
        producer_id, sequence_id = send[:2]
        if producer_id in self._closed_producers or self.requests.is_busy(("producer", producer_id)):
            return  # the client did not know yet, and sends it again
        code = server_error(NotAllowedError())
        msg = f"there is no producer {producer_id} on this connection: send PRODUCER, and wait for its success, before SEND"
        failure = BaseCommand(type=BaseCommand.SEND_ERROR)
        failure.send_error.producer_id = producer_id
        failure.send_error.sequence_id = sequence_id
        failure.send_error.error = code
        failure.send_error.message = msg
        self.send_command(failure)

    def producer_closed(self, producer_id: int) -> None:
        """The broker has closed the producer: what the client sent before it knew is ignored."""
        self._closed_producers[producer_id] = None
        if len(self._closed_producers) > _TO_CLOSED_PRODUCERS_MAX:
            del self._closed_producers[next(iter(self._closed_producers))]

    def producer_opened(self, producer: Producer) -> None:
        """What the client sends from now on is for it."""
        self._closed_producers.pop(producer.id, None)
        self.producers[producer.id] = producer

    def certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate, which TLS has checked; None without one."""
        return None if self._transport is None else self._transport.get_extra_info("peercert")

    def connected(self, client_version: str, protocol_version: int, identity: Identity) -> None:
        """CONNECT is answered: the client may send all commands, and long ones, while its credentials hold."""
        self.role = identity.role
        self.client_version = client_version
        self.protocol_version = protocol_version
        self.is_connected = True
        self._buffer.bytes_max = self.broker.settings.message_bytes_max + FRAME_PADDING_BYTES
        if self._connect_timer is not None:
            self._connect_timer.cancel()
        self.keep_alive.start()

    def _connect_late(self) -> None:
        self.fail(
            NotAllowedError(f"no CONNECT came for {CONNECT_TIMEOUT_S:.0f} s: a client says CONNECT first")
        )

    # Answers

    def send(self, *parts: Buffer) -> None:
        """Send bytes, together with all that this turn of the event loop sends."""
        if self._transport is None:
            self.count_pending()  # the end of the turn does it only where something is sent
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.extend(parts)

    def send_command(self, command: BaseCommand) -> None:
        """Send a command that has no entry."""
        self.send(encode_frame(command))

    def assigned(self, urls: BrokerUrls | None) -> dict[str, str]:
        """The fields of CLOSE_PRODUCER and CLOSE_CONSUMER that name the broker to continue with; without them the client looks the topic up."""
        found = None if urls is None else urls.of(self.listener)
        plain, tls = ("", "") if found is None else found
        fields = {"assignedBrokerServiceUrl": plain, "assignedBrokerServiceUrlTls": tls}
        return {name: url for name, url in fields.items() if url}

    def refuse(self, request_id: int, error: DaybookError) -> None:
        """Answer a request with an error; the connection continues."""
        self._totals.refusals += 1
        failure = CommandError(request_id=request_id, error=server_error(error), message=str(error))
        self.send_command(BaseCommand(type=BaseCommand.ERROR, error=failure))

    def fail(self, error: DaybookError, request_id: int = NO_REQUEST) -> None:
        """End the connection, and say why."""
        log.info("a connection is ended", client=self.address, why=str(error))
        self.refuse(request_id, error)
        self.close()

    def close(self) -> None:
        """End the connection after all that was sent; `keep_alive` ends one that does not take it."""
        self._flush()
        self._is_ending = True
        if self._transport is not None:
            self._transport.close()
            if not self.is_connected and self.unsent_bytes:
                self.keep_alive.start()

    def abort(self) -> None:
        """End the connection now, whatever was sent: the client is dead, or does not listen."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None:
            if sum(map(len, out)) <= _JOINED_BYTES_MAX:
                self._transport.write(b"".join(out))
            else:
                self._transport.writelines(out)
        if self.pending_bytes != self._counted_bytes:
            self.count_pending()

    # Back-pressure

    @property
    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_paused(self) -> bool:
        """Whether the broker does not read what the client sends."""
        return bool(self._pauses)

    def pause(self, reason: object) -> None:
        """Read nothing until `resume` was called for every reason."""
        if not self._pauses and self._transport is not None:
            self._totals.paused_reads += 1
            self._transport.pause_reading()
        self._pauses.add(reason)

    def resume(self, reason: object) -> None:
        """`reason` is over."""
        if reason in self._pauses:
            self._pauses.discard(reason)
            if not self._pauses and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The client does not take what is sent to it: it gets no more messages, and is not read from."""
        self.is_writable = False
        self.pause(_WRITING)

    def resume_writing(self) -> None:
        """The client takes more."""
        self.is_writable = True
        self.keep_alive.drains += 1
        self.resume(_WRITING)
        self._call_writers()

    def call_when_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as the client takes more, or is lost."""
        self._waiting_to_write.append(callback)

    def _call_writers(self) -> None:
        waiting, self._waiting_to_write = self._waiting_to_write, []
        for callback in waiting:
            asyncio.get_running_loop().call_soon(callback)

    def count_pending(self) -> None:
        """Report what is pending, and read on or not: once a turn, and not for each entry.

        What a lost connection sent takes memory until it is answered, so it counts until then.
        """
        self._budget.changed(self.pending_bytes - self._counted_bytes)
        self._counted_bytes = self.pending_bytes
        if self.is_lost:
            return
        if self.pending_bytes >= self._pending_bytes_max:
            self.pause(_PENDING)
        elif self._pauses:
            self.resume(_PENDING)
        if not self._budget.has_room and _BUDGET not in self._pauses:
            self.pause(_BUDGET)
            self._budget.wait(self, self._has_budget)

    def _has_budget(self) -> None:
        self.resume(_BUDGET)

    async def is_alive(self) -> bool:
        """Whether the client answers a PING soon, or is not read from; one that does not answer is ended."""
        return not self.is_lost and await self.keep_alive.ask()


def _request_id(command: BaseCommand) -> int:
    """The request that a command is; NO_REQUEST if it has no answer."""
    body = next((value for field, value in command.ListFields() if field.number == command.type), None)
    request_id = getattr(body, "request_id", None)
    return NO_REQUEST if request_id is None else int(request_id)
