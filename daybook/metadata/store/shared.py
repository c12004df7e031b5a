"""One request for all who want the same: thousands of recoveries or first frames would each send their own.

What a caller needs is an answer of after its call: a `sync` that the store began earlier may have left out what happened just
before the call (rule 46), and an earlier read of a registration says nothing about who is registered now (rule 57). So a
request serves those who called before it began, and those who call while it is under way share the next one.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedRequest(Generic[T]):
    """Sends `request` again and again, one at a time, for as long as somebody wants its answer."""

    def __init__(self, request: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """`request` sends it and returns the answer."""
        self._request = request
        self._waiting: list[asyncio.Future[T]] = []
        """Of those who called since the last request began."""
        self._work: asyncio.Task[None] | None = None

    async def answer(self) -> T:
        """The answer to a request that begins after this call.

        Raises what the request raises. Its error is also the answer to those who wait for the next one, so that nobody waits
        for longer than one request may take.
        """
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[T] = loop.create_future()
        self._waiting.append(mine)
        if self._work is None:
            self._work = loop.create_task(self._send_all())
        return await mine

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                served, self._waiting = self._waiting, []
                try:
                    answer = await self._request()
                except Exception as error:  # noqa: BLE001 - whatever it is, callers wait for it
                    for each in _not_gone(served + self._waiting):
                        each.set_exception(error)
                    self._waiting = []
                else:
                    for each in _not_gone(served):
                        each.set_result(answer)
        finally:
            self._work = None


def _not_gone(waiting: list[asyncio.Future[T]]) -> list[asyncio.Future[T]]:
    return [each for each in waiting if not each.done()]
