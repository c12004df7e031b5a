"""Scale-down with real bookies and ledgers: every entry is elsewhere before a bookie goes, whatever dies on the way."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kubernetes import client as kubernetes

from daybook.autorecovery.worker import RepairWorker
from daybook.client.client import Client
from daybook.client.connecting import connect
from daybook.client.verify import verify_ledger
from daybook.core.ids import LedgerId
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.zookeeper import ZooKeeperStore
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pretend_nodes import PretendNodes
from tests.kubernetes.api.pool_kit import (
    AUDITING,
    CLUSTER,
    Operator,
    RealBookies,
    Site,
    drive_killed,
    killable,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_LOWERED = re.compile(r"^Apply\(.*?'kind': 'StatefulSet'.*?'replicas': 3\b")
NAMED = 3
LEDGERS_MAX = 100
ENTRIES = [b"entry %d" % number * 50 for number in range(40)]


@asynccontextmanager
async def working(client: Client) -> AsyncIterator[None]:
    """A worker outside Kubernetes, which takes the same tasks as a Job would."""
    worker = RepairWorker(client, AUDITING, name="worker")
    serving = asyncio.ensure_future(worker.serve())
    try:
        yield
    finally:
        worker.stop.set()
        await serving


async def write(client: Client, bookie: str) -> list[LedgerId]:
    """Closed ledgers, each spread over three of the bookies, until `bookie` is among those of some."""
    made: list[LedgerId] = []
    named = 0
    while named < NAMED:
        assert len(made) < LEDGERS_MAX, f"{bookie} gets no ledgers"
        ledger = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await ledger.append_many(ENTRIES)
        await ledger.close()
        made.append(ledger.id)
        named += bookie in (await client.ledgers.read(ledger.id)).value.bookies()
    return made


async def check(client: Client, ledgers: list[LedgerId], gone: str) -> None:
    """Every copy of every entry is there, and none of them on the bookie that left."""
    for ledger_id in ledgers:
        found = (await client.ledgers.read(ledger_id, sync=True)).value
        assert gone not in found.bookies()
        reader = await client.open_ledger(ledger_id)
        assert [entry.data async for entry in reader.read(0, len(ENTRIES) - 1)] == ENTRIES
        report = await verify_ledger(client, ledger_id)
        assert all(copy.is_whole for copy in report.copies), report


def test_a_drain_moves_every_entry_first_although_the_operator_is_killed_before_every_write(
    control_plane: ControlPlane,
    api: kubernetes.ApiClient,
    namespace: str,
    nodes: PretendNodes,
    zookeeper: str,
    tmp_path: Path,
) -> None:
    site = Site(control_plane, api, namespace, nodes, zookeeper)
    site.create(replicas=4, scaleDown={"pvcRetention": "Delete"})
    bookies = RealBookies(site, tmp_path)

    async def scene() -> None:
        store = await ZooKeeperStore.open(zookeeper)
        await ensure_cluster(store, Layout(CLUSTER), created_at_ms=0)
        await store.close()
        async with Operator(site, bookies) as creator:
            await creator.drive(lambda: site.is_running(4), "created")
        async with connect(zookeeper, cluster=CLUSTER) as client, working(client):
            ledgers = await write(client, site.bookie(3))
            site.change(replicas=3)
            operator = killable(site, tmp_path / "operator")
            done = await drive_killed(site, bookies, operator, lambda: site.is_running(3), "drained")
            steps = {"SetReadOnly", "MarkLeaving", "DeleteCookie"}
            order = [each.kind for each in done if each.kind in steps]
            assert order[0] == "SetReadOnly"
            assert "MarkLeaving" in order
            assert order[-1] == "DeleteCookie"
            forgotten = next(at for at, each in enumerate(done) if each.kind == "DeleteCookie")
            lowered = [at for at, each in enumerate(done) if _LOWERED.search(each.effect)]
            assert lowered
            assert forgotten < lowered[0], "the cookie goes first"
            await check(client, ledgers, site.bookie(3))
            assert sorted(await client.directory.cookies()) == [site.bookie(n) for n in range(3)]
            assert site.bookie(3) not in await client.directory.topology()
        assert sorted(site.pods()) == [0, 1, 2]
        assert not [name for name in site.claims() if name.endswith("-3") and not _is_going(site, name)]

    async def run() -> None:
        try:
            await scene()
        finally:
            await bookies.close()

    asyncio.run(run())


def _is_going(site: Site, claim: str) -> bool:
    """Nobody takes the finalizer of a claim that no kubelet has mounted, at once."""
    return site.claims()[claim].metadata.deletion_timestamp is not None
