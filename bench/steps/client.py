"""The client: from `append_soon` to the call of its `on_done`."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from bench.steps import LEDGERS, PAYLOAD
from bench.steps.instant import InstantCluster
from daybook.client.ledger import Ledger
from daybook.core.errors import DaybookError
from daybook.core.ids import EntryId
from daybook.runtime.garbage import collect_rarely

TURN_ENTRIES: Final = 30
"""Entries that a client appends in one turn of the loop: each bookie receives them as one message."""


async def client_us(entries: int) -> float:
    """µs of the client for an entry."""
    waiting = 0
    done = asyncio.Event()

    def on_done(_: EntryId, error: DaybookError | None) -> None:
        nonlocal waiting
        assert error is None, error
        waiting -= 1
        if not waiting:
            done.set()

    async def append_to(some: Sequence[Ledger]) -> None:
        nonlocal waiting
        waiting = len(some)
        done.clear()
        for ledger in some:
            ledger.append_soon(PAYLOAD, on_done)
        await done.wait()

    async with InstantCluster.opened() as cluster:
        ledgers = [cluster.open_ledger() for _ in range(LEDGERS)]
        await append_to(ledgers)  # attaches
        collect_rarely()
        parts = [ledgers[at : at + TURN_ENTRIES] for at in range(0, LEDGERS - TURN_ENTRIES, TURN_ENTRIES)]
        appended = 0
        began = time.process_time()
        while appended < entries:
            for part in parts:
                await append_to(part)
                appended += len(part)
        return (time.process_time() - began) / appended * 1e6
