"""The writer of tools/growth/open_ledgers.py: `writer ZOOKEEPER COUNT IDLE_S PID…`, with the process ids of the bookies.

Prints one line of JSON for each thing that it measured, and ends like a process that is killed.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

import daybook
from daybook.local.cluster import CLUSTER_NAME
from tools.growth.measure import cpu_s, rss_anon_mib

CREATIONS_AT_ONCE: Final = 32
SAMPLES: Final = 20
"""Ledgers whose readers are timed."""
SEEN_S: Final = 60.0
"""When a reader counts as stuck."""


def report(what: str, **figures: Any) -> None:
    """Print a record."""
    rounded = {
        name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()
    }
    print(json.dumps({"what": what, **rounded}), flush=True)


class Cpu:
    """Seconds of CPU of this process and of the busiest bookie since it was made."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._start = {pid: cpu_s(pid) for pid in (os.getpid(), *pids)}
        self._begin = time.perf_counter()

    def figures(self) -> dict[str, float]:
        """Seconds since then, and of CPU."""
        used = {pid: cpu_s(pid) - start for pid, start in self._start.items()}
        seconds = time.perf_counter() - self._begin
        client = used.pop(os.getpid())
        return {"seconds": seconds, "client_cpu_s": client, "bookie_cpu_s": max(used.values())}


async def main(zookeeper: str, count: int, idle_s: float, pids: Sequence[int]) -> None:
    """Measure."""
    async with daybook.connect(zookeeper, cluster=CLUSTER_NAME) as client:
        empty = {pid: rss_anon_mib(pid) for pid in (os.getpid(), *pids)}
        room = asyncio.Semaphore(CREATIONS_AT_ONCE)

        async def create() -> daybook.Ledger:
            async with room:
                return await client.create_ledger()

        cpu = Cpu(pids)
        ledgers = await asyncio.gather(*(create() for _ in range(count)))
        report("create", **cpu.figures())
        cpu = Cpu(pids)
        await asyncio.gather(*(ledger.append(b"first") for ledger in ledgers))
        report("first append to each", **cpu.figures())
        cpu = Cpu(pids)
        await asyncio.gather(*(ledger.append(b"second") for ledger in ledgers))
        report("another append to each", **cpu.figures())
        grown = {pid: rss_anon_mib(pid) - before for pid, before in empty.items()}
        client_mib = grown.pop(os.getpid())
        report("memory", client_mib=client_mib, bookie_mib=max(grown.values()))
        cpu = Cpu(pids)
        await asyncio.sleep(idle_s)
        figures = cpu.figures()
        report(
            "idle",
            client_cpu_percent=100 * figures["client_cpu_s"] / figures["seconds"],
            bookie_cpu_percent=100 * figures["bookie_cpu_s"] / figures["seconds"],
        )
        await publication(client, ledgers)
        os._exit(0)


async def publication(client: daybook.Client, ledgers: Sequence[daybook.Ledger]) -> None:
    """How long after its acknowledgement a reader sees a last entry: of one ledger, and of all that are written to."""
    sample = random.Random(1).sample(ledgers, min(SAMPLES, len(ledgers)))
    alone = [await seen_after_s(client, ledger, [ledger]) for ledger in sample]
    report("a last entry is seen", **_spread(alone))
    together = await seen_after_s(client, sample[-1], ledgers)
    report("a last entry of all is seen", seconds=together)


async def seen_after_s(
    client: daybook.Client, ledger: daybook.Ledger, written: Sequence[daybook.Ledger]
) -> float:
    """Append to each of `written`; the seconds from the acknowledgement until a reader has `ledger`'s entry."""
    reader = await client.open_ledger(ledger.id, recover=False)
    wanted = ledger.last_add_confirmed + 1
    seen = asyncio.create_task(_see(reader, wanted))
    await asyncio.gather(*(each.append(b"last") for each in written))
    acknowledged = time.perf_counter()
    async with asyncio.timeout(SEEN_S):
        return max(0.0, await seen - acknowledged)


async def _see(reader: daybook.Reader, wanted: int) -> float:
    async with aclosing(reader.tail(wanted)) as entries:
        async for entry in entries:
            if entry.entry_id == wanted:
                return time.perf_counter()
    msg = f"the ledger ended before entry {wanted}"
    raise AssertionError(msg)


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(1e3 * value for value in seconds)
    return {"p50_ms": ordered[len(ordered) // 2], "longest_ms": ordered[-1]}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), [int(word) for word in sys.argv[4:]]))
