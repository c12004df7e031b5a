"""A bookie whose disk is lost: the operator authorises its replacement, where the policy says so (rule 29).

The bookie itself says by its exit code that the metadata store knows it and its directories are empty. Its old process
is certainly dead, because a StatefulSet never runs two pods of one ordinal. Over the whole cluster fewer disks are lost
at one time than any ledger on them has bookies in its ack quorum, counted with those that are under repair; and they are
replaced one after the other. More are no lost disks but a mistake in the volumes, and are left to a person: what an
authorised replacement finds empty stays empty.

A bookie that was drained, kept its volumes and comes back is the other case: its directories are its own, and nothing
names it any more.
"""

from dataclasses import dataclass
from typing import Final

from daybook.core.bookie.exits import EXIT_DISK_LOST, EXIT_FORGOTTEN
from daybook.core.ids import BookieId
from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import AuthoriseReplacement, Effect, EventType, Report
from daybook_operator.plan.pool.failures import Part
from daybook_operator.plan.pool.world import PodSeen, PoolWorld

BY: Final = "daybook-operator, by the pool's lostDisk policy"


@dataclass(frozen=True, slots=True)
class LostDisks:
    """The step, for each bookie that cannot start by itself what a person should know and do, and who is replaced by this plan."""

    step: Step
    troubles: dict[BookieId, str]
    replaced: frozenset[BookieId] = frozenset()


def lost_disk_step(world: PoolWorld) -> LostDisks:
    """Authorise what the policy allows; explain the rest."""
    effects: list[Effect] = []
    troubles: dict[BookieId, str] = {}
    if world.cluster is None:
        return LostDisks(Step(), troubles)
    for ordinal, pod in sorted(world.pods.items()):
        bookie = world.bookie(ordinal)
        why_not = _why_not(world, pod)
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
    replaced = frozenset(each.bookie for each in effects if isinstance(each, AuthoriseReplacement))
    return LostDisks(Step(tuple(effects)), troubles, replaced)


def _why_not(world: PoolWorld, pod: PodSeen) -> str | None:
    """None: nothing is lost. Empty: authorise. Else why this waits, or is for a person."""
    assert world.cluster is not None
    bookie = world.bookie(pod.ordinal)
    if pod.terminating or (world.drain is not None and world.drain.ordinal == pod.ordinal):
        return None
    command = f"`daybook bookie replace {bookie}`"
    is_replaced = world.spec.lost_disk.policy == "Replace"
    is_about_ledgers = pod.exit_code in {EXIT_FORGOTTEN, EXIT_DISK_LOST}
    if is_about_ledgers and is_replaced and not world.cluster.survey.is_whole:
        if why := world.cluster.survey.why_unreadable:
            return f"what it holds is not known: {why}; mend or delete that ledger"
        return "what it holds is not known yet: the ledgers' metadata is being read"
    if pod.exit_code == EXIT_FORGOTTEN and bookie not in world.cluster.cookies:
        if world.cluster.survey.ledgers_of.get(bookie, 0) == 0:
            return ""
        return (
            "ZooKeeper has lost its cookie, and ledgers still name it: find out who deleted the cookie; if the bookie's data "
            f"need not be trusted, {command} lets it start in limbo"
        )
    if pod.exit_code != EXIT_DISK_LOST or bookie not in world.cluster.cookies:
        return None
    if not is_replaced:
        return f"its directories are empty, and lostDisk.policy is Manual: if the disk is really gone, run {command}"
    return _why_too_many(world, bookie, command) or _why_not_yet(world, bookie)


def _why_too_many(world: PoolWorld, bookie: BookieId, command: str) -> str:
    """Why so many are lost at one time that an acknowledged entry may have been on these disks alone; "" if it cannot."""
    assert world.cluster is not None
    lost = sorted({bookie, *disks_lost(world), *under_repair(world)})
    smallest = world.cluster.survey.ack_quorum_of
    quorums = [smallest[each] for each in lost if each in smallest]
    if not quorums or len(lost) < min(quorums):
        return ""
    return (
        f"{len(lost)} {'disk is' if len(lost) == 1 else 'disks are'} empty or under repair in the cluster at one time "
        f"({', '.join(lost)}), and ledgers with an ack quorum of {min(quorums)} may have entries on no other: rather a mistake in "
        f"the volumes than a lost disk; check what is mounted; if it is really gone, run {command}"
    )


def _why_not_yet(world: PoolWorld, bookie: BookieId) -> str:
    """Whom it has to wait for; "" if it is its turn. One at a time, the first by name, until nothing is in limbo any more."""
    before = sorted(under_repair(world) - {bookie})
    if before:
        return f"its disk is empty; it is replaced once {', '.join(before)}, replaced before, has back what it owes"
    first = min({bookie, *disks_lost(world)})
    return "" if first == bookie else f"its disk is empty; it is replaced after {first}"


def disks_lost(world: PoolWorld) -> set[BookieId]:
    """The bookies of the cluster that find their disks empty."""
    seen = world.cluster
    assert seen is not None
    pods = {world.bookie(ordinal): pod for ordinal, pod in world.pods.items()} | dict(world.other_pods)
    return {
        bookie
        for bookie, pod in pods.items()
        if pod.exit_code == EXIT_DISK_LOST and bookie in seen.cookies and bookie not in seen.bookies
    }


def under_repair(world: PoolWorld) -> set[BookieId]:
    """The bookies of the cluster that may start empty, did so and are not back, are in limbo, or do not tell whether they are."""
    seen = world.cluster
    assert seen is not None
    replaced = world.recovery.replaced.union(
        *((pool.get("status") or {}).get("recovery", {}).get("replacedBookies", ()) for pool in world.others)
    )
    not_back = {bookie for bookie in replaced if bookie in seen.cookies and bookie not in seen.bookies}
    return (
        not_back - disks_lost(world) | (seen.replacements & seen.cookies) | seen.in_limbo | seen.untold.keys()
    )
