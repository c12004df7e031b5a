"""What a client does behind the scenes goes on after an error, and a client that cannot begin says why."""

import asyncio
from collections.abc import Mapping

import pytest

from daybook.client import client as client_module
from daybook.client.client import Client
from daybook.core.errors import MetadataError
from daybook.core.ids import BookieId
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.writer.policy import WriterPolicy
from daybook.metadata.bookies import info_to_json
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from daybook.runtime.logs import Logger

LAYOUT = Layout("test")
NODE = LAYOUT.registration("b0", writable=True)
GOOD = info_to_json(BookieInfo("b0", "nowhere:1", boot_id="boot"))


async def cluster() -> tuple[MemoryServer, MemoryStore]:
    server = MemoryServer()
    store = MemoryStore(server)
    await ensure_cluster(store, LAYOUT, created_at_ms=0)
    return server, store


def make_client(server: MemoryServer) -> Client:
    async def open_store() -> MemoryStore:
        return MemoryStore(server)

    return Client(
        open_store,
        cluster="test",
        placement=make_policy(),
        writer_policy=WriterPolicy(),
        credentials=lambda: None,
        zone="",
        rack="",
        name="test",
    )


async def test_a_client_that_cannot_learn_the_bookies_says_why() -> None:
    server, store = await cluster()
    await store.create(NODE, b"no record")
    with pytest.raises(MetadataError, match="the registration of bookie b0 is not a valid record"):
        async with make_client(server):
            pass


async def test_the_bookies_are_watched_on_after_a_record_that_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "WATCH_PAUSE_S", 0.01)
    server, store = await cluster()
    async with make_client(server) as client:
        learned, met = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(Logger, "error", lambda *_, **__: met.set())
        notify = client.channels.bookies_changed

        def learn(bookies: Mapping[BookieId, BookieInfo]) -> None:
            notify(bookies)
            if "b0" in bookies:
                learned.set()

        monkeypatch.setattr(client.channels, "bookies_changed", learn)
        await store.create(NODE, b"no record")
        await met.wait()
        await store.put(NODE, GOOD, None)
        await learned.wait()
        assert client.bookies()["b0"].address == "nowhere:1"
