"""The repair of a cluster: has it audited, observes tasks and Jobs, and has Jobs created and cancelled.

Of several pools of one cluster one carries the Jobs (see `carrier_of`); the status of each has the same figures.
"""

import asyncio
from typing import Any, Final

from daybook.autorecovery.report import AuditReport
from daybook.core.repair.judgement import Reason
from daybook.runtime.clock import monotonic_ms
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.kube.api import Object, UnavailableError
from daybook_operator.kube.queue import RECOVERY, Key
from daybook_operator.plan import pods
from daybook_operator.plan.decision import is_paused, is_terminating
from daybook_operator.plan.effects import ClusterRef, Manifest
from daybook_operator.plan.names import (
    CLUSTER_ANNOTATION,
    CLUSTER_LABEL,
    TASKS_ANNOTATION,
    TEMPLATE_ANNOTATION,
)
from daybook_operator.plan.pool.spec import cluster_of, spec_of
from daybook_operator.plan.recovery.jobs import ObservedJob, ObservedTask
from daybook_operator.plan.recovery.plan import ObservedAudit, ObservedRecovery, carrier_of, decide_recovery
from daybook_operator.reconcile.job_problems import problems_of
from daybook_operator.reconcile.listing import if_allowed
from daybook_operator.reconcile.lost_ledgers import verdicts
from daybook_operator.reconcile.performer import EffectError
from daybook_operator.reconcile.services import Services

_AWAY: Final = {Reason.MISSING.value, Reason.UNLISTED.value}
_OVER: Final = {"Complete", "Failed"}


class NeedlessJobs:
    """Since when each Job has had no task to do, by its UID. A restart of the operator forgets it, and each starts anew."""

    def __init__(self) -> None:
        """None."""
        self._since_ms: dict[str, int] = {}

    def note(self, uid: str, *, is_needless: bool, now_ms: int) -> int | None:
        """Since when; None if there is something to do."""
        if not is_needless:
            self._since_ms.pop(uid, None)
            return None
        return self._since_ms.setdefault(uid, now_ms)

    def keep_only(self, uids: set[str]) -> None:
        """Forget Jobs that are gone."""
        self._since_ms = {uid: since for uid, since in self._since_ms.items() if uid in uids}


class RecoveryReconciler:
    """Reconciles "Recovery" keys."""

    def __init__(self, services: Services) -> None:
        """Nothing is observed yet."""
        self._services = services
        self._needless = NeedlessJobs()
        self._reported: dict[str, object] = {}
        self._carriers: dict[ClusterRef, Key] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Observe the repair and carry out its plan, if this pool carries it; see `queue.Reconcile`."""
        services = self._services
        pool = await services.kube.find("BookiePool", key.namespace, key.name)
        if pool is None:
            return None
        ref = cluster_of(pool, services.pool_defaults)
        if not is_terminating(pool):
            services.inventory.add_pool(key.namespace, key.name, ref)
        if not ref.zookeeper:
            return None  # the pool's condition Ready says so
        if await self._carrier(ref, pool) != key:
            return None
        link = await services.clusters.link(ref)
        spec = spec_of(pool, services.pool_defaults)
        await link.audits.campaign(spec.placement.settings)
        if is_paused(pool):
            return None
        now_ms = services.now_ms()
        seen = await observe_recovery(services, link, self._needless)
        decision = decide_recovery(
            pool,
            spec,
            seen,
            now_ms,
            poll_s=services.settings.recovery_look_ms / 1000,
            needless_ms=services.settings.needless_job_ms,
            ledgers_per_job_max=services.settings.ledgers_per_job,
            operator_speaks_tls=services.settings.speaks_tls,
        )
        self._measure(seen)
        for changed in services.inventory.note_jobs(ref, seen.jobs):
            services.enqueue(changed)
        try:
            again_s = await services.performer.carry_out(decision)
        except EffectError as error:
            self._note_refusal(ref, "" if isinstance(error.cause, UnavailableError) else str(error.cause))
            raise
        self._note_refusal(ref, "")
        self._refresh_pools(link, seen, is_new=bool(decision.effects))
        return again_s

    def _note_refusal(self, ref: ClusterRef, why: str) -> None:
        """For the pools' condition RecoveryBlocked."""
        if self._services.inventory.note_refusal(ref, why):
            for pool in self._services.inventory.pools_of(ref):
                self._services.enqueue(pool)

    async def _carrier(self, ref: ClusterRef, pool: Object) -> Key | None:
        """The key of the pool that carries the repair of the cluster of `pool`; another carrier than before is enqueued."""
        others = [each for each in self._services.inventory.pools_of(ref) if _name_of(pool) != each[1:]]
        found = await asyncio.gather(
            *(
                if_allowed(self._services.kube.find("BookiePool", each.namespace, each.name), None)
                for each in others
            )
        )
        known = [pool, *(other for other in found if other is not None)]
        carrier = carrier_of(sorted(known, key=_name_of))
        if carrier is None:
            self._carriers.pop(ref, None)
            return None
        key = Key(RECOVERY, *_name_of(carrier))
        if self._carriers.get(ref) != key:
            self._carriers[ref] = key
            self._services.enqueue(key)
        return key

    def _measure(self, seen: ObservedRecovery) -> None:
        self._services.metrics.repair_of(
            str(seen.cluster_ref),
            under_replicated=seen.under_replicated,
            unrecoverable=sum(verdict.is_lost for verdict in seen.verdicts),
            jobs=sum(job.is_active for job in seen.jobs),
        )

    def _refresh_pools(self, link: ClusterLink, seen: ObservedRecovery, *, is_new: bool) -> None:
        """The pools' status counts tasks and Jobs: have the pools reconciled when these change."""
        facts = (
            seen.tasks,
            [(job.name, job.is_active) for job in seen.jobs],
            seen.job_problems,
            seen.verdicts,
            link.audits.last_full_report,
        )
        if is_new or self._reported.get(str(link.ref)) != facts:
            self._reported[str(link.ref)] = facts
            for pool in self._services.inventory.pools_of(link.ref):
                self._services.enqueue(pool)


def _name_of(pool: Manifest) -> tuple[str, str]:
    return pool["metadata"]["namespace"], pool["metadata"]["name"]


async def observe_recovery(
    services: Services, link: ClusterLink, needless: NeedlessJobs | None = None
) -> ObservedRecovery:
    """What is known of the repair of a cluster. Raises MetadataUnavailableError, KubeError."""
    found_tasks = await link.task_list.read()
    unix, monotonic = services.now_ms(), monotonic_ms()
    tasks = tuple(
        ObservedTask(
            task.value.ledger_id,
            task.version,
            task.value.since_ms,
            task.value.reasons,
            link.due_times.not_before_ms(task.value, unix_ms=unix, monotonic_ms=monotonic),
        )
        for task in found_tasks
    )
    with_task = {task.ledger_id for task in tasks}
    link.due_times.keep_only(with_task)
    jobs = []
    found_jobs = await jobs_of(services, link)
    for found in found_jobs:
        job = _observed_job(found)
        if needless is not None and job.is_active:
            since_ms = needless.note(
                job.uid, is_needless=not (job.ledgers & with_task), now_ms=services.now_ms()
            )
            job = _observed_job(found, needless_since_ms=since_ms)
        jobs.append(job)
    if needless is not None:
        needless.keep_only({job.uid for job in jobs})
    report, full = link.audits.last_report, link.audits.last_full_report
    return ObservedRecovery(
        link.ref,
        tasks,
        tuple(jobs),
        switched_off=await link.tasks.disabled(),
        lost_bookies=report.lost_bookies if report else (),
        misplaced=len(report.found.by_reason.get(Reason.MISPLACED.value, ())) if report else 0,
        blocked=sum(
            ledger_id not in with_task and bool(set(reasons) - _AWAY)
            for ledger_id, reasons in link.audits.without_task.items()
        ),
        last_audit=_observed_audit(report),
        last_full_audit=_observed_audit(full),
        verdicts=await verdicts(link, found_tasks),
        job_problems=await problems_of(services.kube, found_jobs, services.now_ms()) if found_jobs else (),
    )


async def jobs_of(services: Services, link: ClusterLink) -> list[Object]:
    """The recovery Jobs of a cluster, in all namespaces that have a pool of it."""
    labels = f"app.kubernetes.io/component={pods.RECOVERY},{CLUSTER_LABEL}={link.ref.cluster}"
    namespaces = sorted({key.namespace for key in services.inventory.pools_of(link.ref)})
    found: list[Object] = []
    for namespace in namespaces:
        for job in await if_allowed(services.kube.listing("Job", namespace, labels=labels), []):
            annotations = job["metadata"].get("annotations") or {}
            if annotations.get(CLUSTER_ANNOTATION) == link.ref.text:
                found.append(job)
    return found


def _observed_job(job: Object, needless_since_ms: int | None = None) -> ObservedJob:
    meta, status = job["metadata"], job.get("status") or {}
    annotations = meta.get("annotations") or {}
    over = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"} & _OVER
    return ObservedJob(
        meta["name"],
        meta["namespace"],
        meta["uid"],
        tuple(key for key in annotations.get(TASKS_ANNOTATION, "").split(",") if key),
        finished=bool(over),
        deleting=bool(meta.get("deletionTimestamp")),
        needless_since_ms=needless_since_ms,
        template=annotations.get(TEMPLATE_ANNOTATION, ""),
        is_ready=bool(status.get("ready")),
    )


def _observed_audit(report: AuditReport | None) -> ObservedAudit | None:
    if report is None:
        return None
    is_clean: Any = report.is_fully_replicated if report.full else not report.found.under_replicated
    return ObservedAudit(report.began_at_ms, report.duration_ms, bool(is_clean), report.found.ledgers)
