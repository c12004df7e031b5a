"""What auto-recovery needs of a client, as a protocol, so that its tests can bring a cluster of their own.

Also the two waits that everything here is made of: for a lease to be lost, and for something in the store to change.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, Self, TypeVar

from daybook.client.driver.run import Surroundings
from daybook.core.errors import DaybookError
from daybook.core.placement.policy import RandomSource
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.layout import Layout
from daybook.metadata.lease import Lease
from daybook.metadata.store.store import MetadataStore

T = TypeVar("T")


class Cluster(Surroundings, Protocol):
    """A connected client."""

    store: MetadataStore
    layout: Layout
    directory: BookieDirectory

    @property
    def rng(self) -> RandomSource:
        """For choosing among equally good bookies."""


class LeaseLostError(DaybookError):
    """The lock or the leadership may have passed to another process: stop at once (rule 34)."""


async def while_held(lease: Lease, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled the moment the lease may be over. Raises LeaseLostError then (rule 34)."""
    task = asyncio.ensure_future(work)
    lost = asyncio.ensure_future(lease.lost())
    try:
        await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        msg = f"{lease.path} may belong to another process by now: what was begun here is left to it"
        raise LeaseLostError(msg)
    finally:
        task.cancel()
        lost.cancel()
        await asyncio.gather(task, lost, return_exceptions=True)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None if `stop` is set first; then it is cancelled."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        stopped.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


async def is_set_within(event: asyncio.Event, timeout_ms: float | None) -> bool:
    """Whether `event` is set within `timeout_ms` (None: however long it takes)."""
    try:
        async with asyncio.timeout(None if timeout_ms is None else max(0.0, timeout_ms) / 1000):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Changes:
    """Nodes of the store whose next change is awaited: watch them first, read, decide, then wait."""

    def __init__(self, store: MetadataStore) -> None:
        """Watch nothing yet."""
        self._watch = store.watch()

    async def watch(self, paths: Iterable[str]) -> None:
        """Await changes of these from here on."""
        for path in paths:
            await self._watch.get(path)

    async def watch_children(self, paths: Iterable[str]) -> None:
        """Await children of these coming and going from here on."""
        for path in paths:
            await self._watch.children(path)

    async def wait(self, timeout_ms: float | None, stop: asyncio.Event) -> None:
        """Return when something changed, the time is over, or `stop` is set."""
        changed = asyncio.ensure_future(self._watch.changed())
        stopped = asyncio.ensure_future(stop.wait())
        timeout_s = None if timeout_ms is None else max(0.0, timeout_ms) / 1000
        try:
            await asyncio.wait({changed, stopped}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            stopped.cancel()
            await asyncio.gather(changed, stopped, return_exceptions=True)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Watch nothing any more."""
        self._watch.close()
