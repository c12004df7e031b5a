"""How many replicas the StatefulSet is to have: never fewer than there are bookies that the cluster remembers.

It is raised at once, because new bookies move nothing, and lowered by one once a drained bookie is forgotten, or to
nothing for hibernation, once everything is replicated. Whoever lowers it by hand is corrected.
"""

from dataclasses import dataclass
from typing import Final

from daybook_operator.plan.conditions import Condition, fine, wrong
from daybook_operator.plan.pool.drain import lowers_to
from daybook_operator.plan.pool.replication import Replication
from daybook_operator.plan.pool.world import PoolWorld

HIBERNATED: Final = "Hibernated"


@dataclass(frozen=True, slots=True)
class Scale:
    """The number, and what to say about hibernation."""

    replicas: int
    condition: Condition


def scale_of(world: PoolWorld, replication: Replication) -> Scale:
    """What the StatefulSet is to have now."""
    if not world.spec.hibernate:
        return Scale(_awake(world), fine(HIBERNATED, "Awake", status=False))
    if world.is_stopped:
        return Scale(
            0, fine(HIBERNATED, "Stopped", "No bookie runs; volumes and registrations of identity are kept.")
        )
    if world.is_stopping:
        left = ", ".join(pod.name for _, pod in sorted(world.pods.items()))
        return Scale(0, fine(HIBERNATED, "Stopping", f"Stopping {left}.", status=False))
    if (why_not := _why_awake(world, replication)) is not None:
        return Scale(_awake(world), why_not)
    return Scale(0, fine(HIBERNATED, "Stopping", "Everything is replicated: the bookies stop.", status=False))


def _awake(world: PoolWorld) -> int:
    lowered = lowers_to(world)
    if lowered is not None:
        return lowered
    return max(world.spec.replicas, world.present_replicas)


def _why_awake(world: PoolWorld, replication: Replication) -> Condition | None:
    """Why the pool cannot stop yet; a pool without any bookie can."""
    if world.present_replicas == 0 and world.cluster is not None:
        return None
    if world.drain is not None:
        return wrong(
            HIBERNATED,
            "WaitingForDrain",
            f"{world.drain.bookie} is drained, which needs the others",
            next_step="The pool stops when the drain is over; raise replicas to call it off.",
        )
    if replication.is_full and all(map(world.serves, world.expected)):
        return None
    reason = "a bookie does not serve" if replication.is_full else replication.condition.message
    return wrong(
        HIBERNATED,
        "WaitingForReplication",
        f"The pool stops only from a clean state: {reason}",
        next_step="Nothing is stopped before; see the conditions Ready and FullyReplicated.",
    )
