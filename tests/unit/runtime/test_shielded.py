"""Work that several wait for: it belongs to none of them, and its failure is nobody's who gave up."""

import asyncio
import gc
from typing import Any

import pytest

from daybook.runtime.shielded import shielded


async def _given_up(work: asyncio.Future[int]) -> None:
    """Somebody waits for `work`, and is cancelled by a time-out."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await shielded(work)


async def test_who_gives_up_does_not_take_the_work_from_the_others() -> None:
    work = asyncio.get_running_loop().create_future()
    other = asyncio.create_task(shielded(work))
    await _given_up(work)
    assert not work.done()
    work.set_result(7)
    assert await other == 7
    assert await shielded(work) == 7, "what is done is returned at once"


async def test_a_failure_is_raised_to_who_waits_and_reported_nowhere() -> None:
    reports: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    work = loop.create_future()
    await _given_up(work)
    await _given_up(work)
    work.set_exception(ValueError("it failed"))
    await asyncio.wait((work,))
    with pytest.raises(ValueError, match="it failed"):
        await shielded(work)

    unheard = loop.create_future()
    await _given_up(unheard)
    unheard.set_exception(ValueError("nobody waits any more"))
    await asyncio.wait((unheard,))
    del unheard
    gc.collect()
    assert reports == []


async def test_work_that_is_cancelled_is_cancelled_for_who_waits() -> None:
    work = asyncio.get_running_loop().create_future()
    await _given_up(work)
    asyncio.get_running_loop().call_soon(work.cancel)
    with pytest.raises(asyncio.CancelledError):
        await shielded(work)
