"""A roll: pods of an older revision are evicted, one after the other, the highest ordinal first.

Before each, every bookie serves and everything is replicated, by an audit that began after the roll did and after the
last one came back: readiness says nothing of what a bookie missed, and an audit of yesterday nothing of what was
written since. A bookie that does not serve anyway is replaced without asking, or an
image that does not start could never be mended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import Condition, fine, iso, wrong
from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import Effect, EventType, Evict, Ref, Report
from daybook_operator.plan.pool.failures import Part
from daybook_operator.plan.pool.others import others_away
from daybook_operator.plan.pool.replication import Replication, clean_audit_began_ms
from daybook_operator.plan.pool.state import Roll, whole
from daybook_operator.plan.pool.world import PodSeen, PoolWorld

PROGRESSING: Final = "Progressing"
LOOK_S: Final = 10.0
STOPPING: Final = "Stopping"
STARTING: Final = "Starting"
GATE: Final = "Gate"


@dataclass(frozen=True, slots=True)
class Rolling:
    """The step, and the roll as the status shall have it; None: every pod is as the spec asks."""

    step: Step
    roll: Roll | None
    stage: str
    condition: Condition | None
    updated: int

    @property
    def message(self) -> str:
        """What the roll waits for."""
        return "" if self.condition is None else self.condition.message


def outdated(world: PoolWorld) -> list[PodSeen]:
    """Pods of an older revision, the highest ordinal first; nothing while the newest revision is not known."""
    newest = world.stateful_set.update_revision if world.stateful_set is not None else ""
    if not newest:
        return []
    return [pod for _, pod in sorted(world.pods.items(), reverse=True) if pod.revision != newest]


def roll_step(world: PoolWorld, replication: Replication, now_ms: int) -> Rolling:
    """Stop the next bookie that is to be replaced, if it may be."""
    old = outdated(world)
    newest = world.stateful_set.update_revision if world.stateful_set is not None else ""
    updated = sum(pod.revision == newest for pod in world.pods.values()) if newest else 0
    if not old or world.is_stopping:
        return Rolling(Step(), None, "", None, updated)
    roll = (
        world.roll
        if world.roll is not None and world.roll.revision == newest
        else Roll(newest, whole(now_ms))
    )
    roll = _noted(world, roll, now_ms)
    if (why := world.failed.get(Part.ROLL)) is not None:
        condition = wrong(
            PROGRESSING,
            "StepFailed",
            f"The roll cannot go on: {why}",
            next_step="It is tried again by itself, after a pause that grows.",
        )
        return Rolling(Step(requeue_after_s=LOOK_S), roll, GATE, condition, updated)
    idle = [pod for pod in old if not _is_in_use(world, pod) and not pod.terminating]
    if idle and not world.spec.rollout.paused and not world.not_now:
        return _stop(world, idle[0], roll, updated, now_ms, "it does not serve")
    others = others_away(world)
    stage, why_not = _gate(world, replication, roll, others)
    why_not = why_not or world.not_now
    drained = world.drain.ordinal if world.drain is not None else -1
    candidates = [pod for pod in old if pod.ordinal != drained and not pod.terminating]
    if not why_not and candidates:
        away = frozenset(map(world.bookie, _away(world))) | others.keys()
        return _stop(world, candidates[0], roll, updated, now_ms, "", away)
    if not candidates:
        why_not = why_not or f"{world.bookie(drained)} alone runs the old revision, and is drained"
    condition = _waiting(world, roll, stage, why_not, len(old), now_ms)
    return Rolling(Step(requeue_after_s=LOOK_S), roll, stage, condition, updated)


def waits_for_audit(world: PoolWorld) -> bool:
    """Whether the next step of a roll asks for a clean audit."""
    return world.spec.rollout.waits_for_replication and not world.spec.rollout.paused


def _noted(world: PoolWorld, roll: Roll, now_ms: int) -> Roll:
    """When the bookie that was stopped last came back."""
    ordinal = world.ordinal_of(roll.bookie) if roll.bookie else None
    if ordinal is None or roll.returned_ms or not world.serves(ordinal):
        return roll
    return roll if world.pods[ordinal].revision != roll.revision else replace(roll, returned_ms=whole(now_ms))


def _is_in_use(world: PoolWorld, pod: PodSeen) -> bool:
    """Whether anybody may rely on the pod: it is ready, or its bookie is registered, or nobody can tell."""
    return pod.ready or world.cluster is None or world.is_registered(pod.ordinal)


def _away(world: PoolWorld) -> list[int]:
    return [ordinal for ordinal in world.expected if not world.serves(ordinal)]


def _gate(
    world: PoolWorld, replication: Replication, roll: Roll, others: Mapping[BookieId, str]
) -> tuple[str, str]:
    """The stage, and why no further bookie may be stopped now; "" if one may. `others`: who of other pools is away."""
    rollout = world.spec.rollout
    away = _away(world)
    if rollout.paused:
        return GATE, "rollout.paused is set"
    if world.cluster is None:
        return GATE, "ZooKeeper does not answer, so nobody knows who serves"
    if away and (rollout.waits_for_replication or len(away) >= rollout.max_unavailable):
        pods = [world.pods.get(ordinal) for ordinal in away]
        stage = STOPPING if any(pod is None or pod.terminating for pod in pods) else STARTING
        names = ", ".join(world.bookie(ordinal) for ordinal in away)
        return stage, f"{names} {'does' if len(away) == 1 else 'do'} not serve yet"
    if others and (rollout.waits_for_replication or len(away) + len(others) >= rollout.max_unavailable):
        bookie, why = next(iter(others.items()))
        return GATE, f"{bookie}, of another pool of the cluster, {why}"
    if world.drain is not None and world.drain.stage.is_final:
        return GATE, f"{world.drain.bookie} is about to leave"
    if rollout.waits_for_replication and not replication.is_full:
        return GATE, replication.condition.message
    began_ms = clean_audit_began_ms(world)
    if rollout.waits_for_replication and (began_ms is None or began_ms <= roll.since_ms):
        return GATE, f"a full audit that began since {iso(roll.since_ms)} has to end clean"
    return GATE, ""


def _stop(
    world: PoolWorld,
    pod: PodSeen,
    roll: Roll,
    updated: int,
    now_ms: int,
    why: str,
    away: frozenset[BookieId] = frozenset(),
) -> Rolling:
    """Have the pod go; `why` is "" for one that serves."""
    assert world.cluster is not None
    bookie = world.bookie(pod.ordinal)
    text = f"{bookie} is stopped to come back with what the spec asks for{f': {why}' if why else ''}."
    effects: tuple[Effect, ...] = (
        Evict(
            Ref("v1", "Pod", world.namespace, pod.name, pod.uid),
            world.cluster_ref,
            bookie,
            {each: info.boot_id for each, info in world.cluster.bookies.items()},
            away,
            is_strict=world.spec.rollout.waits_for_replication,
            is_idle=bool(why),
        ),
        Report(world.ref, EventType.NORMAL, "BookieStopped", text),
    )
    stopped = replace(roll, bookie=bookie, stopped_ms=whole(now_ms), returned_ms=0)
    condition = fine(PROGRESSING, "RollingOut", text)
    return Rolling(Step(effects, requeue_after_s=LOOK_S), stopped, STOPPING, condition, updated)


def _waiting(world: PoolWorld, roll: Roll, stage: str, why_not: str, left: int, now_ms: int) -> Condition:
    what = f"{left} of {len(world.pods)} bookies run an older revision; the next one waits: {why_not}"
    waited_s = (now_ms - roll.since_ms) // 1000
    if world.spec.rollout.paused:
        return wrong(
            PROGRESSING,
            "RolloutPaused",
            f"{left} of {len(world.pods)} bookies run an older revision",
            next_step="Set rollout.paused to false to have the roll go on.",
        )
    if waited_s > world.spec.rollout.progress_deadline_seconds:
        advice = {
            GATE: "See the condition FullyReplicated for what is missing.",
            STOPPING: f"Look at the pod of {roll.bookie}: `kubectl describe pod`.",
            STARTING: f"Look at the pod of {roll.bookie} and its log; a spec that is mended replaces it at once.",
        }
        return wrong(
            PROGRESSING, "ProgressDeadlineExceeded", f"For {waited_s} s: {what}", next_step=advice[stage]
        )
    return fine(PROGRESSING, "RollingOut", what)
