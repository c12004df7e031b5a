"""The parts of a pool's plan: a part that fails holds up no other, and the status reports it.

A plan's effects are carried out in order. When one fails, the plan is made again without the part that it belongs to, so
that what a role, a policy or a bookie refuses keeps neither the rest from being done nor the status from being written.
"""

from collections.abc import Mapping
from enum import StrEnum

from daybook_operator.plan.effects import (
    AuthoriseReplacement,
    DeleteCookie,
    Effect,
    Evict,
    MarkLeaving,
    PatchMeta,
    Remove,
    SetLocations,
    SetLostBookieDelay,
    SetReadOnly,
    UnmarkLeaving,
)
from daybook_operator.plan.pool.state import Drain


class Part(StrEnum):
    """A part of the plan, as the status names it."""

    FINALIZER = "the pool's finalizer"
    GROWTH = "the growth of volumes"
    PLACES = "where bookies stand"
    DELAY = "the delay for lost bookies"
    BUDGETS = "the disruption budgets"
    LOST_DISK = "the replacement of a lost disk"
    ROLL = "the roll"
    DRAIN = "the drain"


def part_of(effect: Effect, drain: Drain | None) -> Part | None:
    """The part that an effect belongs to; None for applied objects, events and the status."""
    match effect:
        case Remove(ref):
            of_kind = {
                "Pod": Part.ROLL,
                "StatefulSet": Part.GROWTH,
                "PodDisruptionBudget": Part.BUDGETS,
                "PersistentVolumeClaim": Part.DRAIN,
            }
            return of_kind.get(ref.kind)
        case Evict():
            return Part.ROLL
        case PatchMeta(ref):
            return Part.FINALIZER if ref.kind == "BookiePool" else Part.PLACES
        case SetLocations(_, changes):
            is_drained = drain is not None and dict(changes) == {drain.bookie: None}
            return Part.DRAIN if is_drained else Part.PLACES
        case SetLostBookieDelay():
            return Part.DELAY
        case AuthoriseReplacement():
            return Part.LOST_DISK
        case SetReadOnly() | MarkLeaving() | UnmarkLeaving() | DeleteCookie():
            return Part.DRAIN
        case _:
            return None


def in_words(failed: Mapping[Part, str]) -> list[str]:
    """A line for each failed part that has no condition of its own."""
    return [f"{part}: {why}" for part, why in sorted(failed.items()) if part not in {Part.ROLL, Part.DRAIN}]
