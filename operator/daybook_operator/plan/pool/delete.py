"""What the deletion of a pool removes, by its reclaimPolicy.

Retain removes the finalizer at once: the pods go with the StatefulSet, and volumes, cookies and locations stay for a pool
of the same name that is made again. Delete destroys them, but only when no ledger names a bookie of the pool any more:
such a ledger would be damaged, and a new pool of that name could never start. Until then everything keeps running. Nor
is a pool that is paused deleted before the pause ends, whatever its policy. A namespace that terminates is not held for
longer than the operator's settings allow.
"""

from dataclasses import replace
from typing import Any, Final

from daybook_operator.plan.conditions import Condition, wrong
from daybook_operator.plan.decision import Decision, finish, is_paused, paused
from daybook_operator.plan.effects import (
    DeleteCookie,
    Effect,
    PatchMeta,
    Propagation,
    Ref,
    Remove,
    SetLocations,
)
from daybook_operator.plan.finalizers import (
    FinalizerRules,
    has_finalizer,
    must_release,
    must_release_after_s,
)
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool.observed import REPAIR_LEDGER, ObservedPool

READY: Final = "Ready"
RECONCILE_S: Final = 5.0


def deletion(pool: ObservedPool, now_ms: int) -> Decision:
    """The next step of a pool that was deleted."""
    if not has_finalizer(pool.manifest):
        return Decision()
    rules = FinalizerRules(pool.defaults.uses_finalizers, pool.defaults.finalizer_bound_ms)
    overdue = must_release(
        pool.manifest, namespace_is_terminating=pool.namespace_is_terminating, rules=rules, now_ms=now_ms
    )
    release = PatchMeta(pool.ref, remove_finalizer=FINALIZER)
    if is_paused(pool.manifest) and not overdue:
        again_s = (
            must_release_after_s(pool.manifest, rules, now_ms) if pool.namespace_is_terminating else None
        )
        return replace(paused(pool.ref, pool.manifest, now_ms), requeue_after_s=again_s)
    if (pool.spec.reclaim_policy == "Retain" or overdue) and not pool.failed:
        return Decision((release,))
    if (blocked := _failure(pool) or _blocked(pool)) is not None:
        return _report(pool, [], blocked, now_ms)
    effects = _destruction(pool)
    if not effects:
        return Decision((release,))
    waiting = wrong(
        READY,
        "Deleting",
        "The bookies stop, then their volumes are deleted, as reclaimPolicy Delete says",
        next_step="No action is needed.",
    )
    return _report(pool, effects, waiting, now_ms)


def _failure(pool: ObservedPool) -> Condition | None:
    if not pool.failed:
        return None
    return wrong(
        READY,
        "DeletionFailed",
        f"A step of the deletion could not be carried out: {'; '.join(pool.failed.values())}",
        next_step=f"The operator tries again; the finalizer {FINALIZER} holds the pool until then.",
    )


def _blocked(pool: ObservedPool) -> Condition | None:
    if pool.cluster is None:
        return wrong(
            READY,
            "DeletionBlocked",
            f"ZooKeeper of {pool.cluster_ref} does not answer, so whether ledgers need this pool is not known",
            next_step="Restore ZooKeeper, or set spec.reclaimPolicy to Retain to delete the pool without its volumes.",
        )
    if pool.cluster.survey.why_unreadable:
        return wrong(
            READY,
            "DeletionBlocked",
            f"Whether ledgers need this pool is not known: {pool.cluster.survey.why_unreadable}",
            next_step=f"{REPAIR_LEDGER} Or set spec.reclaimPolicy to Retain to delete the pool without its volumes.",
        )
    if not pool.cluster.survey.is_whole:
        return wrong(
            READY,
            "DeletionBlocked",
            f"The ledgers' metadata is being read, {pool.cluster.survey.ledgers} so far, to see whether one needs this pool",
            next_step="No action is needed.",
        )
    naming = {
        bookie: count
        for bookie, count in pool.cluster.survey.ledgers_of.items()
        if count and pool.ordinal_of(bookie) is not None
    }
    if not naming:
        return None
    worst = max(sorted(naming), key=lambda bookie: naming[bookie])
    return wrong(
        READY,
        "DeletionBlocked",
        f"{naming[worst]} ledgers name {worst}, and reclaimPolicy Delete would destroy what they hold",
        next_step="Delete the topics that they belong to (`daybook topic list`, `daybook topic delete`), then what is left "
        "(`daybook ledger list`, `daybook ledger delete`), or set spec.reclaimPolicy to Retain.",
    )


def _destruction(pool: ObservedPool) -> list[Effect]:
    """What is removed next: the StatefulSet; then, once no pod is left, cookies, locations and volumes."""
    assert pool.cluster is not None
    if pool.stateful_set is not None:
        ref = Ref("apps/v1", "StatefulSet", pool.namespace, pool.name, pool.stateful_set.uid)
        return [Remove(ref, Propagation.FOREGROUND)]
    if pool.pods:
        return [
            Remove(Ref("v1", "Pod", pool.namespace, pod.name, pod.uid))
            for _, pod in sorted(pool.pods.items())
        ]
    effects: list[Effect] = []
    effects += [
        DeleteCookie(pool.cluster_ref, bookie)
        for bookie in sorted(pool.cluster.cookies)
        if pool.ordinal_of(bookie) is not None
    ]
    places = {b: None for b in sorted(pool.cluster.locations) if pool.ordinal_of(b) is not None}
    if places:
        effects.append(SetLocations(pool.cluster_ref, places))
    effects += [
        Remove(Ref("v1", "PersistentVolumeClaim", pool.namespace, claim.name, claim.uid))
        for _, claim in sorted(pool.claims.items())
        if not claim.terminating
    ]
    return effects


def _report(pool: ObservedPool, effects: list[Effect], condition: Condition, now_ms: int) -> Decision:
    """The status of a pool that is being deleted: what it said before, but for Ready."""
    status: dict[str, Any] = {
        k: v for k, v in pool.status.items() if k not in {"conditions", "observedGeneration"}
    }
    status |= {"phase": "Deleting", "message": condition.message}
    return finish(
        pool.ref,
        pool.manifest,
        effects=effects,
        status=status,
        conditions=[condition],
        now_ms=now_ms,
        requeue_after_s=RECONCILE_S,
    )
