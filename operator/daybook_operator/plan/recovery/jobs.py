"""Which recovery Jobs there should be: repair tasks + the Jobs that there are + policy → Jobs to create and to cancel.

A Job repairs a batch of ledgers, because a thousand Jobs of one ledger each would burden the cluster. Its name is a
digest of the tasks, at their versions, that it was made for, and of its pod, so that a plan that is made twice makes it
once. A task that a finished Job left at the very same version waits until that Job is gone, which is the pause between
attempts. A task that a worker set aside waits for its time, whatever the worker found: at most one Job an hour tries a
ledger of which an entry seems to be on no bookie (rule 35).

The pod of a Job cannot be changed. So a Job that waits with another pod than new ones get, as with an image that nobody
has, is cancelled for a new one: the spec was corrected since.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from daybook.core.ids import LedgerId
from daybook.core.repair.judgement import HARMLESS
from daybook_operator.plan.decision import sooner

LEDGERS_PER_JOB_MAX: Final = 100
_HARMLESS: Final = frozenset(reason.value for reason in HARMLESS)


@dataclass(frozen=True, slots=True)
class ObservedTask:
    """A repair task. Times are wall-clock milliseconds; before `not_before_ms` no worker takes it; 0 is "at once"."""

    ledger_id: LedgerId
    version: int
    since_ms: int
    reasons: tuple[str, ...] = ()
    not_before_ms: int = 0

    @property
    def key(self) -> str:
        """This task at this version, and no later or earlier one of the same ledger."""
        return f"{self.ledger_id}:{self.version}:{self.since_ms}"

    @property
    def is_harmless(self) -> bool:
        """Whether every entry has all its replicas nevertheless."""
        return all(reason.partition(" ")[0] in _HARMLESS for reason in self.reasons)

    def is_due(self, now_ms: int) -> bool:
        """Whether a worker would take it now."""
        return self.not_before_ms <= now_ms


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A recovery Job. `tasks` are the keys that it was made for; `needless_since_ms`: none of its ledgers has a task.

    `template` is the digest of its pod, see `JobPolicy`; `is_ready`: a pod of it runs.
    """

    name: str
    namespace: str
    uid: str
    tasks: tuple[str, ...]
    finished: bool = False
    deleting: bool = False
    needless_since_ms: int | None = None
    template: str = ""
    is_ready: bool = False

    @property
    def is_active(self) -> bool:
        """Whether its pod may run."""
        return not self.finished

    @property
    def ledgers(self) -> frozenset[LedgerId]:
        """The ledgers that it repairs."""
        return frozenset(int(key.partition(":")[0]) for key in self.tasks)


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """`enabled` False: no Jobs; those that run are cancelled. `template`: the digest of the pod that new Jobs get; "" if none is made."""

    parallelism: int = 2
    ledgers_per_job: int = LEDGERS_PER_JOB_MAX
    enabled: bool = True
    needless_ms: int = 10_000
    poll_s: float = 5.0
    template: str = ""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A Job to create."""

    name: str
    ledgers: tuple[LedgerId, ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobsPlan:
    """What to do. `waiting` are the ledgers that are due and for which no Job runs or is created."""

    create: tuple[NewJob, ...] = ()
    cancel: tuple[ObservedJob, ...] = ()
    waiting: tuple[LedgerId, ...] = ()
    requeue_after_s: float | None = None


def plan_jobs(
    tasks: Iterable[ObservedTask], jobs: Iterable[ObservedJob], policy: JobPolicy, *, prefix: str, now_ms: int
) -> JobsPlan:
    """The Jobs to create and to cancel; names begin with `prefix`. `jobs` are all of the cluster, also finished ones."""
    by_ledger = {task.ledger_id: task for task in tasks}
    there = sorted(jobs, key=lambda job: (job.namespace, job.name))
    active = [job for job in there if job.is_active]
    if not policy.enabled:
        waiting = tuple(sorted(task.ledger_id for task in by_ledger.values() if task.is_due(now_ms)))
        return JobsPlan((), tuple(job for job in active if not job.deleting), waiting)

    staying = [job for job in active if not job.deleting]
    needless = [job for job in staying if job.needless_since_ms is not None]
    cancel = tuple(job for job in staying if _is_needless(job, policy, now_ms) or _waits_in_vain(job, policy))
    going = {(job.namespace, job.name) for job in there if job.deleting} | {
        (job.namespace, job.name) for job in cancel
    }
    taken = {ledger for job in active if (job.namespace, job.name) not in going for ledger in job.ledgers}
    tried = {key for job in there if job.finished and not _is_old(job, policy) for key in job.tasks}
    due = [task for task in by_ledger.values() if task.ledger_id not in taken and task.is_due(now_ms)]
    fresh = sorted(
        (task for task in due if task.key not in tried),
        key=lambda task: (task.is_harmless, task.since_ms, task.ledger_id),
    )
    slots = max(0, policy.parallelism - len(active) + len(cancel))
    create = tuple(_new_jobs(fresh, prefix, slots, policy))
    begun = {ledger for job in create for ledger in job.ledgers}
    return JobsPlan(
        create,
        cancel,
        tuple(sorted(task.ledger_id for task in due if task.ledger_id not in begun)),
        _when_again(by_ledger.values(), needless, bool(active or create or due), policy, now_ms),
    )


def _new_jobs(fresh: Sequence[ObservedTask], prefix: str, slots: int, policy: JobPolicy) -> Iterable[NewJob]:
    size = min(policy.ledgers_per_job, LEDGERS_PER_JOB_MAX)
    for start in range(0, min(len(fresh), slots * size), size):
        ordered = sorted(fresh[start : start + size], key=lambda task: task.ledger_id)
        keys = tuple(task.key for task in ordered)
        yield NewJob(job_name(prefix, keys, policy.template), tuple(task.ledger_id for task in ordered), keys)


def job_name(prefix: str, keys: Iterable[str], template: str) -> str:
    """The name of the Job for these tasks at these versions, with this pod."""
    digest = hashlib.sha256(" ".join([*sorted(keys), template]).encode()).hexdigest()
    return f"{prefix}-{digest[:12]}"


def _is_needless(job: ObservedJob, policy: JobPolicy, now_ms: int) -> bool:
    return job.needless_since_ms is not None and now_ms - job.needless_since_ms >= policy.needless_ms


def _is_old(job: ObservedJob, policy: JobPolicy) -> bool:
    """Whether a new Job would get another pod, so that it may start, or succeed, where this one does not."""
    return bool(policy.template) and job.template != policy.template


def _waits_in_vain(job: ObservedJob, policy: JobPolicy) -> bool:
    return _is_old(job, policy) and not job.is_ready


def _when_again(
    tasks: Iterable[ObservedTask],
    needless: Sequence[ObservedJob],
    is_busy: bool,
    policy: JobPolicy,
    now_ms: int,
) -> float | None:
    """The end of a Job is an event, that of a task is not; a task that was set aside is due at its time."""
    later = [(task.not_before_ms - now_ms) / 1000 for task in tasks if not task.is_due(now_ms)]
    ends = [(job.needless_since_ms or 0) + policy.needless_ms - now_ms for job in needless]
    return sooner(
        policy.poll_s if is_busy else None,
        max(0.1, min(later)) if later else None,
        max(0.1, min(ends) / 1000) if ends else None,
    )
