"""Reads of one bookie over its lane: a few connections, each with one read at a time (daybook/wire/lane.py).

An answer is large and a client reads from a bookie several ranges at once, so a connection has no numbers for requests: each
read takes an idle connection or opens one, and returns it once the answer is complete. A read that ends early (a time-out, a
consumer that leaves, damaged bytes) closes its connection, because the rest of the answer would follow on it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from daybook.client.transport.lane import LaneLink
from daybook.client.transport.link import LinkOwner, Message
from daybook.core.stream import StreamError
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook.wire.lane import END_OF_READ
from daybook.wire.messages import decode_from_bookie, is_control

CONNECTIONS_MAX: Final = 16
"""Reads at once; more use gRPC."""
IDLE_S: Final = 5.0
"""How long a connection stays open that nobody reads on; below the time after which the bookie ends it."""
PAUSE_S: Final = 60.0
"""How long reads use gRPC after no connection could be opened."""

log = get_logger(__name__)


class LaneUnavailableError(Exception):
    """No connection for reads can be had; nothing was read."""


class _Connection:
    """One connection and the answer that arrives on it; the owner of its link."""

    def __init__(self) -> None:
        self.link: LaneLink | None = None
        self.idle_since_s = 0.0
        self._messages: deque[Message] = deque()
        self._error: Exception | None = None
        self._wake = asyncio.Event()

    def received(self, message: Message) -> None:
        """See LinkOwner."""
        self._messages.append(message)
        self._wake.set()

    def lost(self, error: Exception) -> None:
        """See LinkOwner."""
        self._error = error
        self._wake.set()

    def ask(self, request: bytes) -> None:
        """Send a request."""
        assert self.link is not None
        self.link.send([request])

    async def next(self) -> Message | None:
        """The next message of the answer; None after the last. Raises ConnectionError, StreamError."""
        while not self._messages:
            if self._error is not None:
                raise ConnectionError(str(self._error)) from self._error
            self._wake.clear()
            await self._wake.wait()
        message = self._messages.popleft()
        if message == END_OF_READ:
            return None
        if is_control(message):
            control = decode_from_bookie(message)
            raise ConnectionError(control.ended.detail if isinstance(control, pb.ServerControl) else "")
        return message

    def give_back(self, message: Message) -> None:
        """Nobody looks at `message` any more."""
        assert self.link is not None
        self.link.give_back(message)

    @property
    def is_lost(self) -> bool:
        """Whether the bookie ended it, or sent what nobody asked for."""
        return self._error is not None or bool(self._messages)

    def close(self) -> None:
        """End the connection."""
        if self.link is not None:
            self.link.close()


class ReadLane:
    """The connections for reads to one process of one bookie."""

    def __init__(
        self, bookie: str, boot_id: str, open_link: Callable[[LinkOwner], Awaitable[LaneLink]]
    ) -> None:
        """`open_link` raises OSError, StreamError or TimeoutError. Only the process with `boot_id` is read from, if that is known (rule 57)."""
        self._bookie = bookie
        self._boot_id = boot_id
        self._open_link = open_link
        self._idle: list[_Connection] = []
        self._used: set[_Connection] = set()
        """One for each read, also while it is being opened."""
        self._avoided_until_s = 0.0
        self._closer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def has_room(self) -> bool:
        """Whether a read may use the lane now."""
        now_s = asyncio.get_running_loop().time()
        return not self._closed and len(self._used) < CONNECTIONS_MAX and now_s >= self._avoided_until_s

    async def messages(self, request: bytes) -> AsyncGenerator[Message, None]:
        """The messages of the answer, each valid until the next one is asked for; close the generator if you do not take all of them.

        Raises LaneUnavailableError before the first message, ConnectionError.
        """
        connection, is_complete = None, False
        try:
            connection, message = await self._ask(request)
            while message is not None:
                yield message
                connection.give_back(message)
                message = await connection.next()
            is_complete = True
        finally:
            if connection is not None:
                if is_complete and not self._closed:
                    self._keep(connection)
                else:
                    self._drop(connection)

    async def _ask(self, request: bytes) -> tuple[_Connection, Message | None]:
        """A connection on which the answer to `request` has begun, with its first message."""
        while True:
            idle = self._take_idle()
            connection = idle or _Connection()
            self._used.add(connection)
            try:
                if idle is None:
                    await self._open(connection)
                connection.ask(request)
                return connection, await connection.next()
            except BaseException as error:
                self._drop(connection)
                if idle is None or not isinstance(error, ConnectionError):
                    raise  # else the bookie ended it while it was idle

    def close(self) -> None:
        """End all connections; reads under way fail."""
        self._closed = True
        if self._closer is not None:
            self._closer.cancel()
        for connection in (*self._idle, *self._used):
            connection.close()
            connection.lost(ConnectionError("the client was closed"))
        self._idle.clear()

    async def _open(self, connection: _Connection) -> None:
        try:
            connection.link = await self._open_link(connection)
            if self._boot_id not in ("", connection.link.hello.boot_id):
                msg = f"process {connection.link.hello.boot_id} answers, which is not the one that is registered"
                raise StreamError(msg)
        except (OSError, StreamError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            log.warning(
                "the bookie's lane is not reached for reads, gRPC is used", bookie=self._bookie, why=why
            )
            self._avoided_until_s = asyncio.get_running_loop().time() + PAUSE_S
            raise LaneUnavailableError(why) from error

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_lost:
                return connection
            connection.close()
        return None

    def _drop(self, connection: _Connection) -> None:
        self._used.discard(connection)
        connection.close()

    def _keep(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        self._used.discard(connection)
        connection.idle_since_s = loop.time()
        self._idle.append(connection)
        if self._closer is None:
            self._closer = loop.call_later(IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        """Close what has been idle for too long, which is at the front: reads take from the end."""
        loop = asyncio.get_running_loop()
        while self._idle and loop.time() - self._idle[0].idle_since_s >= IDLE_S:
            self._idle.pop(0).close()
        self._closer = loop.call_later(IDLE_S, self._close_idle) if self._idle else None
