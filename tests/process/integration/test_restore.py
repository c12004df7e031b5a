"""ZooKeeper loses all of its data, the bookies lose nothing: an export brings the metadata back, and nothing is deleted."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.local.cluster_file import ClusterError
from daybook.metadata.instance import await_instance
from daybook.metadata.layout import Layout
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.wire import bookie_pb2 as pb
from tests.fixtures.cluster import connect_to, make_cluster
from tests.process.integration.kit import (
    BOOKIES,
    PATIENCE_S,
    SESSION_MS,
    calls,
    info,
    off,
    start_all,
    until_gone,
    until_registered,
)
from tests.unit.cli.kit import run

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One that knows no bookie but its own four: an import waits for every bookie that the export names."""
    with make_cluster(tmp_path / "cluster", settings={"session_timeout_ms": SESSION_MS}) as made:
        yield made


async def daybook_metadata(cluster: LocalCluster, *arguments: object, exit_code: int = 0) -> Any:
    """Run `daybook metadata …` beside this loop."""
    result = await off(run, "metadata", *arguments, "--dir", cluster.directory)
    assert result.exit_code == exit_code, result.output
    return result


async def written(cluster: LocalCluster, *ledgers: list[bytes]) -> list[int]:
    """Closed ledgers of these entries; their ids."""
    ids = []
    async with connect_to(cluster) as client:
        for entries in ledgers:
            ledger = await client.create_ledger()
            await ledger.append_many(entries)
            await ledger.close()
            ids.append(ledger.id)
    return ids


async def read(cluster: LocalCluster, ledger_id: int) -> list[bytes]:
    """All entries of a ledger, which is recovered first if it is not closed."""
    async with connect_to(cluster) as client:
        reader = await client.open_ledger(ledger_id)
        return [entry.data async for entry in reader.read()]


def lose_the_data_of_zookeeper(cluster: LocalCluster) -> None:
    """Its volumes are gone; the server starts again, empty."""
    cluster.zookeeper.kill()
    shutil.rmtree(cluster.zookeeper.directory / "data")
    cluster.zookeeper.start()


async def start_bookies_of_the_import(cluster: LocalCluster) -> None:
    """Start them once the cluster has an identity again: before that, a bookie ends at once."""
    store = await ZooKeeperStore.open(cluster.zookeeper.connect_string)
    try:
        await await_instance(store, Layout(CLUSTER_NAME), PATIENCE_S)
    finally:
        await store.close()
    await off(start_all, cluster)


async def collected(cluster: LocalCluster) -> list[pb.CollectGarbageResponse]:
    """A cycle of garbage collection on each bookie."""
    async with connect_to(cluster) as client:
        await until_registered(client)
        return [
            await calls(client, bookie).stub.collect_garbage(pb.CollectGarbageRequest(), timeout=PATIENCE_S)
            for bookie in BOOKIES
        ]


async def test_rule_68_after_a_restore_nothing_is_deleted_before_a_person_confirms(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    file = tmp_path / "metadata.gz"
    (before,) = await written(cluster, [b"before %d" % n for n in range(20)])
    async with connect_to(cluster) as client:
        unclosed = await client.create_ledger()
        await unclosed.append_many([b"acknowledged %d" % n for n in range(10)])
        await daybook_metadata(cluster, "export", file)
        await unclosed.abandon()
    after = await written(cluster, [b"after"], [b"after, too"])

    await off(cluster.stop_bookies, *BOOKIES)
    await off(lose_the_data_of_zookeeper, cluster)
    imported, _ = await asyncio.gather(
        daybook_metadata(cluster, "import", file, "--wait", 60), start_bookies_of_the_import(cluster)
    )
    assert f"the next ledger is {max(after) + 1}" in imported.stdout

    listed = json.loads((await daybook_metadata(cluster, "orphans", "--json")).stdout)
    assert [(each["ledger_id"], each["is_in_metadata"]) for each in listed] == [
        (each, False) for each in after
    ]
    for answer in await collected(cluster):
        assert (list(answer.deleted), "restored" in answer.detail) == ([], True)
    assert await read(cluster, before) == [b"before %d" % n for n in range(20)]
    assert (await read(cluster, unclosed.id)) == [b"acknowledged %d" % n for n in range(10)]
    (new,) = await written(cluster, [b"anew"])
    assert new > max(after)
    assert json.loads((await daybook_metadata(cluster, "orphans", "--json")).stdout) == listed

    assert "is not empty" in (await daybook_metadata(cluster, "import", file, exit_code=1)).stderr
    await daybook_metadata(cluster, "confirm", "--yes")
    deleted = {each for answer in await collected(cluster) for each in answer.deleted}
    assert deleted <= set(after), "a cycle of their own may have been faster"
    assert json.loads((await daybook_metadata(cluster, "orphans", "--json")).stdout) == []
    assert await read(cluster, before) == [b"before %d" % n for n in range(20)]
    assert await read(cluster, new) == [b"anew"]
    async with connect_to(cluster) as client:
        for bookie in BOOKIES:
            assert not (await info(client, bookie)).collection_refused


async def forgotten_by_the_export(cluster: LocalCluster, bookie: str, file: Path) -> None:
    """An export that is older than `bookie`, which is stopped: as if it had been added after it."""
    store = await ZooKeeperStore.open(cluster.zookeeper.connect_string)
    try:
        path = Layout(CLUSTER_NAME).cookie(bookie)
        cookie = (await store.get(path)).value
        await store.delete(path)
        await daybook_metadata(cluster, "export", file)
        await store.create(path, cookie)
    finally:
        await store.close()


async def on_one_bookie(cluster: LocalCluster, bookie: str, entry: bytes) -> int:
    """A closed ledger whose only copies are on `bookie`; its id."""
    async with connect_to(cluster) as client:
        await until_registered(client)
        while True:
            ledger = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            await ledger.append(entry)
            await ledger.close()
            if ledger.metadata.bookies() == {bookie}:
                return ledger.id


async def test_rule_68_a_bookie_that_is_younger_than_the_export_is_readmitted_with_its_disks(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    file, young = tmp_path / "metadata.gz", BOOKIES[-1]
    await off(cluster.stop_bookies, young)
    async with connect_to(cluster) as client:
        await until_gone(client, young)
    (before,) = await written(cluster, [b"before"])
    await forgotten_by_the_export(cluster, young, file)
    await off(cluster.start_bookie, young)
    only_copy = await on_one_bookie(cluster, young, b"the only copy")

    await off(cluster.stop_bookies, *BOOKIES)
    await off(lose_the_data_of_zookeeper, cluster)
    store = await ZooKeeperStore.open(cluster.zookeeper.connect_string)
    try:

        async def start_the_others() -> None:
            await await_instance(store, Layout(CLUSTER_NAME), PATIENCE_S)
            for bookie in BOOKIES[:-1]:
                await off(cluster.start_bookie, bookie)

        await asyncio.gather(daybook_metadata(cluster, "import", file, "--wait", 60), start_the_others())
        with pytest.raises(ClusterError):
            await off(cluster.start_bookie, young)
        log = next(cluster.directory.glob(f"{young}/*.log")).read_text(encoding="utf-8")
        found = re.search(rf"daybook metadata readmit {young} (\w+)", log)
        assert found is not None, log
        command = ("readmit", young, found[1])

        counter = await store.get(Layout(CLUSTER_NAME).idgen)
        planned = await daybook_metadata(cluster, *command, "--dry-run")
        assert "ids continue at" in planned.stderr
        assert await store.get(Layout(CLUSTER_NAME).idgen) == counter
        assert await store.exists(Layout(CLUSTER_NAME).cookie(young)) is None

        silent = await daybook_metadata(cluster, *command, "--yes", "--wait", 0.1, exit_code=1)
        assert "give the same command again" in silent.stderr
        assert "is not readmitted" in (await daybook_metadata(cluster, *command, "--give-up")).stdout

        async def start_the_young_one() -> None:
            async for cookie in store.watch_node(Layout(CLUSTER_NAME).cookie(young)):
                if cookie is not None:
                    await off(cluster.start_bookie, young)
                    return

        readmitted, _ = await asyncio.gather(
            daybook_metadata(cluster, *command, "--yes", "--wait", 60), start_the_young_one()
        )
    finally:
        await store.close()
    assert f"the next ledger is {only_copy + 1}" in readmitted.stdout
    listed = json.loads((await daybook_metadata(cluster, "orphans", "--json")).stdout)
    assert (only_copy, [young]) in [(each["ledger_id"], each["bookies"]) for each in listed]
    assert (await written(cluster, [b"anew"]))[0] > only_copy
    assert await read(cluster, before) == [b"before"]
    again = await daybook_metadata(cluster, *command, "--dry-run", exit_code=1)
    assert "needs no readmission" in again.stderr
    async with connect_to(cluster) as client:
        await until_registered(client)
        assert not (await info(client, young)).collection_refused
