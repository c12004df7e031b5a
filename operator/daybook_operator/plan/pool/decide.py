"""The plan for a pool: what is true in, everything that is to be done now out.

Growth comes first and asks nothing; then the objects and where bookies stand; then what needs a clean state. A drain
that cannot go on holds nobody else up: its effects are the last before the status. Nor does an object that the API
server refuses.
"""

from dataclasses import replace
from typing import Final

from daybook_operator.plan.conditions import Condition, wrong
from daybook_operator.plan.decision import Decision, finish, is_paused, is_terminating, paused, sooner
from daybook_operator.plan.drift import apply_if_needed
from daybook_operator.plan.effects import Apply, Effect, EventType, Manifest, PatchMeta, Report
from daybook_operator.plan.finalizers import has_finalizer
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool.budgets import budgets_step
from daybook_operator.plan.pool.cluster_settings import cluster_settings_condition, delay_effects, moves_to
from daybook_operator.plan.pool.delete import READY, deletion
from daybook_operator.plan.pool.drain import drain_step
from daybook_operator.plan.pool.failures import part_of
from daybook_operator.plan.pool.growth import Growth, growth_step
from daybook_operator.plan.pool.lost_disk import lost_disk_step
from daybook_operator.plan.pool.objects import (
    is_foreign,
    service,
    service_account,
    stateful_set,
    without_foreign_set,
)
from daybook_operator.plan.pool.placement import is_spread, placement_condition
from daybook_operator.plan.pool.replication import (
    Replication,
    away_bookies,
    clean_audit_began_ms,
    replication_of,
)
from daybook_operator.plan.pool.roll import outdated, roll_step, waits_for_audit
from daybook_operator.plan.pool.scale import scale_of
from daybook_operator.plan.pool.state import Stage
from daybook_operator.plan.pool.status import (
    disk_condition,
    progressing_condition,
    ready_condition,
    recovery_condition,
    status_of,
)
from daybook_operator.plan.pool.topology import placing_of, topology_step
from daybook_operator.plan.pool.world import PoolWorld

UNCLEAN_LOOK_S: Final = 5.0
"""How often is looked while bookies are away or replicas missing: not everything about them is an event."""
WRONG_LOOK_S: Final = 30.0
"""How often while anything else is not as it should be."""


def decide(world: PoolWorld, now_ms: int) -> Decision:
    """Everything that is to be done for the pool now, but for what was tried at this look and failed."""
    if is_terminating(world.manifest):
        return deletion(without_foreign_set(world), now_ms)
    if is_paused(world.manifest):
        return paused(world.ref, world.manifest, now_ms)
    blocked = cannot_begin(world)
    world = without_foreign_set(world)
    placing = placing_of(world)
    replication = replication_of(world, now_ms)
    growth = growth_step(world, may_recreate=blocked is None)
    scale = scale_of(world, replication)
    topology = topology_step(world, placing)
    lost = lost_disk_step(world)
    recovery = replication.recovery
    replication = replace(replication, recovery=replace(recovery, replaced=recovery.replaced | lost.replaced))
    rolling = roll_step(world, replication, now_ms)
    draining = drain_step(world, replication, now_ms, may_forget=not rolling.step.effects)
    placement = placement_condition(world, placing)
    budgets = budgets_step(world, placing, replication, is_spread=is_spread(world, placement))
    conditions = [
        blocked if blocked is not None else ready_condition(world, lost.troubles),
        progressing_condition(world, rolling, draining),
        placement,
        replication.condition,
        draining.condition,
        growth.condition,
        disk_condition(world),
        recovery_condition(world),
        cluster_settings_condition(world, now_ms),
        scale.condition,
    ]
    status = status_of(
        world,
        replicas=scale.replicas,
        placing=placing,
        replication=replication,
        growth=growth,
        rolling=rolling,
        draining=draining,
        conditions=conditions,
        troubles=lost.troubles,
        now_ms=now_ms,
    )
    effects: list[Effect] = [
        *_finalizer(world),
        *growth.step.effects,
        *(() if blocked is not None else _objects(world, growth, scale.replicas)),
        *topology.effects,
        *delay_effects(world),
        *budgets.effects,
        *lost.step.effects,
        *rolling.step.effects,
        *draining.step.effects,
        *_told_of_move(world, now_ms),
    ]
    steps = (growth.step, rolling.step, draining.step)
    return finish(
        world.ref,
        world.manifest,
        effects=[each for each in effects if not _has_failed(world, each)],
        status=status,
        conditions=conditions,
        now_ms=now_ms,
        requeue_after_s=sooner(
            *(each.requeue_after_s for each in steps), _next_look_s(replication, conditions)
        ),
    )


def audit_wanted_since_ms(world: PoolWorld, now_ms: int) -> int | None:
    """A full audit that began after this time is waited for; None: nobody waits for one."""
    if world.cluster is None or world.is_stopping or is_terminating(world.manifest):
        return None
    began_ms = clean_audit_began_ms(world)
    replication = replication_of(world, now_ms)
    if away_bookies(world, world.cluster):
        return None  # none could end clean
    times = [replication.recovery.changed_ms]
    if (roll := roll_step(world, replication, now_ms).roll) is not None and waits_for_audit(world):
        times.append(roll.since_ms)
    if world.drain is not None and world.drain.stage is Stage.VERIFYING:
        times.append(world.drain.stage_since_ms)
    return max(times) if began_ms is None or began_ms <= max(times) else None


def something_waits_for_audit(world: PoolWorld) -> bool:
    """Whether a roll, a drain or hibernation stands still until an audit ends clean."""
    is_verifying = world.drain is not None and world.drain.stage is Stage.VERIFYING
    return is_verifying or world.spec.hibernate or (bool(outdated(world)) and waits_for_audit(world))


def cannot_begin(world: PoolWorld) -> Condition | None:
    """The condition Ready of a pool that nothing can be made for; what runs already is left as it is."""
    missing = [
        name
        for name, value in (("image", world.spec.image), ("metadata.zookeeper", world.cluster_ref.zookeeper))
        if not value
    ]
    if missing:
        return wrong(
            READY,
            "NotConfigured",
            f"Neither the spec nor the operator's settings say what {' and '.join(missing)} is",
            next_step="Set it in the spec, or in the operator's chart.",
        )
    wanted = {
        ("ServiceAccount", f"{world.name}-bookie"): world.live.get(
            ("ServiceAccount", f"{world.name}-bookie")
        ),
        ("Service", world.name): world.live.get(("Service", world.name)),
        ("StatefulSet", world.name): _live_set(world),
    }
    foreign = [f"{kind} {name}" for (kind, name), live in wanted.items() if is_foreign(world, live)]
    if not foreign:
        return None
    return wrong(
        READY,
        "NameTaken",
        f"{' and '.join(foreign)} of this namespace belong to somebody else",
        next_step="Delete or rename them, or make the pool under another name; nothing of theirs is touched.",
    )


def _live_set(world: PoolWorld) -> Manifest | None:
    return world.stateful_set.manifest if world.stateful_set is not None else None


def _objects(world: PoolWorld, growth: Growth, replicas: int) -> list[Effect]:
    """What is not as it should be. A StatefulSet whose templates are too old is never applied, only recreated."""
    account, headless = service_account(world), service(world)
    effects = [
        *apply_if_needed(account, world.live.get(("ServiceAccount", f"{world.name}-bookie"))),
        *apply_if_needed(headless, world.live.get(("Service", world.name))),
    ]
    is_going = world.stateful_set is not None and world.stateful_set.terminating
    if not growth.outgrown and not is_going:
        effects += apply_if_needed(stateful_set(world, replicas), _live_set(world))
    return effects


def _has_failed(world: PoolWorld, effect: Effect) -> bool:
    """Whether the effect, or one of its part of the plan, was tried at this look and could not be carried out."""
    if isinstance(effect, Apply):
        return (effect.manifest["kind"], effect.manifest["metadata"]["name"]) in world.refused
    return part_of(effect, world.drain) in world.failed


def _told_of_move(world: PoolWorld, now_ms: int) -> list[Effect]:
    """The status, which comes last, is what moves the pool: whatever reads it finds ZooKeeper there from then on."""
    if not (new := moves_to(world, now_ms)):
        return []
    text = f"ZooKeeper of {world.cluster_ref} answers at {new} as well: it is used from here on, and the bookies roll."
    return [Report(world.ref, EventType.NORMAL, "ZooKeeperMoved", text)]


def _finalizer(world: PoolWorld) -> list[Effect]:
    wanted = world.defaults.uses_finalizers
    if has_finalizer(world.manifest) is wanted:
        return []
    return [
        PatchMeta(world.ref, add_finalizer=FINALIZER)
        if wanted
        else PatchMeta(world.ref, remove_finalizer=FINALIZER)
    ]


def _next_look_s(replication: Replication, conditions: list[Condition]) -> float | None:
    """When to look although no event came."""
    ready = conditions[0]
    if ready.is_wrong or replication.condition.is_wrong:
        return UNCLEAN_LOOK_S
    return WRONG_LOOK_S if any(each.is_wrong for each in conditions) else None
