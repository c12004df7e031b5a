"""What a part of a topic has under way: tasks that nobody awaits one by one, and whose errors their owner gets."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """The tasks of one owner."""

    __slots__ = ("_on_error", "_running")

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        """`on_error` is called with the error of each task that ends with one; a cancelled task has none."""
        self._on_error = on_error
        self._running: set[asyncio.Task[None]] | None = None
        """None while nothing is under way: thousands of idle topics have three of these each."""

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Carry out `work` beside all others."""
        task = asyncio.create_task(work)
        if self._running is None:
            self._running = set()
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel all that are under way."""
        for task in self._running or ():
            task.cancel()

    async def stop(self) -> None:
        """Cancel all that are under way, and wait for their ends."""
        self.cancel()
        await asyncio.gather(*(self._running or ()), return_exceptions=True)

    async def finished(self) -> None:
        """Wait until nothing is under way, nor what that begins."""
        while self._running:
            await asyncio.wait(self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._running is not None:
            self._running.discard(task)
            self._running = self._running or None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
