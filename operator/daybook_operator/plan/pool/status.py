"""The status of a pool, for people and for `kubectl`: one word, one sentence, each bookie, and counts.

The message is that of the first condition, by importance, that is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import Condition
from daybook_operator.plan.pool.bookies import bookie_records
from daybook_operator.plan.pool.cluster_settings import CLUSTER_SETTINGS, metadata_record, moves_to
from daybook_operator.plan.pool.delete import READY
from daybook_operator.plan.pool.drain import Draining
from daybook_operator.plan.pool.growth import Growth
from daybook_operator.plan.pool.health import DISK_PRESSURE
from daybook_operator.plan.pool.jobs_health import AUDIT_HEALTHY, RETENTION_HEALTHY
from daybook_operator.plan.pool.observed import RECOVERY_BLOCKED, ObservedPool
from daybook_operator.plan.pool.pod import selector
from daybook_operator.plan.pool.replication import Replication
from daybook_operator.plan.pool.roll import PROGRESSING, Rolling
from daybook_operator.plan.pool.topology import Placing, rack_path
from daybook_operator.plan.quantities import in_words


def status_of(
    pool: ObservedPool,
    *,
    replicas: int,
    placing: Placing,
    replication: Replication,
    growth: Growth,
    rolling: Rolling,
    draining: Draining,
    conditions: Sequence[Condition],
    why_down: Mapping[BookieId, str],
    now_ms: int,
) -> dict[str, Any]:
    """Everything but conditions and observedGeneration. An empty map or list is left out: the server makes it null."""
    images = {pod.image for pod in pool.pods.values()}
    racks = [rack_path(placing.places[o]) for o in pool.expected if o in placing.places]
    own = [b for b in (pool.cluster.bookies if pool.cluster else ()) if pool.ordinal_of(b) is not None]
    waits = [each for each in conditions if each.type != PROGRESSING]
    return {
        "phase": phase(pool, conditions, growing=growth.growing, rolling=rolling, draining=draining),
        "message": message([*waits, *(each for each in conditions if each.type == PROGRESSING)]),
        "metadata": metadata_record(
            pool.cluster_ref,
            moves_to(pool, now_ms),
            pool.instance_id,
            pool.status.get("metadata") or {},
        ),
        "selector": ",".join(f"{key}={value}" for key, value in sorted(selector(pool).items())),
        "replicas": replicas,
        "readyReplicas": sum(pod.ready and not pod.terminating for pod in pool.pods.values()),
        "writableReplicas": sum(pool.cluster.bookies[b].writable for b in own) if pool.cluster else None,
        "updatedReplicas": rolling.updated,
        "currentImage": images.pop() if len(images) == 1 else None,
        "targetImage": pool.spec.image or None,
        "rackCount": len(set(racks)),
        "racks": {rack: racks.count(rack) for rack in sorted(set(racks))} or None,
        "bookies": bookie_records(pool, placing, draining, why_down, now_ms) or None,
        "rollout": rolling.roll.record(rolling.stage, rolling.message) if rolling.roll is not None else None,
        "drain": draining.drain.record(draining.message) if draining.drain is not None else None,
        "recovery": _recovery(pool, replication),
        "storage": _storage(pool, growth),
    }


def phase(
    pool: ObservedPool, conditions: Sequence[Condition], *, growing: int, rolling: Rolling, draining: Draining
) -> str:
    """One word for the state of the pool."""
    ready = next(each for each in conditions if each.type == READY)
    is_new = pool.status.get("phase", "Pending") in {"Pending", "Creating"}
    if ready.reason in {"NameTaken", "NotConfigured"}:
        return "Blocked"
    if pool.spec.hibernate and pool.is_stopping:
        return "Hibernated" if pool.is_stopped else "Hibernating"
    if is_new and ready.status is not True:
        return "Creating" if pool.stateful_set is not None else "Pending"
    if growing:
        return "Resizing"
    if rolling.roll is not None:
        return "RollingOut"
    if draining.drain is not None:
        return "Draining"
    under_replicated = bool(pool.cluster and pool.cluster.under_replicated)
    if ready.status is not True or under_replicated:
        return "Degraded"
    return "Hibernating" if pool.spec.hibernate else "Running"


def message(conditions: Sequence[Condition]) -> str:
    """The message of the most important condition that is wrong; "" if none is."""
    order = (
        READY,
        "StorageResizing",
        "FullyReplicated",
        RECOVERY_BLOCKED,
        "RackPlacementSatisfied",
        "Draining",
        PROGRESSING,
        "Hibernated",
        DISK_PRESSURE,
        CLUSTER_SETTINGS,
        RETENTION_HEALTHY,
        AUDIT_HEALTHY,
    )
    found = {each.type: each for each in conditions if each.is_wrong}
    return next((found[type_].message for type_ in order if type_ in found), "")


def _recovery(pool: ObservedPool, replication: Replication) -> dict[str, Any]:
    """While ZooKeeper does not answer, the last known record; audits of a former operator stay until the next audit."""
    cluster = pool.cluster
    before: Mapping[str, Any] = pool.status.get("recovery", {})
    if cluster is None:
        return {**before, **replication.recovery.record()}
    audits = {
        name: before.get(name) for name in ("lastAudit", "lastFullAudit") if not cluster.recovery.get(name)
    }
    misplaced = {"misplaced": cluster.survey.misplaced_count}
    return {**cluster.recovery, **audits, **misplaced, **replication.recovery.record()}


def _storage(pool: ObservedPool, growth: Growth) -> dict[str, Any]:
    sizes: dict[str, list[int]] = {"journal": [], "store": []}
    for claim in pool.claims.values():
        if claim.role in sizes and claim.capacity_bytes:
            sizes[claim.role].append(claim.capacity_bytes)
    smallest = {f"{role}Size": in_words(min(found)) for role, found in sizes.items() if found}
    return {**smallest, "resizing": growth.growing}
