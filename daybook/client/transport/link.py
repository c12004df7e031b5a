"""One connection that carries an append stream: over gRPC, or over the bookie's lane.

A link only moves messages. It gives what it receives to its owner, in order and never from inside `send`, and it notifies its
owner once when it ended. What the messages mean is the business of `frame_sender`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeAlias

import grpc
import grpc.aio

from daybook.core.ids import BookieId
from daybook.core.stream import StreamAnswer, StreamError
from daybook.wire import bookie_pb2 as pb
from daybook.wire.lane import HELLO_TIMEOUT_S
from daybook.wire.messages import decode_from_bookie, encode_client_control
from daybook.wire.service import AioChannel, BookieStub

Message: TypeAlias = bytes | bytearray


class LinkOwner(Protocol):
    """Whoever uses a link."""

    def received(self, message: Message) -> None:
        """The bookie sent `message`."""

    def lost(self, error: Exception) -> None:
        """The link ended, for this reason; called once, and not after the owner has left the link's block."""


class AppendLink(Protocol):
    """An open link: both ends have said hello."""

    @property
    def hello(self) -> pb.ServerHello:
        """Who answered."""

    def send(self, parts: Sequence[bytes]) -> None:
        """Send one message, which consists of `parts`. What the bookie does not take yet is kept; the owner bounds it."""

    def send_each(self, messages: Sequence[bytes]) -> None:
        """Send `messages`, one after the other."""


OpenLink: TypeAlias = Callable[[LinkOwner], AbstractAsyncContextManager[AppendLink]]
"""Connects to where the bookie is now; raises OSError, StreamError, AioRpcError or TimeoutError if that fails."""


def client_hello(client_name: str) -> bytes:
    """What a client says first."""
    return encode_client_control(pb.ClientControl(hello=pb.ClientHello(client=client_name)))


def server_hello(message: Message) -> pb.ServerHello:
    """What the bookie says first. Raises StreamError for anything else."""
    answer = decode_from_bookie(message)
    if isinstance(answer, StreamAnswer) or not answer.HasField("hello"):
        why = answer.ended.detail if isinstance(answer, pb.ServerControl) else ""
        msg = why or "it does not begin with hello; does this address belong to a bookie?"
        raise StreamError(msg)
    return answer.hello


class _GrpcLink:
    """A call of Append, with a task for each direction."""

    def __init__(self, call: grpc.aio.StreamStreamCall[bytes, bytes], hello: pb.ServerHello) -> None:
        self.hello = hello
        self._call = call
        self._unsent: deque[bytes] = deque()
        self._wake = asyncio.Event()

    def send(self, parts: Sequence[bytes]) -> None:
        """See AppendLink. A lone part is not copied."""
        self._unsent.append(parts[0] if len(parts) == 1 else b"".join(parts))
        self._wake.set()

    def send_each(self, messages: Sequence[bytes]) -> None:
        """See AppendLink."""
        self._unsent.extend(messages)
        self._wake.set()

    async def write(self) -> None:
        """Send what there is, at the pace at which gRPC takes it."""
        while True:
            while self._unsent:
                await self._call.write(self._unsent.popleft())
            self._wake.clear()
            await self._wake.wait()

    async def read(self, owner: LinkOwner) -> None:
        """Receive until the bookie ends the call."""
        while True:
            owner.received(await _next_message(self._call))


async def _next_message(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> bytes:
    message = await call.read()
    if message is grpc.aio.EOF:
        msg = "the bookie ended the stream"
        raise StreamError(msg)
    assert isinstance(message, bytes)
    return message


@asynccontextmanager
async def grpc_link(
    channel: AioChannel, bookie: BookieId, client_name: str, owner: LinkOwner
) -> AsyncIterator[AppendLink]:
    """A link over `channel`, which it closes."""
    async with channel:
        call = BookieStub(channel, bookie).append()
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            await call.write(client_hello(client_name))
            link = _GrpcLink(call, server_hello(await _next_message(call)))
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(link.write()), loop.create_task(link.read(owner))]

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                owner.lost(error)

        for task in tasks:
            task.add_done_callback(ended)
        try:
            yield link
        finally:
            for task in tasks:
                task.remove_done_callback(ended)
                task.cancel()
            await asyncio.wait(tasks)
