"""Which recovery Jobs there are to be: few, bounded, made once, none for what needs none."""

from dataclasses import replace

import pytest
from daybook_operator.plan.recovery.jobs import (
    JobPolicy,
    JobsPlan,
    NewJob,
    ObservedJob,
    ObservedTask,
    plan_jobs,
)
from hypothesis import given
from hypothesis import strategies as st

NOW_MS = 1_000_000
POLICY = JobPolicy(parallelism=2, needless_ms=10_000, poll_s=5.0)


def task(ledger_id: int, *, version: int = 0, **more: object) -> ObservedTask:
    return replace(ObservedTask(ledger_id, version, 7, ("lost b1",)), **more)  # type: ignore[arg-type] # any field


def tasks(number: int) -> list[ObservedTask]:
    return [task(ledger_id) for ledger_id in range(number)]


def plan(
    todo: list[ObservedTask], jobs: list[ObservedJob], policy: JobPolicy = POLICY, now_ms: int = NOW_MS
) -> JobsPlan:
    return plan_jobs(todo, jobs, policy, prefix="bk-recovery", now_ms=now_ms)


def running(job: NewJob) -> ObservedJob:
    return ObservedJob(job.name, "data", f"uid-{job.name}", job.tasks)


def test_a_thousand_ledgers_make_ten_jobs_two_at_a_time() -> None:
    todo = tasks(1000)
    jobs: list[ObservedJob] = []
    made: list[NewJob] = []
    while todo:
        step = plan(todo, jobs)
        jobs += [running(job) for job in step.create]
        made += step.create
        assert len(jobs) <= 2
        assert len(step.waiting) == len(todo) - sum(len(job.ledgers) for job in jobs)
        ended = jobs.pop(0)
        todo = [each for each in todo if each.ledger_id not in ended.ledgers]
    assert [len(job.ledgers) for job in made] == [100] * 10
    assert sorted(ledger for job in made for ledger in job.ledgers) == list(range(1000))


def test_a_plan_that_is_made_twice_makes_the_same_jobs() -> None:
    assert plan(tasks(150), []).create == plan(tasks(150)[::-1], []).create


def test_a_crash_between_two_jobs_changes_neither_name() -> None:
    first, second = plan(tasks(150), []).create
    after_crash = plan(tasks(150), [running(first)])
    assert after_crash.create == (second,)


def test_another_version_of_a_task_is_another_job() -> None:
    (one,) = plan([task(1)], []).create
    (again,) = plan([task(1, version=1)], []).create
    (later,) = plan([task(1, since_ms=8)], []).create
    assert len({one.name, again.name, later.name}) == 3


def test_ledgers_that_lack_replicas_come_before_those_that_only_lie_badly() -> None:
    badly = [task(number, reasons=("misplaced b1",), since_ms=1) for number in range(100)]
    lacking = [task(number, since_ms=9) for number in range(100, 150)]
    step = plan(badly + lacking, [], replace(POLICY, parallelism=1))
    assert set(range(100, 150)) <= set(step.create[0].ledgers)


def test_a_ledger_of_a_running_job_gets_no_second_one() -> None:
    job = ObservedJob("bk-recovery-x", "data", "u", ("1:0:7", "2:0:7"))
    step = plan([task(1, version=3), task(2), task(3)], [job])
    assert [new.ledgers for new in step.create] == [(3,)]


def test_what_a_finished_job_left_waits_until_that_job_is_gone() -> None:
    """Its time to live is the pause between attempts of a Job that cannot even start."""
    failed = ObservedJob("bk-recovery-x", "data", "u", ("1:0:7",), finished=True)
    assert plan([task(1)], [failed]).create == ()
    assert plan([task(1)], [failed]).waiting == (1,)
    assert [job.ledgers for job in plan([task(1)], []).create] == [(1,)]
    assert [job.ledgers for job in plan([task(1, version=1)], [failed]).create] == [(1,)], (
        "a new attempt is due"
    )


def test_what_a_worker_set_aside_waits_for_its_time() -> None:
    aside = task(1, version=1, not_before_ms=NOW_MS + 30_000)
    step = plan([aside], [])
    assert step.create == ()
    assert step.requeue_after_s == 30.0
    assert len(plan([aside], [], now_ms=NOW_MS + 30_000).create) == 1


def test_a_ledger_that_was_set_aside_keeps_no_other_back() -> None:
    step = plan([task(1, not_before_ms=NOW_MS + 5), task(2)], [])
    assert [job.ledgers for job in step.create] == [(2,)]


def test_a_job_without_tasks_is_cancelled_after_a_grace() -> None:
    """A bookie came back, and the auditor removed what it had marked; a Job that is about to end by itself may."""
    job = ObservedJob("bk-recovery-x", "data", "u", ("1:0:7",), needless_since_ms=NOW_MS)
    early = plan([], [job])
    assert early.cancel == ()
    assert early.requeue_after_s == 5.0
    assert plan([], [job], now_ms=NOW_MS + 10_000).cancel == (job,)


def test_a_cancelled_job_makes_room_for_another() -> None:
    jobs = [
        ObservedJob(f"bk-recovery-{n}", "data", f"u{n}", (f"{n}:0:7",), needless_since_ms=0) for n in range(2)
    ]
    step = plan([task(9)], jobs)
    assert step.cancel == tuple(jobs)
    assert [job.ledgers for job in step.create] == [(9,)]


def test_a_job_that_is_being_deleted_counts_until_its_pod_is_gone() -> None:
    jobs = [ObservedJob(f"bk-recovery-{n}", "data", f"u{n}", (f"{n}:0:7",), deleting=True) for n in range(2)]
    step = plan([task(0), task(9)], jobs)
    assert (step.create, step.cancel) == ((), ())
    assert step.waiting == (0, 9)


def test_a_job_that_waits_with_an_old_pod_makes_room_for_one_with_the_new_pod() -> None:
    """As with an image that nobody has, which its pod would try to pull until the deadline."""
    policy = replace(POLICY, parallelism=1, template="new")
    job = ObservedJob("bk-recovery-x", "data", "u", ("1:0:7",), template="old")
    step = plan([task(1)], [job], policy)
    assert step.cancel == (job,)
    assert [new.ledgers for new in step.create] == [(1,)]
    assert plan([task(1)], [replace(job, template="new")], policy) == JobsPlan(requeue_after_s=5.0)


def test_a_job_that_runs_keeps_its_pod() -> None:
    job = ObservedJob("bk-recovery-x", "data", "u", ("1:0:7",), template="old", is_ready=True)
    step = plan([task(1)], [job], replace(POLICY, template="new"))
    assert (step.create, step.cancel) == ((), ())


def test_what_a_finished_job_with_an_old_pod_left_is_tried_at_once() -> None:
    (before,) = plan([task(1)], [], replace(POLICY, template="old")).create
    failed = replace(running(before), finished=True, template="old")
    (again,) = plan([task(1)], [failed], replace(POLICY, template="new")).create
    assert again.name != before.name, "the finished one is still there"


def test_where_repair_is_off_no_job_runs() -> None:
    job = ObservedJob("bk-recovery-x", "data", "u", ("1:0:7",))
    step = plan([task(1), task(2)], [job], replace(POLICY, enabled=False))
    assert (step.create, step.cancel) == ((), (job,))
    assert step.waiting == (1, 2)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_pool_may_ask_for_smaller_batches(size: int) -> None:
    step = plan(tasks(250), [], replace(POLICY, ledgers_per_job=size, parallelism=3))
    assert [len(job.ledgers) for job in step.create] == [size] * 3 if size < 100 else [100, 100, 50]


TASKS = st.builds(
    ObservedTask,
    st.integers(0, 30),
    st.integers(0, 3),
    st.just(7),
    st.sampled_from([("lost b1",), ("misplaced b1",)]),
    st.sampled_from([0, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 10**6]),
)


@given(
    todo=st.lists(TASKS, max_size=12, unique_by=lambda each: each.ledger_id),
    parallelism=st.integers(1, 3),
    size=st.integers(1, 5),
    luck=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=20),
)
def test_whatever_runs_and_ends_each_ledger_has_one_job_and_all_that_can_be_are_repaired(
    todo: list[ObservedTask], parallelism: int, size: int, luck: list[tuple[int, bool, bool]]
) -> None:
    """Jobs end, fail, are lost by crashes between creations; the API server keeps finished ones for a while.

    `luck`: after how many creations the operator crashes, whether a Job succeeds, whether finished ones are kept; then
    all goes well.
    """
    policy = replace(POLICY, parallelism=parallelism, ledgers_per_job=size)
    jobs: list[ObservedJob] = []
    now_ms = NOW_MS
    for turn in range(60):
        created, succeeds, keeps = luck[turn] if turn < len(luck) else (size * 100, True, False)
        if not todo:
            break
        step = plan(todo, jobs, policy, now_ms)
        jobs += [running(job) for job in step.create[:created]]
        active = [job for job in jobs if job.is_active]
        ledgers = [ledger for job in active for ledger in job.ledgers]
        assert len(active) <= parallelism
        assert len(ledgers) == len(set(ledgers)), "no ledger has two Jobs"
        assert all(len(job.ledgers) <= size for job in active)
        assert len({job.name for job in jobs}) == len(jobs), "a name is never used for two Jobs at once"
        if active:
            ended = active[turn % len(active)]
            jobs[jobs.index(ended)] = replace(ended, finished=True)
            if succeeds:
                todo = [each for each in todo if each.ledger_id not in ended.ledgers]
        now_ms += 60_000
        if not keeps:
            jobs = [job for job in jobs if job.is_active]  # their time to live is over
    else:
        raise AssertionError("the repair never ends")
