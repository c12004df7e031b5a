"""A bookie that answers what a test wants, over real sockets: for answers that no bookie of ours gives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, closing, suppress
from typing import Any, Self

import grpc
import grpc.aio
import pytest

from daybook.client.transport.endpoint import Endpoint
from daybook.client.transport.lane import lane_link
from daybook.client.transport.link import AppendLink, LinkOwner, grpc_link
from daybook.core.errors import Code
from daybook.core.ids import BookieId
from daybook.core.stream import StreamAnswer
from daybook.wire import bookie_pb2 as pb
from daybook.wire import service
from daybook.wire.channel import open_aio_channel
from daybook.wire.lane import LENGTH, PREFACE, encode_lane
from daybook.wire.messages import decode_client_control, encode_answer, encode_server_control, is_frames

Requests = AsyncIterator[bytes]
Context = grpc.aio.ServicerContext[Any, Any]
AppendScript = Callable[[int, Requests], AsyncIterator[bytes]]
"""Given the number of the stream (from 1) and what the client sends after its hello: what is sent after the hello."""


def attached(ledger_id: int, code: int = Code.OK, purpose: pb.Purpose = pb.PURPOSE_WRITE) -> bytes:
    """The answer to an attachment."""
    answer = pb.Attached(ledger_id=ledger_id, purpose=purpose, code=code)
    return encode_server_control(pb.ServerControl(attached=answer))


def through(message: int) -> bytes:
    """Everything up to `message` succeeded."""
    return encode_answer(StreamAnswer(message))


async def attach_all(requests: Requests) -> AsyncIterator[bytes | None]:
    """Answers to attachments; None for each message of frames, which is for the script to answer."""
    async for request in requests:
        if is_frames(request):
            yield None
        else:
            yield attached(decode_client_control(request).attach.ledger_id)


OVER_BOTH = pytest.mark.parametrize("over", ["grpc", "lane"], indirect=True)
"""For tests of append streams: each runs over gRPC and over the lane."""


class ScriptedBookie:
    """Serves inside `async with`, gRPC and the lane, each on a port of its own."""

    over = "grpc"
    """What `open_link` uses; see OVER_BOTH."""

    def __init__(
        self,
        append: AppendScript | None = None,
        *,
        read: Iterable[bytes | Exception] = (),
        unary: dict[str, Any] | None = None,
        name: BookieId = "b0",
        is_older: bool = False,
    ) -> None:
        """`read`: the messages of every read answer. `unary`: the answers by method name; an event is waited for.

        `is_older`: its hello is that of a release that takes neither tables of LACs nor ends of attachments.
        """
        self._append_script = append
        self._read_answer = tuple(read)
        self._unary = unary or {}
        self.name = name
        self._is_current = not is_older
        self.streams = 0
        self.address = self.lane_address = ""
        self.asked = asyncio.Event()
        """Set once a unary call came."""
        self._server = grpc.aio.server()
        self._lanes: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Serve."""
        handlers: dict[str, Any] = {
            service.APPEND: grpc.stream_stream_rpc_method_handler(self._append),
            service.READ: grpc.unary_stream_rpc_method_handler(self._read),
        }
        for method, answer in self._unary.items():
            handlers[method] = grpc.unary_unary_rpc_method_handler(self._always(answer))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service.SERVICE, handlers),)
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        self._lane_server = await asyncio.start_server(self._serve_lane, "127.0.0.1", 0)
        self.lane_address = f"127.0.0.1:{self._lane_server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        self._lane_server.close()
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        await self._server.stop(None)

    def open_link(self, owner: LinkOwner) -> AbstractAsyncContextManager[AppendLink]:
        """A client's link to it."""
        if self.over == "lane":
            return lane_link(self.name, Endpoint(self.lane_address), None, "test", owner)
        return grpc_link(open_aio_channel(self.address), self.name, "test", owner)

    def _serve_lane(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lane = asyncio.get_running_loop().create_task(self._follow_script(reader, writer))
        self._lanes.add(lane)
        lane.add_done_callback(self._lanes.discard)

    async def _follow_script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = _messages(reader)
        assert await anext(requests) == PREFACE
        with closing(writer):
            async for message in self._append(requests):
                writer.write(encode_lane(message))

    async def _append(self, requests: Requests, _: Context | None = None) -> AsyncIterator[bytes]:
        self.streams += 1
        number = self.streams
        await anext(aiter(requests))
        hello = pb.ServerHello(
            bookie_id=self.name,
            boot_id=f"boot {number}",
            takes_lac_tables=self._is_current,
            takes_detach=self._is_current,
        )
        yield encode_server_control(pb.ServerControl(hello=hello))
        assert self._append_script is not None
        async for message in self._append_script(number, requests):
            yield message

    async def _read(self, _: bytes, context: Context) -> AsyncIterator[bytes]:
        for message in self._read_answer:
            if isinstance(message, Exception):
                await context.abort(grpc.StatusCode.INTERNAL, str(message))
            else:
                yield message

    def _always(self, answer: Any) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def handler(_: bytes, __: Context) -> bytes:
            self.asked.set()
            if isinstance(answer, asyncio.Event):
                await answer.wait()
                return b""
            return bytes(answer.SerializeToString())

        return handler


async def _messages(reader: asyncio.StreamReader) -> Requests:
    """What the client sends over a lane, until it ends the connection."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            (size_bytes,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            yield await reader.readexactly(size_bytes)
