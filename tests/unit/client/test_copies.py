"""Waiting for all copies of what was appended, not only for the ack quorum."""

import asyncio
import signal
from pathlib import Path

import pytest

import daybook
from daybook.client.verify import verify_ledger
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import Connect, connect_to, make_cluster, stands_still
from tests.unit.bookie.server_kit import eventually

pytestmark = pytest.mark.integration


async def test_every_bookie_has_its_copy_when_the_wait_is_over(connect: Connect) -> None:
    for _ in range(5):
        async with connect() as client:
            ledger = await client.create_ledger(ack_quorum=1)
            await ledger.append_many([b"x" * 1000] * 100)
            await ledger.replicated()
            await ledger.close()
            assert (await verify_ledger(client, ledger.id)).is_whole


async def test_an_ended_handle_waits_for_nothing(client: daybook.Client) -> None:
    ledger = await client.create_ledger()
    await ledger.replicated()
    await ledger.abandon()
    with pytest.raises(daybook.LedgerClosedError):
        await ledger.replicated()


def test_a_bookie_that_stands_still_is_waited_for(tmp_path: Path) -> None:
    async def work(cluster: LocalCluster) -> None:
        async with connect_to(cluster) as client:
            ledger = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=1)
            await ledger.append(b"both are reached")
            await ledger.replicated()
            cluster.kill_bookie("bookie-1", signal.SIGSTOP)
            try:
                pid = cluster.file.bookie("bookie-1").pid
                assert await asyncio.to_thread(eventually, lambda: stands_still(pid))
                await ledger.append(b"one is enough")
                waiting = asyncio.ensure_future(ledger.replicated())
                done, _ = await asyncio.wait([waiting], timeout=0.3)
                assert not done
            finally:
                cluster.kill_bookie("bookie-1", signal.SIGCONT)
            await asyncio.wait_for(waiting, 40)
            await ledger.close()
            assert (await verify_ledger(client, ledger.id)).is_whole

    with make_cluster(tmp_path, bookies=2) as cluster:
        asyncio.run(work(cluster))
