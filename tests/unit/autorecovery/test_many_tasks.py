"""Workers before more tasks than they can look at in a moment: they begin with the first, and count as they go."""

import asyncio

import pytest

from daybook.autorecovery.pool import WorkProgress
from daybook.autorecovery.worker import RepairWorker
from daybook.core.repair.task import RepairTask
from daybook.core.repair.work import Outcome
from daybook.metadata.store.store import Put, Versioned
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import unix_ms
from tests.unit.autorecovery.kit import LAYOUT, SETTINGS, FakeCluster


async def tasks_are(cluster: FakeCluster, ledger_ids: list[int]) -> None:
    """Look until these ledgers alone have a task; each look lets others run."""
    while await cluster.task_ids() != ledger_ids:
        pass


@pytest.mark.parametrize("how", ["drain", "serve"])
async def test_the_first_of_many_tasks_is_taken_before_the_last_is_read(
    cluster: FakeCluster, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.autorecovery.worker.TASKS_AT_ONCE", 2)
    ids = [await cluster.ledger("b1", "b2", "b3", without={"b2": {4}}) for _ in range(200)]
    for ledger_id in ids:
        await cluster.tasks.mark(ledger_id, reasons=["gap b2"], bookies=["b2"], now_ms=0)
    reads: list[int] = []
    read = RepairTasks.read

    async def noted(self: RepairTasks, ledger_id: int) -> Versioned[RepairTask] | None:
        if cluster.copies() == 0:
            reads.append(ledger_id)
        return await read(self, ledger_id)

    monkeypatch.setattr(RepairTasks, "read", noted)
    mending = RepairWorker(cluster, SETTINGS, name="w")
    if how == "drain":
        assert (await mending.drain()).is_complete
    else:
        serving = asyncio.ensure_future(mending.serve())
        await tasks_are(cluster, [])
        mending.stop.set()
        await serving
    assert len(set(reads)) < 100, "a look ahead, and no more"
    assert await cluster.task_ids() == []
    for ledger_id in ids[::50]:
        assert await cluster.is_whole(ledger_id)


async def test_ledgers_that_another_worker_has_do_not_fill_a_pass_over_the_tasks(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.autorecovery.worker.TASKS_AT_ONCE", 2)
    ids = [await cluster.ledger("b1", "b2", "b3", without={"b2": {4}}) for _ in range(12)]
    for ledger_id in ids:
        await cluster.tasks.mark(ledger_id, reasons=["gap b2"], bookies=["b2"], now_ms=0)
    with cluster.another() as other:
        held = [await other.tasks.lock(ledger_id, "other") for ledger_id in ids[:8]]
        mending = RepairWorker(cluster, SETTINGS, name="w")
        serving = asyncio.ensure_future(mending.serve())
        await tasks_are(cluster, ids[:8])
        for lease in held:
            assert lease is not None
            await lease.release()
        await tasks_are(cluster, ids[:8])
        mending.stop.set()
        await serving


async def test_progress_counts_each_ledger_once_and_by_its_last_result(cluster: FakeCluster) -> None:
    seen: list[WorkProgress] = []
    good = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    bad = await cluster.ledger("b1", "b2", "b3", without={name: {4} for name in ("b1", "b2", "b3")})
    mending = RepairWorker(cluster, SETTINGS, name="w", on_progress=seen.append)
    report = await mending.repair([good, bad])
    assert [result.ledger_id for result in report.not_done] == [bad]
    assert (seen[-1].total, seen[-1].done, seen[-1].failed) == (2, 1, 1)
    assert all(each.done + each.failed <= 2 for each in seen), "an attempt again takes the place of the last"


async def test_rule_35_a_ledger_that_another_worker_failed_to_repair_since_it_was_found_is_not_tried_again(
    cluster: FakeCluster,
) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3", without={"b2": {4}}) for _ in range(2)]
    for ledger_id in ids:
        await cluster.tasks.mark(ledger_id, reasons=["gap b2"], bookies=["b2"], now_ms=0)
    found = [await cluster.tasks.read(ledger_id) for ledger_id in ids]

    def fail_elsewhere(call: str) -> None:
        for task in found if call == "frame" else []:
            assert task is not None
            ledger_id = task.value.ledger_id
            if LAYOUT.task_lock(ledger_id) not in cluster.server._nodes:
                aside = task.value.set_aside(until_ms=unix_ms() + 60_000, why="no spare")
                cluster.server.apply([Put(LAYOUT.task(ledger_id), aside.to_json(), None)], 0)

    cluster.fakes["b2"].before_answer = fail_elsewhere
    mending = RepairWorker(cluster, SETTINGS.model_copy(update={"ledgers_at_a_time": 1}), name="w")
    report = await mending.drain()
    (left,) = report.not_done
    assert (left.outcome, left.why) == (Outcome.PAUSED, "no spare")
    assert await cluster.task_ids() == [left.ledger_id]
    assert cluster.copies() == 1
