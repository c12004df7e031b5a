"""The status of a pool, for people and for `kubectl`: one word, one sentence, each bookie, and conditions.

What is wrong comes before what goes on: the message is that of the first condition that a person should look at.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import Condition, fine, iso, unknown, wrong
from daybook_operator.plan.pool.cluster_settings import CLUSTER_SETTINGS, moves_to
from daybook_operator.plan.pool.delete import READY
from daybook_operator.plan.pool.drain import Draining
from daybook_operator.plan.pool.failures import in_words as failures_in_words
from daybook_operator.plan.pool.growth import Growth
from daybook_operator.plan.pool.move import metadata_record
from daybook_operator.plan.pool.pod import selector
from daybook_operator.plan.pool.replication import Replication
from daybook_operator.plan.pool.roll import PROGRESSING, Rolling
from daybook_operator.plan.pool.topology import Placing, rack_path
from daybook_operator.plan.pool.world import RECOVERY_BLOCKED, PodSeen, PoolWorld
from daybook_operator.plan.quantities import in_words

DISK_PRESSURE: Final = "DiskPressure"
_WORDS_MAX: Final = 400


def ready_condition(world: PoolWorld, troubles: Mapping[BookieId, str]) -> Condition:
    """Ready: everything is made as the spec asks, and every bookie that is expected serves."""
    if failures := failures_in_words(world.failed):
        return wrong(
            READY,
            "StepFailed",
            f"The operator could not carry out a part of its plan: {'; '.join(failures)}",
            next_step="It is tried again by itself, after a pause that grows; nothing else waits for it.",
        )
    if world.refused:
        said = [f"{kind} {name}: {why}" for (kind, name), why in sorted(world.refused.items())]
        return wrong(
            READY,
            "ObjectsRefused",
            f"The API server refuses {'; '.join(said)}",
            next_step="Change what it objects to, in the spec or in a quota or policy; it is tried again by itself.",
        )
    if world.is_stopping:
        return fine(READY, "Hibernated", "The bookies are stopped, as spec.hibernate asks.", status=False)
    away = [ordinal for ordinal in world.expected if world.is_away(ordinal)]
    if not away and world.cluster is None:
        return unknown(
            READY,
            "ZooKeeperUnreachable",
            f"The pods of all {len(world.expected)} bookies run; whether they are registered nobody can tell: "
            f"ZooKeeper of {world.cluster_ref} does not answer: {world.cluster_trouble}",
            next_step="Bring it back; bookies and open ledgers go on meanwhile.",
        )
    if not away:
        return fine(READY, "AllServing", f"All {len(world.expected)} bookies serve.")
    said = [f"{world.bookie(ordinal)}: {why_away(world, ordinal, troubles)}" for ordinal in away]
    return wrong(
        READY,
        "DiskLost" if set(troubles) & {world.bookie(ordinal) for ordinal in away} else "BookiesAway",
        f"{len(away)} of {len(world.expected)} bookies do not serve: {'; '.join(said)}",
        next_step="What a pod waits for is in `kubectl describe pod`, why it ended in `kubectl logs --previous`.",
    )


def why_away(world: PoolWorld, ordinal: int, troubles: Mapping[BookieId, str]) -> str:
    """Why a bookie does not serve, in words."""
    pod = world.pods.get(ordinal)
    if (trouble := troubles.get(world.bookie(ordinal))) is not None:
        return trouble
    if pod is None:
        return "its pod is not there yet"
    if pod.terminating:
        return "its pod stops"
    if not pod.node:
        return f"its pod is not scheduled: {pod.waits_for or 'it waits for a node'}"
    if pod.exit_code is not None:
        return f"it ended with exit code {pod.exit_code}: {pod.last_words[-_WORDS_MAX:] or pod.waits_for or 'without a word'}"
    if world.cluster is None:
        return "nobody knows whether it is registered while ZooKeeper does not answer"
    if not world.is_registered(ordinal):
        if world.bookie(ordinal) not in world.cluster.locations:
            return "it waits to be told where it stands"
        return pod.waits_for or "it starts, or reads its journal"
    return "it is registered, and its pod is not ready yet"


def progressing_condition(world: PoolWorld, rolling: Rolling, draining: Draining) -> Condition:
    """Progressing: something is on its way to what the spec asks."""
    if rolling.condition is not None:
        return rolling.condition
    away = [world.bookie(ordinal) for ordinal in world.expected if world.is_away(ordinal)]
    if away:
        return fine(
            PROGRESSING, "BookiesStarting", f"{', '.join(away)} {'is' if len(away) == 1 else 'are'} to serve."
        )
    if draining.drain is not None:
        return fine(PROGRESSING, "Draining", draining.condition.message)
    return fine(PROGRESSING, "Complete", status=False)


def disk_condition(world: PoolWorld) -> Condition:
    """DiskPressure: some volume is nearly full."""
    bookies = world.cluster.bookies if world.cluster else {}
    used = {
        bookie: 100 - 100 * info.free_bytes // info.capacity_bytes
        for bookie, info in bookies.items()
        if info.capacity_bytes and world.ordinal_of(bookie) is not None
    }
    full = {bookie: used[bookie] for bookie in sorted(used) if used[bookie] >= world.spec.disk.warn_percent}
    if not full:
        return fine(DISK_PRESSURE, "EnoughSpace", status=False)
    said = ", ".join(f"{bookie} ({percent}%)" for bookie, percent in full.items())
    cap = world.spec.bookie_settings.get("STORE_MAP_BYTES")
    is_capped = any(str(bookies[bookie].capacity_bytes) == cap for bookie in full)
    field = "settings.store_map_bytes" if is_capped else "storage.store.size"
    return wrong(
        DISK_PRESSURE,
        "NearlyFull",
        f"The volumes of {said} are nearly full; at {world.spec.disk.read_only_percent}% a bookie is read-only",
        next_step=f"Raise spec.{field}, delete ledgers, or raise spec.replicas: new ledgers go to new bookies.",
        status=True,
    )


def recovery_condition(world: PoolWorld) -> Condition:
    """RecoveryBlocked: Jobs that should mend ledgers are refused, or do not start."""
    if world.cluster is None:
        return unknown(
            RECOVERY_BLOCKED,
            "ZooKeeperUnreachable",
            "What is to be repaired is not known while ZooKeeper does not answer",
            next_step="Bring it back.",
        )
    if not world.cluster.recovery_troubles:
        return fine(RECOVERY_BLOCKED, "NothingInTheWay", status=False)
    return wrong(
        RECOVERY_BLOCKED,
        "JobsDoNotStart",
        f"Recovery cannot go on: {'; '.join(world.cluster.recovery_troubles)}",
        next_step="Change what stands in the way: a quota, a policy, spec.image or spec.recovery.jobTemplate; it is tried "
        "again by itself.",
        status=True,
    )


def phase(
    world: PoolWorld, conditions: Sequence[Condition], *, growing: int, rolling: Rolling, draining: Draining
) -> str:
    """One word for what goes on."""
    ready = next(each for each in conditions if each.type == READY)
    is_new = world.status.get("phase", "Pending") in {"Pending", "Creating"}
    if ready.reason in {"NameTaken", "NotConfigured"}:
        return "Blocked"
    if world.spec.hibernate and world.is_stopping:
        return "Hibernated" if world.is_stopped else "Hibernating"
    if is_new and ready.status is not True:
        return "Creating" if world.stateful_set is not None else "Pending"
    if growing:
        return "Resizing"
    if rolling.roll is not None:
        return "RollingOut"
    if draining.drain is not None:
        return "Draining"
    under_replicated = bool(world.cluster and world.cluster.under_replicated)
    if ready.status is not True or under_replicated:
        return "Degraded"
    return "Hibernating" if world.spec.hibernate else "Running"


def message(conditions: Sequence[Condition]) -> str:
    """What a person should know first."""
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
    world: PoolWorld,
    *,
    replicas: int,
    placing: Placing,
    replication: Replication,
    growth: Growth,
    rolling: Rolling,
    draining: Draining,
    conditions: Sequence[Condition],
    troubles: Mapping[BookieId, str],
    now_ms: int,
) -> dict[str, Any]:
    """Everything but conditions and observedGeneration. An empty map or list is left out: the server makes it null."""
    images = {pod.image for pod in world.pods.values()}
    racks = [rack_path(placing.places[o]) for o in world.expected if o in placing.places]
    own = [b for b in (world.cluster.bookies if world.cluster else ()) if world.ordinal_of(b) is not None]
    waits = [each for each in conditions if each.type != PROGRESSING]
    return {
        "phase": phase(world, conditions, growing=growth.growing, rolling=rolling, draining=draining),
        "message": message([*waits, *(each for each in conditions if each.type == PROGRESSING)]),
        "metadata": metadata_record(
            world.cluster_ref,
            moves_to(world, now_ms),
            world.instance_id,
            world.status.get("metadata") or {},
        ),
        "selector": ",".join(f"{key}={value}" for key, value in sorted(selector(world).items())),
        "replicas": replicas,
        "readyReplicas": sum(pod.ready and not pod.terminating for pod in world.pods.values()),
        "writableReplicas": sum(world.cluster.bookies[b].writable for b in own) if world.cluster else None,
        "updatedReplicas": rolling.updated,
        "currentImage": images.pop() if len(images) == 1 else None,
        "targetImage": world.spec.image or None,
        "rackCount": len(set(racks)),
        "racks": {rack: racks.count(rack) for rack in sorted(set(racks))} or None,
        "bookies": bookie_records(world, placing, draining, troubles, now_ms) or None,
        "rollout": rolling.roll.record(rolling.stage, rolling.message) if rolling.roll is not None else None,
        "drain": draining.drain.record(draining.message) if draining.drain is not None else None,
        "recovery": _recovery(world, replication),
        "storage": _storage(world, growth),
    }


def bookie_records(
    world: PoolWorld, placing: Placing, draining: Draining, troubles: Mapping[BookieId, str], now_ms: int
) -> list[dict[str, Any]]:
    """Each bookie, by ordinal; `since` changes with the state alone."""
    before = {each["id"]: each for each in world.status.get("bookies", ())}
    records = []
    stopped = range(world.present_replicas) if world.is_stopping else ()
    for ordinal in sorted({*world.expected, *world.pods, *stopped}):
        bookie, pod, place = world.bookie(ordinal), world.pods.get(ordinal), placing.places.get(ordinal)
        info = world.cluster.bookies.get(bookie) if world.cluster else None
        state = state_of(world, ordinal, draining, troubles)
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
            if world.serves(ordinal) or world.is_stopping
            else why_away(world, ordinal, troubles),
        }
        if info is not None and info.capacity_bytes:
            record["capacityBytes"] = info.capacity_bytes
            record["usedBytes"] = info.capacity_bytes - info.free_bytes
        if world.cluster is not None and world.cluster.survey.is_whole:
            record["ledgers"] = world.cluster.survey.ledgers_of.get(bookie, 0)
        records.append(record)
    return records


def state_of(world: PoolWorld, ordinal: int, draining: Draining, troubles: Mapping[BookieId, str]) -> str:
    """One word for a bookie."""
    bookie, pod = world.bookie(ordinal), world.pods.get(ordinal)
    if draining.drain is not None and draining.drain.bookie == bookie:
        return "Draining"
    if world.is_stopping:
        return "Stopped"
    if world.cluster is not None:
        info = world.cluster.bookies.get(bookie)
        if info is not None:
            return "Writable" if info.writable else "ReadOnly"
        if bookie in troubles:
            return "DiskLost"
        if bookie in world.cluster.lost:
            return "Lost"
        if bookie in world.cluster.cookies and not _starts(pod):
            return "Away"
        return "Starting"
    return "Away" if world.is_down(ordinal) else "Unknown"


def _starts(pod: PodSeen | None) -> bool:
    return pod is not None and bool(pod.node) and not pod.terminating and pod.exit_code is None


def _recovery(world: PoolWorld, replication: Replication) -> dict[str, Any]:
    """While ZooKeeper does not answer, what it said last; audits of an operator before this one stand until the next."""
    seen = world.cluster
    before: Mapping[str, Any] = world.status.get("recovery", {})
    if seen is None:
        return {**before, **replication.recovery.record()}
    audits = {
        name: before.get(name) for name in ("lastAudit", "lastFullAudit") if not seen.recovery.get(name)
    }
    misplaced = {"misplaced": seen.survey.misplaced_count}
    return {**seen.recovery, **audits, **misplaced, **replication.recovery.record()}


def _storage(world: PoolWorld, growth: Growth) -> dict[str, Any]:
    sizes: dict[str, list[int]] = {"journal": [], "store": []}
    for claim in world.claims.values():
        if claim.role in sizes and claim.capacity_bytes:
            sizes[claim.role].append(claim.capacity_bytes)
    smallest = {f"{role}Size": in_words(min(found)) for role, found in sizes.items() if found}
    return {**smallest, "resizing": growth.growing}
