"""The jobs of a pool on Spark: has their CronJobs made and removed, and notes how their last runs ended.

What one CronJob is refused (a time zone that Kubernetes does not know, a quota) is reported and holds up no other.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from daybook.runtime.logs import get_logger
from daybook_operator.kube.api import REFUSALS, KubeError, Object
from daybook_operator.kube.queue import Key
from daybook_operator.plan.conditions import from_iso
from daybook_operator.plan.decision import is_terminating
from daybook_operator.plan.effects import Apply, Effect, Remove
from daybook_operator.plan.jobs.plan import ObservedJobs, decide_jobs
from daybook_operator.plan.names import POOL_LABEL
from daybook_operator.plan.pods import SPARK
from daybook_operator.plan.pool.spec import cluster_of, spec_of
from daybook_operator.plan.spark_jobs import JobsReport, Run
from daybook_operator.reconcile.job_problems import problems_of
from daybook_operator.reconcile.listing import if_allowed
from daybook_operator.reconcile.performer import EffectError
from daybook_operator.reconcile.services import Services

_LOG: Final = get_logger(__name__)
_LOOK_S: Final = 15.0
"""How often the operator polls a Job that has begun and whose pod is not ready: no event says that it waits."""


class JobsReconciler:
    """Reconciles "Jobs" keys."""

    def __init__(self, services: Services) -> None:
        """Nothing is observed yet."""
        self._services = services

    async def reconcile(self, key: Key) -> float | None:
        """Observe the pool's jobs and carry out their plan; see `queue.Reconcile`."""
        services, kube = self._services, self._services.kube
        pool = await kube.find("BookiePool", key.namespace, key.name)
        if pool is None or is_terminating(pool):
            return None
        defaults = services.pool_defaults
        topics = await kube.listing("Topic", key.namespace, fields=f"spec.poolRef.name={key.name}")
        cron_jobs = await kube.listing("CronJob", key.namespace)
        seen = ObservedJobs(
            pool,
            spec_of(pool, defaults),
            cluster_of(pool, defaults),
            topics,
            cron_jobs,
            operator_speaks_tls=services.settings.speaks_tls,
        )
        plan = decide_jobs(seen, defaults)
        problems = {**plan.problems, **await self._carry_out(plan.effects)}
        labels = f"{POOL_LABEL}={key.name},app.kubernetes.io/component={SPARK}"
        by_cron_job = _by_cron_job(await kube.listing("Job", key.namespace, labels=labels))
        runs: dict[str, Run] = {}
        is_waiting = False
        for name, jobs in by_cron_job.items():
            if (last := last_ended(jobs)) is not None:
                runs[name] = await self._run(last)
            begun = [job for job in jobs if not _end_of(job)]
            is_waiting = is_waiting or any(not (job.get("status") or {}).get("ready") for job in begun)
            if begun and (lines := await problems_of(kube, begun, services.now_ms())):
                problems.setdefault(name, lines[0])
        for changed in services.inventory.note_jobs_report(
            key.namespace, key.name, JobsReport(runs, problems)
        ):
            services.enqueue(changed)
        return _LOOK_S if is_waiting else None

    async def _carry_out(self, effects: Sequence[Effect]) -> dict[str, str]:
        """Carry out each effect; what was refused, by the CronJob's name. Raises EffectError for anything else."""
        refused: dict[str, str] = {}
        for effect in effects:
            try:
                await self._services.performer.perform_all([effect])
            except EffectError as error:
                if not isinstance(error.cause, REFUSALS):
                    raise
                refused[_name_of(effect)] = str(error.cause)
                _LOG.warning("a CronJob was refused", name=_name_of(effect), why=str(error.cause))
        return refused

    async def _run(self, job: Object) -> Run:
        """How a Job ended, with the last words of its driver."""
        meta = job["metadata"]
        end = _end_of(job)
        selector = f"batch.kubernetes.io/job-name={meta['name']}"
        pods = await if_allowed(
            self._services.kube.listing("Pod", meta["namespace"], labels=selector), list[Object]()
        )
        said = last_words(pods) or ("" if end["type"] == "Complete" else str(end.get("message", "")))
        return Run(
            meta["name"],
            from_iso(meta["creationTimestamp"]),
            from_iso(end["lastTransitionTime"]),
            end["type"] == "Complete",
            said,
        )


def last_ended(jobs: Sequence[Object]) -> Object | None:
    """The Job that ended last; None: none has."""
    ended = [job for job in jobs if _end_of(job)]
    return max(ended, key=lambda job: from_iso(_end_of(job)["lastTransitionTime"]), default=None)


def last_words(pods: Sequence[Object]) -> str:
    """What the container that ended last said; "" if none said anything."""
    found: list[tuple[str, str]] = []
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated") or {}
            if ended.get("message"):
                found.append((str(ended.get("finishedAt", "")), str(ended["message"]).strip()))
    return max(found, default=("", ""))[1]


def _end_of(job: Object) -> Mapping[str, Any]:
    """The condition that says that the Job is over; {} while it is not."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    over = (
        each for each in conditions if each["type"] in {"Complete", "Failed"} and each["status"] == "True"
    )
    return next(over, {})


def _by_cron_job(jobs: Sequence[Object]) -> dict[str, list[Object]]:
    """Jobs by the CronJob that owns them: `kubectl create job --from` makes a run of it, too; a Job without an owner is of none."""
    found: dict[str, list[Object]] = {}
    for job in jobs:
        for owner in job["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "CronJob":
                found.setdefault(owner["name"], []).append(job)
    return found


def _name_of(effect: Effect) -> str:
    match effect:
        case Apply(manifest):
            return str(manifest["metadata"]["name"])
        case Remove(ref):
            return ref.name
        case _:
            msg = f"{type(effect).__name__} is about no CronJob"
            raise KubeError(msg)
