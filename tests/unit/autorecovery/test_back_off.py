"""A ledger that was set aside by a worker whose clock was wrong is looked at again in time all the same."""

import asyncio

from daybook.autorecovery.worker import RepairWorker
from daybook.metadata.store.store import Versioned
from daybook.runtime.clock import unix_ms
from tests.unit.autorecovery.kit import LAYOUT, SETTINGS, FakeCluster, until

YEAR_MS = 365 * 86_400_000


async def test_rule_35_no_stored_time_keeps_a_worker_waiting_for_longer_than_the_longest_back_off(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    marked = await cluster.tasks.mark(ledger_id, reasons=["gap b2"], bookies=["b2"], now_ms=0)
    ahead_ms = unix_ms() + YEAR_MS
    await cluster.tasks.set_aside(Versioned(marked.value, marked.version), until_ms=ahead_ms, why="no spare")
    settings = SETTINGS.model_copy(update={"retry_first_ms": 50, "retry_max_ms": 100})
    worker = RepairWorker(cluster, settings, name="w")
    serving = asyncio.ensure_future(worker.serve())
    await until(lambda: LAYOUT.task(ledger_id) not in cluster.server._nodes)
    worker.stop.set()
    await serving
    assert await cluster.is_whole(ledger_id)
