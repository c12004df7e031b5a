"""Why recovery Jobs that were made do not start, in Kubernetes' own words.

A Job that the API server accepted may still never run: a quota, a policy or a missing account keeps its pod from being
made, which only the Job's events report; or no node takes the pod, or its image cannot be pulled, which the pod reports.
"""

from collections.abc import Sequence
from typing import Final

from daybook_operator.kube.api import Kube, Object
from daybook_operator.plan.conditions import from_iso
from daybook_operator.reconcile.listing import if_allowed
from daybook_operator.reconcile.pool_objects import waits_for

START_MS: Final = 15_000
"""How long a pod may take to be scheduled and to pull its image: a younger Job is no problem."""
_REPORTED_MAX: Final = 3
"""Mostly all Jobs wait for the same."""
_OVER: Final = {"Complete", "Failed"}


async def problems_of(kube: Kube, jobs: Sequence[Object], now_ms: int) -> tuple[str, ...]:
    """A line for each of the first few Jobs that do not start. Raises KubeError."""
    waiting = [job for job in jobs if _is_waiting(job)]
    found = [await _problem(kube, job, now_ms) for job in waiting[:_REPORTED_MAX]]
    return tuple(line for line in found if line)


def _is_waiting(job: Object) -> bool:
    status = job.get("status") or {}
    is_over = any(each["type"] in _OVER and each["status"] == "True" for each in status.get("conditions", ()))
    return not (is_over or status.get("ready") or job["metadata"].get("deletionTimestamp"))


async def _problem(kube: Kube, job: Object, now_ms: int) -> str:
    meta = job["metadata"]
    namespace, name = meta["namespace"], meta["name"]
    pods = await kube.listing("Pod", namespace, labels=f"batch.kubernetes.io/job-name={name}")
    words = next(filter(None, map(waits_for, pods)), "")
    if pods and now_ms - from_iso(meta["creationTimestamp"]) < START_MS:
        return ""
    if not pods:
        words = await _last_warning(kube, namespace, meta["uid"])
    return f"Job {namespace}/{name}: {words}" if words else ""


async def _last_warning(kube: Kube, namespace: str, uid: str) -> str:
    selector = f"involvedObject.uid={uid},type=Warning"
    events = await if_allowed(kube.listing("Event", namespace, fields=selector), [])
    last = max(
        events, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""), default={}
    )
    return str(last.get("message", ""))
