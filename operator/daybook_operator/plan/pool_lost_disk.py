"""A bookie whose disk is lost: the operator authorises its replacement, where the policy says so (rule 29).

The bookie itself says by its exit code that the metadata store knows it and its directories are empty. Its old process
is certainly dead, because a StatefulSet never runs two pods of one ordinal. Disks lost in several racks at one time
are no lost disks but a mistake in the volumes, and are left to a person: what an authorised replacement finds empty
stays empty.

A bookie that was drained, kept its volumes and comes back is the other case: its directories are its own, and nothing
names it any more.
"""

from dataclasses import dataclass
from typing import Final

from daybook.core.exits import EXIT_DISK_LOST, EXIT_FORGOTTEN
from daybook.core.ids import BookieId
from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import AuthoriseReplacement, Effect, EventType, Report
from daybook_operator.plan.pool_failures import Part
from daybook_operator.plan.pool_topology import Placing, rack_path
from daybook_operator.plan.pool_world import PodSeen, PoolWorld

BY: Final = "daybook-operator, by the pool's lostDisk policy"


@dataclass(frozen=True, slots=True)
class LostDisks:
    """The step, and for each bookie that cannot start by itself what a person should know and do."""

    step: Step
    troubles: dict[BookieId, str]


def lost_disk_step(world: PoolWorld, placing: Placing) -> LostDisks:
    """Authorise what the policy allows; explain the rest."""
    effects: list[Effect] = []
    troubles: dict[BookieId, str] = {}
    if world.cluster is None:
        return LostDisks(Step(), troubles)
    for ordinal, pod in sorted(world.pods.items()):
        bookie = world.bookie(ordinal)
        why_not = _why_not(world, placing, pod)
        if why_not is None or bookie in world.cluster.bookies:
            continue
        if bookie in world.cluster.replacements:
            troubles[bookie] = "its replacement is authorised: it starts at its pod's next attempt"
        elif why_not:
            troubles[bookie] = why_not
        elif (failure := world.failed.get(Part.LOST_DISK)) is not None:
            troubles[bookie] = f"its disk is empty, and its replacement could not be authorised: {failure}"
        else:
            troubles[bookie] = "its disk is empty; its replacement is being authorised"
            effects.append(AuthoriseReplacement(world.cluster_ref, bookie, BY))
            text = f"{bookie} may start on empty directories; repair gives back what it owes."
            effects.append(Report(world.ref, EventType.NORMAL, "ReplacementAuthorised", text))
    return LostDisks(Step(tuple(effects)), troubles)


def _why_not(world: PoolWorld, placing: Placing, pod: PodSeen) -> str | None:
    """None: nothing is lost. Empty: authorise. Else why this is for a person."""
    assert world.cluster is not None
    bookie = world.bookie(pod.ordinal)
    if pod.terminating or (world.drain is not None and world.drain.ordinal == pod.ordinal):
        return None
    command = f"`daybook bookie replace {bookie}`"
    if pod.exit_code == EXIT_FORGOTTEN and bookie not in world.cluster.cookies:
        if world.cluster.survey.ledgers_of.get(bookie, 0) == 0:
            return ""
        return (
            "ZooKeeper has lost its cookie, and ledgers still name it: find out who deleted the cookie; if the bookie's data "
            f"need not be trusted, {command} lets it start in limbo"
        )
    if pod.exit_code != EXIT_DISK_LOST or bookie not in world.cluster.cookies:
        return None
    if not world.spec.replaces_lost_disks:
        return f"its directories are empty, and lostDisk.policy is Manual: if the disk is really gone, run {command}"
    racks = _racks_with_lost_disks(world, placing)
    if len(racks) > 1:
        return (
            f"bookies of {len(racks)} racks ({', '.join(racks)}) find their disks empty at one time, which is rather a mistake "
            f"in the volumes than lost disks: check what is mounted; if they are really gone, run {command} for each"
        )
    return ""


def _racks_with_lost_disks(world: PoolWorld, placing: Placing) -> list[str]:
    """A disk whose replacement is authorised counts as long as its bookie is not back."""
    racks = {
        rack_path(place) if (place := placing.places.get(pod.ordinal)) else pod.node
        for pod in world.pods.values()
        if pod.exit_code == EXIT_DISK_LOST
    }
    return sorted(racks)
