"""How many replicas the StatefulSet is to have: never fewer than there are bookies that the cluster remembers.

It is raised at once, because new bookies move no data. It is lowered by one once a drained bookie is forgotten, or to 0
for hibernation, once everything is replicated. A change by hand is reverted.
"""

from dataclasses import dataclass
from typing import Final

from daybook_operator.plan.conditions import Condition, find, fine, wrong
from daybook_operator.plan.effects import Manifest
from daybook_operator.plan.pool.drain import lowers_to
from daybook_operator.plan.pool.observed import ObservedPool
from daybook_operator.plan.pool.replication import Replication
from daybook_operator.plan.pool.spec import own_spec

HIBERNATED: Final = "Hibernated"
STOPPING: Final = "Stopping"
STOPPED: Final = "Stopped"


@dataclass(frozen=True, slots=True)
class Scale:
    """The number, and the condition Hibernated."""

    replicas: int
    condition: Condition


def scale_of(pool: ObservedPool, replication: Replication) -> Scale:
    """What the StatefulSet is to have now."""
    if not pool.spec.hibernate:
        return Scale(_awake(pool), fine(HIBERNATED, "Awake", status=False))
    if pool.is_stopped:
        return Scale(0, fine(HIBERNATED, STOPPED, "No bookie runs; volumes and cookies are kept."))
    if pool.is_stopping:
        left = ", ".join(pod.name for _, pod in sorted(pool.pods.items()))
        return Scale(0, fine(HIBERNATED, STOPPING, f"Stopping {left}.", status=False))
    if (why_not := _why_awake(pool, replication)) is not None:
        return Scale(_awake(pool), why_not)
    return Scale(0, fine(HIBERNATED, STOPPING, "Everything is replicated: the bookies stop.", status=False))


def is_hibernating(manifest: Manifest) -> bool:
    """Whether the pool's bookies are stopped or stop now, by its status.

    A pool that is to hibernate waits for a drain or for repair first, and both need recovery Jobs.
    """
    said = find((manifest.get("status") or {}).get("conditions") or (), HIBERNATED)
    return own_spec(manifest).hibernate and said is not None and said["reason"] in {STOPPING, STOPPED}


def _awake(pool: ObservedPool) -> int:
    lowered = lowers_to(pool)
    if lowered is not None:
        return lowered
    return max(pool.spec.replicas, pool.present_replicas)


def _why_awake(pool: ObservedPool, replication: Replication) -> Condition | None:
    """Why the pool cannot stop yet; a pool without any bookie can."""
    if pool.present_replicas == 0 and pool.cluster is not None:
        return None
    if pool.drain is not None:
        return wrong(
            HIBERNATED,
            "WaitingForDrain",
            f"{pool.drain.bookie} is being drained, which needs the other bookies",
            next_step="The pool stops when the drain has ended; raise replicas to cancel the drain.",
        )
    if replication.is_full and all(map(pool.serves, pool.expected)):
        return None
    reason = "a bookie does not serve" if replication.is_full else replication.condition.message
    return wrong(
        HIBERNATED,
        "WaitingForReplication",
        f"The pool stops only once every entry is on all its bookies: {reason}",
        next_step="No bookie is stopped before; see the conditions Ready and FullyReplicated.",
    )
