"""Parts that the tests of the metadata share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.metadata.bookies import BookieDirectory, Cookie
from daybook.metadata.claim import Claim, SupersededError
from daybook.metadata.instance import format_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.registration import Registration
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.store.zookeeper import ZooKeeperOptions, ZooKeeperStore

T = TypeVar("T")

LAYOUT = Layout("test")

Opener: TypeAlias = Callable[[], Coroutine[Any, Any, MetadataStore]]


@asynccontextmanager
async def stores(opener: Opener, number: int) -> AsyncIterator[list[MetadataStore]]:
    """Some stores on one tree, closed afterwards."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(number):
            store = await opener()
            stack.push_async_callback(store.close)
            opened.append(store)
        yield opened


def memory_opener(**options: float) -> tuple[MemoryServer, Opener]:
    """A server in memory, and what opens a store on it. Call it on the event loop of the test."""
    server = MemoryServer()

    async def opener() -> MetadataStore:
        return MemoryStore(server, **options)

    return server, opener


def zookeeper_opener(hosts: str, **options: Any) -> Opener:
    """What opens a store on a real server."""

    async def opener() -> MetadataStore:
        return await ZooKeeperStore.open(hosts, ZooKeeperOptions(**options))

    return opener


async def formatted(store: MetadataStore) -> Layout:
    """The layout of a cluster that was just formatted."""
    await format_cluster(store, LAYOUT, created_at_ms=0)
    return LAYOUT


def ledger(ledger_id: int, **changes: Any) -> LedgerMetadata:
    """An open ledger on three bookies."""
    values: dict[str, Any] = {
        "ledger_id": ledger_id,
        "quorum": Quorum(3, 3, 2),
        "fragments": (Fragment(0, 0, ("b1", "b2", "b3")),),
    }
    return LedgerMetadata(**{**values, **changes})


async def claim_of(store: MetadataStore, info: BookieInfo, incarnation: str = "incarnation-1") -> Claim:
    """The claim of a process that has the bookie's directories, which are stamped in the metadata if they are not yet."""
    directory = BookieDirectory(store, LAYOUT)
    if await directory.cookie(info.bookie) is None:
        cookie = Cookie(info.bookie, "instance", incarnation, ("journal", "store"))
        await store.multi(directory.stamping(cookie, over=None, leave=None))
    claim = Claim(store, LAYOUT, info.bookie, info.boot_id)
    claim.incarnation = incarnation
    await claim.disks.read(incarnation)
    return claim


async def register(
    store: MetadataStore,
    info: BookieInfo,
    *,
    on_superseded: Callable[[SupersededError], None] = lambda _: None,
    wait_s: float = 30.0,
) -> Registration:
    """Register a bookie as its process does."""
    claim = await claim_of(store, info)
    return await Registration.register(store, LAYOUT, info, claim, on_superseded=on_superseded, wait_s=wait_s)


async def soon(awaitable: Any, timeout_s: float = 10.0) -> Any:
    """The result, which is expected well before `timeout_s`."""
    return await asyncio.wait_for(awaitable, timeout_s)


async def following(values: AsyncIterator[T], into: list[T], until: Callable[[], bool]) -> None:
    """Collect `values` until they are as expected."""
    async with contextlib.aclosing(values):  # type: ignore[type-var]  # all of ours are generators
        async for value in values:
            into.append(value)
            if until():
                return


async def until_children(store: MetadataStore, path: str, number: int) -> None:
    """Return once the node has that many children."""
    seen: list[tuple[str, ...] | None] = []
    await soon(following(store.watch_children(path), seen, lambda: len(seen[-1] or ()) == number))
