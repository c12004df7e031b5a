"""What the operator takes for due, of tasks that workers have set aside, some of them with other clocks."""

from types import SimpleNamespace
from typing import Any

from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.recovery.jobs import JobPolicy, plan_jobs
from daybook_operator.plan.recovery.plan import ObservedRecovery
from daybook_operator.reconcile.recovery import observe_recovery

from daybook.core.repair.task import BACK_OFF_MS_MAX, UNRECOVERABLE, DueTimes, RepairTask
from daybook.metadata.store.store import Versioned
from tests.unit.core.repair.repair_model import closed_ledger

NOW_MS = 1_000_000_000


async def test_rule_35_no_stored_time_keeps_a_job_from_a_ledger_for_longer_than_the_longest_back_off() -> (
    None
):
    stored_ms = (NOW_MS + 1_000, NOW_MS + 1_000 * BACK_OFF_MS_MAX)
    seen = await observe(
        *(
            RepairTask(number, ("gap b1",), ("b1",), 1, 1, not_before_ms)
            for number, not_before_ms in enumerate(stored_ms)
        )
    )
    assert [task.not_before_ms for task in seen.tasks] == [NOW_MS + 1_000, NOW_MS + BACK_OFF_MS_MAX]


async def test_rule_35_what_was_on_no_bookie_is_tried_again_when_its_pause_is_over() -> None:
    """Nothing else need happen: a bookie that answered nothing for a while does not register anew."""
    nowhere = RepairTask(1, ("gap b1",), ("b1",), 1).set_aside(
        until_ms=NOW_MS + 30_000, why=f"{UNRECOVERABLE}3"
    )
    tasks = (await observe(nowhere)).tasks
    early = plan_jobs(tasks, (), JobPolicy(), prefix="bk", now_ms=NOW_MS)
    assert (early.create, early.requeue_after_s) == ((), 30.0)
    due = plan_jobs(tasks, (), JobPolicy(), prefix="bk", now_ms=NOW_MS + 30_000)
    assert [job.ledgers for job in due.create] == [(1,)]


async def observe(*tasks: RepairTask) -> ObservedRecovery:
    async def answer(value: object) -> object:
        return value

    world: Any = SimpleNamespace(now_ms=lambda: NOW_MS, inventory=SimpleNamespace(pools_of=lambda _: ()))
    link: Any = SimpleNamespace(
        ref=ClusterRef("daybook", "zk:2181"),
        due_times=DueTimes(),
        task_list=SimpleNamespace(read=lambda: answer([Versioned(task, 3) for task in tasks])),
        tasks=SimpleNamespace(disabled=lambda: answer(value=False)),
        audits=SimpleNamespace(last_report=None, last_full_report=None, without_task={}),
        is_audited_since=lambda _: False,
        client=SimpleNamespace(
            directory=SimpleNamespace(bookies=lambda: answer({}), cookies=lambda: answer(())),
            ledgers=SimpleNamespace(
                read=lambda _: answer(Versioned(closed_ledger(3, 3, 2, [(0, "abc")], 9), 0))
            ),
        ),
    )
    return await observe_recovery(world, link)
