"""What a repair does to a ledger, as values: which positions, from which bookies, to which.

The auditor's plan and the worker's are the same function of metadata and of what is known about the bookies, so the
plan itself is never stored: a worker makes it again from what is true when it begins (rule 33: re-check before
acting), and a repair that finds the fragment otherwise than its plan did leaves it alone (rule 56).
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata, LedgerState
from daybook.core.quorum import stripe_of, write_set
from daybook.core.repair.copy import Owed

PlanKey: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class CopyJob:
    """Copy what `position` owes from other replicas to `target`.

    `old` is the bookie that metadata names there; `target` may be the same one (it lacks entries) or its successor.
    `entries` narrows a copy to a live bookie down to what it lacks; a successor always gets everything.
    """

    position: int
    old: BookieId
    target: BookieId
    entries: IntervalSet | None = None

    @property
    def replaces(self) -> bool:
        """Whether metadata has to change."""
        return self.old != self.target


@dataclass(frozen=True, slots=True)
class FragmentRepair:
    """What to copy in the fragment that begins at `first_entry`; one compare-and-set names all its successors."""

    first_entry: EntryId
    jobs: tuple[CopyJob, ...]


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The fragments to repair, and the bookie whose limbo of this ledger ends with it (rule 29), if any."""

    fragments: tuple[FragmentRepair, ...]
    clear_limbo: BookieId | None = None

    @property
    def key(self) -> PlanKey:
        """What the plan is about, whoever the successors are: one that failed is passed over by it."""
        places = tuple(
            (repair.first_entry, tuple((job.position, job.old) for job in repair.jobs))
            for repair in self.fragments
        )
        return (self.clear_limbo, places)


def may_end_limbo(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    """Whether the limbo of `bookie` may end once it has everything that it owes (rule 29).

    What it owes is definite of a CLOSED ledger, and of an OPEN one whose last fragment names others: a writer counts no
    answer from before the ensemble change that names a bookie (rule 15), and a recovery asks the last fragment's bookies alone.
    Only a recovery of restored metadata, which is IN_RECOVERY, asks others as well (rule 68).
    """
    if metadata.is_closed:
        return True
    return metadata.state is LedgerState.OPEN and bookie not in metadata.last_fragment.bookies


def limbo_plan(metadata: LedgerMetadata, bookie: BookieId) -> RepairPlan:
    """Copy back everything `bookie` owes of a ledger, then end its limbo, which `may_end_limbo`.

    Everything, whatever it lists: what it lists now it may have lost before the mark's nonce is read.
    """
    fragments = tuple(
        FragmentRepair(fragment.first_entry, (CopyJob(fragment.bookies.index(bookie), bookie, bookie),))
        for fragment in metadata.fragments
        if bookie in fragment.bookies
    )
    return RepairPlan(fragments, clear_limbo=bookie)


def owed_by(metadata: LedgerMetadata, index: int, position: int) -> IntervalSet:
    """The entries that `position` of fragment `index` owes; the fragment's end must be known."""
    end = metadata.fragment_end(index)
    assert end is not None, "an open fragment owes nothing definite (rule 31)"
    owed = IntervalSet()
    first = metadata.fragments[index].first_entry
    if first <= end:
        owed.add(first, end, stripe_of(metadata.quorum, position))
    return owed


def index_of(metadata: LedgerMetadata, first_entry: EntryId) -> int | None:
    """The index of the fragment that begins at `first_entry`; None if there is none."""
    starts = [fragment.first_entry for fragment in metadata.fragments]
    return starts.index(first_entry) if first_entry in starts else None


def why_refused(metadata: LedgerMetadata, plan: RepairPlan) -> str | None:
    """Why the plan must not be carried out on the metadata that it was made from; None if it may be."""
    if (bookie := plan.clear_limbo) is not None and not may_end_limbo(metadata, bookie):
        return (
            f"limbo ends only for a ledger that is CLOSED, or OPEN with a last fragment that does not name {bookie}: recover "
            "it first (rule 29)"
        )
    assert bookie is None or plan == limbo_plan(metadata, bookie)
    for repair in plan.fragments:
        index = index_of(metadata, repair.first_entry)
        if index is not None and metadata.fragment_end(index) is None:
            return (
                f"its last fragment, at entry {repair.first_entry}, is open: fence and recover the ledger "
                "before it is repaired (rule 31)"
            )
    return None


def why_obsolete(metadata: LedgerMetadata, repair: FragmentRepair) -> str | None:
    """Why the fragment is no longer as the plan found it; None if it is."""
    index = index_of(metadata, repair.first_entry)
    if index is None:
        return f"no fragment begins at entry {repair.first_entry} any more"
    bookies = metadata.fragments[index].bookies
    for job in repair.jobs:
        if bookies[job.position] != job.old:
            return f"position {job.position} at entry {repair.first_entry} is {bookies[job.position]}'s now"
        if job.replaces and job.target in bookies:
            return f"{job.target} is in the fragment at entry {repair.first_entry} already"
    return None


def why_changed(metadata: LedgerMetadata, repair: FragmentRepair, copied: Fragment | None) -> str | None:
    """Why the fragment is no longer as the plan found it, or as it was `copied`; None if it is."""
    why = why_obsolete(metadata, repair)
    if why is None and metadata.fragment_of(repair.first_entry) != copied:
        why = f"another position at entry {repair.first_entry} changed"
    return why


def owed(
    metadata: LedgerMetadata,
    index: int,
    job: CopyJob,
    repair: FragmentRepair,
    unavailable: AbstractSet[BookieId],
) -> Owed:
    """What `job` copies, and what the copies say of the LAC: all of a fragment whose end is known is confirmed."""
    end = metadata.fragment_end(index)
    assert end is not None
    is_last = index + 1 == len(metadata.fragments)
    length = metadata.length if is_last else metadata.fragments[index + 1].length_before
    wanted = owed_by(metadata, index, job.position)
    if job.entries is not None and not job.replaces:
        wanted = _both(wanted, job.entries)
    return Owed(
        metadata.ledger_id,
        job.target,
        stripe_of(metadata.quorum, job.position),
        wanted,
        end,
        length,
        _sources(metadata, index, job, repair, unavailable),
    )


def _sources(
    metadata: LedgerMetadata,
    index: int,
    job: CopyJob,
    repair: FragmentRepair,
    unavailable: AbstractSet[BookieId],
) -> Callable[[EntryId], list[BookieId]]:
    """The replicas of an entry, sound ones first; the bookie that leaves is one too, while it lives."""
    bookies = metadata.fragments[index].bookies
    refused = unavailable | {job.target}
    doubtful = {other.old for other in repair.jobs}

    def sources_of(entry: EntryId) -> list[BookieId]:
        replicas = [bookies[position] for position in write_set(metadata.quorum, entry)]
        usable = [bookie for bookie in replicas if bookie not in refused]
        return sorted(usable, key=lambda bookie: bookie in doubtful)

    return sources_of


def _both(owed: IntervalSet, listed: IntervalSet) -> IntervalSet:
    """What is in both."""
    both = IntervalSet()
    for first, last, stripe in owed:
        lacking = listed.missing(first, last, stripe)
        present = lacking.missing(first, last, stripe)
        for interval in present:
            both.add(*interval)
    return both
