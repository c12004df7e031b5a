"""What jobs did for a topic: the last run of each in the status, and the condition JobsHealthy, which repeats an error.

A job leaves a result beside each topic that it takes, and a Job in which one topic fails has failed as a whole. So the failure of a Job counts
for the topics alone that have no result of that run because it ended before it came to them. What is newer than the run has none either, and has
not failed.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from daybook.core.topics.job_result import JobResult
from daybook_operator.plan.conditions import Condition, fine, from_iso, iso, wrong
from daybook_operator.plan.effects import Manifest
from daybook_operator.plan.spark_jobs import JobOfTopics, Run, cron_job_of_topics
from daybook_operator.plan.topic.observed import ObservedTopic, TopicNode
from daybook_operator.plan.topic.spec import timings_of

JOBS_HEALTHY: Final = "JobsHealthy"
_SHOWN_MAX: Final = 16


def last_runs(nodes: Iterable[TopicNode]) -> list[dict[str, Any]] | None:
    """As the status has them: of partitions the one that failed, else the last one, with the figures of all together."""
    by_job: dict[str, list[JobResult]] = {}
    for node in nodes:
        for result in node.results:
            by_job.setdefault(result.job, []).append(result)
    return [_record(job, results) for job, results in sorted(by_job.items())[:_SHOWN_MAX]] or None


def _record(job: str, results: Sequence[JobResult]) -> dict[str, Any]:
    shown = _worst(results)
    names = sorted({name for result in results for name in result.figures})
    figures = {name: sum(result.figures.get(name, 0) for result in results) for name in names}
    return {
        "name": job,
        "startedAt": iso(shown.started_ms),
        "endedAt": iso(shown.ended_ms),
        "succeeded": shown.succeeded,
        "message": shown.message or None,
        "figures": figures or None,
    }


def _worst(results: Iterable[JobResult]) -> JobResult:
    return max(results, key=lambda result: (not result.succeeded, result.ended_ms))


def jobs_healthy(observed: ObservedTopic) -> Condition:
    """Whether the jobs that the spec asks for do what they are to do."""
    wanted = timings_of(observed.manifest)
    if not wanted:
        return fine(JOBS_HEALTHY, "NoJobs", "The spec asks for no job.")
    found = (_trouble(observed, job, *times) for job, times in sorted(wanted.items()))
    return next(filter(None, found), fine(JOBS_HEALTHY, "NothingFailed"))


def _trouble(observed: ObservedTopic, job: JobOfTopics, schedule: str, time_zone: str) -> Condition | None:
    """The condition if something is wrong with one job."""
    name = cron_job_of_topics(observed.pool_name, job, schedule, time_zone)
    problem = "" if observed.jobs is None else observed.jobs.problems.get(name, "")
    if problem:
        return wrong(
            JOBS_HEALTHY,
            "DoesNotRun",
            f"The {job} job, CronJob {name}, does not run: {problem}",
            next_step=f"Correct spec.{job}, the pool's spec.jobs, or the chart's jobs.namespaces.",
        )
    results = [result for _, node in observed.topics if node for result in node.results if result.job == job]
    failed = [result for result in results if not result.succeeded]
    if failed:
        return _failed(job, _worst(failed).message or "its result says no more")
    run = None if observed.jobs is None else observed.jobs.runs.get(name)
    if run is not None and _ended_before(observed, job, run):
        return _failed(job, f"Job {run.job}: {run.said}")
    return None


def _ended_before(observed: ObservedTopic, job: JobOfTopics, run: Run) -> bool:
    """Whether the run failed before it came to the topic, which was there when the run began."""
    if run.succeeded or run.came_to_all_topics or _is_newer(observed.manifest, run):
        return False
    return not _was_reached(observed, job, run)


def _is_newer(topic: Manifest, run: Run) -> bool:
    created = topic["metadata"].get("creationTimestamp")
    return created is not None and from_iso(created) > run.created_ms


def _was_reached(observed: ObservedTopic, job: JobOfTopics, run: Run) -> bool:
    """Whether the run left a result at the topic, or at each of its partitions.

    No two runs are at work at once, so a result is of this run if it is younger than its Job. A driver takes seconds until its first
    topic; that is how far the clocks of Kubernetes and of its node may be apart.
    """
    return all(
        any(result.job == job and result.ended_ms >= run.created_ms for result in node.results)
        for _, node in observed.topics
        if node is not None
    )


def _failed(job: str, why: str) -> Condition:
    return wrong(
        JOBS_HEALTHY,
        "JobFailed",
        f"The last {job} of the topic failed: {why}",
        next_step="It is tried again at the next time of its schedule.",
    )
