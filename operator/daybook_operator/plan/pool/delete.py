"""What the deletion of a pool takes with it, by its reclaimPolicy.

Retain lets it go at once: the pods go with the StatefulSet, and volumes, cookies and places stay for a pool of the same
name that is made again. Delete destroys: only when no ledger names a bookie of the pool any more, because such a ledger
would be damaged, and a new pool of that name could never start; until then everything runs on. A namespace that
terminates is not held for longer than the operator's settings allow.
"""

from typing import Any, Final

from daybook_operator.plan.conditions import Condition, wrong
from daybook_operator.plan.decision import Decision, finish
from daybook_operator.plan.effects import (
    DeleteCookie,
    Effect,
    PatchMeta,
    Propagation,
    Ref,
    Remove,
    SetLocations,
)
from daybook_operator.plan.finalizers import FinalizerRules, has_finalizer, must_let_go
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool.world import MEND_LEDGER, PoolWorld

READY: Final = "Ready"
LOOK_S: Final = 5.0


def deletion(world: PoolWorld, now_ms: int) -> Decision:
    """The next step of a pool that was deleted."""
    if not has_finalizer(world.manifest):
        return Decision()
    rules = FinalizerRules(world.defaults.uses_finalizers, world.defaults.finalizer_bound_ms)
    overdue = must_let_go(
        world.manifest, namespace_is_terminating=world.namespace_is_terminating, rules=rules, now_ms=now_ms
    )
    release = PatchMeta(world.ref, remove_finalizer=FINALIZER)
    if (world.spec.reclaim_policy == "Retain" or overdue) and not world.failed:
        return Decision((release,))
    if (blocked := _failure(world) or _blocked(world)) is not None:
        return _report(world, [], blocked, now_ms)
    effects = _destruction(world)
    if not effects:
        return Decision((release,))
    waiting = wrong(
        READY,
        "Deleting",
        "The bookies stop, then their volumes go, as reclaimPolicy Delete says",
        next_step="Nothing is to do.",
    )
    return _report(world, effects, waiting, now_ms)


def _failure(world: PoolWorld) -> Condition | None:
    if not world.failed:
        return None
    return wrong(
        READY,
        "DeletionFailed",
        f"A step of the deletion could not be carried out: {'; '.join(world.failed.values())}",
        next_step=f"It is tried again by itself; the finalizer {FINALIZER} holds the pool until then.",
    )


def _blocked(world: PoolWorld) -> Condition | None:
    if world.cluster is None:
        return wrong(
            READY,
            "DeletionBlocked",
            f"ZooKeeper of {world.cluster_ref} does not answer, so nobody knows whether ledgers need this pool",
            next_step="Bring ZooKeeper back, or set spec.reclaimPolicy to Retain to let the pool go without its volumes.",
        )
    if world.cluster.survey.why_unreadable:
        return wrong(
            READY,
            "DeletionBlocked",
            f"Nobody knows whether ledgers need this pool: {world.cluster.survey.why_unreadable}",
            next_step=f"{MEND_LEDGER} Or set spec.reclaimPolicy to Retain to let the pool go without its volumes.",
        )
    if not world.cluster.survey.is_whole:
        return wrong(
            READY,
            "DeletionBlocked",
            f"The ledgers' metadata is being read, {world.cluster.survey.ledgers} so far, to see whether one needs this pool",
            next_step="Nothing is to do: it goes on by itself.",
        )
    naming = {
        bookie: count
        for bookie, count in world.cluster.survey.ledgers_of.items()
        if count and world.ordinal_of(bookie) is not None
    }
    if not naming:
        return None
    worst = max(sorted(naming), key=lambda bookie: naming[bookie])
    return wrong(
        READY,
        "DeletionBlocked",
        f"{naming[worst]} ledgers name {worst}, and reclaimPolicy Delete would destroy what they hold",
        next_step="Delete them (`daybook ledger list`, `daybook ledger delete`), or set spec.reclaimPolicy to Retain.",
    )


def _destruction(world: PoolWorld) -> list[Effect]:
    """What is to go next: the StatefulSet, then, once no pod is left, identities, places and volumes."""
    assert world.cluster is not None
    if world.stateful_set is not None:
        ref = Ref("apps/v1", "StatefulSet", world.namespace, world.name, world.stateful_set.uid)
        return [Remove(ref, Propagation.FOREGROUND)]
    if world.pods:
        return [
            Remove(Ref("v1", "Pod", world.namespace, pod.name, pod.uid))
            for _, pod in sorted(world.pods.items())
        ]
    effects: list[Effect] = []
    effects += [
        DeleteCookie(world.cluster_ref, bookie)
        for bookie in sorted(world.cluster.cookies)
        if world.ordinal_of(bookie) is not None
    ]
    places = {b: None for b in sorted(world.cluster.locations) if world.ordinal_of(b) is not None}
    if places:
        effects.append(SetLocations(world.cluster_ref, places))
    effects += [
        Remove(Ref("v1", "PersistentVolumeClaim", world.namespace, claim.name, claim.uid))
        for _, claim in sorted(world.claims.items())
        if not claim.terminating
    ]
    return effects


def _report(world: PoolWorld, effects: list[Effect], condition: Condition, now_ms: int) -> Decision:
    """The status of a pool that is going: what it said before, but for Ready."""
    status: dict[str, Any] = {
        k: v for k, v in world.status.items() if k not in {"conditions", "observedGeneration"}
    }
    status |= {"phase": "Deleting", "message": condition.message}
    return finish(
        world.ref,
        world.manifest,
        effects=effects,
        status=status,
        conditions=[condition],
        now_ms=now_ms,
        requeue_after_s=LOOK_S,
    )
