"""The plan for a pool: from what is observed to everything that is to be done now.

Growth of volumes comes first and has no condition; then the objects and the locations of bookies; then what needs
everything to be replicated. A drain that cannot continue holds up nothing else: its effects are the last before the
status. Nor does an object that the API server refuses.
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
from daybook_operator.plan.pool.growth import Growth, growth_step
from daybook_operator.plan.pool.health import (
    disk_condition,
    progressing_condition,
    ready_condition,
    recovery_condition,
)
from daybook_operator.plan.pool.jobs_health import conditions_of_jobs
from daybook_operator.plan.pool.lost_disk import lost_disk_step
from daybook_operator.plan.pool.objects import (
    is_foreign,
    service,
    service_account,
    stateful_set,
    without_foreign_set,
)
from daybook_operator.plan.pool.observed import ObservedPool
from daybook_operator.plan.pool.parts import part_of
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
from daybook_operator.plan.pool.status import status_of
from daybook_operator.plan.pool.topology import placing_of, topology_step

UNCLEAN_RECONCILE_S: Final = 5.0
"""How often a pool is reconciled while bookies are away or replicas missing: not everything about them is an event."""
WRONG_RECONCILE_S: Final = 30.0
"""How often while anything else is not as it should be."""


def decide(pool: ObservedPool, now_ms: int) -> Decision:
    """Everything that is to be done for the pool now, except what failed in this reconcile."""
    if is_terminating(pool.manifest):
        return deletion(without_foreign_set(pool), now_ms)
    if is_paused(pool.manifest):
        return paused(pool.ref, pool.manifest, now_ms)
    blocked = cannot_begin(pool)
    pool = without_foreign_set(pool)
    placing = placing_of(pool)
    replication = replication_of(pool, now_ms)
    growth = growth_step(pool, may_recreate=blocked is None)
    scale = scale_of(pool, replication)
    topology = topology_step(pool, placing)
    lost = lost_disk_step(pool)
    recovery = replication.recovery
    replication = replace(replication, recovery=replace(recovery, replaced=recovery.replaced | lost.replaced))
    rolling = roll_step(pool, replication, now_ms)
    draining = drain_step(pool, replication, now_ms, may_forget=not rolling.step.effects)
    placement = placement_condition(pool, placing)
    budgets = budgets_step(pool, placing, replication, is_spread=is_spread(pool, placing, placement))
    conditions = [
        blocked if blocked is not None else ready_condition(pool, lost.why_down),
        progressing_condition(pool, rolling, draining),
        placement,
        replication.condition,
        draining.condition,
        growth.condition,
        disk_condition(pool),
        recovery_condition(pool),
        cluster_settings_condition(pool, now_ms),
        scale.condition,
        *conditions_of_jobs(pool.name, pool.spec.jobs, pool.jobs),
    ]
    status = status_of(
        pool,
        replicas=scale.replicas,
        placing=placing,
        replication=replication,
        growth=growth,
        rolling=rolling,
        draining=draining,
        conditions=conditions,
        why_down=lost.why_down,
        now_ms=now_ms,
    )
    effects: list[Effect] = [
        *_finalizer(pool),
        *growth.step.effects,
        *(() if blocked is not None else _objects(pool, growth, scale.replicas)),
        *topology.effects,
        *delay_effects(pool),
        *budgets.effects,
        *lost.step.effects,
        *rolling.step.effects,
        *draining.step.effects,
        *_move_events(pool, now_ms),
    ]
    steps = (growth.step, rolling.step, draining.step)
    return finish(
        pool.ref,
        pool.manifest,
        effects=[each for each in effects if not _has_failed(pool, each)],
        status=status,
        conditions=conditions,
        now_ms=now_ms,
        requeue_after_s=sooner(
            *(each.requeue_after_s for each in steps), _next_reconcile_s(replication, conditions)
        ),
        keep_others=pool.jobs is None,
    )


def audit_wanted_since_ms(pool: ObservedPool, now_ms: int) -> int | None:
    """The pool waits for a full audit that began after this time; None: it waits for none."""
    if pool.cluster is None or pool.is_stopping or is_terminating(pool.manifest):
        return None
    began_ms = clean_audit_began_ms(pool)
    replication = replication_of(pool, now_ms)
    if away_bookies(pool, pool.cluster):
        return None  # none could end clean
    times = [replication.recovery.changed_ms]
    if (roll := roll_step(pool, replication, now_ms).roll) is not None and waits_for_audit(pool):
        times.append(roll.since_ms)
    if pool.drain is not None and pool.drain.stage is Stage.VERIFYING:
        times.append(pool.drain.stage_since_ms)
    return max(times) if began_ms is None or began_ms <= max(times) else None


def something_waits_for_audit(pool: ObservedPool) -> bool:
    """Whether a roll, a drain or hibernation is blocked until an audit ends clean."""
    is_verifying = pool.drain is not None and pool.drain.stage is Stage.VERIFYING
    return is_verifying or pool.spec.hibernate or (bool(outdated(pool)) and waits_for_audit(pool))


def cannot_begin(pool: ObservedPool) -> Condition | None:
    """The condition Ready of a pool whose objects cannot be made; what runs already is left as it is."""
    missing = [
        name
        for name, value in (("image", pool.spec.image), ("metadata.zookeeper", pool.cluster_ref.zookeeper))
        if not value
    ]
    if missing:
        return wrong(
            READY,
            "NotConfigured",
            f"Neither the spec nor the operator's settings name {' and '.join(missing)}",
            next_step="Set it in the spec, or in the operator's chart.",
        )
    wanted = {
        ("ServiceAccount", f"{pool.name}-bookie"): pool.live.get(("ServiceAccount", f"{pool.name}-bookie")),
        ("Service", pool.name): pool.live.get(("Service", pool.name)),
        ("StatefulSet", pool.name): _live_set(pool),
    }
    foreign = [f"{kind} {name}" for (kind, name), live in wanted.items() if is_foreign(pool, live)]
    if not foreign:
        return None
    return wrong(
        READY,
        "NameTaken",
        f"{' and '.join(foreign)} of this namespace do not belong to this pool",
        next_step="Delete or rename them, or create the pool under another name; the operator does not touch them.",
    )


def _live_set(pool: ObservedPool) -> Manifest | None:
    return pool.stateful_set.manifest if pool.stateful_set is not None else None


def _objects(pool: ObservedPool, growth: Growth, replicas: int) -> list[Effect]:
    """The objects that differ from what is wanted. A StatefulSet with old templates is never applied, only recreated."""
    account, headless = service_account(pool), service(pool)
    effects = [
        *apply_if_needed(account, pool.live.get(("ServiceAccount", f"{pool.name}-bookie"))),
        *apply_if_needed(headless, pool.live.get(("Service", pool.name))),
    ]
    is_going = pool.stateful_set is not None and pool.stateful_set.terminating
    if not growth.outgrown and not is_going:
        effects += apply_if_needed(stateful_set(pool, replicas), _live_set(pool))
    return effects


def _has_failed(pool: ObservedPool, effect: Effect) -> bool:
    """Whether the effect, or another one of its part of the plan, failed in this reconcile."""
    if isinstance(effect, Apply):
        return (effect.manifest["kind"], effect.manifest["metadata"]["name"]) in pool.refused
    return part_of(effect, pool.drain) in pool.failed


def _move_events(pool: ObservedPool, now_ms: int) -> list[Effect]:
    """The status, which comes last, is what moves the pool: from then on ZooKeeper is used at the new address."""
    if not (new := moves_to(pool, now_ms)):
        return []
    text = f"ZooKeeper of {pool.cluster_ref} answers at {new} as well: the pool uses that address from now on, and the bookies roll."
    return [Report(pool.ref, EventType.NORMAL, "ZooKeeperMoved", text)]


def _finalizer(pool: ObservedPool) -> list[Effect]:
    wanted = pool.defaults.uses_finalizers
    if has_finalizer(pool.manifest) is wanted:
        return []
    return [
        PatchMeta(pool.ref, add_finalizer=FINALIZER)
        if wanted
        else PatchMeta(pool.ref, remove_finalizer=FINALIZER)
    ]


def _next_reconcile_s(replication: Replication, conditions: list[Condition]) -> float | None:
    """After how long to reconcile although no event came."""
    ready = conditions[0]
    if ready.is_wrong or replication.condition.is_wrong:
        return UNCLEAN_RECONCILE_S
    return WRONG_RECONCILE_S if any(each.is_wrong for each in conditions) else None
