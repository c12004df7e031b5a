"""Bookies that are killed, stand still, or are restarted while ledgers are written and read."""

import random
import signal

import pytest

from daybook.client.transport import frame_sender
from daybook.local.cluster import LocalCluster
from tests.process.integration.kit import (
    PATIENCE_S,
    copies,
    eventually,
    kill_all,
    off,
    repair,
    start_all,
    until_gone,
    until_registered,
)
from tests.process.integration.workload import Workload, running

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("nobody_stalls_by_chance")]

STALL_S = frame_sender.STALL_TIMEOUT_S


async def spare_of(work: Workload) -> str:
    """The bookie that the ledger under way does not use."""
    await until_registered(work.writer)
    (spare,) = set(work.writer.bookies()) - set(work.ledger.ensemble())
    return spare


async def test_a_bookie_that_is_killed_is_replaced_by_the_spare(cluster: LocalCluster) -> None:
    async with running(cluster) as work:
        ledger, victim, spare = work.ledger, work.ledger.ensemble()[1], await spare_of(work)
        await off(cluster.kill_bookie, victim)
        await eventually(lambda: ledger.ensemble_changes == 1)
        assert set(ledger.ensemble()) == {spare, *ledger.metadata.fragments[0].bookies} - {victim}
        await work.acknowledge()
        assert not ledger.is_degraded
        await off(start_all, cluster)
        await eventually(lambda: not work.writer._avoided())  # who restarted may be chosen again
        await work.end(stragglers_s=PATIENCE_S)
        assert work.ends == []
        found = await copies(cluster, ledger.id)
        assert {bookie for bookie, copy in found.items() if not copy.is_whole} <= {victim}
        assert not any(copy.damaged or copy.differing for copy in found.values())
        await repair(cluster, ledger.id)


async def test_rule_45_without_a_spare_writes_go_on_and_the_bookie_that_returns_begins_a_fragment(
    cluster: LocalCluster,
) -> None:
    async with running(cluster) as work:
        ledger, victim, spare = work.ledger, work.ledger.ensemble()[0], await spare_of(work)
        await off(cluster.stop_bookies, spare)
        await until_gone(work.writer, spare)
        await off(cluster.kill_bookie, victim)
        await eventually(lambda: ledger.is_degraded)
        assert [fragment.first_entry for fragment in ledger.metadata.fragments] == [0]
        await work.acknowledge()
        await off(cluster.start_bookie, victim)
        await eventually(lambda: not ledger.is_degraded)
        before, after = ledger.metadata.fragments
        assert before.bookies == after.bookies
        assert after.first_entry > 0
        await work.acknowledge()
        await work.end(stragglers_s=PATIENCE_S)
        assert work.ends == []
        found = await copies(cluster, ledger.id)
        assert not found[victim].is_whole, "it was away while entries were written"
        assert max(found[victim].missing) < after.first_entry
        await repair(cluster, ledger.id)


async def test_a_bookie_that_stands_still_for_less_than_the_stall_timeout_is_waited_for(
    cluster: LocalCluster,
) -> None:
    async with running(cluster) as work:
        ledger, sleeper = work.ledger, work.ledger.ensemble()[2]
        cluster.kill_bookie(sleeper, signal.SIGSTOP)
        await work.acknowledge()
        cluster.kill_bookie(sleeper, signal.SIGCONT)
        await work.acknowledge()
        assert ledger.ensemble_changes == 0
        await work.end(stragglers_s=PATIENCE_S)
        assert [copy.is_whole for copy in (await copies(cluster, ledger.id)).values()] == [True] * 3


async def test_a_bookie_that_stands_still_for_longer_is_replaced_and_comes_back(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_sender, "STALL_TIMEOUT_S", STALL_S)
    async with running(cluster) as work:
        ledger, sleeper = work.ledger, work.ledger.ensemble()[2]
        cluster.kill_bookie(sleeper, signal.SIGSTOP)
        await eventually(lambda: ledger.ensemble_changes == 1)
        monkeypatch.setattr(frame_sender, "STALL_TIMEOUT_S", PATIENCE_S)
        await work.acknowledge()
        cluster.kill_bookie(sleeper, signal.SIGCONT)
        await until_registered(work.reader, sleeper)
        await work.acknowledge()
        assert ledger.ensemble_changes == 1, "what it still answers changes nothing (rule 18)"
        await work.end()
        assert work.ends == []


async def test_all_bookies_killed_at_once_and_started_again(cluster: LocalCluster) -> None:
    for seed in (1, 2, 3):
        rng = random.Random(seed)
        async with running(cluster, roll_entries=300, seed=seed) as work:
            await work.acknowledge(rng.randrange(1, 300))
            await off(kill_all, cluster)
            await off(start_all, cluster)
            await work.acknowledge()
            await work.end()


async def test_a_rolling_restart_stops_no_writer(cluster: LocalCluster) -> None:
    async with running(cluster) as work:
        ledger = work.ledger
        for entry in cluster.bookies:
            await off(cluster.stop_bookies, entry.id)
            await work.acknowledge(50)
            await off(cluster.start_bookie, entry.id)
            await until_registered(work.reader)
            await work.acknowledge(50)
        assert work.ends == []
        assert work.ledger is ledger
        await work.end()
        await repair(cluster, ledger.id)
