"""A snapshot has what persists, as it was at one instant, whatever others do meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from daybook.core.placement.policy import BookieInfo
from daybook.metadata.backup.snapshot import open_snapshot, read_snapshot
from daybook.metadata.election import Election
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import MemoryServer
from daybook.metadata.store.store import Create, Delete, MetadataStore, Operation, Put, StoreError, Versioned
from daybook.metadata.store.tree_watch import WatchLostError
from tests.unit.metadata.harness import formatted, ledger, memory_opener, register, stores


async def snapshot_of(store: MetadataStore, layout: Layout) -> dict[str, bytes]:
    """What a snapshot reads, by path."""
    with open_snapshot() as snapshot:
        await read_snapshot(store, layout, snapshot)
        found = dict(snapshot)
        assert list(found) == sorted(found)
        assert len(snapshot) == len(found)
    return found


async def everything(store: MetadataStore, path: str) -> AsyncIterator[str]:
    """The paths of all nodes at and below `path`."""
    yield path
    for name in await store.children(path):
        async for below in everything(store, f"{path}/{name}"):
            yield below


async def test_a_snapshot_has_every_node_that_persists_and_no_ephemeral_one() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        await LedgerManager(store, layout).create_ledger(ledger, request_uid="uid")
        await store.create(f"{layout.root}/a-later-release/node", b"\xff", parents=True)
        registration = await register(store, BookieInfo("b1", "address", boot_id="boot"))
        leading = await Election(store, layout.auditor, "me").campaign()
        await store.create(layout.replacement("b2"), b"{}")
        found = await snapshot_of(store, layout)
        nodes = {path: server.read(path) async for path in everything(store, layout.root)}
        assert sum(node.owner != 0 for node in nodes.values()) == 3, "registration, claim, candidate"
        once = {layout.replacement("b2"), *(path for path, node in nodes.items() if node.owner)}
        assert {path for path in nodes if path not in found} == once | {
            path for path in layout.passing if path in nodes
        }
        assert found == {path: node.data for path, node in nodes.items() if path in found}
        assert {
            layout.instance,
            layout.idgen,
            layout.ledger(0),
            layout.request("uid"),
            layout.cookie("b1"),
        } <= set(found)
        await leading.release()
        await registration.close()


class Meddler:
    """Changes pairs of nodes, each pair in one transaction, after each request of another store."""

    def __init__(self, server: MemoryServer, layout: Layout, changes: int) -> None:
        self._server = server
        self._layout = layout
        self.left = changes
        self._made: list[int] = []

    def pair(self, number: int) -> tuple[str, str]:
        """Two nodes that are read far from each other."""
        return f"{self._layout.manifests}/{number}", f"{self._layout.root}/zone/{number}"

    def meddle(self) -> None:
        """One change: a pair comes, changes, or goes."""
        if self.left <= 0:
            return
        self.left -= 1
        number = self.left
        created: list[Operation] = [Create(path, b"%d" % number) for path in self.pair(number)]
        changed = [
            Put(path, b"again %d" % number, None) for each in self._made[-2:] for path in self.pair(each)
        ]
        gone = self._made.pop(0) if len(self._made) > 5 else None
        deleted = [] if gone is None else [Delete(path, None) for path in self.pair(gone)]
        self._server.apply(
            [
                *created,
                *(put for put in changed if gone is None or put.path not in self.pair(gone)),
                *deleted,
            ],
            0,
        )
        self._made.append(number)


class MeddledStore:
    """A store whose every read is followed by a change of somebody else."""

    def __init__(self, store: MetadataStore, meddler: Meddler) -> None:
        self._store = store
        self._meddler = meddler

    async def get_each(self, paths: Sequence[str]) -> list[Versioned[bytes] | StoreError]:
        found = await self._store.get_each(paths)
        self._meddler.meddle()
        return found

    async def children(self, path: str) -> tuple[str, ...]:
        found = await self._store.children(path)
        self._meddler.meddle()
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_rule_68_what_changes_while_it_is_read_is_read_again_until_nothing_did() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        await store.create(layout.manifests)
        await store.create(f"{layout.root}/zone")
        meddler = Meddler(server, layout, changes=40)
        for _ in range(4):
            meddler.meddle()
        found = await snapshot_of(MeddledStore(store, meddler), layout)  # type: ignore[arg-type]  # all that a snapshot asks of a store
        assert meddler.left == 0
        now = {path: server.read(path).data async for path in everything(store, layout.root)}
        assert found == {path: data for path, data in now.items() if path in found}
        for number in range(40):
            first, second = meddler.pair(number)
            assert found.get(first) == found.get(second) == now.get(first)


async def test_a_connection_that_is_lost_meanwhile_ends_the_reading() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)

        def lose(_done: int, _total: int | None) -> None:
            server.suspend()
            asyncio.get_running_loop().call_soon(server.resume)

        with open_snapshot() as snapshot, pytest.raises(WatchLostError, match="run the command again"):
            await read_snapshot(store, layout, snapshot, lose)
