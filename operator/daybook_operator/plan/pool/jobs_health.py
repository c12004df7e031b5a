"""Whether the jobs of a whole pool do what they are to do, in the pool's conditions."""

from typing import Final

from daybook_operator.plan.conditions import Condition, fine, wrong
from daybook_operator.plan.spark_jobs import JobsReport, JobsSpec, PoolJobSpec

RETENTION_HEALTHY: Final = "RetentionHealthy"
AUDIT_HEALTHY: Final = "AuditHealthy"


def conditions_of_jobs(pool: str, jobs: JobsSpec, report: JobsReport | None) -> list[Condition]:
    """RetentionHealthy and AuditHealthy; none while nothing is known yet, which leaves them as they were."""
    if report is None:
        return []
    return [
        _condition(RETENTION_HEALTHY, "retention", f"{pool}-retention", jobs.retention, report),
        _condition(AUDIT_HEALTHY, "audit", f"{pool}-audit", jobs.audit, report),
    ]


def _condition(type_: str, job: str, name: str, spec: PoolJobSpec | None, report: JobsReport) -> Condition:
    run, problem = report.runs.get(name), report.problems.get(name)
    if spec is None:
        return fine(type_, "NotScheduled", f"spec.jobs.{job} names no schedule.")
    if problem:
        return wrong(
            type_,
            "DoesNotRun",
            f"The {job} job does not run: {problem}",
            next_step="Correct spec.jobs, or the chart's jobs.namespaces, which give it its ServiceAccount.",
        )
    if run is not None and not run.succeeded:
        return wrong(
            type_,
            "JobFailed",
            f"Job {run.job} failed: {run.said}",
            next_step=f"The job runs again on its schedule, or at once: kubectl create job --from=cronjob/{name} {name}-now",
        )
    if run is None:
        return fine(type_, "NotYetRun", f"CronJob {name} waits for its time.")
    return fine(type_, "Succeeded")
