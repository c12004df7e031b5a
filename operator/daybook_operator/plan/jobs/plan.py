"""The plan for a pool's CronJobs: those that should be there are applied where they differ, those that nothing names are removed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from daybook_operator.plan.decision import is_paused, is_terminating
from daybook_operator.plan.drift import apply_if_needed
from daybook_operator.plan.effects import ClusterRef, Effect, Manifest, Remove, ref_of
from daybook_operator.plan.jobs.manifests import cron_job, image_of
from daybook_operator.plan.jobs.schedules import scheduled
from daybook_operator.plan.pool.spec import PoolDefaults, PoolSpec

_TAKEN: Final = "a CronJob of this name belongs to somebody else: delete or rename it"


@dataclass(frozen=True, slots=True)
class ObservedJobs:
    """A pool, the Topics that it stores, and all CronJobs of its namespace."""

    pool: Manifest
    spec: PoolSpec
    cluster_ref: ClusterRef
    topics: Sequence[Manifest] = ()
    cron_jobs: Sequence[Manifest] = ()
    operator_speaks_tls: bool = False


@dataclass(frozen=True, slots=True)
class JobsPlan:
    """What to do, and what cannot be done, by the names of CronJobs."""

    effects: tuple[Effect, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)


def decide_jobs(seen: ObservedJobs, defaults: PoolDefaults) -> JobsPlan:
    """What to do about the pool's CronJobs now. Those of a pool that is paused stay as they are. Raises SpecError."""
    if is_terminating(seen.pool) or is_paused(seen.pool):
        return JobsPlan()
    meta = seen.pool["metadata"]
    wanted = scheduled(meta["name"], seen.spec.jobs, seen.topics, hibernates=seen.spec.hibernate)
    live = {each["metadata"]["name"]: each for each in seen.cron_jobs if _is_own(seen, each)}
    names = {each.name for each in wanted}
    removals = [Remove(ref_of(found)) for name, found in sorted(live.items()) if name not in names]
    problem = _why_none(seen, defaults)
    if problem:
        return JobsPlan(tuple(removals), dict.fromkeys(sorted(names), problem))
    taken = {each["metadata"]["name"] for each in seen.cron_jobs} - live.keys()
    effects: list[Effect] = []
    for each in wanted:
        if each.name in taken:
            continue
        manifest = cron_job(
            seen.pool,
            seen.spec,
            seen.cluster_ref,
            each,
            defaults,
            operator_speaks_tls=seen.operator_speaks_tls,
        )
        effects += apply_if_needed(manifest, live.get(each.name))
    return JobsPlan((*removals, *effects), dict.fromkeys(sorted(names & taken), _TAKEN))


def _why_none(seen: ObservedJobs, defaults: PoolDefaults) -> str:
    """Why no CronJob can be made; "" if they can."""
    if not image_of(seen.spec, defaults):
        return "neither spec.jobs.image nor the operator's settings name the image of Spark"
    return "" if seen.cluster_ref.zookeeper else "the pool names no ZooKeeper"


def _is_own(seen: ObservedJobs, found: Manifest) -> bool:
    """Whether the pool, and not a former one of its name, controls the CronJob."""
    uid = seen.pool["metadata"]["uid"]
    owners = found["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == uid for owner in owners)
