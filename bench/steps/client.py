"""The client: from `append_soon` to the call of its `on_done`."""

import asyncio
from collections.abc import Sequence
from typing import Final

from bench.steps import LEDGERS, PAYLOAD
from bench.steps.instant import InstantCluster
from bench.steps.turns import us_for_each
from daybook.client.ledger import Ledger
from daybook.core.errors import DaybookError
from daybook.core.ids import EntryId

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
        return await us_for_each(ledgers, TURN_ENTRIES, entries, append_to)
