"""A client process of the bench: runs one workload against a running cluster and prints one line of JSON.

The mirror image of bench/peer/PeerBench.java: a tenth of the work in a ledger of its own warms up, and where there are
many ledgers a first entry in each, untimed. Where there is a rate, an entry's latency counts from the moment at which it was
due: while the client stalls or its window is full, entries become late that it has not sent yet. Where there is none, it
counts from the sending, for which the client has waited until there was room.
"""

import asyncio
import json
import os
import random
import selectors
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import daybook
from bench.many import append_first, create, create_each, hold_open, leave_open, recover_each
from bench.workloads import BATCH_ENTRIES, Quorums
from daybook.runtime.garbage import collect_rarely


async def write(
    client: daybook.Client,
    *,
    size: int,
    count: int,
    window: int,
    rate: int,
    ledgers: int,
    quorums: Quorums,
    close: bool,
    api: str,
) -> dict[str, Any]:
    """Write `count` entries round-robin over `ledgers`; latencies in ms, seconds until the last acknowledgement."""

    run = RUNS[api]
    (first,) = await create_each(client, 1, quorums)
    async with first as warm:
        await run([warm], size, max(1000, count // 10), window, rate)
    handles = await create_each(client, ledgers, quorums)
    if ledgers > 1:
        await append_first(handles)
    begin = time.perf_counter()
    latencies = sorted(await run(handles, size, count, window, rate))
    seconds = time.perf_counter() - begin
    result = {
        "ledger": handles[0].id,
        "seconds": seconds,
        "p50_ms": 1e3 * latencies[len(latencies) // 2],
        "p99_ms": 1e3 * latencies[int(len(latencies) * 0.99)],
        "p999_ms": 1e3 * latencies[int(len(latencies) * 0.999)],
    }
    if not close:
        print(json.dumps(result), flush=True)
        os._exit(0)
    await asyncio.gather(*(handle.close() for handle in handles))
    return result


async def run_each(
    handles: Sequence[daybook.Ledger], size: int, count: int, window: int, rate: int
) -> list[float]:
    """One future for each entry; returns the latency of each in seconds."""
    assert not rate
    data = random.Random(1).randbytes(size)
    room = asyncio.Semaphore(window)
    latencies: list[float] = []

    for i in range(count):
        await room.acquire()
        sent = time.perf_counter()
        future = await handles[i % len(handles)].submit((data,))
        future.add_done_callback(partial(_done, latencies, room, sent))
    for _ in range(window):
        await room.acquire()
    return latencies


async def run_soon(
    handles: Sequence[daybook.Ledger], size: int, count: int, window: int, rate: int
) -> list[float]:
    """One call for each entry at a rate, as Apache BookKeeper's asyncAddEntry; returns the latency of each in seconds, from when it was due."""
    data = random.Random(1).randbytes(size)
    room = asyncio.Semaphore(window)
    latencies: list[float] = []
    errors: list[daybook.DaybookError] = []

    def done(due: float, _: int, error: daybook.DaybookError | None) -> None:
        latencies.append(time.perf_counter() - due)
        if error is not None:
            errors.append(error)
        room.release()

    begin = time.perf_counter()
    for i in range(count):
        due = begin + i / rate
        await until(due)
        await room.acquire()
        handles[i % len(handles)].append_soon(data, partial(done, due))
    for _ in range(window):
        await room.acquire()
    if errors:
        raise errors[0]
    return latencies


async def run_many(
    handles: Sequence[daybook.Ledger], size: int, count: int, window: int, rate: int
) -> list[float]:
    """One future for BATCH_ENTRIES entries; returns the latency of each batch in seconds."""
    assert not rate
    entries = [random.Random(1).randbytes(size)] * BATCH_ENTRIES
    room = asyncio.Semaphore(max(1, window // BATCH_ENTRIES))
    latencies: list[float] = []

    for i in range(0, count, BATCH_ENTRIES):
        await room.acquire()
        sent = time.perf_counter()
        future = await handles[i % len(handles)].submit(entries[: count - i])
        future.add_done_callback(partial(_done, latencies, room, sent))
    for _ in range(max(1, window // BATCH_ENTRIES)):
        await room.acquire()
    return latencies


def _done(
    latencies: list[float],
    room: asyncio.Semaphore,
    counted_from: float,
    future: asyncio.Future[tuple[int, int]],
) -> None:
    future.result()
    latencies.append(time.perf_counter() - counted_from)
    room.release()


RUNS: Final = {"append_many": run_many, "append": run_each, "append_soon": run_soon}


async def until(instant: float) -> None:
    """Wait until `instant` of the performance counter."""
    left = instant - time.perf_counter()
    if left > 0:
        await asyncio.sleep(left)


async def read(client: daybook.Client, ledger_id: int, count: int) -> dict[str, Any]:
    """Read a closed ledger from its beginning; a twentieth of it warms up, untimed."""
    reader = await client.open_ledger(ledger_id)
    async for _ in reader.read(0, min(count, max(1000, count // 20)) - 1):
        pass
    begin = time.perf_counter()
    entries = size_bytes = 0
    async for batch in reader.read_batches(0, count - 1):
        entries += len(batch)
        size_bytes += sum(len(entry.data) for entry in batch)
    assert entries == count
    return {"seconds": time.perf_counter() - begin, "bytes": size_bytes}


async def recover(client: daybook.Client, ledger_id: int) -> dict[str, Any]:
    """Recover and close a ledger that its writer left open."""
    begin = time.perf_counter()
    reader = await client.open_ledger(ledger_id, recover=True)
    return {"seconds": time.perf_counter() - begin, "entries": reader.last_add_confirmed + 1}


WORK: Final[Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]] = {
    "write": write,
    "read": read,
    "recover": recover,
    "create": create,
    "leave_open": leave_open,
    "recover_each": recover_each,
    "hold_open": hold_open,
}


async def main() -> None:
    """`worker ZOOKEEPER CLUSTER JSON`: run the workload that the JSON describes."""
    zookeeper, cluster, job = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    work = job.pop("work")
    async with daybook.connect(zookeeper, cluster=cluster) as client:
        collect_rarely()  # as a broker's process does
        if "quorums" in job:
            job["quorums"] = Quorums(*job["quorums"])
        result = await WORK[work](client, **job)
        if work in ("leave_open", "hold_open"):
            print(json.dumps(result), flush=True)
            os._exit(0)
    print(json.dumps(result), flush=True)


def precise_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are as exact as the peer's: epoll and poll wait for whole milliseconds, so that entries would leave late."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(main())
