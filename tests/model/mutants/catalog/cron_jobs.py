"""Rule 74 as the operator keeps it: which CronJobs a pool has, what is in each, and whose they are."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import pytest
from daybook_operator.plan.effects import Apply, Manifest
from daybook_operator.plan.jobs import plan, schedules
from daybook_operator.plan.jobs.plan import JobsPlan
from daybook_operator.plan.spec_part import parse_spec
from daybook_operator.plan.topic.spec import TopicSpec, timings_of

from tests.model.mutants.registry import around, instead_of, mutant

TESTS: Final = "tests/unit/operator/test_spark_jobs.py::test_rule_74"
CronJob: TypeAlias = Callable[..., Manifest]
by_test = partial(mutant, not_simulated="there is no operator in the simulated cluster")

_numbers = itertools.count()


@by_test(74, f"{TESTS}_a_pool_has_one_cron_job_for_each_job_of_its_own")
@around(schedules, "_own")
def a_pool_has_only_its_first_job(own: Callable[..., Any], *args: Any) -> Any:
    """Where a pool has a retention, nobody audits it."""
    return itertools.islice(own(*args), 1)


@by_test(74, f"{TESTS}_topics_of_one_schedule_and_time_zone_share_a_cron_job")
@instead_of(schedules, "cron_job_of_topics")
def each_topic_has_a_cron_job_of_its_own(pool: str, job: str, _schedule: str, _time_zone: str) -> str:
    """As many drivers start at a time as there are Topics, and the next reconcile makes all of them again."""
    return f"{pool}-{job}-{next(_numbers)}"


@by_test(74, f"{TESTS}_topics_of_one_schedule_and_time_zone_share_a_cron_job")
@around(schedules, "cron_job_of_topics")
def topics_of_all_time_zones_share_a_cron_job(
    name: Callable[..., str], pool: str, job: str, schedule: str, _time_zone: str
) -> str:
    """Two CronJobs have one name, so the Topics of one of two time zones wait for ever."""
    return name(pool, job, schedule, "Etc/UTC")


@by_test(74, f"{TESTS}_a_cron_job_runs_at_the_time_of_its_time_zone")
@around(plan, "cron_job")
def every_schedule_is_of_utc(cron_job: CronJob, *args: Any, **named: Any) -> Manifest:
    """Runs begin at another hour than people ask for."""
    made = cron_job(*args, **named)
    return {**made, "spec": {**made["spec"], "timeZone": "Etc/UTC"}}


@by_test(74, f"{TESTS}_topics_that_are_suspended_paused_or_gone_name_none")
def topics_that_are_left_alone_name_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CronJob starts drivers for Topics that are paused, only watched, or being deleted."""
    monkeypatch.setattr(schedules, "timings_of", lambda topic: parse_spec(TopicSpec, topic).timings)


@by_test(74, f"{TESTS}_topics_that_are_suspended_paused_or_gone_name_none")
def suspended_topics_name_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers start for Topics whose jobs a person suspended."""

    def awake(topic: Manifest) -> Any:
        spec = {
            name: {**part, "suspend": False} if isinstance(part, dict) and "suspend" in part else part
            for name, part in topic["spec"].items()
        }
        return timings_of({**topic, "spec": spec})

    monkeypatch.setattr(schedules, "timings_of", awake)


@by_test(74, f"{TESTS}_no_two_runs_of_a_cron_job_are_at_work_at_once")
@around(plan, "cron_job")
def runs_overlap(cron_job: CronJob, *args: Any, **named: Any) -> Manifest:
    """A run that takes longer than its schedule has the next one beside it, which does the same work."""
    made = cron_job(*args, **named)
    return {**made, "spec": {**made["spec"], "concurrencyPolicy": "Allow"}}


@by_test(74, f"{TESTS}_a_job_that_is_to_rest_stays_and_is_suspended")
@around(plan, "scheduled")
def nothing_rests(scheduled: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Drivers start although the pool hibernates, or somebody suspended the job."""
    return tuple(replace(each, suspend=False) for each in scheduled(*args, **named))


@by_test(74, f"{TESTS}_what_nothing_names_any_more_is_removed")
@around(plan, "decide_jobs")
def nothing_is_removed(decide: Callable[..., JobsPlan], *args: Any) -> JobsPlan:
    """A job that nobody asks for any more runs on, and nobody is shown how."""
    found = decide(*args)
    return replace(found, effects=tuple(each for each in found.effects if isinstance(each, Apply)))


@by_test(74, f"{TESTS}_a_cron_job_of_somebody_else_is_left_alone")
def every_cron_job_is_the_pools_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator takes CronJobs of other people over, and removes those that its pool does not name."""
    monkeypatch.setattr(plan, "_is_own", lambda _seen, _found: True)
