"""Many ledgers in ZooKeeper: what listing, auditing and planning of repair cost as they become more.

The ledgers are closed and empty, on four real bookies: what is measured is the work on metadata, and one question to each
bookie of a ledger, not the copying. Reads are let loose (500 a second is the default): the cost is what grows.
"""

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from daybook.core.ledger.metadata import Fragment, LedgerMetadata, LedgerState
from daybook.core.quorum import check_quorum
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import Create, NodeExistsError, Operation, parent_of
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.metadata.tasks import RepairTasks
from tools.growth.measure import Note, rss_anon_mib, run_daybook

BOOKIES: Final = tuple(f"bookie-{number}" for number in range(4))
BATCH: Final = 200
NO_LIMIT: Final = {"DAYBOOK_AUTORECOVERY_READS_PER_SECOND": "1000000"}
REPAIR_S: Final = 20.0
"""How long repair is watched."""


def measure_ledgers(sizes: list[int], directory: Path, note: Note) -> None:
    """At each of `sizes`, rising: list, audit, lose a bookie, plan the repair, repair for a while, take it back."""
    with LocalCluster(directory, bookies=len(BOOKIES)) as cluster:
        there = 0
        for size in sizes:
            begin = time.perf_counter()
            asyncio.run(_fill(cluster, there, size))
            note("fill", size, seconds=round(time.perf_counter() - begin, 1))
            there = size
            _measure(cluster, size, note)


def _measure(cluster: LocalCluster, size: int, note: Note) -> None:
    where = cluster.directory
    note("list", size, **run_daybook(where, "ledger", "list", "--json").figures())
    note("quick audit", size, **run_daybook(where, "audit", "--quick", env=NO_LIMIT).figures())
    note("full audit", size, **run_daybook(where, "audit", codes=(0, 1), env=NO_LIMIT).figures())
    lost = BOOKIES[-1]
    cluster.stop_bookies(lost)
    planned = run_daybook(where, "audit", "--quick", "--delay", "0", codes=(0, 1), env=NO_LIMIT).figures()
    tasks = asyncio.run(_count_tasks(cluster))
    note("plan after a loss", size, tasks=tasks, **planned)
    note("list of tasks", size, **run_daybook(where, "audit", "--list", "--json", codes=(0, 1)).figures())
    repaired = _repair_for_a_while(where)
    left = asyncio.run(_count_tasks(cluster))
    note("repair", size, ledgers=tasks - left, **repaired)
    cluster.start_bookie(lost)
    back = run_daybook(where, "audit", "--quick", codes=(0, 1), env=NO_LIMIT).figures()
    note("take the plan back", size, tasks=left - asyncio.run(_count_tasks(cluster)), **back)
    note(
        "zookeeper",
        size,
        rss_mib=round(rss_anon_mib(cluster.zookeeper.pid or 0), 1),
        data_mib=round(_size_bytes(cluster.zookeeper.directory / "data") / (1 << 20), 1),
    )


def _repair_for_a_while(directory: Path) -> dict[str, float]:
    """Let a worker repair until the time is over, or everything is done."""
    env = {**NO_LIMIT, "DAYBOOK_AUTORECOVERY_STOP_GRACE_MS": "0"}
    usage = run_daybook(directory, "recover", "--drain", codes=(0, 1, 130), env=env, stop_after_s=REPAIR_S)
    return usage.figures()


def _size_bytes(directory: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.is_file())


async def _fill(cluster: LocalCluster, first: int, end: int) -> None:
    """Create the ledgers first … end − 1, as a client would have left them."""
    store = await ZooKeeperStore.open(cluster.zookeeper.connect_string)
    layout = Layout(CLUSTER_NAME)
    directories: set[str] = set()
    try:
        for start in range(first, end, BATCH):
            operations: list[Operation] = []
            for ledger_id in range(start, min(start + BATCH, end)):
                path = layout.ledger(ledger_id)
                parent = parent_of(path)
                if parent not in directories:
                    with suppress(NodeExistsError):
                        await store.create(parent, parents=True)
                    directories.add(parent)
                operations.append(Create(path, _closed(ledger_id).to_json()))
            await store.multi(operations)
        counter = await store.get(layout.idgen)
        await store.put(layout.idgen, json.dumps({"next": end, "token": ""}).encode(), counter.version)
    finally:
        await store.close()


def _closed(ledger_id: int) -> LedgerMetadata:
    bookies = tuple(BOOKIES[(ledger_id + i) % len(BOOKIES)] for i in range(3))
    return LedgerMetadata(
        ledger_id,
        check_quorum(3, 3, 2),
        (Fragment(0, 0, bookies),),
        state=LedgerState.CLOSED,
        writer_token="w",
    )


async def _count_tasks(cluster: LocalCluster) -> int:
    store = await ZooKeeperStore.open(cluster.zookeeper.connect_string)
    try:
        return len([ledger_id async for ledger_id in RepairTasks(store, Layout(CLUSTER_NAME)).ids()])
    finally:
        await store.close()
