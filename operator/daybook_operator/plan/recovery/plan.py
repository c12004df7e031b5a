"""The plan for the repair of a cluster, as one of its pools carries it out, and what the status of each pool says of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.decision import Decision, is_paused, is_terminating
from daybook_operator.plan.effects import Apply, ClusterRef, Effect, Manifest, Ref, Remove
from daybook_operator.plan.lost_ledgers import Verdict
from daybook_operator.plan.pods import RECOVERY, service_account
from daybook_operator.plan.pool.scale import is_hibernating
from daybook_operator.plan.pool.spec import PoolSpec
from daybook_operator.plan.recovery.jobs import (
    LEDGERS_PER_JOB_MAX,
    JobPolicy,
    JobsPlan,
    ObservedJob,
    ObservedTask,
    plan_jobs,
)
from daybook_operator.plan.recovery.manifests import job_manifest, template_of

_LISTED_MAX: Final = 100
_LOST_LISTED_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class ObservedAudit:
    """One audit."""

    began_ms: int
    duration_ms: int
    is_clean: bool
    ledgers: int

    def record(self) -> dict[str, Any]:
        """As the status has it."""
        return {
            "startedAt": iso(self.began_ms),
            "finishedAt": iso(self.began_ms + self.duration_ms),
            "clean": self.is_clean,
            "ledgers": self.ledgers,
        }


@dataclass(frozen=True, slots=True)
class ObservedRecovery:
    """What ZooKeeper, the API server and the auditor say about the repair of a cluster."""

    cluster_ref: ClusterRef
    tasks: tuple[ObservedTask, ...] = ()
    jobs: tuple[ObservedJob, ...] = ()
    switched_off: bool = False
    """Repair is switched off for the whole cluster (rule 33)."""
    lost_bookies: tuple[BookieId, ...] = ()
    misplaced: int = 0
    blocked: int = 0
    """Ledgers that lack a replica, as the last audit found, and have no task, since no bookie can take the place."""
    last_audit: ObservedAudit | None = None
    last_full_audit: ObservedAudit | None = None
    verdicts: tuple[Verdict, ...] = ()
    """On ledgers with an entry that the last repair found on no bookie."""
    job_problems: tuple[str, ...] = ()
    """Jobs that do not start, and why, in Kubernetes' words."""

    @property
    def under_replicated(self) -> int:
        """How many ledgers lack a replica, whether or not a worker can repair them now."""
        return sum(not task.is_harmless for task in self.tasks) + self.blocked


def carrier_of(pools: Sequence[Manifest]) -> Manifest | None:
    """The pool of one cluster's `pools` that carries its repair: the first that can, else the first that is not being deleted.

    A pool that is paused makes no Jobs, nor does one whose bookies are stopped, so another one must carry the repair.
    """
    staying = [pool for pool in pools if not is_terminating(pool)]
    able = [pool for pool in staying if not is_paused(pool) and not is_hibernating(pool)]
    return next(iter([*able, *staying]), None)


def decide_recovery(
    pool: Manifest,
    spec: PoolSpec,
    seen: ObservedRecovery,
    now_ms: int,
    *,
    poll_s: float,
    needless_ms: int,
    ledgers_per_job_max: int = LEDGERS_PER_JOB_MAX,
    operator_speaks_tls: bool,
) -> Decision:
    """What the pool that repairs the cluster does now."""
    if is_terminating(pool) or is_paused(pool):
        return Decision()
    policy = JobPolicy(
        spec.recovery.parallelism,
        min(spec.recovery.ledgers_per_job, ledgers_per_job_max),
        enabled=not (spec.recovery.paused or seen.switched_off or is_hibernating(pool)),
        needless_ms=needless_ms,
        poll_s=poll_s,
        template=template_of(pool, spec, seen.cluster_ref, operator_speaks_tls=operator_speaks_tls),
    )
    meta = pool["metadata"]
    plan = plan_jobs(seen.tasks, seen.jobs, policy, prefix=f"{meta['name'][:40]}-recovery", now_ms=now_ms)
    effects: list[Effect] = [
        Remove(Ref("batch/v1", "Job", job.namespace, job.name, job.uid)) for job in plan.cancel
    ]
    if plan.create:
        effects.append(Apply(service_account(pool, RECOVERY)))
    effects += [
        Apply(job_manifest(pool, spec, seen.cluster_ref, job, operator_speaks_tls=operator_speaks_tls))
        for job in plan.create
    ]
    return Decision(tuple(effects), plan.requeue_after_s)


def recovery_status(seen: ObservedRecovery, now_ms: int) -> dict[str, Any]:
    """`status.recovery` of every pool of the cluster."""
    plan: JobsPlan = plan_jobs(seen.tasks, seen.jobs, JobPolicy(parallelism=0), prefix="", now_ms=now_ms)
    lost = sorted(each.ledger_id for each in seen.verdicts if each.is_lost)
    awaited = sorted(each.ledger_id for each in seen.verdicts if not each.is_lost)
    return {
        "underReplicated": seen.under_replicated,
        "unrecoverable": len(lost),
        "unrecoverableLedgers": lost[:_LISTED_MAX],
        "unreachable": len(awaited),
        "unreachableLedgers": awaited[:_LISTED_MAX],
        "lostBookies": list(seen.lost_bookies[:_LOST_LISTED_MAX]),
        "activeJobs": sum(job.is_active for job in seen.jobs),
        "waitingLedgers": len(plan.waiting),
        "misplaced": seen.misplaced,
        "lastAudit": seen.last_audit.record() if seen.last_audit else None,
        "lastFullAudit": seen.last_full_audit.record() if seen.last_full_audit else None,
    }
