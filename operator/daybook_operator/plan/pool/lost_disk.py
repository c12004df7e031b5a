"""A bookie whose disk is lost: the operator authorises its replacement, where the policy says so (rule 29).

The bookie itself reports by its exit code that the metadata store knows it and its directories are empty. Its old
process is certainly dead, because a StatefulSet never runs two pods of one ordinal. A replacement is authorised only
while fewer disks of the whole cluster are lost or under repair than any ledger on them has bookies in its ack quorum, and
bookies are replaced one after the other. More empty disks are rather a mistake in the volumes, and are left to a person:
what an authorised replacement finds empty stays empty.

The other case is a bookie that was drained, kept its volumes and comes back: its directories are its own, and no ledger
names it any more.
"""

from dataclasses import dataclass
from typing import Final

from daybook.core.bookie.exits import EXIT_DISK_LOST, EXIT_FORGOTTEN
from daybook.core.ids import BookieId
from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import AuthoriseReplacement, Effect, EventType, Report
from daybook_operator.plan.pool.observed import ObservedPod, ObservedPool
from daybook_operator.plan.pool.parts import Part

BY: Final = "daybook-operator, by the pool's lostDisk policy"


@dataclass(frozen=True, slots=True)
class LostDisks:
    """The step; for each bookie that cannot start by itself, why, and what a person can do; the bookies that the plan replaces."""

    step: Step
    why_down: dict[BookieId, str]
    replaced: frozenset[BookieId] = frozenset()


def lost_disk_step(pool: ObservedPool) -> LostDisks:
    """Authorise what the policy allows; explain the rest."""
    effects: list[Effect] = []
    why_down: dict[BookieId, str] = {}
    if pool.cluster is None:
        return LostDisks(Step(), why_down)
    for ordinal, pod in sorted(pool.pods.items()):
        bookie = pool.bookie(ordinal)
        why_not = _why_not(pool, pod)
        if why_not is None or bookie in pool.cluster.bookies:
            continue
        if bookie in pool.cluster.replacements:
            why_down[bookie] = "its replacement is authorised: it starts when its container restarts"
        elif why_not:
            why_down[bookie] = why_not
        elif (failure := pool.failed.get(Part.LOST_DISK)) is not None:
            why_down[bookie] = f"its disk is empty, and its replacement could not be authorised: {failure}"
        else:
            why_down[bookie] = "its disk is empty; its replacement is being authorised"
            effects.append(AuthoriseReplacement(pool.cluster_ref, bookie, BY))
            text = f"{bookie} may start on empty directories; repair copies back what it owes."
            effects.append(Report(pool.ref, EventType.NORMAL, "ReplacementAuthorised", text))
    replaced = frozenset(each.bookie for each in effects if isinstance(each, AuthoriseReplacement))
    return LostDisks(Step(tuple(effects)), why_down, replaced)


def _why_not(pool: ObservedPool, pod: ObservedPod) -> str | None:
    """None: no disk is lost. "": authorise. Else why the replacement waits, or is left to a person."""
    assert pool.cluster is not None
    bookie = pool.bookie(pod.ordinal)
    if pod.terminating or _is_to_leave(pool, pod):
        return None
    command = f"`daybook bookie replace {bookie}`"
    if pod.exit_code == EXIT_FORGOTTEN and bookie not in pool.cluster.cookies:
        return _why_not_forgotten(pool, bookie, command)
    if pod.exit_code != EXIT_DISK_LOST or bookie not in pool.cluster.cookies:
        return None
    if pool.spec.lost_disk.policy == "Manual":
        return f"its directories are empty, and lostDisk.policy is Manual: if the disk is really gone, run {command}"
    return _why_not_known(pool) or why_too_many(pool, bookie, command) or _why_not_yet(pool, bookie)


def _is_to_leave(pool: ObservedPool, pod: ObservedPod) -> bool:
    """Whether the pod is drained, and nobody has cancelled that."""
    return pool.drain is not None and pool.drain.ordinal == pod.ordinal >= pool.spec.replicas


def _why_not_known(pool: ObservedPool) -> str:
    """Why nobody knows which ledgers name the bookie; "" if the operator does."""
    assert pool.cluster is not None
    if why := pool.cluster.survey.why_unreadable:
        return f"which ledgers it holds is not known: {why}; repair or delete that ledger"
    if not pool.cluster.survey.is_whole:
        return "which ledgers it holds is not known yet: the ledgers' metadata is being read"
    return ""


def _why_not_forgotten(pool: ObservedPool, bookie: BookieId, command: str) -> str:
    """Why a bookie without a cookie is left to a person, or waits; "": authorise."""
    assert pool.cluster is not None
    if why := _why_not_known(pool):
        return why
    if pool.cluster.collection_held:
        return (
            "its cookie is missing in ZooKeeper, whose metadata was restored, so it may have the only copies of ledgers that began after "
            f"the export: its log has the command that lets it start with its disks (`daybook metadata readmit {bookie} …`); if nothing on "
            f"them is needed, {command} lets it start without"
        )
    if pool.cluster.survey.ledgers_of.get(bookie, 0):
        return (
            "its cookie is missing in ZooKeeper, and ledgers still name it: find out who deleted the cookie; if the bookie's data "
            f"need not be trusted, {command} lets it start in limbo"
        )
    if pool.spec.lost_disk.policy == "Manual":
        return (
            "its cookie is missing in ZooKeeper, no ledger names it, and lostDisk.policy is Manual: if nothing on its disks is needed, "
            f"run `daybook bookie replace {bookie} --force`"
        )
    return ""


def why_too_many(pool: ObservedPool, bookie: BookieId, command: str) -> str:
    """Why an acknowledged entry may have been on the lost disks alone; "" if it cannot have been."""
    assert pool.cluster is not None
    lost = sorted({bookie, *disks_lost(pool), *under_repair(pool)})
    smallest = pool.cluster.survey.ack_quorum_of
    quorums = [smallest[each] for each in lost if each in smallest]
    if not quorums or len(lost) < min(quorums):
        return ""
    return (
        f"{len(lost)} {'disk is' if len(lost) == 1 else 'disks are'} empty or under repair in the cluster at one time "
        f"({', '.join(lost)}), and ledgers with an ack quorum of {min(quorums)} may have entries on no other: this is rather a mistake in "
        f"the volumes than a lost disk; check what is mounted; if the disk is really gone, run {command}"
    )


def _why_not_yet(pool: ObservedPool, bookie: BookieId) -> str:
    """Which bookie it waits for; "" if it is its turn. One at a time, the first by name, until none is in limbo any more."""
    before = sorted(under_repair(pool) - {bookie})
    if before:
        return f"its disk is empty; it is replaced once {', '.join(before)}, replaced before, holds again what it owes"
    first = min({bookie, *disks_lost(pool)})
    return "" if first == bookie else f"its disk is empty; it is replaced after {first}"


def disks_lost(pool: ObservedPool) -> set[BookieId]:
    """The bookies of the cluster whose disks are empty."""
    cluster = pool.cluster
    assert cluster is not None
    pods = {pool.bookie(ordinal): pod for ordinal, pod in pool.pods.items()} | dict(pool.other_pods)
    return {
        bookie
        for bookie, pod in pods.items()
        if pod.exit_code == EXIT_DISK_LOST and bookie in cluster.cookies and bookie not in cluster.bookies
    }


def under_repair(pool: ObservedPool) -> set[BookieId]:
    """Bookies of the cluster that may start empty, did so and are not back, are in limbo, or do not report whether they are."""
    cluster = pool.cluster
    assert cluster is not None
    replaced = pool.recovery.replaced.union(
        *((each.get("status") or {}).get("recovery", {}).get("replacedBookies", ()) for each in pool.others)
    )
    not_back = {bookie for bookie in replaced if bookie in cluster.cookies and bookie not in cluster.bookies}
    return (
        not_back - disks_lost(pool)
        | (cluster.replacements & cluster.cookies)
        | cluster.in_limbo
        | cluster.silent.keys()
    )
