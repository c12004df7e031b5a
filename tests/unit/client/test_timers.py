"""Who is woken when: a writer that waits for nothing is not asked, and one that waits is not forgotten."""

import pytest

from daybook.client.driver.shared import Shared
from daybook.client.driver.timers import Timers
from daybook.core.errors import Code
from daybook.core.writer.policy import WriterPolicy
from tests.unit.client.handle_kit import open_handle, turns


class Sleeper:
    """Notes when it is woken; may ask for another moment then."""

    def __init__(self, timers: Timers, again_ms: int | None = None) -> None:
        self.woken: list[tuple[int, int]] = []
        self._timers = timers
        self._again_ms = again_ms

    def wake(self, due_ms: int, now_ms: int) -> None:
        self.woken.append((due_ms, now_ms))
        if self._again_ms is not None:
            self._timers.wake_at(self._again_ms, self)


def test_each_is_woken_with_the_first_tick_at_its_moment_or_later() -> None:
    timers = Timers(1000)
    early, late = Sleeper(timers), Sleeper(timers)
    assert timers.wake_at(1070, late) == 1070
    assert timers.wake_at(1050, early) == 1050
    timers.tick(1049)
    assert (early.woken, late.woken) == ([], [])
    timers.tick(1060)
    assert (early.woken, late.woken) == ([(1050, 1060)], [])
    timers.tick(1120)
    timers.tick(1180)
    assert (early.woken, late.woken) == ([(1050, 1060)], [(1070, 1120)])


def test_a_moment_that_has_passed_is_the_next_tick_and_not_this_one() -> None:
    timers = Timers(1000)
    sleeper = Sleeper(timers, again_ms=0)
    assert timers.wake_at(7, sleeper) == 1001
    timers.tick(1050)
    timers.tick(1100)
    assert [now_ms for _, now_ms in sleeper.woken] == [1050, 1100]


async def test_rule_48_an_idle_writer_publishes_its_lac_and_then_waits_for_nothing() -> None:
    shared = Shared(0)
    async with open_handle(shared=shared, policy=WriterPolicy(lac_publish_ms=50)) as (ledger, bookies):
        ledger.append_soon(b"x", lambda *_: None)
        await turns()
        shared.timers.tick(1000)
        bookies.acknowledge()
        shared.timers.tick(1049)
        assert bookies.published == []
        shared.timers.tick(1050)
        assert bookies.published == ["b0", "b1", "b2"]
        assert ledger._writer.next_tick_ms is None


async def test_a_writer_whose_bookie_owes_an_entry_for_long_is_woken_then() -> None:
    shared = Shared(0)
    async with open_handle(shared=shared, policy=WriterPolicy(lag_ms_max=500)) as (ledger, bookies):
        ledger.append_soon(b"x", lambda *_: None)
        await turns()
        shared.timers.tick(1000)
        bookies.sent = bookies.sent[:2]
        bookies.acknowledge()
        shared.timers.tick(1500)
        assert not ledger.missing
        shared.timers.tick(1501)
        ledger.append_soon(b"y", lambda *_: None)
        assert ledger.is_degraded


@pytest.mark.parametrize("end", ["close", "abandon", "fence"])
async def test_nobody_waits_for_a_tick_once_the_handle_is_over(end: str) -> None:
    """Each ledger that a client ever closed would cost it memory, and time with every tick."""
    shared = Shared(0)
    async with open_handle(shared=shared) as (ledger, bookies):
        ledger.append_soon(b"x", lambda *_: None)
        await turns()
        late = bookies.sent.pop()
        bookies.acknowledge()
        if end == "fence":
            bookie, sink, send_id = late
            sink.frame_failed(bookie, send_id, Code.FENCED)
        elif end == "abandon":
            await ledger.abandon()
        else:
            await ledger.close()
        assert ledger.is_over
        shared.timers.tick(100_000)
        shared.timers.tick(200_000)
        assert not shared.timers._waiting
