"""Many open ledgers of one writer: memory of client and bookies, what they cost while nothing happens, and their end.

The writer is a process of its own (tools/growth/writer.py), which ends without closing anything; another one recovers
its ledgers then.
"""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import daybook
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from tools.growth.measure import Note, cpu_s

BOOKIES: Final = 3
RECOVERIES_AT_ONCE: Final = 16
IDLE_S: Final = 10.0
"""How long nothing is appended."""


def measure_open_ledgers(sizes: list[int], directory: Path, note: Note) -> None:
    """At each of `sizes`: open as many, write to them, be idle, write again, die, and have them recovered."""
    for size in sizes:
        with LocalCluster(
            directory / str(size), bookies=BOOKIES, settings={"log_level": "WARNING"}
        ) as cluster:
            for record in _write(cluster, size):
                note(record.pop("what"), size, **record)
            note("recover all", size, **asyncio.run(_recover(cluster)))


def _write(cluster: LocalCluster, size: int) -> list[dict[str, Any]]:
    """The records of a writer's life."""
    about = [cluster.zookeeper.connect_string, str(size), str(IDLE_S)]
    pids = [str(bookie.pid) for bookie in cluster.bookies]
    words = [sys.executable, "-m", "tools.growth.writer", *about, *pids]
    output = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in output.splitlines()]


async def _recover(cluster: LocalCluster) -> dict[str, Any]:
    """Fence, recover and close every ledger, some at a time."""
    pids = [bookie.pid for bookie in cluster.bookies]
    async with daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        ledgers = [found.value.ledger_id async for found in client.list_ledgers()]
        room = asyncio.Semaphore(RECOVERIES_AT_ONCE)

        async def recover(ledger_id: int) -> int:
            async with room:
                return (await client.open_ledger(ledger_id, recover=True)).last_add_confirmed

        begin, before = time.perf_counter(), [cpu_s(pid) for pid in pids]
        ends = await asyncio.gather(*map(recover, ledgers))
        seconds = time.perf_counter() - begin
        busy = max(cpu_s(pid) - start for pid, start in zip(pids, before, strict=True))
    if min(ends) < 1:
        msg = "a ledger was recovered without the two entries that were acknowledged"
        raise AssertionError(msg)
    return {"seconds": round(seconds, 2), "bookie_cpu_s": round(busy, 2)}
