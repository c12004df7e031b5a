"""What the operator takes for due, of tasks that workers have set aside, some with other clocks, and what it makes of the Jobs that it finds."""

from collections.abc import Awaitable, Iterable
from types import SimpleNamespace
from typing import Any

from daybook_operator.kube.queue import BOOKIE_POOL, Key
from daybook_operator.plan.effects import Apply, ClusterRef, Effect, Manifest, Remove
from daybook_operator.plan.pool.spec import spec_of
from daybook_operator.plan.recovery.jobs import JobPolicy, plan_jobs
from daybook_operator.plan.recovery.plan import ObservedRecovery, decide_recovery
from daybook_operator.reconcile.recovery import observe_recovery

from daybook.core.repair.task import BACK_OFF_MS_MAX, UNRECOVERABLE, DueTimes, RepairTask
from daybook.metadata.store.store import Versioned
from tests.unit.core.repair.repair_model import closed_ledger
from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.pool_sim import DEFAULTS

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


async def test_the_jobs_of_a_pool_whose_image_is_corrected_make_room_at_once() -> None:
    task = RepairTask(1, ("lost b1",), ("b1",), 1)
    mistaken = pool_manifest(image="nobody/has:this", recovery={"parallelism": 1})
    corrected = pool_manifest(image="registry/bookie:2", recovery={"parallelism": 1})
    (made,) = jobs_in(plan(mistaken, await observe(task)))
    made = {**made, "metadata": {**made["metadata"], "uid": "job-uid"}}
    waits, runs = ({**made, "status": {"active": 1, "ready": ready}} for ready in (0, 1))
    assert plan(mistaken, await observe(task, job=waits)) == ()
    assert plan(corrected, await observe(task, job=runs)) == ()
    first, *others = plan(corrected, await observe(task, job=waits))
    assert isinstance(first, Remove)
    assert first.ref.uid == "job-uid"
    (again,) = jobs_in(others)
    assert again["spec"]["template"]["spec"]["containers"][0]["image"] == "registry/bookie:2"


def plan(manifest: Manifest, seen: ObservedRecovery) -> tuple[Effect, ...]:
    spec = spec_of(manifest, DEFAULTS)
    return decide_recovery(
        manifest, spec, seen, NOW_MS, poll_s=5, needless_ms=1_000, operator_speaks_tls=False
    ).effects


def jobs_in(effects: Iterable[Effect]) -> list[Manifest]:
    return [each.manifest for each in effects if isinstance(each, Apply) and each.manifest["kind"] == "Job"]


async def observe(*tasks: RepairTask, job: Manifest | None = None) -> ObservedRecovery:
    async def answer(value: object) -> object:
        return value

    def listing(kind: str, *_: object, **__: object) -> Awaitable[object]:
        return answer([job] if kind == "Job" and job else [])

    world: Any = SimpleNamespace(
        now_ms=lambda: NOW_MS,
        kube=SimpleNamespace(listing=listing),
        inventory=SimpleNamespace(pools_of=lambda _: [Key(BOOKIE_POOL, "data", "bk")]),
    )
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
