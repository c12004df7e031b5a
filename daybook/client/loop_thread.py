"""An event loop on a thread of its own, for code without one: scripts, notebooks, Spark tasks."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop on a separate thread."""

    def __init__(self) -> None:
        """Start the thread; `close` ends it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="daybook-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for its result; an interrupt (Ctrl-C) of the calling thread cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` on the loop, where nothing else changes what it looks at."""

        async def work() -> T:
            return function()

        return self.run(work())

    def iterate(self, begin: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """What the iterator gives that `begin` makes on the loop."""
        source = self.call(begin)

        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(source)
            except StopAsyncIteration:
                return False, None

        while True:
            more, value = self.run(following())
            if not more:
                return
            yield value  # type: ignore[misc]  # a T whenever there is more

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
