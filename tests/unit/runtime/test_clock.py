"""The clock: it includes suspended time, and waiting tasks notice it."""

import asyncio
import time

import pytest

from daybook.runtime import clock
from daybook.runtime.clock import (
    CHECK_INTERVAL_S,
    monotonic_ms,
    monotonic_s,
    sleep_until,
    timeout_at,
    unix_ms,
)
from tests.unit.runtime.suspension import Suspension


def test_the_monotonic_clock_does_not_go_back() -> None:
    readings = [monotonic_ms() for _ in range(1000)]
    assert readings == sorted(readings)
    assert monotonic_s() == pytest.approx(monotonic_ms() / 1000, abs=0.1)


def test_unix_time_is_in_milliseconds() -> None:
    assert 1_700_000_000_000 < unix_ms() < 10_000_000_000_000


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system counts no suspended time")
def test_the_monotonic_clock_includes_suspended_time() -> None:
    assert clock._CLOCK == time.CLOCK_BOOTTIME


async def test_a_wait_ends_at_its_instant_and_not_before() -> None:
    instant_s = monotonic_s() + 0.05
    await sleep_until(instant_s)
    assert monotonic_s() >= instant_s
    await sleep_until(0.0)
    with pytest.raises(TimeoutError):
        async with timeout_at(0.0):
            await asyncio.Event().wait()


async def test_a_block_that_ends_before_its_instant_is_not_cancelled() -> None:
    async with timeout_at(monotonic_s() + 0.01):
        pass
    await sleep_until(monotonic_s() + 0.02)


async def test_a_wait_notices_a_suspension_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    suspension = Suspension(monkeypatch)
    waiting = asyncio.create_task(sleep_until(monotonic_s() + 3600))
    await asyncio.sleep(0)
    suspension.lasts(3601)
    await asyncio.wait_for(waiting, CHECK_INTERVAL_S + 5)
