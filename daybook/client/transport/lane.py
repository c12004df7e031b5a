"""A link over a bookie's lane: the messages of an append stream, or of reads, without gRPC (daybook/wire/lane.py)."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

from daybook.client.transport.endpoint import Endpoint
from daybook.client.transport.link import AppendLink, LinkOwner, Message, client_hello, server_hello
from daybook.core.ids import BookieId
from daybook.core.stream import StreamError
from daybook.runtime.ports import parse_address
from daybook.wire import bookie_pb2 as pb
from daybook.wire.channel import WIRE_MESSAGE_BYTES_MAX
from daybook.wire.lane import (
    CONNECT_TIMEOUT_S,
    LENGTH,
    PREFACE,
    configure_socket,
    encode_lane,
    lane_buffer,
)


class LaneLink(asyncio.BufferedProtocol):
    """The client's end of a connection. The kernel's bytes go straight into a message's buffer."""

    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner
        self.hello = pb.ServerHello()
        self._greeted: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._buffer = lane_buffer(WIRE_MESSAGE_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._is_over = False

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        configure_socket(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's, which calls it by position
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for message in self._buffer.received(nbytes):
                if self._greeted.done():
                    self._owner.received(message)
                else:
                    self.hello = server_hello(message)
                    self._greeted.set_result(None)
        except StreamError as error:
            self._lose(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or StreamError("the bookie ended the stream"))

    async def greet(self, preface: bytes, client_name: str) -> None:
        """Begin with `preface`, say hello and wait for the bookie's. Raises OSError, StreamError."""
        assert self._transport is not None
        self._transport.write(encode_lane(preface) + encode_lane(client_hello(client_name)))
        error = await self._greeted
        if error is not None:
            raise error

    # AppendLink

    def send(self, parts: Sequence[bytes]) -> None:
        """See AppendLink."""
        assert self._transport is not None
        self._transport.write(b"".join([LENGTH.pack(sum(map(len, parts))), *parts]))

    def send_each(self, messages: Sequence[bytes]) -> None:
        """See AppendLink. A system call for each would cost as much as all else about it."""
        assert self._transport is not None
        self._transport.write(b"".join(map(encode_lane, messages)))

    def give_back(self, message: Message) -> None:
        """Nobody looks at a received `message` any more: another one may be received in its place."""
        self._buffer.give_back(message)

    def close(self) -> None:
        """End the connection; the owner is not notified any more."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    def _lose(self, error: Exception) -> None:
        if self._is_over:
            return
        if self._greeted.done():
            self._is_over = True
            self._owner.lost(error)
        else:
            self._greeted.set_result(error)


async def open_lane(
    bookie: BookieId,
    where: Endpoint,
    context: ssl.SSLContext | None,
    client_name: str,
    owner: LinkOwner,
    preface: bytes = PREFACE,
) -> LaneLink:
    """A link to the lane of `bookie`, with TLS if there is a `context`; its owner closes it.

    Raises OSError, StreamError, TimeoutError if it cannot be had.
    """
    host, port = parse_address(where.address)
    server_name = None if context is None else where.server_name or host
    link = LaneLink(owner)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().create_connection(
                lambda: link, host, port, ssl=context, server_hostname=server_name
            )
            await link.greet(preface, client_name)
        if link.hello.bookie_id != bookie:
            msg = f"the lane at {where.address} is that of bookie {link.hello.bookie_id}"
            raise StreamError(msg)
    except BaseException:
        link.close()
        raise
    return link


@asynccontextmanager
async def lane_link(
    bookie: BookieId, where: Endpoint, context: ssl.SSLContext | None, client_name: str, owner: LinkOwner
) -> AsyncIterator[AppendLink]:
    """As `open_lane`, for an append stream, for as long as the block."""
    link = await open_lane(bookie, where, context, client_name, owner)
    try:
        yield link
    finally:
        link.close()
