"""One connection to a broker, over Pulsar's binary protocol: requests and their answers, and what arrives for producers and consumers.

The commands that write and read messages use it, so that they need no other client. It is no library: it has what a command line needs.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.frames import FRAME_BYTES_MAX, decode_command, encode_frame, split_frame
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError

CLIENT_VERSION: Final = "daybook-cli"
PROTOCOL_VERSION: Final = 21
CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 40.0
"""A broker holds a lookup for up to 25 s while a topic changes its owner."""
_SIZE_BYTES: Final = 4
_NO_REQUEST: Final = 2**64 - 1
"""The request id of an error that answers no request: CONNECT was refused, if it is not answered yet."""

OnCommand: TypeAlias = Callable[[BaseCommand, Buffer], None]
"""Receives a command for one producer or consumer, and the entry behind a MESSAGE."""

_FIELDS: Final = {number: field.name for number, field in BaseCommand.DESCRIPTOR.fields_by_number.items()}
_ENDED: Final = "the connection to {} ended"


class BrokerRefusedError(DaybookError):
    """A broker answered with an error; `retriable` says that another attempt may succeed."""

    def __init__(self, error: int, message: str) -> None:
        """`error` is a ServerError."""
        super().__init__(f"{message} ({ServerError.Name(error) if error in ServerError.values() else error})")
        self.code = error
        self.is_retriable = error in (ServerError.ServiceNotReady, ServerError.MetadataError)


class BrokerLostError(DaybookError):
    """A broker is not reached, or its connection ended."""


class BrokerConnection:
    """A connection after its CONNECT was answered."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """See `open`."""
        self.url = url
        self.lost = asyncio.Event()
        self._reader = reader
        self._writer = writer
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 1
        self._producers: dict[int, OnCommand] = {}
        self._consumers: dict[int, OnCommand] = {}
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str, tls: ssl.SSLContext | None = None, token: str = "") -> Self:
        """Connect to `pulsar://host:port`, or `pulsar+ssl://…` with `tls`, and show `token`, or else the certificate. Raises BrokerLostError, BrokerRefusedError."""
        where = urlsplit(url)
        secure = (tls or ssl.create_default_context()) if where.scheme == "pulsar+ssl" else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                streams = await asyncio.open_connection(where.hostname, where.port, ssl=secure)
        except (OSError, TimeoutError) as error:
            msg = f"no broker answers at {url}: {str(error) or 'no answer in time'}"
            raise BrokerLostError(msg) from error
        connection = cls(url, *streams)
        connection._reading = asyncio.create_task(connection._read(), name=f"broker {url}")
        hello = BaseCommand(type=BaseCommand.CONNECT)
        hello.connect.client_version = CLIENT_VERSION
        hello.connect.protocol_version = PROTOCOL_VERSION
        if token:
            hello.connect.auth_method_name, hello.connect.auth_data = "token", token.encode()
        elif secure is not None:
            hello.connect.auth_method_name = "tls"
        try:
            await connection._ask(0, hello)
        except BaseException:
            await connection.close()
            raise
        return connection

    def new_id(self) -> int:
        """A number that no request, producer or consumer of this connection has had."""
        self._next_id += 1
        return self._next_id

    async def request(self, command: BaseCommand) -> Any:
        """Send a command whose answer is awaited; the answer, which is no ERROR.

        Raises BrokerRefusedError for an ERROR, BrokerLostError if the connection ends, or no answer comes in time.
        """
        body = getattr(command, _FIELDS[command.type])
        body.request_id = self.new_id()
        return await self._ask(body.request_id, command)

    def send(self, frame: bytes) -> None:
        """Send a frame to which no answer is awaited here. What is sent after the connection's end is dropped."""
        if not self.lost.is_set():
            self._writer.write(frame)

    async def drain(self) -> None:
        """Wait until the socket has taken what was sent; returns at once after the connection's end."""
        with suppress(OSError):
            await self._writer.drain()

    def attach_producer(self, producer_id: int, on_command: OnCommand) -> None:
        """Pass on what arrives for a producer."""
        self._producers[producer_id] = on_command

    def attach_consumer(self, consumer_id: int, on_command: OnCommand) -> None:
        """Pass on what arrives for a consumer."""
        self._consumers[consumer_id] = on_command

    async def close(self) -> None:
        """End the connection; producers and consumers on it end with it."""
        self._end()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, request_id: int, command: BaseCommand) -> Any:
        if self.lost.is_set():
            raise BrokerLostError(_ENDED.format(self.url))
        answered = self._requests[request_id] = asyncio.get_running_loop().create_future()
        self.send(encode_frame(command))
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await answered
        except TimeoutError as error:
            msg = f"the broker at {self.url} did not answer within {REQUEST_TIMEOUT_S:g} s"
            raise BrokerLostError(msg) from error
        finally:
            self._requests.pop(request_id, None)

    async def _read(self) -> None:
        try:
            while True:
                size_bytes = int.from_bytes(await self._reader.readexactly(_SIZE_BYTES), "big")
                if not 0 < size_bytes <= FRAME_BYTES_MAX:
                    msg = (
                        f"a frame of {size_bytes} bytes from {self.url}: it is no broker of Pulsar's protocol"
                    )
                    raise BrokerLostError(msg)
                command, entry = split_frame(await self._reader.readexactly(size_bytes))
                self._received(decode_command(command), entry)
        except (OSError, EOFError):
            self._fail(BrokerLostError(_ENDED.format(self.url)))
        except DaybookError as error:
            self._fail(error)
        finally:
            self._end()

    def _received(self, command: BaseCommand, entry: Buffer) -> None:
        body = getattr(command, _FIELDS[command.type])
        match command.type:
            case BaseCommand.PING:
                self.send(encode_frame(BaseCommand(type=BaseCommand.PONG, pong={})))
            case BaseCommand.CONNECTED:
                self._answer(0, body)
            case BaseCommand.SEND_RECEIPT | BaseCommand.SEND_ERROR | BaseCommand.CLOSE_PRODUCER:
                if (producer := self._producers.get(body.producer_id)) is not None:
                    producer(command, entry)
            case BaseCommand.MESSAGE | BaseCommand.CLOSE_CONSUMER | BaseCommand.REACHED_END_OF_TOPIC:
                if (consumer := self._consumers.get(body.consumer_id)) is not None:
                    consumer(command, entry)
            case BaseCommand.ERROR if body.request_id == _NO_REQUEST:
                self._refuse(0, BrokerRefusedError(body.error, body.message))
            case BaseCommand.ERROR:
                self._refuse(body.request_id, BrokerRefusedError(body.error, body.message))
            case _ if hasattr(body, "request_id"):
                if body.DESCRIPTOR.fields_by_name.get("error") is not None and body.HasField("error"):
                    self._refuse(body.request_id, BrokerRefusedError(body.error, body.message))
                else:
                    self._answer(body.request_id, body)

    def _answer(self, request_id: int, body: Any) -> None:
        if (waiting := self._requests.get(request_id)) is not None and not waiting.done():
            waiting.set_result(body)

    def _refuse(self, request_id: int, error: DaybookError) -> None:
        if (waiting := self._requests.get(request_id)) is not None and not waiting.done():
            waiting.set_exception(error)

    def _fail(self, error: DaybookError) -> None:
        for request_id in list(self._requests):
            self._refuse(request_id, error)

    def _end(self) -> None:
        self.lost.set()
        self._fail(BrokerLostError(_ENDED.format(self.url)))
        self._writer.close()
