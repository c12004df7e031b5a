"""Reads many nodes in order, with a bounded number of reads in flight.

Rule 37: the bound keeps pings from waiting behind reads, and a slow consumer from holding many results. Rule 28: an
error ends the iteration.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine
from typing import Any, Final, TypeVar

from daybook.core.ids import LedgerId

READS_IN_FLIGHT_MAX: Final = 32
"""The largest number of reads in flight."""

T = TypeVar("T")


async def read_ahead(
    ids: AsyncIterable[LedgerId], read: Callable[[LedgerId], Coroutine[Any, Any, T | None]]
) -> AsyncGenerator[T, None]:
    """The results of `read` for each of `ids`, in their order, without None. New reads start only as results are consumed."""
    window: deque[asyncio.Task[T | None]] = deque()
    try:
        async for ledger_id in ids:
            window.append(asyncio.create_task(read(ledger_id)))
            if len(window) >= READS_IN_FLIGHT_MAX:
                found = await window.popleft()
                if found is not None:
                    yield found
        while window:
            found = await window.popleft()
            if found is not None:
                yield found
    finally:
        for task in window:
            task.cancel()
        await asyncio.gather(*window, return_exceptions=True)
