"""Which CronJobs a pool should have: one for each job of its own, one for each timing that Topics name for a job of theirs.

A Topic that is paused, suspended, watched alone or being deleted names none; so its schedule may name a CronJob that others still need.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from daybook_operator.plan.effects import Manifest
from daybook_operator.plan.spark_jobs import (
    JobName,
    JobsSpec,
    PoolJobSpec,
    RetentionSpec,
    cron_job_of_topics,
)
from daybook_operator.plan.topic.spec import timings_of


@dataclass(frozen=True, slots=True, order=True)
class Scheduled:
    """A CronJob that there should be."""

    name: str
    job: JobName
    schedule: str
    time_zone: str
    suspend: bool = False
    places: tuple[str, ...] = ()
    """Where a retention is to find files of deleted topics, beside the places that topics name."""

    @property
    def timing(self) -> str:
        """As policies of topics name it (`daybook.core.topics.job_terms.Timing`)."""
        return f"{self.schedule} {self.time_zone}"


def scheduled(
    pool: str, jobs: JobsSpec, topics: Iterable[Manifest], *, hibernates: bool
) -> tuple[Scheduled, ...]:
    """The CronJobs of the pool of this name, in order of their names; `topics` are the Topics that it stores."""
    rests = jobs.suspend or hibernates
    found = {
        Scheduled(f"{pool}-{name}", name, own.schedule, own.time_zone, rests or own.suspend, _places(own))
        for name, own in _own(jobs)
    }
    for manifest in topics:
        for job, (schedule, time_zone) in timings_of(manifest).items():
            found.add(
                Scheduled(cron_job_of_topics(pool, job, schedule, time_zone), job, schedule, time_zone, rests)
            )
    return tuple(sorted(found))


def _own(jobs: JobsSpec) -> Iterable[tuple[JobName, PoolJobSpec]]:
    if jobs.retention is not None:
        yield "retention", jobs.retention
    if jobs.audit is not None:
        yield "audit", jobs.audit


def _places(own: PoolJobSpec) -> tuple[str, ...]:
    return own.files_below if isinstance(own, RetentionSpec) else ()
