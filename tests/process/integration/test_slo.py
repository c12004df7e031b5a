"""What each loss costs: entries (RPO), and time until the next is acknowledged and until a ledger is readable (RTO).

The tests assert what must not be lost and what must go on; how long it took is noted, for docs/slo.md, and asserted
nowhere: it depends on the machine.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to
from tests.process.integration.kit import (
    BOOKIES,
    PATIENCE_S,
    eventually,
    kill_all,
    off,
    persist,
    repair,
    start_all,
)
from tests.process.integration.test_writer_killed import Writer
from tests.process.integration.workload import read_back
from tests.process.integration.writer_process import parse
from tools.slo.notes import note
from tools.slo.pinned import Pinned
from tools.slo.pulse import Outcome, pulsing

pytestmark = pytest.mark.integration


@pytest.fixture
def cost(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Notes what a loss cost, after it looked whether that is what is promised: no entry."""

    def noted(loss: str, outcome: Outcome, **times_ms: float) -> None:
        assert outcome.acknowledged > 0
        assert outcome.lost == 0
        note(
            "loss",
            request.node.nodeid,
            loss=loss,
            acknowledged=outcome.acknowledged,
            lost=outcome.lost,
            recovered_ms=round(outcome.recovered_ms, 1),
            **{name: round(value, 1) for name, value in times_ms.items()},
        )

    return noted


async def test_a_killed_bookie_is_replaced_and_its_copies_are_made_elsewhere(
    cluster: LocalCluster, cost: Callable[..., None]
) -> None:
    async with pulsing(cluster) as (pulse, other):
        victim = pulse.ledger.ensemble()[0]
        await off(cluster.kill_bookie, victim)
        await eventually(lambda: pulse.ledger.ensemble_changes == 1)
        next_ack_ms = await pulse.steady()
        assert victim not in pulse.ledger.ensemble()
        outcome = await pulse.lose(other)
        began = time.monotonic()
        await repair(cluster, pulse.ledger.id)
        healed_ms = 1000 * (time.monotonic() - began)
        cost("a bookie, and another takes its place", outcome, next_ack_ms=next_ack_ms, healed_ms=healed_ms)


async def test_a_killed_bookie_that_nobody_can_replace_is_done_without(
    cluster: LocalCluster, cost: Callable[..., None]
) -> None:
    ensemble = BOOKIES[:3]
    async with pulsing(cluster, placement=Pinned(ensemble, spares=False)) as (pulse, other):
        await off(cluster.kill_bookie, ensemble[1])
        await eventually(lambda: pulse.ledger.is_degraded)
        next_ack_ms = await pulse.steady()
        assert pulse.ledger.ensemble() == ensemble
        outcome = await pulse.lose(other)
        cost("a bookie, and there is no other", outcome, next_ack_ms=next_ack_ms)


async def test_a_bookie_that_stands_still_holds_up_a_writer_that_waits_for_every_copy(
    cluster: LocalCluster, cost: Callable[..., None]
) -> None:
    async with pulsing(cluster, (2, 2, 2)) as (pulse, other):
        sleeper = pulse.ledger.ensemble()[0]
        cluster.kill_bookie(sleeper, signal.SIGSTOP)
        await eventually(lambda: pulse.ledger.ensemble_changes == 1)
        next_ack_ms = await pulse.steady()
        outcome = await pulse.lose(other)
        cluster.kill_bookie(sleeper, signal.SIGCONT)
        cost("a bookie that hangs, with Qa = Qw", outcome, next_ack_ms=next_ack_ms)


async def test_a_killed_writer_s_ledger_is_recovered_by_the_next_one(
    cluster: LocalCluster, cost: Callable[..., None], scratch: Path
) -> None:
    writer = Writer(cluster.zookeeper.connect_string, scratch / "writer")
    try:
        await eventually(lambda: writer.said().count("ack") >= 20)
        async with connect_to(cluster) as other:
            writer.kill()
            began = time.monotonic()
            history = parse(writer.said())
            (ledger_id,) = history.ledgers
            found = await persist(lambda: other.open_ledger(ledger_id))
            [_] = [entry async for entry in found.read(found.last_add_confirmed)]
            recovered_ms = 1000 * (time.monotonic() - began)
            await (await other.create_ledger()).append(b"on with it")
            next_ack_ms = 1000 * (time.monotonic() - began)
            await read_back(other, history)
    finally:
        writer.kill()
    outcome = Outcome(history.acknowledged_entries, len(history.judge()), recovered_ms)
    cost("the writer; another process goes on", outcome, next_ack_ms=next_ack_ms)


async def test_a_killed_zookeeper_is_not_missed_by_open_writers(
    cluster: LocalCluster, cost: Callable[..., None]
) -> None:
    async with pulsing(cluster) as (pulse, other):
        await off(cluster.zookeeper.kill)
        await eventually(lambda: not pulse.client.store.session.connected)
        await pulse.steady()
        await off(cluster.zookeeper.start)
        began = time.monotonic()
        ledger = await persist(other.create_ledger)
        await ledger.append(b"again")
        created_ms = 1000 * (time.monotonic() - began)
        next_ack_ms = await pulse.steady()
        assert pulse.ledger.ensemble_changes == 0
        outcome = await pulse.lose(other)
        cost("ZooKeeper", outcome, next_ack_ms=next_ack_ms, created_ms=created_ms)


async def test_all_bookies_killed_at_once_come_back_with_everything(
    cluster: LocalCluster, cost: Callable[..., None]
) -> None:
    async with pulsing(cluster) as (pulse, other):
        await off(kill_all, cluster)
        began = time.monotonic()
        await off(start_all, cluster)
        started_ms = 1000 * (time.monotonic() - began)
        next_ack_ms = await pulse.steady(2 * PATIENCE_S)
        await off(kill_all, cluster)
        await asyncio.gather(off(start_all, cluster), pulse.stop())
        outcome = await pulse.lose(other)
        cost("all bookies at once", outcome, next_ack_ms=next_ack_ms, started_ms=started_ms)
