"""A ledger that was set aside by a worker whose clock was wrong is looked at again in time all the same."""

import asyncio

from daybook.autorecovery.worker import RepairWorker
from daybook.metadata.store.store import Versioned
from daybook.metadata.tasks import BackOffs, RepairTask
from daybook.runtime.clock import unix_ms
from tests.unit.autorecovery.kit import LAYOUT, SETTINGS, FakeCluster, run, until

YEAR_MS = 365 * 86_400_000
LONGEST_MS = 3_600_000


def aside(not_before_ms: int, ledger_id: int = 7) -> RepairTask:
    return RepairTask(ledger_id, ("gap b1",), ("b1",), 1, 3, not_before_ms, "no spare")


def test_rule_35_no_stored_time_keeps_a_worker_waiting_for_longer_than_the_longest_back_off() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
        marked = await cluster.tasks.mark(ledger_id, reasons=["gap b2"], bookies=["b2"], now_ms=0)
        ahead_ms = unix_ms() + YEAR_MS
        await cluster.tasks.set_aside(
            Versioned(marked.value, marked.version), until_ms=ahead_ms, why="no spare"
        )
        settings = SETTINGS.model_copy(update={"retry_first_ms": 50, "retry_max_ms": 100})
        worker = RepairWorker(cluster, settings, name="w")
        serving = asyncio.ensure_future(worker.serve())
        await until(lambda: LAYOUT.task(ledger_id) not in cluster.server._nodes)
        worker.stop.set()
        await serving
        assert await cluster.is_whole(ledger_id)

    run(scenario)


def test_a_stored_time_within_the_longest_back_off_is_kept_to() -> None:
    back_offs = BackOffs(LONGEST_MS)
    for left_ms in (-5, 0, 1, LONGEST_MS):
        found = back_offs.not_before_ms(aside(1_000_000 + left_ms), unix_ms=1_000_000, monotonic_ms=50)
        assert found == 1_000_000 + left_ms


def test_a_time_that_cannot_be_is_waited_for_from_when_it_was_first_seen() -> None:
    back_offs, now_ms = BackOffs(LONGEST_MS), 5 * YEAR_MS
    task = aside(now_ms + YEAR_MS)
    for passed_ms in (0, 1_000, LONGEST_MS):
        due_ms = back_offs.not_before_ms(task, unix_ms=now_ms + passed_ms, monotonic_ms=70 + passed_ms)
        assert due_ms == now_ms + LONGEST_MS
    stepped_back_ms = back_offs.not_before_ms(task, unix_ms=now_ms - 9, monotonic_ms=70 + LONGEST_MS)
    assert stepped_back_ms == now_ms - 9, "due, whatever the wall clock does meanwhile"


def test_each_setback_is_waited_for_anew_so_that_wrong_clocks_make_no_haste() -> None:
    back_offs, now_ms = BackOffs(LONGEST_MS), 5 * YEAR_MS
    for attempt in range(3):
        task = aside(now_ms + YEAR_MS + attempt)
        assert back_offs.not_before_ms(task, unix_ms=now_ms, monotonic_ms=now_ms) == now_ms + LONGEST_MS
        now_ms += LONGEST_MS


def test_tasks_that_are_done_are_forgotten() -> None:
    back_offs, now_ms = BackOffs(LONGEST_MS), 5 * YEAR_MS
    first, other = aside(now_ms + YEAR_MS, 1), aside(now_ms + YEAR_MS, 2)
    for task in (first, other):
        back_offs.not_before_ms(task, unix_ms=now_ms, monotonic_ms=0)
    back_offs.keep_only({2})
    later_ms = now_ms + 1_000
    assert back_offs.not_before_ms(first, unix_ms=later_ms, monotonic_ms=1_000) == later_ms + LONGEST_MS
    assert back_offs.not_before_ms(other, unix_ms=later_ms, monotonic_ms=1_000) == now_ms + LONGEST_MS
