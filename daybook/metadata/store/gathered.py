"""One request for all who ask at one time, each for something of its own.

A request of its own costs kazoo 150 µs of CPU, whatever it asks (multi_read.py), and who recovers or takes over a thousand
ledgers reads and changes a node of each. So what is asked while a request is under way leaves with the next one. ZooKeeper
answers the requests of a session in their order, so that who waits here would wait there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class GatheredRequests(Generic[Asked, Answer]):
    """Sends `ask_each` again and again, one at a time, for as long as somebody asks."""

    def __init__(
        self,
        ask_each: Callable[[Sequence[Asked]], Coroutine[Any, Any, Sequence[Answer | Exception]]],
        *,
        count_max: int,
        size_of: Callable[[Asked], int] = lambda _: 0,
        bytes_max: int = 1,
    ) -> None:
        """`ask_each` returns an answer or an error for each; at most `count_max` and about `bytes_max` together."""
        self._ask_each = ask_each
        self._count_max = count_max
        self._size_of = size_of
        self._bytes_max = bytes_max
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._work: asyncio.Task[None] | None = None

    async def answer(self, asked: Asked) -> Answer:
        """The answer to a request that begins after this call. Raises what is the answer, or what the request raises."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, mine))
        if self._work is None:
            self._work = loop.create_task(self._ask_all())
        return await mine

    async def _ask_all(self) -> None:
        try:
            while group := self._next_group():
                try:
                    answers = await self._ask_each([asked for asked, _ in group])
                except Exception as error:  # noqa: BLE001 - whatever it is, callers wait for it
                    answers = [error] * len(group)
                for (_, mine), answer in zip(group, answers, strict=True):
                    if mine.done():
                        continue
                    if isinstance(answer, Exception):
                        mine.set_exception(answer)
                    else:
                        mine.set_result(answer)
        finally:
            self._work = None

    def _next_group(self) -> list[tuple[Asked, asyncio.Future[Answer]]]:
        """Those that waited longest and did not give up."""
        waiting = [each for each in self._waiting if not each[1].done()]
        count = size_bytes = 0
        for asked, _ in waiting[: self._count_max]:
            size_bytes += self._size_of(asked)
            if count and size_bytes > self._bytes_max:
                break
            count += 1
        self._waiting = waiting[count:]
        return waiting[:count]
