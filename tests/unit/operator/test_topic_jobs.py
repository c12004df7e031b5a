"""What a Topic asks jobs for: in its policy, and how what became of it is told."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.spark_jobs import JobsReport, Run, cron_job_of_topics
from daybook_operator.plan.topic.observed import ObservedTopic
from daybook_operator.plan.topic.plan import decide
from daybook_operator.plan.topic.policy import policy_of
from daybook_operator.plan.topic.reports import OwnersReports
from daybook_operator.plan.topic.spec import TopicSpec, timings_of

from daybook.core.errors import PolicyError
from daybook.core.topics.job_result import JobResult
from daybook.core.topics.job_terms import CompactionTerms, OffloadTerms, Timing
from tests.unit.operator.test_topic_plan import MANAGER, NOW_MS, condition, created, manifest, status

COMPACTED = JobResult.of(
    "compaction", NOW_MS, NOW_MS + 5_000, message="12 of 40 entries stay", figures={"entriesKept": 12}
)
FAILED = JobResult.of("compaction", NOW_MS, NOW_MS + 1_000, error="no broker answers: start one")
NIGHTLY: Mapping[str, Any] = {"compaction": {"enabled": True, "schedule": "0 3 * * *"}}
CRON_JOB = cron_job_of_topics("bk", "compaction", "0 3 * * *", "Etc/UTC")
ANOTHER_FAILED = '{"topics": 2, "failed": 1, "failures": [{"topic": "other", "message": "no bucket"}]}'


def with_results(world: ObservedTopic, *results: JobResult) -> ObservedTopic:
    """The first topic of the world has been in these runs."""
    cluster = world.cluster
    assert cluster is not None
    if cluster.plain is not None:
        return replace(world, cluster=replace(cluster, plain=replace(cluster.plain, results=results)))
    nodes = [node for node in cluster.parts if node is not None]
    parts = [replace(node, results=(result,)) for node, result in zip(nodes, results, strict=True)]
    return replace(world, cluster=replace(cluster, parts=tuple(parts)))


# The policy


def spec(**fields: Any) -> TopicSpec:
    return TopicSpec.model_validate({"poolRef": {"name": "bk"}, **fields})


def test_the_policy_says_when_jobs_take_the_topic_and_to_where() -> None:
    found = policy_of(
        spec(
            compaction={"enabled": True, "schedule": "@daily", "keepKeyless": False},
            offload={
                "schedule": "0 4 * * *",
                "timeZone": "Europe/Berlin",
                "to": "s3://b",
                "lagSeconds": 60,
                "rows": True,
            },
        ),
        MANAGER,
    )
    assert found.compaction == CompactionTerms(Timing("@daily"), keeps_keyless=False)
    assert found.offload == OffloadTerms(
        Timing("0 4 * * *", "Europe/Berlin"), "s3://b", lag_ms=60_000, with_rows=True
    )


def test_what_a_later_release_set_for_jobs_stays_while_they_are_asked_for() -> None:
    asked = spec(**NIGHTLY, offload={"schedule": "@daily", "to": "s3://b"})
    before = replace(
        policy_of(asked, MANAGER),
        compaction=CompactionTerms(Timing("@weekly"), unknown_fields={"later": 1}),
        offload=OffloadTerms(Timing("@weekly"), "s3://a", unknown_fields={"later": 2}),
    )
    found = policy_of(asked, MANAGER, before)
    assert found.compaction == CompactionTerms(Timing("0 3 * * *"), unknown_fields={"later": 1})
    assert found.offload is not None
    assert (found.offload.to, found.offload.unknown_fields) == ("s3://b", {"later": 2})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"compaction": {"schedule": "@daily"}},
        {"compaction": {"enabled": True, "schedule": "@daily", "suspend": True}},
        {"offload": {"schedule": "@daily", "to": "s3://b", "suspend": True}},
    ],
)
def test_no_job_takes_a_topic_that_asks_for_none(fields: Mapping[str, Any]) -> None:
    found = policy_of(spec(**fields), MANAGER)
    assert (found.compaction, found.offload) == (None, None)
    assert timings_of(manifest(**fields)) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"meta": {"annotations": {"daybook.dev/pause": "true"}}},
        {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"managed": False},
    ],
)
def test_a_topic_that_is_left_alone_names_no_schedule(change: Mapping[str, Any]) -> None:
    assert timings_of(manifest(**NIGHTLY)) == {"compaction": ("0 3 * * *", "Etc/UTC")}
    assert timings_of(manifest(**NIGHTLY, **change)) == {}


def test_a_schedule_that_a_later_crd_lets_in_is_told() -> None:
    with pytest.raises(PolicyError, match="use a cron line"):
        policy_of(spec(compaction={"enabled": True, "schedule": "@reboot"}), MANAGER)


# The status


def test_the_status_shows_the_last_run_of_each_job() -> None:
    offloaded = JobResult.of("offload", NOW_MS, NOW_MS)
    shown = status(decide(with_results(created(**NIGHTLY), offloaded, COMPACTED), NOW_MS))
    assert shown["jobs"] == [
        {
            "name": "compaction",
            "startedAt": "2023-11-14T22:13:20Z",
            "endedAt": "2023-11-14T22:13:25Z",
            "succeeded": True,
            "message": "12 of 40 entries stay",
            "figures": {"entriesKept": 12},
        },
        {
            "name": "offload",
            "startedAt": "2023-11-14T22:13:20Z",
            "endedAt": "2023-11-14T22:13:20Z",
            "succeeded": True,
        },
    ]
    assert "jobs" not in status(decide(created(), NOW_MS))


def test_of_partitions_the_one_that_failed_is_shown_with_the_figures_of_all() -> None:
    later = replace(COMPACTED, ended_ms=NOW_MS + 60_000)
    (shown,) = status(
        decide(with_results(created(partitions=3, **NIGHTLY), COMPACTED, FAILED, later), NOW_MS)
    )["jobs"]
    assert (shown["succeeded"], shown["message"]) == (False, "no broker answers: start one")
    assert shown["figures"] == {"entriesKept": 24}
    (shown,) = status(decide(with_results(created(partitions=2, **NIGHTLY), later, COMPACTED), NOW_MS))[
        "jobs"
    ]
    assert shown["endedAt"] == "2023-11-14T22:14:20Z"


# The condition


def test_a_topic_without_jobs_is_healthy_whatever_was_before() -> None:
    said = condition(decide(with_results(created(), FAILED), NOW_MS), "JobsHealthy")
    assert (said["status"], said["reason"]) == ("True", "NoJobs")


def test_the_condition_repeats_the_error_of_the_last_run() -> None:
    there = created(**NIGHTLY)
    assert condition(decide(there, NOW_MS), "JobsHealthy")["reason"] == "NothingFailed"
    decision = decide(replace(with_results(there, FAILED), reports=OwnersReports({})), NOW_MS)
    said = condition(decision, "JobsHealthy")
    assert (said["status"], said["reason"]) == ("False", "JobFailed")
    assert "The last compaction of the topic failed: no broker answers: start one" in said["message"]
    assert status(decision)["message"] == said["message"]
    assert condition(decision)["status"] == "True", "clients can use it all the same"
    assert condition(decide(with_results(there, COMPACTED), NOW_MS), "JobsHealthy")["status"] == "True"


def after_run(world: ObservedTopic, run: Run) -> Mapping[str, Any]:
    """The condition once the run was the last one of the CronJob."""
    return condition(decide(replace(world, jobs=JobsReport({CRON_JOB: run})), NOW_MS), "JobsHealthy")


def test_a_job_that_ends_before_it_comes_to_the_topic_counts() -> None:
    there = with_results(created(**NIGHTLY), COMPACTED)
    ended_ms = COMPACTED.ended_ms
    run = Run("bk-1", ended_ms + 1, ended_ms + 9, succeeded=False, message='{"error": "no executors"}')
    said = after_run(there, run)
    assert (said["status"], said["reason"]) == ("False", "JobFailed")
    assert "Job bk-1: no executors" in said["message"]
    assert after_run(created(**NIGHTLY), run)["status"] == "False", "no run has ever come to it"
    assert after_run(there, replace(run, succeeded=True))["status"] == "True"


def test_a_run_in_which_another_topic_failed_leaves_the_topic_that_succeeded_in_it_healthy() -> None:
    run = Run("bk-1", COMPACTED.started_ms - 9_000, COMPACTED.ended_ms + 9_000, succeeded=False, message=ANOTHER_FAILED)  # fmt: skip
    assert after_run(with_results(created(**NIGHTLY), COMPACTED), run)["status"] == "True"
    said = after_run(with_results(created(**NIGHTLY), FAILED), run)
    assert "no broker answers: start one" in said["message"], "its own error is repeated, not that of another"


def test_a_topic_that_is_newer_than_a_run_has_not_failed_in_it() -> None:
    there = created(**NIGHTLY)
    run = Run("bk-1", NOW_MS, NOW_MS + 9_000, succeeded=False, message='{"error": "no executors"}')
    for made_ms, said in ((NOW_MS - 1_000, "False"), (NOW_MS, "False"), (NOW_MS + 1_000, "True")):
        made = manifest(**NIGHTLY, meta={"creationTimestamp": iso(made_ms)})
        assert after_run(replace(there, manifest=made), run)["status"] == said
    assert after_run(there, replace(run, message=ANOTHER_FAILED))["status"] == "True", (
        "it came to all it knew"
    )


def test_a_partition_that_is_newer_than_a_run_in_which_another_topic_failed_has_not_failed_in_it() -> None:
    before = replace(COMPACTED, started_ms=0, ended_ms=1)
    run = Run("bk-1", COMPACTED.started_ms, COMPACTED.ended_ms + 1, succeeded=False, message=ANOTHER_FAILED)
    parts = created(partitions=2, **NIGHTLY)
    assert after_run(with_results(parts, COMPACTED, before), run)["status"] == "True"


def test_a_job_that_ends_before_it_comes_to_each_partition_counts() -> None:
    last_night = replace(COMPACTED, started_ms=0, ended_ms=1)
    run = Run("bk-1", COMPACTED.started_ms, COMPACTED.ended_ms + 1, succeeded=False)
    parts = created(partitions=2, **NIGHTLY)
    assert after_run(with_results(parts, COMPACTED, COMPACTED), run)["status"] == "True"
    said = after_run(with_results(parts, COMPACTED, last_night), run)
    assert "Job bk-1: its pod left no message" in said["message"]


def test_a_cron_job_that_is_refused_is_told_to_the_topics_that_name_it() -> None:
    problems = {CRON_JOB: 'timeZone: Invalid value: "Mars/Base": unknown time zone'}
    said = condition(
        decide(replace(created(**NIGHTLY), jobs=JobsReport({}, problems)), NOW_MS), "JobsHealthy"
    )
    assert (said["status"], said["reason"]) == ("False", "DoesNotRun")
    assert "unknown time zone. Correct spec.compaction" in said["message"]


def test_a_topic_that_is_only_watched_now_has_no_failed_job_any_more() -> None:
    """Else the alert of it would never end."""
    failed = with_results(created(**NIGHTLY), FAILED)
    said = status(decide(failed, NOW_MS))
    watched = replace(failed, manifest=manifest(**NIGHTLY, managed=False) | {"status": said})
    found = condition(decide(watched, NOW_MS), "JobsHealthy")
    assert (found["status"], found["reason"]) == ("True", "NoJobs")
