"""Scale-down: the highest bookie leaves the pool without the loss of a replica.

Theory. A bookie may be forgotten once no ledger names it and every entry has all its replicas elsewhere; only a full
audit that began after the last ledger stopped naming it proves the second (rule 29, rule 47). So a drain goes through
stages, each of which is a fact in the cluster. A plan reads the facts, does the one thing that is next, and remembers
the stage only for what no fact shows: since when no ledger has named the bookie. A drain that was interrupted continues.

    stage          what is true                         what the plan does             what the drain waits for
    ReadOnly       the bookie may get new ledgers       makes it read-only             its registration says read-only
    Replicating    ledgers name it                      marks them as leaving it       workers copy its entries
    Verifying      no ledger names it                   nothing                        a full audit that began since is clean
    CookieRemoved  the cluster has forgotten it         lowers the StatefulSet         its controller has seen that
    Lowered        its pod is not wanted any more       removes location and volumes   the pod is gone
    Cancelling     replicas was raised again            unmarks, makes it writable     nothing: it stays

Up to Verifying a drain is cancelled by raising `replicas` again. A bookie keeps that it is read-only. So the status
records a drain first, and its first step comes with the next plan: a drain that nothing records is never cancelled, and
its bookie stays read-only. A bookie that was forgotten cannot start any more on what it has, and one that never started
is kept from registering, so that nothing can name it again. Only scaling down waits for a drain; nothing else does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from daybook.core.ids import BookieId
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
from daybook_operator.plan.pool.observed import REPAIR_LEDGER, ObservedCluster, ObservedPool
from daybook_operator.plan.pool.parts import Part
from daybook_operator.plan.pool.replication import Replication, clean_audit_began_ms
from daybook_operator.plan.pool.state import Drain, Stage

TRANSITIONS: Final[Mapping[tuple[Stage, Stage], str]] = {
    (Stage.READ_ONLY, Stage.REPLICATING): "it is read-only, and ledgers name it",
    (Stage.READ_ONLY, Stage.VERIFYING): "it is read-only, and no ledger names it",
    (Stage.REPLICATING, Stage.VERIFYING): "no ledger names it any more",
    (Stage.REPLICATING, Stage.READ_ONLY): "it restarted and is writable",
    (Stage.VERIFYING, Stage.REPLICATING): "a ledger names it after all",
    (Stage.VERIFYING, Stage.READ_ONLY): "it restarted and is writable",
    (Stage.VERIFYING, Stage.COOKIE_REMOVED): "a full audit that began since is clean (rule 29)",
    (Stage.COOKIE_REMOVED, Stage.LOWERED): "the StatefulSet is lowered",
    (Stage.COOKIE_REMOVED, Stage.READ_ONLY): "it has a cookie again",
    (Stage.LOWERED, Stage.COOKIE_REMOVED): "the StatefulSet was raised by hand",
    (Stage.LOWERED, Stage.READ_ONLY): "it has a cookie again",
    (Stage.READ_ONLY, Stage.CANCELLING): "replicas is raised",
    (Stage.REPLICATING, Stage.CANCELLING): "replicas is raised",
    (Stage.VERIFYING, Stage.CANCELLING): "replicas is raised",
}
"""A drain ends once its bookie is Lowered and its pod is gone, or once it is cancelled."""

DRAINING: Final = "Draining"
UNREADABLE: Final = "LedgersUnreadable"
RECONCILE_S: Final = 5.0
"""How often a drain under way is reconciled; the end of a repair is no event of the API server."""
SOON_S: Final = 0.2
MARKED_AT_ONCE: Final = 500
"""Ledgers that are marked by one plan: the next one marks the next."""


@dataclass(frozen=True, slots=True)
class Draining:
    """The step, the drain as the status remembers it, and its condition. `message`: what the drain waits for."""

    step: Step
    drain: Drain | None
    condition: Condition
    message: str = ""


def lowers_to(pool: ObservedPool) -> int | None:
    """How many replicas the StatefulSet may have at most, because the highest bookie is forgotten; None: none is.

    Both the status and ZooKeeper must say so: the drain is final, and the cookie is gone.
    """
    drain = pool.drain
    if drain is None or not drain.stage.is_final or pool.cluster is None:
        return None
    return None if drain.bookie in pool.cluster.cookies else drain.ordinal


def victim_of(pool: ObservedPool) -> int:
    """The highest ordinal there is, by number: 10 is above 9."""
    return max(pool.present_replicas - 1, max(pool.pods, default=-1))


def drain_step(
    pool: ObservedPool, replication: Replication, now_ms: int, *, may_forget: bool = True
) -> Draining:
    """The next step of the drain under way, or of a new one. `may_forget`: the same plan stops no other bookie."""
    drain, victim = pool.drain, victim_of(pool)
    if (why := pool.failed.get(Part.DRAIN)) is not None:
        return _failed(pool, why)
    if drain is not None and pool.cluster is None:
        return _at(pool, drain, drain.stage, [], "ZooKeeper does not answer", now_ms)
    if drain is not None and drain.stage.is_final:
        return _finish(pool, drain, now_ms)
    if drain is not None and (
        drain.stage is Stage.CANCELLING
        or drain.ordinal < pool.spec.replicas
        or drain.ordinal != victim
        or pool.spec.scale_down.policy == "Refuse"
    ):
        return _cancel(pool, drain, now_ms)
    if victim < pool.spec.replicas or pool.is_stopping or (drain is None and pool.spec.hibernate):
        return Draining(Step(), None, fine(DRAINING, "NotDraining", status=False))
    if drain is None:
        drain = Drain(pool.bookie(victim), victim, Stage.READ_ONLY, now_ms, now_ms, now_ms)
        if (refusal := _refusal(pool, drain)) is not None:
            return Draining(Step(), None, refusal, refusal.message)
        return _at(pool, drain, drain.stage, [], "the operator makes it read-only next", now_ms)
    return _advance(pool, drain, replication, now_ms, may_forget=may_forget)


def _failed(pool: ObservedPool, why: str) -> Draining:
    """The drain stays where it was, because its step failed."""
    condition = wrong(
        DRAINING,
        "StepFailed",
        f"The drain cannot continue: {why}",
        next_step="The operator tries again; raise replicas to cancel the drain.",
        status=pool.drain is not None,
    )
    return Draining(Step(requeue_after_s=RECONCILE_S), pool.drain, condition, why)


def _refusal(pool: ObservedPool, drain: Drain) -> Condition | None:
    """Why the drain does not begin; the bookie stays as it is, and nothing else waits for it."""
    if pool.spec.scale_down.policy == "Refuse":
        return wrong(
            DRAINING,
            "Refused",
            f"The pool has {drain.ordinal + 1} bookies, spec.replicas is {pool.spec.replicas}, and scaleDown.policy is Refuse",
            next_step="Set scaleDown.policy to Drain to have the others drained, or raise replicas.",
        )
    if pool.cluster is None:
        return wrong(
            DRAINING,
            "ZooKeeperUnreachable",
            f"{drain.bookie} is to leave, and ZooKeeper does not answer",
            next_step="Restore ZooKeeper; the drain begins then.",
        )
    cluster = pool.cluster
    if cluster.survey.why_unreadable:
        return unknown(
            DRAINING,
            UNREADABLE,
            f"{drain.bookie} is to leave, and the operator does not know which ledgers name it: {cluster.survey.why_unreadable}",
            next_step=f"{REPAIR_LEDGER} The drain begins then.",
        )
    if not cluster.survey.is_whole:
        return unknown(
            DRAINING,
            "LedgersBeingRead",
            f"{drain.bookie} is to leave, and the operator reads which ledgers name it; it has read {cluster.survey.ledgers} so far",
            next_step="No action is needed: the drain begins when all are read.",
        )
    if not cluster.survey.naming.get(drain.bookie) or not (why := _too_few(pool, cluster, drain.bookie)):
        return None
    return wrong(
        DRAINING,
        "TooFewBookies",
        why,
        next_step=f"Add bookies, set replicas to {drain.ordinal + 1} again, or delete the ledgers that need so many.",
    )


def _too_few(pool: ObservedPool, cluster: ObservedCluster, leaving: BookieId) -> str:
    """Why ledgers would lack bookies without `leaving`; "" if they would not. A ledger of this pool takes no others (rule 69)."""
    stay = [b for b, info in cluster.bookies.items() if b != leaving and info.writable]
    own = [b for b in stay if pool.ordinal_of(b) is not None]
    survey = cluster.survey
    if len(own) < survey.own_ensemble_max:
        return (
            f"Ledger {survey.own_ensemble_max_ledger}, which stays in this pool, has an ensemble of {survey.own_ensemble_max}, and "
            f"without {leaving} only {len(own)} of the pool's bookies would be writable"
        )
    if len(stay) < survey.ensemble_max:
        return (
            f"Ledger {survey.ensemble_max_ledger} has an ensemble of {survey.ensemble_max}, and without {leaving} only "
            f"{len(stay)} bookies would be writable"
        )
    return ""


def _advance(
    pool: ObservedPool, drain: Drain, replication: Replication, now_ms: int, *, may_forget: bool
) -> Draining:
    """One bookie, up to the removal of its cookie. `drain.stage` is where the drain was; facts say where it is."""
    cluster = pool.cluster
    assert cluster is not None
    bookie, info = drain.bookie, cluster.bookies.get(drain.bookie)
    effects: list[Effect]
    if why := cluster.survey.why_unreadable:
        condition = wrong(
            DRAINING,
            UNREADABLE,
            f"{bookie} leaves, and the operator does not know which ledgers name it: {why}",
            next_step=f"{REPAIR_LEDGER} The drain continues then; set replicas to {drain.ordinal + 1} again to cancel it.",
            status=True,
        )
        return _at(pool, drain, drain.stage, [], why, now_ms, condition)
    if not cluster.survey.is_whole:
        return _at(pool, drain, drain.stage, [], "the operator reads which ledgers name it", now_ms)
    remaining = len(cluster.survey.naming.get(bookie, ()))
    if drain.remaining < 0 or remaining < drain.remaining:
        drain = replace(drain, progress_ms=now_ms)
    drain = replace(drain, remaining=remaining)
    if info is not None and info.writable:
        effects = [SetReadOnly(pool.cluster_ref, bookie, read_only=True)]
        return _at(pool, drain, Stage.READ_ONLY, effects, "the operator makes it read-only", now_ms)
    if remaining:
        return _replicate(pool, cluster, drain, now_ms)
    if bookie in cluster.leaving:
        effects = [UnmarkLeaving(pool.cluster_ref, bookie)]
        return _at(pool, drain, Stage.REPLICATING, effects, "no ledger names it any more", now_ms)
    if info is None and bookie not in cluster.cookies and bookie in cluster.locations:
        effects = [SetLocations(pool.cluster_ref, {bookie: None})]
        return _at(
            pool, drain, Stage.READ_ONLY, effects, "it never served, and is kept from registering", now_ms
        )
    return _verify(pool, cluster, drain, replication, now_ms, may_forget=may_forget)


def _replicate(pool: ObservedPool, cluster: ObservedCluster, drain: Drain, now_ms: int) -> Draining:
    naming = cluster.survey.naming[drain.bookie]
    marked = cluster.leaving.get(drain.bookie, frozenset())
    unmarked = tuple(ledger for ledger in naming if ledger not in marked)[:MARKED_AT_ONCE]
    effects: list[Effect] = []
    if unmarked:
        effects.append(MarkLeaving(pool.cluster_ref, drain.bookie, unmarked))
    stuck = [ledger for ledger in naming if cluster.stuck.get(ledger)]
    message = f"{drain.remaining} ledgers still name {drain.bookie}"
    if stuck and len(stuck) == drain.remaining:
        why = f"none of the {len(stuck)} remaining ledgers can be copied now; ledger {stuck[0]}: {cluster.stuck[stuck[0]]}"
        condition = wrong(
            DRAINING,
            "Blocked",
            f"{drain.bookie} is read-only, and {why}",
            next_step=f"Add or restore bookies, or set replicas to {drain.ordinal + 1} again to keep it.",
            status=True,
        )
        return _at(pool, drain, Stage.REPLICATING, effects, why, now_ms, condition)
    return _at(pool, drain, Stage.REPLICATING, effects, message, now_ms)


def _verify(
    pool: ObservedPool,
    cluster: ObservedCluster,
    drain: Drain,
    replication: Replication,
    now_ms: int,
    *,
    may_forget: bool,
) -> Draining:
    """No ledger names the bookie. Only a full audit that began since then lets it be forgotten."""
    if drain.stage is not Stage.VERIFYING:
        return _at(
            pool, drain, Stage.VERIFYING, [], "a full audit must find all entries on other bookies", now_ms
        )
    began_ms = clean_audit_began_ms(pool)
    if not replication.is_full or began_ms is None or began_ms <= drain.stage_since_ms:
        message = "no ledger names it any more; a full audit that began since must end clean"
        return _at(pool, drain, Stage.VERIFYING, [], message, now_ms)
    if not may_forget:
        return _at(pool, drain, Stage.VERIFYING, [], "another bookie is being stopped now", now_ms)
    effects: list[Effect] = []
    if drain.bookie in cluster.cookies:
        effects.append(DeleteCookie(pool.cluster_ref, drain.bookie))
    return _at(pool, drain, Stage.COOKIE_REMOVED, effects, "its pod stops next", now_ms)


def _finish(pool: ObservedPool, drain: Drain, now_ms: int) -> Draining:
    """The bookie is forgotten: the StatefulSet is lowered (see `lowers_to`), then location and volumes are removed."""
    assert pool.cluster is not None
    if drain.bookie in pool.cluster.cookies:
        return _at(pool, drain, Stage.READ_ONLY, [], "it has a cookie again, and is drained again", now_ms)
    is_lowered = pool.stateful_set is not None and pool.stateful_set.replicas <= drain.ordinal
    stage = Stage.LOWERED if is_lowered else Stage.COOKIE_REMOVED
    if not is_lowered or drain.ordinal in pool.pods:
        return _at(pool, drain, stage, [], "its pod must stop", now_ms)
    effects: list[Effect] = []
    if drain.bookie in pool.cluster.locations:
        effects.append(SetLocations(pool.cluster_ref, {drain.bookie: None}))
    if pool.spec.scale_down.pvc_retention == "Delete":
        effects += [
            Remove(Ref("v1", "PersistentVolumeClaim", pool.namespace, claim.name, claim.uid))
            for claim in pool.claims_of(drain.ordinal)
            if not claim.terminating
        ]
    condition = fine(DRAINING, "Drained", f"{drain.bookie} left; no ledger names it.", status=False)
    return Draining(Step(tuple(effects), requeue_after_s=SOON_S), None, condition)


def _cancel(pool: ObservedPool, drain: Drain, now_ms: int) -> Draining:
    """The bookie stays: no task says that it leaves, and it is writable again."""
    assert pool.cluster is not None
    effects: list[Effect] = []
    if drain.bookie in pool.cluster.leaving:
        effects.append(UnmarkLeaving(pool.cluster_ref, drain.bookie))
    info = pool.cluster.bookies.get(drain.bookie)
    if info is not None and not info.writable and drain.stage is not Stage.CANCELLING:
        # Once: a bookie that stays read-only after that is so for want of space.
        effects.append(SetReadOnly(pool.cluster_ref, drain.bookie, read_only=False))
    if effects and info is not None:
        return _at(pool, drain, Stage.CANCELLING, effects, "the operator makes it writable again", now_ms)
    if info is None and drain.bookie in pool.cluster.cookies:
        message = "the operator makes it writable again once it is registered"  # a bookie keeps that it is read-only
        return _at(pool, drain, drain.stage, effects, message, now_ms)
    condition = fine(
        DRAINING, "Cancelled", f"{drain.bookie} stays, because replicas was raised.", status=False
    )
    return Draining(Step(requeue_after_s=SOON_S), None, condition)


def _at(
    pool: ObservedPool,
    drain: Drain,
    stage: Stage,
    effects: list[Effect],
    message: str,
    now_ms: int,
    condition: Condition | None = None,
) -> Draining:
    """The drain at `stage`. The next reconcile is soon, and sooner still where the next step depends on this operator alone."""
    assert stage is drain.stage or (drain.stage, stage) in TRANSITIONS, (
        f"{drain.stage} → {stage} is no step of a drain"
    )
    is_new = stage is not drain.stage
    moved = replace(drain, stage=stage, stage_since_ms=now_ms) if is_new else drain
    if condition is None:
        condition = _progress(pool, moved, message, now_ms)
    at_once = is_new or (bool(effects) and not any(isinstance(each, MarkLeaving) for each in effects))
    return Draining(
        Step(tuple(effects), requeue_after_s=SOON_S if at_once else RECONCILE_S), moved, condition, message
    )


def _progress(pool: ObservedPool, drain: Drain, message: str, now_ms: int) -> Condition:
    what = f"{drain.bookie} leaves ({drain.stage.value}{f': {message}' if message else ''})"
    silent_s = (now_ms - max(drain.progress_ms, drain.stage_since_ms)) // 1000
    deadline_s = pool.spec.scale_down.progress_deadline_seconds
    if silent_s > deadline_s:
        return wrong(
            DRAINING,
            "ProgressDeadlineExceeded",
            f"{what}, without progress for {silent_s} s",
            next_step=f"Check the recovery Jobs and `daybook audit --list`; set replicas to {drain.ordinal + 1} again to cancel.",
            status=True,
        )
    return fine(DRAINING, drain.stage.value, what)
