"""Reads many nodes one after the other without waiting for each, and without holding more than a few.

Rule 37: what is under way at once is bounded, so that pings never wait behind reads and who consumes slowly is not
flooded. Rule 28: an error ends the walk.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine
from typing import Any, Final, TypeVar

from daybook.core.ids import LedgerId

READS_IN_FLIGHT_MAX: Final = 32
"""How many nodes are read at once."""

T = TypeVar("T")


async def read_ahead(
    ids: AsyncIterable[LedgerId], read: Callable[[LedgerId], Coroutine[Any, Any, T | None]]
) -> AsyncGenerator[T, None]:
    """What `read` finds for each of `ids`, in their order; None is left out. Reads go on only as they are consumed."""
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
