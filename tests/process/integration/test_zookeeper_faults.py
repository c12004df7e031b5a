"""ZooKeeper that stands still or is killed: open ledgers go on, what needs metadata waits, nothing is lost (rule 46)."""

import asyncio

import pytest

from daybook.local.cluster import LocalCluster
from tests.process.integration.kit import eventually, off, persist, start_all, until_registered
from tests.process.integration.workload import running

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("nobody_stalls_by_chance")]

SHORT_S = 3.0
LONG_S = 10.0
"""Twice the sessions of bookies and clients."""


async def test_rule_46_a_short_pause_delays_changes_of_metadata_alone(cluster: LocalCluster) -> None:
    async with running(cluster) as work:
        ledger = work.ledger
        cluster.zookeeper.pause()
        paused = asyncio.create_task(asyncio.sleep(SHORT_S))
        creating = asyncio.create_task(persist(work.reader.create_ledger))
        await work.acknowledge()
        await off(cluster.kill_bookie, ledger.ensemble()[0])
        await paused
        assert not creating.done()
        assert len(ledger.metadata.fragments) == 1, "no change of metadata can have been made"
        cluster.zookeeper.resume()
        await eventually(lambda: ledger.ensemble_changes == 1)
        await work.acknowledge()
        await persist((await creating).close)
        await off(start_all, cluster)
        await work.end()
        assert work.ends == []


async def test_rule_46_a_pause_past_every_session_is_survived_even_without_a_bookie(
    cluster: LocalCluster,
) -> None:
    async with running(cluster) as work:
        ledger = work.ledger
        cluster.zookeeper.pause()
        paused = asyncio.create_task(asyncio.sleep(LONG_S))
        await work.acknowledge()
        await eventually(lambda: not work.writer.store.session.connected)
        victim = ledger.ensemble()[0]
        await off(cluster.kill_bookie, victim)
        await eventually(lambda: ledger.is_degraded)
        await work.acknowledge()
        await paused
        await work.acknowledge()
        assert len(ledger.metadata.fragments) == 1
        cluster.zookeeper.resume()
        await eventually(lambda: not ledger.is_degraded)
        assert victim not in ledger.ensemble()
        await work.acknowledge()
        await off(start_all, cluster)
        await until_registered(work.reader)
        await work.end()
        assert work.ends == []


async def test_rule_46_a_zookeeper_that_is_killed_and_started_again(cluster: LocalCluster) -> None:
    async with running(cluster) as work:
        ledger = work.ledger
        await off(cluster.zookeeper.kill)
        await eventually(lambda: not work.writer.store.session.connected)
        await off(cluster.kill_bookie, ledger.ensemble()[1])
        await eventually(lambda: ledger.is_degraded)
        await work.acknowledge()
        await off(cluster.zookeeper.start)
        await eventually(lambda: not ledger.is_degraded)
        await work.acknowledge()
        await off(start_all, cluster)
        await until_registered(work.reader)
        await work.end()
        assert work.ends == []
