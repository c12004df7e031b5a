"""Whether a client is still there: whoever says nothing for a while gets a PING, and is ended if it says nothing after that either.

A client that the broker does not read from cannot show that it lives, so it counts as alive, unless it takes nothing of what was sent to it.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from daybook.runtime.logs import get_logger
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandPing

if TYPE_CHECKING:
    from daybook_broker.connection.connection import Connection

log = get_logger(__name__)

PING: Final = encode_frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
ANSWER_S: Final = 5.0
"""How long a client may take to show that it is alive when another one wants its place."""


class KeepAlive:
    """The pings of one connection."""

    __slots__ = ("_answers", "_connection", "_is_asked", "_period_s", "_timer", "_unsent_bytes", "has_read")

    def __init__(self, connection: "Connection", period_s: float) -> None:
        self._connection = connection
        self._period_s = period_s
        self._timer: asyncio.TimerHandle | None = None
        self._is_asked = False
        self._unsent_bytes = 0
        self._answers: list[asyncio.Future[bool]] = []
        self.has_read = False
        """Whether the client said anything since the last check."""

    def start(self) -> None:
        """The client is connected, or is being ended before that and does not take what was sent to it."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._period_s, self._check)

    def stop(self) -> None:
        """The connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
        self._answer(is_alive=False)

    def answered(self) -> None:
        """A PONG came."""
        self._answer(is_alive=True)

    async def ask(self) -> bool:
        """Whether the client answers a PING in time; it is ended if not, unless the broker does not read from it."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self._connection.send(PING)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            if self._connection.is_paused and self._connection.is_writable:
                return True
            self._end("it did not answer when another client wanted its place")
            return False

    def _answer(self, *, is_alive: bool) -> None:
        answers, self._answers = self._answers, []
        for answer in answers:
            if not answer.done():
                answer.set_result(is_alive)

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._check)
        connection = self._connection
        unsent_bytes, before = connection.unsent_bytes, self._unsent_bytes
        self._unsent_bytes = unsent_bytes
        if not connection.is_writable and 0 < before <= unsent_bytes:
            self._end("it took nothing of what was sent to it")
        elif self.has_read:
            self.has_read = self._is_asked = False
        elif self._is_asked and not connection.is_paused:
            self._end("it said nothing, and did not answer a PING")
        else:
            self._is_asked = True
            connection.send(PING)

    def _end(self, why: str) -> None:
        log.info("a client is gone", client=self._connection.address, why=why)
        self._connection.abort()
