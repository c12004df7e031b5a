"""The clocks, with units in their names, so that nobody has to guess a unit.

Decisions use only the monotonic clock, because the wall clock may step. The monotonic clock includes the time for which
the machine is suspended: a session that a server ended during a suspended minute has ended for this process, too
(rule 46). Python's `time.monotonic()` and asyncio's timers exclude that time: code with a deadline uses `timeout_at`.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
CHECK_INTERVAL_S: Final = 0.5
"""The largest delay after a suspension until `timeout_at` and `sleep_until` notice that their instant has passed."""


def monotonic_ms() -> int:
    """Milliseconds since an arbitrary start; never decreases, and includes the time for which the machine is suspended."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def monotonic_s() -> float:
    """The same clock in seconds, from the same start."""
    return time.clock_gettime_ns(_CLOCK) / 1e9


def unix_ms() -> int:
    """Milliseconds since 1970 by the wall clock: for people and records, never for decisions."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def timeout_at(instant_s: float) -> AsyncIterator[None]:
    """Cancel the block once `monotonic_s()` reaches `instant_s`, and raise TimeoutError; as `asyncio.timeout_at`."""
    loop = asyncio.get_running_loop()
    next_check: asyncio.Handle | None = None
    async with asyncio.timeout(None) as timeout:

        def check() -> None:
            nonlocal next_check
            left_s = instant_s - monotonic_s()
            if left_s <= 0:
                timeout.reschedule(loop.time())
            else:
                next_check = loop.call_later(min(left_s, CHECK_INTERVAL_S), check)

        check()
        try:
            yield
        finally:
            if next_check is not None:
                next_check.cancel()


async def sleep_until(instant_s: float) -> None:
    """Return once `monotonic_s()` has reached `instant_s`."""
    with suppress(TimeoutError):
        async with timeout_at(instant_s):
            await asyncio.get_running_loop().create_future()
