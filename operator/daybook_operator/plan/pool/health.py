"""Conditions that no step of the plan makes: whether the bookies serve, whether the pool changes, its disks, its recovery Jobs."""

from collections.abc import Mapping
from typing import Final

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import Condition, fine, unknown, wrong
from daybook_operator.plan.pool.bookies import why_away
from daybook_operator.plan.pool.delete import READY
from daybook_operator.plan.pool.drain import Draining
from daybook_operator.plan.pool.observed import RECOVERY_BLOCKED, ObservedPool
from daybook_operator.plan.pool.parts import in_words as failures_in_words
from daybook_operator.plan.pool.roll import PROGRESSING, Rolling

DISK_PRESSURE: Final = "DiskPressure"


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
            next_step="Correct the spec, the quota, the policy or the webhook; the operator tries again.",
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
        next_step="Correct the cause: a quota, a policy, a webhook, spec.image or spec.recovery.jobTemplate; the operator tries again.",
        status=True,
    )
