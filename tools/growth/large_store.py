"""One bookie whose store becomes larger than its memory: what writes, reads and a restart cost then.

The bookie runs in a cgroup whose limit holds for its own memory and for the page cache of what it maps and writes. Where
no cgroup can be made the records say so, and its files are put out of the page cache before each measurement instead.
"""

import asyncio
import os
import random
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import daybook
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from tools.growth.measure import MIB, Note, daybook_command, major_faults, rss_anon_mib
from tools.growth.memory_group import MemoryGroup

BOOKIE: Final = "bookie-0"
LIMIT_MIB: Final = 256
CACHES: Final = {"write_cache_bytes": 32 * MIB, "flush_bytes": 16 * MIB, "log_level": "WARNING"}
"""Smaller than usual, so that the bookie's own memory leaves half of the limit to the page cache."""
ENTRY_BYTES: Final = 4096
LEDGER_MIB: Final = 32
BATCH_ENTRIES: Final = 256
BATCHES_IN_FLIGHT: Final = 8
CATCH_UP_MIB: Final = 128
RANDOM_READS: Final = 1000
READERS: Final = 4
"""Random reads at once."""


def measure_large_store(sizes: list[int], directory: Path, note: Note) -> None:
    """At each of `sizes` in MiB, rising: fill up to it, restart, read what is old in order, then here and there."""
    limited = _Limited(directory)
    try:
        with LocalCluster(directory, bookies=1, settings=CACHES) as cluster:
            limited.restart(cluster)
            ledgers: list[int] = []
            for size in sizes:
                _measure(cluster, limited, ledgers, size, note)
    finally:
        limited.remove()


class _Limited:
    """How the bookie is kept from having its store in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._group: MemoryGroup | None = None
        with suppress(OSError):
            self._group = MemoryGroup(f"daybook-growth-{os.getpid()}", LIMIT_MIB * MIB)

    def restart(self, cluster: LocalCluster, *, kill: bool = False) -> float:
        """Stop the bookie and start it with nothing of its files in memory; the seconds that the start took."""
        if kill:
            cluster.kill_bookie(BOOKIE)
        else:
            cluster.stop_bookies(BOOKIE)
        for file in (self._directory / BOOKIE).rglob("*"):
            if file.is_file():
                _forget(file)
        command = daybook_command("bookie", "start", BOOKIE, "--dir", str(cluster.directory))
        begin = time.perf_counter()
        subprocess.run(
            self._group.command(*command) if self._group else command, check=True, stdout=subprocess.DEVNULL
        )
        return time.perf_counter() - begin

    def figures(self) -> dict[str, Any]:
        """For a record: how much may be in memory, how much of the files is."""
        if self._group is None:
            return {
                "limit": "no cgroup could be made: files were put out of the page cache before each start"
            }
        return {"limit_mib": LIMIT_MIB, "page_cache_mib": round(self._group.cache_bytes / MIB, 1)}

    def remove(self) -> None:
        if self._group is not None:
            self._group.remove()


def _forget(file: Path) -> None:
    """Put a file out of the page cache."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _measure(cluster: LocalCluster, limited: _Limited, ledgers: list[int], size: int, note: Note) -> None:
    def report(what: str, **figures: float) -> None:
        pid = cluster.file.bookie(BOOKIE).pid
        memory = {"rss_anon_mib": round(rss_anon_mib(pid), 1), **limited.figures()}
        note(what, size, **{name: round(value, 2) for name, value in figures.items()}, **memory)

    report("write", **asyncio.run(_fill(cluster, ledgers, size)))
    report("restart after a kill", seconds=limited.restart(cluster, kill=True))
    report("restart", seconds=limited.restart(cluster))
    report("catch-up read", **asyncio.run(_catch_up(cluster, ledgers)))
    report("random read", **asyncio.run(_read_here_and_there(cluster, ledgers)))
    store = cluster.directory / BOOKIE / "store"
    on_disk = sum(file.stat().st_blocks * 512 for file in store.rglob("*") if file.is_file())
    note("store", size, on_disk_mib=round(on_disk / MIB, 1))


def _client(cluster: LocalCluster) -> daybook.Client:
    return daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME)


async def _fill(cluster: LocalCluster, ledgers: list[int], size_mib: int) -> dict[str, float]:
    """Write ledgers, one after the other, until there are `size_mib` of entries."""
    begin, before = time.perf_counter(), len(ledgers)
    entries = [random.Random(1).randbytes(ENTRY_BYTES)] * BATCH_ENTRIES
    async with _client(cluster) as client:
        while len(ledgers) * LEDGER_MIB < size_mib:
            room = asyncio.Semaphore(BATCHES_IN_FLIGHT)
            async with await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as ledger:
                for _ in range(LEDGER_MIB * MIB // (ENTRY_BYTES * BATCH_ENTRIES)):
                    await room.acquire()
                    appended = await ledger.submit(entries)
                    appended.add_done_callback(partial(_release, room))
                await appended
            ledgers.append(ledger.id)
    seconds = time.perf_counter() - begin
    return {"mib_per_s": (len(ledgers) - before) * LEDGER_MIB / seconds}


def _release(room: asyncio.Semaphore, _: asyncio.Future[tuple[int, int]]) -> None:
    room.release()


async def _catch_up(cluster: LocalCluster, ledgers: list[int]) -> dict[str, float]:
    """Read the oldest ledgers from their beginning, as a reader that was away."""
    pid = cluster.file.bookie(BOOKIE).pid
    begin, faults, read_bytes = time.perf_counter(), major_faults(pid), 0
    async with _client(cluster) as client:
        for ledger_id in ledgers[: CATCH_UP_MIB // LEDGER_MIB]:
            reader = await client.open_ledger(ledger_id)
            async for batch in reader.read_batches(0, reader.last_add_confirmed):
                read_bytes += sum(len(entry.data) for entry in batch)
    seconds = time.perf_counter() - begin
    return {"mib_per_s": read_bytes / MIB / seconds, "major_faults": major_faults(pid) - faults}


async def _read_here_and_there(cluster: LocalCluster, ledgers: list[int]) -> dict[str, float]:
    """Single entries, anywhere in the store."""
    pid = cluster.file.bookie(BOOKIE).pid
    rng = random.Random(len(ledgers))
    latencies_ms: list[float] = []
    async with _client(cluster) as client:
        readers = [await client.open_ledger(ledger_id) for ledger_id in ledgers]

        async def read_some() -> None:
            for _ in range(RANDOM_READS // READERS):
                reader = rng.choice(readers)
                entry_id = rng.randint(0, reader.last_add_confirmed)
                begin = time.perf_counter()
                async for entry in reader.read(entry_id, entry_id):
                    assert len(entry.data) == ENTRY_BYTES
                latencies_ms.append(1e3 * (time.perf_counter() - begin))

        faults, begin = major_faults(pid), time.perf_counter()
        await asyncio.gather(*(read_some() for _ in range(READERS)))
        seconds = time.perf_counter() - begin
    latencies_ms.sort()
    return {
        "reads_per_s": len(latencies_ms) / seconds,
        "p50_ms": latencies_ms[len(latencies_ms) // 2],
        "p99_ms": latencies_ms[int(len(latencies_ms) * 0.99)],
        "major_faults_per_read": (major_faults(pid) - faults) / len(latencies_ms),
    }
