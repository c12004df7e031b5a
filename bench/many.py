"""What a client does with many ledgers, in a client process of the bench: create, leave open, recover, hold open.

The mirror image of the same workloads in bench/peer/PeerBench.java.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import daybook
from bench.workloads import Quorums

BEGIN_AT_ONCE: Final = 256
"""How many ledgers are sent their first entry at a time: a bookie reads the metadata of each before it takes it."""
SETTLE_S: Final = 5.0
"""Between the last append and the measurement of idle processes: LACs are published, streams come to rest."""
RECOVER_ENTRY_BYTES: Final = 100
BATCHES: Final = 4
"""In how many batches the entries are written that recovery finds, so that a ledger has frames of several LACs."""


async def create_each(client: daybook.Client, count: int, quorums: Quorums) -> list[daybook.Ledger]:
    """`count` ledgers, side by side."""
    return await asyncio.gather(
        *(
            client.create_ledger(
                ensemble_size=quorums.ensemble_size,
                write_quorum=quorums.write_quorum,
                ack_quorum=quorums.ack_quorum,
            )
            for _ in range(count)
        )
    )


async def append_first(handles: Sequence[daybook.Ledger]) -> None:
    """A first entry in each of `handles`."""
    for begin in range(0, len(handles), BEGIN_AT_ONCE):
        await asyncio.gather(*(handle.append(b"first") for handle in handles[begin : begin + BEGIN_AT_ONCE]))


async def create(client: daybook.Client, *, ledgers: int, quorums: Quorums) -> dict[str, Any]:
    """Create `ledgers`; the seconds that it took, and the seconds until each had its first entry acknowledged."""
    await create_each(client, max(1, ledgers // 10), quorums)
    begin = time.perf_counter()
    handles = await create_each(client, ledgers, quorums)
    created = time.perf_counter()
    await append_first(handles)
    return {"seconds": created - begin, "first_entries_seconds": time.perf_counter() - begin}


async def leave_open(
    client: daybook.Client, *, ledgers: int, entries: int, quorums: Quorums
) -> dict[str, Any]:
    """Write `entries` into each of `ledgers`, for a process that dies without closing them; their ids."""
    handles = await create_each(client, ledgers, quorums)
    await append_first(handles)
    batch = [bytes(RECOVER_ENTRY_BYTES)] * ((entries - 1) // BATCHES)
    for _ in range(BATCHES):
        await asyncio.gather(*[await handle.submit(batch) for handle in handles])
    rest = [bytes(RECOVER_ENTRY_BYTES)] * (entries - 1 - BATCHES * len(batch))
    await asyncio.gather(*[await handle.submit(rest) for handle in handles])
    return {"ledgers": [handle.id for handle in handles]}


async def recover_each(client: daybook.Client, *, ledgers: Sequence[int], entries: int) -> dict[str, Any]:
    """Open and so recover `ledgers` side by side; the seconds that it took."""
    begin = time.perf_counter()
    readers = await asyncio.gather(*map(client.open_ledger, ledgers))
    seconds = time.perf_counter() - begin
    assert all(reader.last_add_confirmed == entries - 1 for reader in readers)
    return {"seconds": seconds}


async def hold_open(
    client: daybook.Client, *, ledgers: int, seconds: float, quorums: Quorums, bookie_pids: Sequence[int]
) -> dict[str, Any]:
    """Hold `ledgers` with one entry each open for `seconds`; the CPU of this process, and of the busiest bookie, in percent."""
    handles = await create_each(client, ledgers, quorums)
    await append_first(handles)
    await asyncio.sleep(SETTLE_S)
    pids = [os.getpid(), *bookie_pids]
    before = [cpu_seconds(pid) for pid in pids]
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    passed = time.perf_counter() - begin
    own, *bookies = (100 * (cpu_seconds(pid) - used) / passed for pid, used in zip(pids, before, strict=True))
    return {"client_cpu_percent": own, "bookie_cpu_percent": max(bookies)}


def cpu_seconds(pid: int) -> float:
    """What a process has used of the CPU so far, its threads included."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stat_fields(pid: int) -> list[str]:
    """What /proc has of a process behind its name: state, parent, group, session and so on. Raises OSError once it is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
