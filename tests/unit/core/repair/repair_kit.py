"""What the tests of repair share: repairs with small limits, and hooks that change the world at one effect."""

from collections.abc import Callable
from typing import TypeAlias

from daybook.core.effects import Effect
from daybook.core.events import RepairEvent
from daybook.core.format.intervals import IntervalSet
from daybook.core.repair.copy import RepairPolicy
from daybook.core.repair.plan import CopyJob, FragmentRepair, RepairPlan, limbo_plan
from daybook.core.repair.repair import LedgerRepair
from tests.unit.core.repair.repair_model import Cluster

Todo: TypeAlias = list[tuple[int, str]]


SMALL = RepairPolicy(read_bytes_max=60, bytes_in_flight_max=200)


def repair_of(
    cluster: Cluster, *fragments: FragmentRepair, policy: RepairPolicy = SMALL, lost: str = ""
) -> LedgerRepair:
    """A repair planned from the cluster's metadata as it is now."""
    assert cluster.metadata is not None
    plan = RepairPlan(fragments)
    return LedgerRepair(cluster.metadata, cluster.version, plan, policy=policy, unavailable=frozenset(lost))


def limbo_repair(cluster: Cluster, bookie: str, policy: RepairPolicy = SMALL) -> LedgerRepair:
    """The repair that ends the limbo of `bookie`."""
    assert cluster.metadata is not None
    return LedgerRepair(
        cluster.metadata, cluster.version, limbo_plan(cluster.metadata, bookie), policy=policy
    )


def one(
    first: int, position: int, old: str, target: str, entries: IntervalSet | None = None
) -> FragmentRepair:
    """A fragment with one position to repair."""
    return FragmentRepair(first, (CopyJob(position, old, target, entries),))


def named(cluster: Cluster) -> list[str]:
    """The fragments' bookies, one word each."""
    assert cluster.metadata is not None
    return ["".join(fragment.bookies) for fragment in cluster.metadata.fragments]


def on_first(cluster: Cluster, kind: type, action: Callable[[], list[RepairEvent] | None]) -> list[Effect]:
    """Call `action()` before the first effect of `kind` is carried out; returns the list that will hold it."""
    seen: list[Effect] = []

    def before(effect: Effect) -> list[RepairEvent] | None:
        if isinstance(effect, kind) and not seen:
            seen.append(effect)
            return action()
        return None

    cluster.before = before
    return seen
