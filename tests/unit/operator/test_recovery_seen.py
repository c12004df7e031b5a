"""What the operator takes for due, of tasks that workers with other clocks have set aside."""

from types import SimpleNamespace
from typing import Any

from daybook_operator.plan.effects import ClusterRef
from daybook_operator.reconcile.recovery import observe_recovery

from daybook.core.repair.task import BACK_OFF_MS_MAX, DueTimes, RepairTask
from daybook.metadata.store.store import Versioned

NOW_MS = 1_000_000_000


async def test_rule_35_no_stored_time_keeps_a_job_from_a_ledger_for_longer_than_the_longest_back_off() -> (
    None
):
    stored_ms = (NOW_MS + 1_000, NOW_MS + 1_000 * BACK_OFF_MS_MAX)
    tasks = [
        Versioned(RepairTask(number, ("gap b1",), ("b1",), 1, 1, not_before_ms), 3)
        for number, not_before_ms in enumerate(stored_ms)
    ]

    async def answer(value: object) -> object:
        return value

    world: Any = SimpleNamespace(now_ms=lambda: NOW_MS, inventory=SimpleNamespace(pools_of=lambda _: ()))
    link: Any = SimpleNamespace(
        ref=ClusterRef("daybook", "zk:2181"),
        due_times=DueTimes(),
        task_list=SimpleNamespace(read=lambda: answer(tasks)),
        tasks=SimpleNamespace(disabled=lambda: answer(value=False)),
        audits=SimpleNamespace(last_report=None, last_full_report=None, without_task={}),
    )
    seen = await observe_recovery(world, link)
    assert [task.not_before_ms for task in seen.tasks] == [NOW_MS + 1_000, NOW_MS + BACK_OFF_MS_MAX]
