"""A roll: pods of an older revision are evicted, one after the other, the highest ordinal first.

Theory. A bookie that stops must not take the last copy of anything with it, so before each stop every bookie of the
cluster serves and everything is replicated, as a full audit proves that began after the roll did and after the last
bookie came back: readiness says nothing of what a bookie missed, and an earlier audit nothing of what was written since.
A bookie that does not serve anyway is replaced without these conditions, or an image that does not start could never be
repaired. The stage is found anew from facts by every plan:

    stage      what is true                                    what the roll waits for
    Stopping   the pod of a bookie that is away is terminating that it is gone, and made anew
               or not made yet
    Starting   a bookie is away, and its pod is there          that it serves
    Gate       every bookie serves, or the cluster is unknown  the first of `_gate` that forbids the next stop

A stop leads to Stopping, then Starting, then Gate, and to the next stop, until no pod has an older revision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import Condition, fine, iso, wrong
from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import Effect, EventType, Evict, Ref, Report
from daybook_operator.plan.pool.observed import ObservedPod, ObservedPool
from daybook_operator.plan.pool.other_pools import others_away
from daybook_operator.plan.pool.parts import Part
from daybook_operator.plan.pool.replication import Replication, clean_audit_began_ms
from daybook_operator.plan.pool.state import Roll, whole

PROGRESSING: Final = "Progressing"
RECONCILE_S: Final = 10.0


class RollStage(StrEnum):
    """What a roll waits for; see the module's table."""

    STOPPING = "Stopping"
    STARTING = "Starting"
    GATE = "Gate"


@dataclass(frozen=True, slots=True)
class Rolling:
    """The step, and the roll as the status remembers it; None: every pod is as the spec asks. `stage` is "" then."""

    step: Step
    roll: Roll | None
    stage: RollStage | Literal[""]
    condition: Condition | None
    updated: int

    @property
    def message(self) -> str:
        """What the roll waits for."""
        return "" if self.condition is None else self.condition.message


def outdated(pool: ObservedPool) -> list[ObservedPod]:
    """Pods of an older revision, the highest ordinal first; none while the newest revision is not known."""
    newest = pool.stateful_set.update_revision if pool.stateful_set is not None else ""
    if not newest:
        return []
    return [pod for _, pod in sorted(pool.pods.items(), reverse=True) if pod.revision != newest]


def roll_step(pool: ObservedPool, replication: Replication, now_ms: int) -> Rolling:
    """Stop the next bookie of an older revision, if that is safe now."""
    old = outdated(pool)
    newest = pool.stateful_set.update_revision if pool.stateful_set is not None else ""
    updated = sum(pod.revision == newest for pod in pool.pods.values()) if newest else 0
    if not old or pool.is_stopping:
        return Rolling(Step(), None, "", None, updated)
    roll = (
        pool.roll if pool.roll is not None and pool.roll.revision == newest else Roll(newest, whole(now_ms))
    )
    roll = _noted(pool, roll, now_ms)
    if (why := pool.failed.get(Part.ROLL)) is not None:
        condition = wrong(
            PROGRESSING,
            "StepFailed",
            f"The roll cannot continue: {why}",
            next_step="The operator tries again, after a pause that grows.",
        )
        return Rolling(Step(requeue_after_s=RECONCILE_S), roll, RollStage.GATE, condition, updated)
    idle = [pod for pod in old if not _is_in_use(pool, pod) and not pod.terminating]
    if idle and not pool.spec.rollout.paused and not pool.not_now:
        return _stop(pool, idle[0], roll, updated, now_ms, "it does not serve")
    others = others_away(pool)
    stage, why_not = _gate(pool, replication, roll, others)
    why_not = why_not or pool.not_now
    drained = pool.drain.ordinal if pool.drain is not None else -1
    candidates = [pod for pod in old if pod.ordinal != drained and not pod.terminating]
    if not why_not and candidates:
        away = frozenset(map(pool.bookie, _away(pool))) | others.keys()
        return _stop(pool, candidates[0], roll, updated, now_ms, "", away)
    if not candidates:
        why_not = why_not or f"only {pool.bookie(drained)} runs an older revision, and it is being drained"
    condition = _waiting(pool, roll, stage, why_not, len(old), now_ms)
    return Rolling(Step(requeue_after_s=RECONCILE_S), roll, stage, condition, updated)


def waits_for_audit(pool: ObservedPool) -> bool:
    """Whether the next step of a roll needs a clean audit."""
    return pool.spec.rollout.waits_for_replication and not pool.spec.rollout.paused


def _noted(pool: ObservedPool, roll: Roll, now_ms: int) -> Roll:
    """The roll, with when the bookie that was stopped last came back."""
    ordinal = pool.ordinal_of(roll.bookie) if roll.bookie else None
    if ordinal is None or roll.returned_ms or not pool.serves(ordinal):
        return roll
    return roll if pool.pods[ordinal].revision != roll.revision else replace(roll, returned_ms=whole(now_ms))


def _is_in_use(pool: ObservedPool, pod: ObservedPod) -> bool:
    """Whether clients may rely on the pod: it is ready, or its bookie is registered, or the operator does not know."""
    return pod.ready or pool.cluster is None or pool.is_registered(pod.ordinal)


def _away(pool: ObservedPool) -> list[int]:
    return [ordinal for ordinal in pool.expected if not pool.serves(ordinal)]


def _gate(
    pool: ObservedPool, replication: Replication, roll: Roll, others: Mapping[BookieId, str]
) -> tuple[RollStage, str]:
    """The stage, and why no further bookie may be stopped now; "" if one may. `others`: bookies of other pools that are away."""
    rollout = pool.spec.rollout
    away = _away(pool)
    if rollout.paused:
        return RollStage.GATE, "rollout.paused is set"
    if pool.cluster is None:
        return RollStage.GATE, "ZooKeeper does not answer, so which bookies serve is not known"
    if away and (rollout.waits_for_replication or len(away) >= rollout.max_unavailable):
        pods = [pool.pods.get(ordinal) for ordinal in away]
        stage = (
            RollStage.STOPPING if any(pod is None or pod.terminating for pod in pods) else RollStage.STARTING
        )
        names = ", ".join(pool.bookie(ordinal) for ordinal in away)
        return stage, f"{names} {'does' if len(away) == 1 else 'do'} not serve yet"
    if others and (rollout.waits_for_replication or len(away) + len(others) >= rollout.max_unavailable):
        bookie, why = next(iter(others.items()))
        return RollStage.GATE, f"{bookie} of another pool of the cluster {why}"
    if pool.drain is not None and pool.drain.stage.is_final:
        return RollStage.GATE, f"{pool.drain.bookie} is about to leave"
    if rollout.waits_for_replication and not replication.is_full:
        return RollStage.GATE, replication.condition.message
    began_ms = clean_audit_began_ms(pool)
    if rollout.waits_for_replication and (began_ms is None or began_ms <= roll.since_ms):
        return RollStage.GATE, f"a full audit that began since {iso(roll.since_ms)} must end clean"
    return RollStage.GATE, ""


def _stop(
    pool: ObservedPool,
    pod: ObservedPod,
    roll: Roll,
    updated: int,
    now_ms: int,
    why: str,
    away: frozenset[BookieId] = frozenset(),
) -> Rolling:
    """Evict the pod; `why` is "" for one that serves."""
    assert pool.cluster is not None
    bookie = pool.bookie(pod.ordinal)
    text = f"{bookie} is stopped and restarts with the pool's new pod template{f': {why}' if why else ''}."
    effects: tuple[Effect, ...] = (
        Evict(
            Ref("v1", "Pod", pool.namespace, pod.name, pod.uid),
            pool.cluster_ref,
            bookie,
            {each: info.boot_id for each, info in pool.cluster.bookies.items()},
            away,
            is_strict=pool.spec.rollout.waits_for_replication,
            is_idle=bool(why),
        ),
        Report(pool.ref, EventType.NORMAL, "BookieStopped", text),
    )
    stopped = replace(roll, bookie=bookie, stopped_ms=whole(now_ms), returned_ms=0)
    condition = fine(PROGRESSING, "RollingOut", text)
    return Rolling(
        Step(effects, requeue_after_s=RECONCILE_S), stopped, RollStage.STOPPING, condition, updated
    )


def _waiting(
    pool: ObservedPool, roll: Roll, stage: RollStage, why_not: str, left: int, now_ms: int
) -> Condition:
    what = f"{left} of {len(pool.pods)} bookies run an older revision; the next one waits: {why_not}"
    waited_s = (now_ms - roll.since_ms) // 1000
    if pool.spec.rollout.paused:
        return wrong(
            PROGRESSING,
            "RolloutPaused",
            f"{left} of {len(pool.pods)} bookies run an older revision",
            next_step="Set rollout.paused to false to continue the roll.",
        )
    if waited_s > pool.spec.rollout.progress_deadline_seconds:
        advice = {
            RollStage.GATE: "See the condition FullyReplicated for what is missing.",
            RollStage.STOPPING: f"Check the pod of {roll.bookie}: `kubectl describe pod`.",
            RollStage.STARTING: f"Check the pod of {roll.bookie} and its log; a corrected spec replaces it at once.",
        }
        return wrong(
            PROGRESSING, "ProgressDeadlineExceeded", f"For {waited_s} s: {what}", next_step=advice[stage]
        )
    return fine(PROGRESSING, "RollingOut", what)
