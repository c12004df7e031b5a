"""The store for threads: one event loop in a thread of its own, on which the asynchronous store and all that stands on
it run. There is no second implementation to keep right; a bookie's threads, scripts and Spark call through here.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from daybook.metadata.store.store import MetadataStore, StoreClosedError
from daybook.runtime.logs import get_logger

T = TypeVar("T")

log = get_logger(__name__)


class BlockingStore:
    """A store that any thread may use: `blocking.run(blocking.store.get("/a"))`.

    Whatever stands on the store runs on the same loop: `blocking.run(LedgerManager(blocking.store, layout).read(7))`.
    """

    def __init__(self, opening: Callable[[], Awaitable[MetadataStore]]) -> None:
        """Start the loop's thread and open the store on it; raises what `opening` raises, after stopping the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="metadata", daemon=True)
        self._thread.start()
        self._closed = False
        try:
            self.store: MetadataStore = self.run(_opened(opening))
        except BaseException:
            self._stop()
            raise

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run `call` on the loop and wait for what it returns or raises. Raises StoreClosedError once closed."""
        if self._closed:
            call.close()
            msg = "the metadata store is closed"
            raise StoreClosedError(msg)
        assert threading.current_thread() is not self._thread, "a blocking call would wait for itself"
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def follow(self, values: AsyncIterator[T], callback: Callable[[T], None]) -> Callable[[], None]:
        """Call `callback` on the loop's thread with each of `values` (it must not block); return what ends it.

        A callback that raises ends it as well, and the error is logged.
        """
        following: Future[None] = asyncio.run_coroutine_threadsafe(_follow(values, callback), self._loop)
        return lambda: _cancel(following)

    def close(self) -> None:
        """Close the store, end what is followed, and stop the thread."""
        if not self._closed:
            self.run(self.store.close())
            self._closed = True
            self._stop()

    def _stop(self) -> None:
        self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        """The store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


async def _opened(opening: Callable[[], Awaitable[MetadataStore]]) -> MetadataStore:
    return await opening()


async def _follow(values: AsyncIterator[T], callback: Callable[[T], None]) -> None:
    try:
        async for value in values:
            callback(value)
    except StoreClosedError:
        return
    except Exception:
        log.exception("what was followed in the metadata store ended")
        raise


def _cancel(following: Future[None]) -> None:
    following.cancel()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
