"""The plan for a Ledger resource: create its ledger once, mirror it, seal it, and give it up when the resource goes.

The ledger is bound to the resource's UID in the transaction that creates it, so a reconcile that died after it finds it
again and creates no second one. An ensemble is drawn from the pool's bookies by rack and zone, as a function of that UID,
so that a plan made twice draws the same.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import password_key
from daybook.core.placement.policies import make_policy
from daybook.core.quorum import Quorum
from daybook_operator.plan.conditions import Condition, unknown, wrong
from daybook_operator.plan.decision import Decision, finish, is_paused, is_terminating, paused, sooner
from daybook_operator.plan.draws import Draws
from daybook_operator.plan.effects import (
    AdoptLedger,
    CreateLedger,
    DeleteLedger,
    Effect,
    EventType,
    ForgetRequest,
    PatchMeta,
    Report,
    SealLedger,
)
from daybook_operator.plan.finalizers import has_finalizer, lets_go_after_s, must_let_go
from daybook_operator.plan.ledger.status import READY, conditions_of, message_of, mirror
from daybook_operator.plan.ledger.world import LedgerInCluster, LedgerWorld
from daybook_operator.plan.names import CLUSTER_ANNOTATION, FINALIZER

SOON_S: Final = 0.0
UNAVAILABLE_S: Final = 5.0
WAITING_S: Final = 30.0
AUDIT_S: Final = 5.0
RESOURCE_KEY: Final = "daybook.dev/resource"
"""In the ledger's custom metadata: which resource it was created for."""


def decide(world: LedgerWorld, now_ms: int) -> Decision:
    """What to do about the resource now."""
    if is_terminating(world.manifest):
        return _let_it_go(world, now_ms)
    if is_paused(world.manifest):
        return paused(world.ref, world.manifest, now_ms)
    if world.failure is not None:
        return _tell_failure(world, now_ms)
    seen = world.cluster
    if world.cluster_ref is None or (seen is None and world.cluster_ref is not None):
        return _wait(world, now_ms)
    assert seen is not None
    claim = _claim(world)
    if seen.ledger_id is None:
        return _create(world, seen, claim, now_ms)
    if seen.metadata is None:
        return _gone(world, now_ms)
    return _look_after(world, seen, claim, now_ms)


def _claim(world: LedgerWorld) -> tuple[Effect, ...]:
    """The finalizer, where finalizers are used, and the note of where the ledger is; before anything is created."""
    meta = world.manifest["metadata"]
    assert world.cluster_ref is not None
    there = world.cluster_ref.text
    noted = (meta.get("annotations") or {}).get(CLUSTER_ANNOTATION)
    patch = PatchMeta(world.ref)
    if noted != there:
        patch = replace(patch, annotations={CLUSTER_ANNOTATION: there})
    if world.finalizers.used and not has_finalizer(world.manifest):
        patch = replace(patch, add_finalizer=FINALIZER)
    elif not world.finalizers.used and has_finalizer(world.manifest):
        patch = replace(patch, remove_finalizer=FINALIZER)
    return () if patch == PatchMeta(world.ref) else (patch,)


# Before it is there.


def _wait(world: LedgerWorld, now_ms: int) -> Decision:
    """Nothing can be done: there is no pool, or ZooKeeper does not answer. What is known stays in the status."""
    if world.cluster_ref is None and world.pool is None:
        condition = wrong(
            READY,
            "PoolNotFound",
            f"There is no BookiePool {world.pool_name} in this namespace",
            next_step="Create it, or delete this Ledger and name another pool.",
        )
    elif world.cluster_ref is None:
        condition = wrong(
            READY,
            "PoolWithoutCluster",
            f"BookiePool {world.pool_name} does not say which ZooKeeper it uses",
            next_step="Set its spec.metadata.zookeeper, or the operator's own default.",
        )
    else:
        condition = unknown(
            READY,
            "MetadataUnavailable",
            world.cluster_trouble or f"ZooKeeper at {world.cluster_ref.zookeeper} does not answer",
            next_step="Writers that are attached go on meanwhile; see that ZooKeeper runs.",
        )
    return _finish(world, (), _kept(world), [condition], now_ms, UNAVAILABLE_S)


def _create(world: LedgerWorld, seen: LedgerInCluster, claim: tuple[Effect, ...], now_ms: int) -> Decision:
    assert world.cluster_ref is not None
    if world.pool is None:
        return _wait(replace(world, cluster_ref=None), now_ms)
    if world.password is None:
        return _wait_for_password(world, claim, now_ms)
    spec = world.spec
    if spec.ledger_id is not None:
        return _adopt(world, seen, spec.ledger_id, world.password, claim, now_ms)
    quorum = Quorum(spec.ensemble_size, spec.write_quorum, spec.ack_quorum)
    candidates = {bookie: info for bookie, info in seen.bookies.items() if world.is_of_pool(bookie)}
    candidates = {bookie: info for bookie, info in candidates.items() if bookie in seen.registered}
    try:
        ensemble = make_policy(world.placement).choose(quorum, candidates, Draws(world.uid))
    except NotEnoughBookiesError as error:
        condition = wrong(
            READY,
            "NotEnoughBookies",
            f"No ensemble can be chosen of BookiePool {world.pool_name}: {error}",
            next_step="It is created as soon as there is one.",
        )
        return _finish(world, claim, {"state": "Pending"}, [condition], now_ms, WAITING_S)
    meta = world.manifest["metadata"]
    custom = {name: text.encode() for name, text in sorted(spec.custom_metadata.items())}
    custom[RESOURCE_KEY] = f"{meta['namespace']}/{meta['name']}".encode()
    create = CreateLedger(
        world.cluster_ref,
        world.uid,
        ensemble,
        quorum.write_quorum,
        quorum.ack_quorum,
        custom,
        world.password,
    )
    told = Report(world.ref, EventType.NORMAL, "Creating", f"Creating a ledger on {', '.join(ensemble)}")
    return Decision((*claim, told, create), SOON_S)  # the next look finds it and says so


def _adopt(
    world: LedgerWorld,
    seen: LedgerInCluster,
    ledger_id: LedgerId,
    password: bytes,
    claim: tuple[Effect, ...],
    now_ms: int,
) -> Decision:
    """Bind a ledger that exists. Who may create this resource may have it sealed and deleted: the password is asked for."""
    assert world.cluster_ref is not None
    adoptee = seen.adoptee
    if adoptee is None:
        condition = wrong(
            READY,
            "LedgerNotFound",
            f"There is no ledger {ledger_id} in cluster {world.cluster_ref}",
            next_step="Create another Ledger with the id of one that is there (`daybook ledger list`).",
        )
        return _finish(world, claim, {"state": "Pending"}, [condition], now_ms, WAITING_S)
    if password_key(password, adoptee.value.password_hash) != adoptee.value.password_hash:
        condition = wrong(
            READY,
            "WrongPassword",
            f"The password is not that of ledger {ledger_id}",
            next_step="Create another Ledger whose passwordSecretRef names a Secret with it.",
        )
        return _finish(world, claim, {"state": "Pending"}, [condition], now_ms, WAITING_S)
    told = Report(world.ref, EventType.NORMAL, "Adopting", f"Ledger {ledger_id} stands for this resource")
    return Decision((*claim, told, AdoptLedger(world.cluster_ref, world.uid, adoptee)), SOON_S)


def _wait_for_password(world: LedgerWorld, claim: tuple[Effect, ...], now_ms: int) -> Decision:
    ref = world.spec.password_secret_ref
    assert ref is not None, "without one the password is empty"
    condition = wrong(
        READY,
        "PasswordNotReadable",
        f"The ledger's password cannot be read: {world.password_trouble}",
        next_step=f"Create Secret {ref.name} with that key, and let the operator read it (the chart's "
        "operator.passwordSecrets); the ledger is created then.",
    )
    return _finish(world, claim, {"state": "Pending"}, [condition], now_ms, WAITING_S)


# While it is there.


def _look_after(
    world: LedgerWorld, seen: LedgerInCluster, claim: tuple[Effect, ...], now_ms: int
) -> Decision:
    assert seen.metadata is not None
    assert world.cluster_ref is not None
    metadata = seen.metadata.value
    if world.spec.seal and not metadata.is_closed:
        told = Report(world.ref, EventType.NORMAL, "Sealing", f"Closing ledger {metadata.ledger_id} for good")
        return Decision((*claim, told, SealLedger(world.cluster_ref, metadata.ledger_id)), SOON_S)
    again_s = None if seen.audited else AUDIT_S
    return _finish(world, claim, mirror(world, seen), conditions_of(world, seen), now_ms, again_s)


def _gone(world: LedgerWorld, now_ms: int) -> Decision:
    assert world.cluster is not None
    condition = wrong(
        READY,
        "LedgerGone",
        f"Ledger {world.cluster.ledger_id} was deleted in ZooKeeper by somebody else",
        next_step="Delete this Ledger; create another if one is needed.",
    )
    return _finish(world, (), _kept(world), [condition], now_ms)


def _tell_failure(world: LedgerWorld, now_ms: int) -> Decision:
    """The plan was made, and one of its effects could not be carried out: say so; it is tried again after a pause."""
    failure, seen = world.failure, world.cluster
    assert failure is not None
    if seen is not None and seen.metadata is not None and failure.effect == "SealLedger":
        return _finish(world, (), mirror(world, seen), conditions_of(world, seen), now_ms)
    condition = wrong(
        READY, f"{failure.effect}Failed", failure.message, next_step="It is tried again by itself."
    )
    return _finish(world, (), _kept(world), [condition], now_ms)


# When the resource goes.


def _let_it_go(world: LedgerWorld, now_ms: int) -> Decision:
    """Carry the deletion through in ZooKeeper, then take the finalizer off; see `finalizers` for when that cannot wait."""
    if not has_finalizer(world.manifest):
        return Decision()
    off = PatchMeta(world.ref, remove_finalizer=FINALIZER)
    forced = must_let_go(
        world.manifest,
        namespace_is_terminating=world.namespace_is_terminating,
        rules=world.finalizers,
        now_ms=now_ms,
    )
    if forced:
        return Decision((Report(world.ref, EventType.WARNING, "LeftBehind", _left_behind(world)), off))
    again_s = (
        lets_go_after_s(world.manifest, world.finalizers, now_ms) if world.namespace_is_terminating else None
    )
    if is_paused(world.manifest):
        return replace(paused(world.ref, world.manifest, now_ms), requeue_after_s=again_s)
    if world.cluster_ref is None:
        return Decision((off,))  # it never had a ledger: nobody knew where
    if world.failure is not None or world.cluster is None:
        return _deletion_waits(world, now_ms, again_s)
    return Decision((*_give_up(world, world.cluster), off))


def _give_up(world: LedgerWorld, seen: LedgerInCluster) -> tuple[Effect, ...]:
    """By the reclaim policy; then nothing ties the ledger to the resource any more."""
    if seen.ledger_id is None or world.cluster_ref is None:
        return ()
    forget = ForgetRequest(world.cluster_ref, world.uid)
    if world.spec.reclaim_policy == "Delete":
        said = Report(world.ref, EventType.NORMAL, "Deleted", f"Ledger {seen.ledger_id} is deleted")
        return (DeleteLedger(world.cluster_ref, seen.ledger_id), forget, said)
    said = Report(
        world.ref,
        EventType.NORMAL,
        "Retained",
        f"Ledger {seen.ledger_id} stays in cluster {world.cluster_ref}, by reclaimPolicy Retain",
    )
    return (forget, said)


def _deletion_waits(world: LedgerWorld, now_ms: int, again_s: float | None) -> Decision:
    why = world.failure.message if world.failure is not None else world.cluster_trouble
    condition = wrong(
        READY,
        "DeletionWaits",
        f"The ledger cannot be given up yet: {why or 'ZooKeeper does not answer'}",
        next_step="It is tried again by itself; if ZooKeeper is gone for good, remove the finalizer "
        f"{FINALIZER} from this Ledger by hand.",
    )
    status = {**_kept(world), "state": "Deleting"}
    return _finish(world, (), status, [condition], now_ms, sooner(again_s, UNAVAILABLE_S))


def _left_behind(world: LedgerWorld) -> str:
    known = world.status.get("ledgerId")
    where = world.cluster_ref or "its cluster"
    what = f"Ledger {known}" if known is not None else "A ledger that may have been created"
    return (
        f"{what} and its request {world.uid} are left behind in {where}, because the namespace terminates and they "
        f"could not be given up within {world.finalizers.bound_ms / 1000:g} s: delete the ledger with `daybook ledger delete`"
    )


# Together.


def _kept(world: LedgerWorld) -> dict[str, Any]:
    """What the status said before, where nothing newer is known."""
    return {
        name: value
        for name, value in world.status.items()
        if name not in {"conditions", "observedGeneration", "message"}
    } or {"state": "Pending"}


def _finish(
    world: LedgerWorld,
    effects: Iterable[Effect],
    status: dict[str, Any],
    conditions: list[Condition],
    now_ms: int,
    requeue_after_s: float | None = None,
) -> Decision:
    return finish(
        world.ref,
        world.manifest,
        effects=effects,
        status={**status, "message": message_of(conditions)},
        conditions=conditions,
        now_ms=now_ms,
        requeue_after_s=requeue_after_s,
        keep_others=True,
    )
