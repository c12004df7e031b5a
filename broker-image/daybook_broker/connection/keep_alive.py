"""Whether a client is still there: whoever says nothing for a while gets a PING, and is ended if it says nothing after that either.

A client that the broker does not read from cannot show that it lives, so it counts as alive, unless it takes nothing of what was sent to it. A
slow one receives a PING only behind what waited for it before, so it counts as alive while it takes that.
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

    __slots__ = (
        "_answers",
        "_connection",
        "_is_asked",
        "_period_s",
        "_timer",
        "_unsent",
        "drains",
        "has_read",
    )

    def __init__(self, connection: "Connection", period_s: float) -> None:
        self._connection = connection
        self._period_s = period_s
        self._timer: asyncio.TimerHandle | None = None
        self._is_asked = False
        self._unsent = (0, 0)
        """What waited for the client at the last check."""
        self._answers: list[asyncio.Future[bool]] = []
        self.has_read = False
        """Whether the client said anything since the last check."""
        self.drains = 0
        """How often the client has taken so much of what waited for it that the broker sends on."""

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
        """Whether the client answers a PING in time; it is ended if not, unless the broker does not read from it, or it takes what was sent before."""
        connection, unsent = self._connection, self._unsent_now()
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        connection.send(PING)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            if self._takes(unsent) or (connection.is_paused and connection.is_writable):
                return True
            self._end("it did not answer when another client wanted its place")
            return False

    def _answer(self, *, is_alive: bool) -> None:
        answers, self._answers = self._answers, []
        for answer in answers:
            if not answer.done():
                answer.set_result(is_alive)

    def _unsent_now(self) -> tuple[int, int]:
        """What waits for the client: how many bytes, and how often it has taken so many before."""
        return self._connection.unsent_bytes, self.drains

    def _takes(self, before: tuple[int, int]) -> bool:
        """Whether the client has taken something of what waited for it `before`; others may have taken its place."""
        unsent_bytes, drains = before
        return self._connection.unsent_bytes < unsent_bytes or self.drains > drains

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._check)
        connection, before = self._connection, self._unsent
        is_taking, self._unsent = self._takes(before), self._unsent_now()
        if not (connection.is_writable or is_taking) and before[0]:
            self._end("it took nothing of what was sent to it")
        elif self.has_read:
            self.has_read = self._is_asked = False
        elif self._is_asked and not (connection.is_paused or is_taking):
            self._end("it said nothing, and did not answer a PING")
        else:
            self._is_asked = True
            connection.send(PING)

    def _end(self, why: str) -> None:
        log.info("a client is gone", client=self._connection.address, why=why)
        self._connection.abort()
