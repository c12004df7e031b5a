"""Scale-down: the highest bookie leaves without a replica being lost, in steps that are facts in the cluster.

read-only → copied elsewhere → no ledger names it → a full audit that began since is clean → its cookie goes → the
StatefulSet is lowered → its volumes, by policy. Each plan looks at what is true and does the one thing that is next,
so the drain goes on after any crash; only the scale step waits for it. Until the cookie is gone it is called off by
raising `replicas` again. A bookie that was forgotten cannot start any more on what it has, and one that never started
is kept from registering, so nothing can name it again.
"""

from dataclasses import dataclass, replace
from typing import Final

from daybook_operator.plan.conditions import Condition, fine, unknown, wrong
from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import (
    DeleteCookie,
    Effect,
    MarkLeaving,
    Ref,
    Remove,
    SetLocations,
    SetReadOnly,
    UnmarkLeaving,
)
from daybook_operator.plan.pool.failures import Part
from daybook_operator.plan.pool.replication import Replication, clean_audit_began_ms
from daybook_operator.plan.pool.state import Drain, Stage
from daybook_operator.plan.pool.world import MEND_LEDGER, ClusterSeen, PoolWorld

DRAINING: Final = "Draining"
UNREADABLE: Final = "LedgersUnreadable"
LOOK_S: Final = 5.0
"""How often a drain under way is looked at; the end of a repair is no event of the API server."""
AGAIN_S: Final = 0.2
MARKED_AT_ONCE: Final = 500
"""Ledgers that are marked in one plan: the next one marks the next."""


@dataclass(frozen=True, slots=True)
class Draining:
    """The step, what the status shall remember, and what people shall know. `message`: what the drain waits for."""

    step: Step
    drain: Drain | None
    condition: Condition
    message: str = ""


def lowers_to(world: PoolWorld) -> int | None:
    """How many replicas the StatefulSet may have at most, because the bookie above is forgotten; None: no such bookie.

    By facts, and by what was written down before: the cookie is gone.
    """
    drain = world.drain
    if drain is None or not drain.stage.is_final or world.cluster is None:
        return None
    return None if drain.bookie in world.cluster.cookies else drain.ordinal


def victim_of(world: PoolWorld) -> int:
    """The highest ordinal there is, by number: 10 is above 9."""
    return max(world.present_replicas - 1, max(world.pods, default=-1))


def drain_step(
    world: PoolWorld, replication: Replication, now_ms: int, *, may_forget: bool = True
) -> Draining:
    """The next step of the drain under way, or of a new one. `may_forget`: nobody else is stopped by the same plan."""
    drain, victim = world.drain, victim_of(world)
    if (why := world.failed.get(Part.DRAIN)) is not None:
        return _failed(world, why)
    if drain is not None and world.cluster is None:
        return _at(world, drain, drain.stage, [], "ZooKeeper does not answer", now_ms)
    if drain is not None and drain.stage.is_final:
        return _finish(world, drain, now_ms)
    if drain is not None and (
        drain.stage is Stage.CANCELLING
        or drain.ordinal < world.spec.replicas
        or drain.ordinal != victim
        or world.spec.scale_down.policy == "Refuse"
    ):
        return _cancel(world, drain, now_ms)
    if victim < world.spec.replicas or world.is_stopping:
        return Draining(Step(), None, fine(DRAINING, "NotDraining", status=False))
    if drain is None:
        drain = Drain(world.bookie(victim), victim, Stage.READ_ONLY, now_ms, now_ms, now_ms)
        if (refusal := _refusal(world, drain)) is not None:
            return Draining(Step(), None, refusal, refusal.message)
    return _go_on(world, drain, replication, now_ms, may_forget=may_forget)


def _failed(world: PoolWorld, why: str) -> Draining:
    """The drain stays where it was, because its step failed."""
    condition = wrong(
        DRAINING,
        "StepFailed",
        f"The drain cannot go on: {why}",
        next_step="It is tried again; raise replicas to call it off.",
        status=world.drain is not None,
    )
    return Draining(Step(requeue_after_s=LOOK_S), world.drain, condition, why)


def _refusal(world: PoolWorld, drain: Drain) -> Condition | None:
    """Why the drain is not begun; the bookie stays as it is, and nothing else waits for it."""
    if world.spec.scale_down.policy == "Refuse":
        return wrong(
            DRAINING,
            "Refused",
            f"{drain.ordinal + 1} bookies are there, {world.spec.replicas} are wanted, and scaleDown.policy is Refuse",
            next_step="Set scaleDown.policy to Drain to have the others drained, or raise replicas.",
        )
    if world.cluster is None:
        return wrong(
            DRAINING,
            "ZooKeeperUnreachable",
            f"{drain.bookie} is to leave, and ZooKeeper does not answer",
            next_step="Bring ZooKeeper back; the drain begins then.",
        )
    seen = world.cluster
    if seen.survey.why_unreadable:
        return unknown(
            DRAINING,
            UNREADABLE,
            f"{drain.bookie} is to leave, and which ledgers name it is not known: {seen.survey.why_unreadable}",
            next_step=f"{MEND_LEDGER} The drain begins then.",
        )
    if not seen.survey.is_whole:
        return unknown(
            DRAINING,
            "LedgersBeingRead",
            f"{drain.bookie} is to leave, and which ledgers name it is being read, of {seen.survey.ledgers} so far",
            next_step="Nothing is to do: the drain begins then.",
        )
    stay = [b for b, info in seen.bookies.items() if b != drain.bookie and info.writable]
    need = seen.survey.ensemble_max
    if len(stay) >= need or not seen.survey.naming.get(drain.bookie):
        return None
    return wrong(
        DRAINING,
        "TooFewBookies",
        f"Ledger {seen.survey.ensemble_max_ledger} has an ensemble of {need}, and without {drain.bookie} only "
        f"{len(stay)} bookies would take entries",
        next_step=f"Add bookies, set replicas to {drain.ordinal + 1} again, or delete the ledgers that need so many.",
    )


def _go_on(
    world: PoolWorld, drain: Drain, replication: Replication, now_ms: int, *, may_forget: bool
) -> Draining:
    """One bookie, up to the removal of its cookie. `drain.stage` is where it was; facts say where it is."""
    seen = world.cluster
    assert seen is not None
    bookie, info = drain.bookie, seen.bookies.get(drain.bookie)
    effects: list[Effect]
    if why := seen.survey.why_unreadable:
        condition = wrong(
            DRAINING,
            UNREADABLE,
            f"{bookie} leaves, and which ledgers name it is not known: {why}",
            next_step=f"{MEND_LEDGER} The drain goes on then; set replicas to {drain.ordinal + 1} again to call it off.",
            status=True,
        )
        return _at(world, drain, drain.stage, [], why, now_ms, condition)
    if not seen.survey.is_whole:
        return _at(world, drain, drain.stage, [], "which ledgers name it is being read", now_ms)
    remaining = len(seen.survey.naming.get(bookie, ()))
    if drain.remaining < 0 or remaining < drain.remaining:
        drain = replace(drain, progress_ms=now_ms)
    drain = replace(drain, remaining=remaining)
    if info is not None and info.writable:
        effects = [SetReadOnly(world.cluster_ref, bookie, read_only=True)]
        return _at(world, drain, Stage.READ_ONLY, effects, "it is told to take no new ledgers", now_ms)
    if remaining:
        return _replicate(world, seen, drain, now_ms)
    if bookie in seen.leaving:
        effects = [UnmarkLeaving(world.cluster_ref, bookie)]
        return _at(world, drain, Stage.REPLICATING, effects, "no ledger names it any more", now_ms)
    if info is None and bookie not in seen.cookies and bookie in seen.locations:
        effects = [SetLocations(world.cluster_ref, {bookie: None})]
        return _at(world, drain, Stage.READ_ONLY, effects, "it never served, and is kept from it", now_ms)
    return _verify(world, seen, drain, replication, now_ms, may_forget=may_forget)


def _replicate(world: PoolWorld, seen: ClusterSeen, drain: Drain, now_ms: int) -> Draining:
    naming = seen.survey.naming[drain.bookie]
    marked = seen.leaving.get(drain.bookie, frozenset())
    unmarked = tuple(ledger for ledger in naming if ledger not in marked)[:MARKED_AT_ONCE]
    effects: list[Effect] = []
    if unmarked:
        effects.append(MarkLeaving(world.cluster_ref, drain.bookie, unmarked))
    stuck = [ledger for ledger in naming if seen.stuck.get(ledger)]
    message = f"{drain.remaining} ledgers still name {drain.bookie}"
    if stuck and len(stuck) == drain.remaining:
        why = f"none of the {len(stuck)} that are left can be copied now; ledger {stuck[0]}: {seen.stuck[stuck[0]]}"
        condition = wrong(
            DRAINING,
            "Blocked",
            f"{drain.bookie} is read-only, and {why}",
            next_step=f"Add bookies or bring some back, or set replicas to {drain.ordinal + 1} again to keep it.",
            status=True,
        )
        return _at(world, drain, Stage.REPLICATING, effects, why, now_ms, condition)
    return _at(world, drain, Stage.REPLICATING, effects, message, now_ms)


def _verify(
    world: PoolWorld,
    seen: ClusterSeen,
    drain: Drain,
    replication: Replication,
    now_ms: int,
    *,
    may_forget: bool,
) -> Draining:
    """No ledger names it. Only a full audit that began after that was so may let it go."""
    if drain.stage is not Stage.VERIFYING:
        return _at(world, drain, Stage.VERIFYING, [], "a full audit has to find everything elsewhere", now_ms)
    began_ms = clean_audit_began_ms(world)
    if not replication.is_full or began_ms is None or began_ms <= drain.stage_since_ms:
        message = "no ledger names it any more; a full audit that began since has to end clean"
        return _at(world, drain, Stage.VERIFYING, [], message, now_ms)
    if not may_forget:
        return _at(world, drain, Stage.VERIFYING, [], "another bookie is being stopped just now", now_ms)
    effects: list[Effect] = []
    if drain.bookie in seen.cookies:
        effects.append(DeleteCookie(world.cluster_ref, drain.bookie))
    return _at(world, drain, Stage.COOKIE_REMOVED, effects, "its pod goes next", now_ms)


def _finish(world: PoolWorld, drain: Drain, now_ms: int) -> Draining:
    """Forgotten: the StatefulSet is lowered (see `lowers_to`), the pod goes, then place and volumes."""
    assert world.cluster is not None
    if drain.bookie in world.cluster.cookies:
        return _at(world, drain, Stage.READ_ONLY, [], "it has a cookie again, and is drained anew", now_ms)
    is_lowered = world.stateful_set is not None and world.stateful_set.replicas <= drain.ordinal
    stage = Stage.LOWERED if is_lowered else Stage.COOKIE_REMOVED
    if not is_lowered or drain.ordinal in world.pods:
        return _at(world, drain, stage, [], "its pod is to go", now_ms)
    effects: list[Effect] = []
    if drain.bookie in world.cluster.locations:
        effects.append(SetLocations(world.cluster_ref, {drain.bookie: None}))
    if world.spec.scale_down.pvc_retention == "Delete":
        effects += [
            Remove(Ref("v1", "PersistentVolumeClaim", world.namespace, claim.name, claim.uid))
            for claim in world.claims_of(drain.ordinal)
            if not claim.terminating
        ]
    condition = fine(DRAINING, "Drained", f"{drain.bookie} left; no ledger names it.", status=False)
    return Draining(Step(tuple(effects), requeue_after_s=AGAIN_S), None, condition)


def _cancel(world: PoolWorld, drain: Drain, now_ms: int) -> Draining:
    """The bookie stays: no task says that it leaves, and it takes entries again."""
    assert world.cluster is not None
    effects: list[Effect] = []
    if drain.bookie in world.cluster.leaving:
        effects.append(UnmarkLeaving(world.cluster_ref, drain.bookie))
    info = world.cluster.bookies.get(drain.bookie)
    if info is not None and not info.writable and drain.stage is not Stage.CANCELLING:
        # Once: a bookie that stays read-only after that is so for want of space.
        effects.append(SetReadOnly(world.cluster_ref, drain.bookie, read_only=False))
    if effects and info is not None:
        return _at(world, drain, Stage.CANCELLING, effects, "it is told to take entries again", now_ms)
    if info is None and drain.bookie in world.cluster.cookies:
        message = "it takes entries again once it is back to be told"  # it keeps that it is read-only
        return _at(world, drain, drain.stage, effects, message, now_ms)
    condition = fine(
        DRAINING, "Cancelled", f"{drain.bookie} stays, because replicas was raised.", status=False
    )
    return Draining(Step(requeue_after_s=AGAIN_S), None, condition)


def _at(
    world: PoolWorld,
    drain: Drain,
    stage: Stage,
    effects: list[Effect],
    message: str,
    now_ms: int,
    condition: Condition | None = None,
) -> Draining:
    """The drain at `stage`, with the next look soon: at once where the next step depends on nobody else."""
    is_new = stage is not drain.stage
    moved = replace(drain, stage=stage, stage_since_ms=now_ms) if is_new else drain
    if condition is None:
        condition = _progress(world, moved, message, now_ms)
    at_once = is_new or (bool(effects) and not any(isinstance(each, MarkLeaving) for each in effects))
    return Draining(
        Step(tuple(effects), requeue_after_s=AGAIN_S if at_once else LOOK_S), moved, condition, message
    )


def _progress(world: PoolWorld, drain: Drain, message: str, now_ms: int) -> Condition:
    what = f"{drain.bookie} leaves ({drain.stage.value}{f': {message}' if message else ''})"
    silent_s = (now_ms - max(drain.progress_ms, drain.stage_since_ms)) // 1000
    deadline_s = world.spec.scale_down.progress_deadline_seconds
    if silent_s > deadline_s:
        return wrong(
            DRAINING,
            "ProgressDeadlineExceeded",
            f"{what}, without progress for {silent_s} s",
            next_step=f"Look at the recovery Jobs and at `daybook audit --list`; set replicas to {drain.ordinal + 1} again to cancel.",
            status=True,
        )
    return fine(DRAINING, drain.stage.value, what)
