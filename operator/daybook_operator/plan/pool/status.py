"""The status of a pool, for people and for `kubectl`: one word, one sentence, each bookie, and conditions.

The message is that of the first condition, by importance, that is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import Condition, fine, iso, unknown, wrong
from daybook_operator.plan.pool.cluster_settings import CLUSTER_SETTINGS, metadata_record, moves_to
from daybook_operator.plan.pool.delete import READY
from daybook_operator.plan.pool.drain import Draining
from daybook_operator.plan.pool.growth import Growth
from daybook_operator.plan.pool.observed import RECOVERY_BLOCKED, ObservedPod, ObservedPool
from daybook_operator.plan.pool.parts import in_words as failures_in_words
from daybook_operator.plan.pool.pod import selector
from daybook_operator.plan.pool.replication import Replication
from daybook_operator.plan.pool.roll import PROGRESSING, Rolling
from daybook_operator.plan.pool.topology import Placing, rack_path
from daybook_operator.plan.quantities import in_words

DISK_PRESSURE: Final = "DiskPressure"
_WORDS_MAX: Final = 400


def ready_condition(pool: ObservedPool, why_down: Mapping[BookieId, str]) -> Condition:
    """Ready: everything is made as the spec asks, and every bookie that is expected serves."""
    if failures := failures_in_words(pool.failed):
        return wrong(
            READY,
            "StepFailed",
            f"The operator could not carry out a part of its plan: {'; '.join(failures)}",
            next_step="The operator tries again, after a pause that grows; nothing else waits for it.",
        )
    if pool.refused:
        said = [f"{kind} {name}: {why}" for (kind, name), why in sorted(pool.refused.items())]
        return wrong(
            READY,
            "ObjectsRefused",
            f"The API server refuses {'; '.join(said)}",
            next_step="Correct the spec, the quota or the policy; the operator tries again.",
        )
    if pool.is_stopping:
        return fine(
            READY, "Hibernated", "The bookies are stopped, because spec.hibernate is true.", status=False
        )
    away = [ordinal for ordinal in pool.expected if pool.is_away(ordinal)]
    if not away and pool.cluster is None:
        return unknown(
            READY,
            "ZooKeeperUnreachable",
            f"The pods of all {len(pool.expected)} bookies run; whether they are registered is not known: "
            f"ZooKeeper of {pool.cluster_ref} does not answer: {pool.cluster_error}",
            next_step="Restore ZooKeeper; bookies and open ledgers continue meanwhile.",
        )
    if not away:
        return fine(READY, "AllServing", f"All {len(pool.expected)} bookies serve.")
    said = [f"{pool.bookie(ordinal)}: {why_away(pool, ordinal, why_down)}" for ordinal in away]
    return wrong(
        READY,
        "DiskLost" if set(why_down) & {pool.bookie(ordinal) for ordinal in away} else "BookiesAway",
        f"{len(away)} of {len(pool.expected)} bookies do not serve: {'; '.join(said)}",
        next_step="`kubectl describe pod` shows what a pod waits for, `kubectl logs --previous` why it ended.",
    )


def why_away(pool: ObservedPool, ordinal: int, why_down: Mapping[BookieId, str]) -> str:
    """Why a bookie does not serve."""
    pod = pool.pods.get(ordinal)
    if (reason := why_down.get(pool.bookie(ordinal))) is not None:
        return reason
    if pod is None:
        return "its pod does not exist yet"
    if pod.terminating:
        return "its pod is terminating"
    if not pod.node:
        return f"its pod is not scheduled: {pod.waits_for or 'it waits for a node'}"
    if pod.exit_code is not None:
        return f"it ended with exit code {pod.exit_code}: {pod.last_words[-_WORDS_MAX:] or pod.waits_for or 'without a message'}"
    if pool.cluster is None:
        return "whether it is registered is not known while ZooKeeper does not answer"
    if not pool.is_registered(ordinal):
        if pool.bookie(ordinal) not in pool.cluster.locations:
            return "it waits until the topology in ZooKeeper has its location"
        return pod.waits_for or "it starts, or replays its journal"
    return "it is registered, and its pod is not ready yet"


def progressing_condition(pool: ObservedPool, rolling: Rolling, draining: Draining) -> Condition:
    """Progressing: the pool is being changed to what the spec says."""
    if rolling.condition is not None:
        return rolling.condition
    away = [pool.bookie(ordinal) for ordinal in pool.expected if pool.is_away(ordinal)]
    if away:
        return fine(
            PROGRESSING, "BookiesStarting", f"{', '.join(away)} {'starts' if len(away) == 1 else 'start'}."
        )
    if draining.drain is not None:
        return fine(PROGRESSING, "Draining", draining.condition.message)
    return fine(PROGRESSING, "Complete", status=False)


def disk_condition(pool: ObservedPool) -> Condition:
    """DiskPressure: a volume is nearly full."""
    bookies = pool.cluster.bookies if pool.cluster else {}
    used = {
        bookie: 100 - 100 * info.free_bytes // info.capacity_bytes
        for bookie, info in bookies.items()
        if info.capacity_bytes and pool.ordinal_of(bookie) is not None
    }
    full = {bookie: used[bookie] for bookie in sorted(used) if used[bookie] >= pool.spec.disk.warn_percent}
    if not full:
        return fine(DISK_PRESSURE, "EnoughSpace", status=False)
    said = ", ".join(f"{bookie} ({percent}%)" for bookie, percent in full.items())
    cap = pool.spec.bookie_settings.get("STORE_MAP_BYTES")
    is_capped = any(str(bookies[bookie].capacity_bytes) == cap for bookie in full)
    field = "settings.store_map_bytes" if is_capped else "storage.store.size"
    return wrong(
        DISK_PRESSURE,
        "NearlyFull",
        f"The volumes of {said} are nearly full; at {pool.spec.disk.read_only_percent}% a bookie is read-only",
        next_step=f"Raise spec.{field}, delete ledgers, or raise spec.replicas: new ledgers go to new bookies.",
        status=True,
    )


def recovery_condition(pool: ObservedPool) -> Condition:
    """RecoveryBlocked: recovery Jobs are refused, or do not start."""
    if pool.cluster is None:
        return unknown(
            RECOVERY_BLOCKED,
            "ZooKeeperUnreachable",
            "Which ledgers need repair is not known while ZooKeeper does not answer",
            next_step="Restore ZooKeeper.",
        )
    if not pool.cluster.job_problems:
        return fine(RECOVERY_BLOCKED, "NothingInTheWay", status=False)
    return wrong(
        RECOVERY_BLOCKED,
        "JobsDoNotStart",
        f"Recovery cannot continue: {'; '.join(pool.cluster.job_problems)}",
        next_step="Correct the cause: a quota, a policy, spec.image or spec.recovery.jobTemplate; the operator tries again.",
        status=True,
    )


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
    )
    found = {each.type: each for each in conditions if each.is_wrong}
    return next((found[type_].message for type_ in order if type_ in found), "")


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


def bookie_records(
    pool: ObservedPool, placing: Placing, draining: Draining, why_down: Mapping[BookieId, str], now_ms: int
) -> list[dict[str, Any]]:
    """Each bookie, by ordinal; `since` changes with the state alone."""
    before = {each["id"]: each for each in pool.status.get("bookies", ())}
    records = []
    stopped = range(pool.present_replicas) if pool.is_stopping else ()
    for ordinal in sorted({*pool.expected, *pool.pods, *stopped}):
        bookie, pod, place = pool.bookie(ordinal), pool.pods.get(ordinal), placing.places.get(ordinal)
        info = pool.cluster.bookies.get(bookie) if pool.cluster else None
        state = state_of(pool, ordinal, draining, why_down)
        old = before.get(bookie, {})
        record: dict[str, Any] = {
            "id": bookie,
            "ordinal": ordinal,
            "pod": pod.name if pod else None,
            "node": (pod.node or None) if pod else None,
            "region": (place.region or None) if place else None,
            "zone": (place.zone or None) if place else None,
            "rack": place.rack if place else None,
            "state": state,
            "ready": bool(pod and pod.ready and not pod.terminating),
            "image": (pod.image or None) if pod else None,
            "since": old.get("since") if old.get("state") == state else iso(now_ms),
            "message": None
            if pool.serves(ordinal) or pool.is_stopping
            else why_away(pool, ordinal, why_down),
        }
        if info is not None and info.capacity_bytes:
            record["capacityBytes"] = info.capacity_bytes
            record["usedBytes"] = info.capacity_bytes - info.free_bytes
        if pool.cluster is not None and pool.cluster.survey.is_whole:
            record["ledgers"] = pool.cluster.survey.ledgers_of.get(bookie, 0)
        records.append(record)
    return records


def state_of(pool: ObservedPool, ordinal: int, draining: Draining, why_down: Mapping[BookieId, str]) -> str:
    """One word for a bookie."""
    bookie, pod = pool.bookie(ordinal), pool.pods.get(ordinal)
    if draining.drain is not None and draining.drain.bookie == bookie:
        return "Draining"
    if pool.is_stopping:
        return "Stopped"
    if pool.cluster is not None:
        info = pool.cluster.bookies.get(bookie)
        if info is not None:
            return "Writable" if info.writable else "ReadOnly"
        if bookie in why_down:
            return "DiskLost"
        if bookie in pool.cluster.lost:
            return "Lost"
        if bookie in pool.cluster.cookies and not _starts(pod):
            return "Away"
        return "Starting"
    return "Away" if pool.is_down(ordinal) else "Unknown"


def _starts(pod: ObservedPod | None) -> bool:
    return pod is not None and bool(pod.node) and not pod.terminating and pod.exit_code is None


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
