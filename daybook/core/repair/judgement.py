"""What is wrong with one ledger, and what would repair it: a function of its metadata and of what is known of bookies.

The auditor asks it of every ledger, and a worker asks it again before it acts, so that both mean the same and a task
never outlives its reason (rule 33). A bookie's listing is compared with everything that it owes, entry by entry of a
ledger (rule 47): stragglers after a close and a vanished entry in the middle are the same here. The last fragment of an
open ledger is never repaired (rule 31): it is recovered after a grace period, if a replacement exists, since
otherwise a live writer would be stopped for nothing (rule 45). A bookie in limbo needs none: it lost nothing of a ledger
that begins later, and gets back what it owes of this one in its own place, once the ledger is closed or continues
without it (rule 29).
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.placement.among import rated_in_pool
from daybook.core.placement.policy import BookieInfo, RandomSource, RatingPolicy
from daybook.core.quorum import Quorum, covers_every_write_set, mask_of, stripe_of, write_set_masks
from daybook.core.repair.plan import CopyJob, FragmentRepair, RepairPlan, limbo_plan, may_end_limbo, owed_by


class Reason(Enum):
    """Why a ledger is not as it should be. The values are stored in tasks."""

    LOST = "lost"  # the bookie is gone for longer than the delay
    LEAVING = "leaving"  # the bookie is to be decommissioned
    LIMBO = "limbo"  # the bookie lost its disk and cannot vouch for the ledger
    GAP = "gap"  # the bookie lacks entries that it owes
    MISPLACED = "misplaced"  # the placement policy is not kept, and a better place is free
    UNFINISHED = "unfinished"  # a recovery began and did not end
    OPEN_GAP = "open-gap"  # a bookie of the open fragment lacks entries up to the LAC
    MISSING = "missing"  # the bookie is away, not yet for long
    UNLISTED = "unlisted"  # the bookie did not list what it holds


HARMLESS = frozenset({Reason.LEAVING, Reason.MISPLACED})
"""Every entry has all its replicas all the same."""


class OpenAction(Enum):
    """What to do about the last fragment of a ledger that is not closed."""

    NONE = "nothing is wrong with it"
    WAIT = "the grace period is not over"
    LEAVE = "a recovery would stop its writer for nothing (rule 45)"
    RECOVER = "fence and recover it"


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known of the bookies when a ledger is judged.

    `registered` has the writable and the read-only ones. `listed` is what each bookie lists of this ledger;
    None if nobody was asked (then gaps are not searched). `limbo`: those for which this ledger is in limbo.
    `last_add_confirmed` is that of an open ledger, as far as known.
    """

    registered: Mapping[BookieId, BookieInfo]
    lost: frozenset[BookieId] = frozenset()
    leaving: frozenset[BookieId] = frozenset()
    limbo: frozenset[BookieId] = frozenset()
    listed: Mapping[BookieId, IntervalSet] | None = None
    last_add_confirmed: EntryId | None = None

    def seen_again(self, later: "Findings") -> "Findings":
        """What a second listing shows of the open fragment, up to where it was confirmed at this first one."""
        return replace(later, last_add_confirmed=self.last_add_confirmed)


@dataclass(frozen=True, slots=True)
class Problem:
    """One position of one fragment that is not as it should be."""

    first_entry: EntryId
    bookie: BookieId
    reason: Reason


@dataclass(frozen=True, slots=True)
class LedgerAudit:
    """The verdict over a ledger.

    `plans` are to be carried out one after the other, each after a fresh audit. `blocked` says in words what cannot be
    repaired for want of bookies. `replicas_min` is the smallest number of replicas an entry has on registered bookies
    that can vouch for it. `gap_checked`: everything owed was compared with listings.
    """

    ledger_id: LedgerId
    problems: tuple[Problem, ...]
    plans: tuple[RepairPlan, ...]
    blocked: tuple[str, ...]
    open_action: OpenAction
    replicas_min: int
    gap_checked: bool

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every entry that is confirmed has all its replicas, as far as it was examined (rule 45)."""
        return self.gap_checked and all(problem.reason in HARMLESS for problem in self.problems)

    @property
    def needs_task(self) -> bool:
        """Whether a worker can do something."""
        return bool(self.plans) or self.open_action is OpenAction.RECOVER


@dataclass(slots=True)
class _Draft:
    problems: list[Problem] = field(default_factory=list)
    repairs: list[FragmentRepair] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)


class LedgerJudge:
    """Judges ledgers by `policy`. `rng` picks among equally good replacements."""

    def __init__(self, policy: RatingPolicy, rng: RandomSource) -> None:
        """Holds no state between ledgers."""
        self._policy = policy
        self._rng = rng

    def audit(self, metadata: LedgerMetadata, findings: Findings, *, grace_is_over: bool) -> LedgerAudit:
        """Judge one ledger. `grace_is_over`: for its open fragment, see `GracePeriods`."""
        draft = _Draft()
        open_action = OpenAction.NONE
        for index in range(len(metadata.fragments)):
            if metadata.fragment_end(index) is None:
                open_action = self._audit_open(metadata, findings, draft, grace_is_over=grace_is_over)
            else:
                self._audit_fragment(metadata, index, findings, draft)
        plans = [RepairPlan((repair,)) for repair in draft.repairs]
        here = sorted(findings.limbo & findings.registered.keys())
        plans += [limbo_plan(metadata, bookie) for bookie in here if may_end_limbo(metadata, bookie)]
        return LedgerAudit(
            metadata.ledger_id,
            tuple(draft.problems),
            tuple(plans),
            tuple(draft.blocked),
            open_action,
            _replicas_min(metadata, findings),
            findings.listed is not None,
        )

    def has_open_gap(self, metadata: LedgerMetadata, findings: Findings) -> bool:
        """Whether a bookie of the open fragment lacks what is confirmed.

        Beside a live writer that may be under way: an entry counts as missing only if it is missing in a second listing as well.
        """
        positions = range(metadata.quorum.ensemble_size)
        return not metadata.is_closed and any(self._open_gap(metadata, p, findings) for p in positions)

    # Fragments whose end is known

    def _audit_fragment(
        self, metadata: LedgerMetadata, index: int, findings: Findings, draft: _Draft
    ) -> None:
        fragment = metadata.fragments[index]
        leaves: set[int] = set()
        jobs: list[CopyJob] = []
        for position, bookie in enumerate(fragment.bookies):
            gap = self._gap(metadata, index, position, findings)
            reasons = reasons_of(bookie, findings, gap)
            if not reasons:
                continue
            draft.problems += [Problem(fragment.first_entry, bookie, reason) for reason in reasons]
            if Reason.LOST in reasons or bookie in findings.leaving:
                leaves.add(position)
            elif gap and not (Reason.LIMBO in reasons and may_end_limbo(metadata, bookie)):
                jobs.append(CopyJob(position, bookie, bookie, gap))
        if leaves:
            jobs += self._successors(metadata, index, leaves, findings, draft)
        elif all(bookie in findings.registered for bookie in fragment.bookies):
            jobs += self._better_place(metadata, index, findings, draft)
        if jobs:
            draft.repairs.append(FragmentRepair(fragment.first_entry, tuple(jobs)))

    def _gap(
        self, metadata: LedgerMetadata, index: int, position: int, findings: Findings
    ) -> IntervalSet | None:
        """What the bookie at `position` owes and does not list, entry by entry; None if it did not list it."""
        listed = (findings.listed or {}).get(metadata.fragments[index].bookies[position])
        if listed is None:
            return None
        gap = IntervalSet()
        for first, last, stripe in owed_by(metadata, index, position):
            for interval in listed.missing(first, last, stripe):
                gap.add(*interval)
        return gap

    def _successors(
        self,
        metadata: LedgerMetadata,
        index: int,
        leaves: set[int],
        findings: Findings,
        draft: _Draft,
    ) -> Iterator[CopyJob]:
        """Replace all of `leaves`, or as many as there are bookies for."""
        fragment = metadata.fragments[index]
        ensemble = fragment.bookies
        try:
            changed = self._replace(metadata, ensemble, leaves, findings)
        except NotEnoughBookiesError as error:
            draft.blocked.append(f"ledger {metadata.ledger_id}, entry {fragment.first_entry}: {error}")
            changed = ensemble
            for position in sorted(leaves, key=lambda p: (ensemble[p] not in findings.lost, p)):
                try:
                    changed = self._replace(metadata, changed, {position}, findings)
                except NotEnoughBookiesError:
                    break
        for position in sorted(leaves):
            if changed[position] != ensemble[position]:
                yield CopyJob(position, ensemble[position], changed[position])

    def _better_place(
        self, metadata: LedgerMetadata, index: int, findings: Findings, draft: _Draft
    ) -> Iterator[CopyJob]:
        """The one move that brings the fragment nearest to the policy, if any does (rule 36)."""
        quorum, fragment = metadata.quorum, metadata.fragments[index]
        policy = rated_in_pool(metadata.pool, self._policy)
        best = policy.misplacement(quorum, fragment.bookies, findings.registered)
        if not any(best) or best <= policy.least_misplacement(quorum, findings.registered):
            return
        move: CopyJob | None = None
        for position, bookie in enumerate(fragment.bookies):
            try:
                changed = self._replace(metadata, fragment.bookies, {position}, findings)
            except NotEnoughBookiesError:
                continue
            reached = policy.misplacement(quorum, changed, findings.registered)
            if reached < best:
                best, move = reached, CopyJob(position, bookie, changed[position])
        if move is not None:
            draft.problems.append(Problem(fragment.first_entry, move.old, Reason.MISPLACED))
            yield move

    def _replace(
        self,
        metadata: LedgerMetadata,
        ensemble: tuple[BookieId, ...],
        positions: set[int],
        findings: Findings,
    ) -> tuple[BookieId, ...]:
        """Successors of the ledger's pool that are registered, stay, and are in no limbo for this ledger (rule 69)."""
        return rated_in_pool(metadata.pool, self._policy).replace(
            metadata.quorum,
            ensemble,
            positions,
            findings.registered,
            self._rng,
            exclude=findings.lost | findings.leaving | findings.limbo,
        )

    # The open fragment

    def _audit_open(
        self, metadata: LedgerMetadata, findings: Findings, draft: _Draft, *, grace_is_over: bool
    ) -> OpenAction:
        fragment = metadata.last_fragment
        leaves: set[int] = set()
        for position, bookie in enumerate(fragment.bookies):
            for found in reasons_of(bookie, findings, self._open_gap(metadata, position, findings)):
                reason = Reason.OPEN_GAP if found is Reason.GAP else found
                draft.problems.append(Problem(fragment.first_entry, bookie, reason))
                if reason in {Reason.LOST, Reason.LEAVING, Reason.LIMBO}:
                    leaves.add(position)
        if metadata.state is LedgerState.IN_RECOVERY:
            draft.problems.append(Problem(fragment.first_entry, "", Reason.UNFINISHED))
            return OpenAction.RECOVER if grace_is_over else OpenAction.WAIT
        if not leaves:
            return OpenAction.NONE
        if not (
            self._has_replacement(metadata, fragment.bookies, leaves, findings)
            or self._stays_in_place(metadata, fragment.bookies, leaves, findings)
        ):
            draft.blocked.append(
                f"ledger {metadata.ledger_id}, entry {fragment.first_entry}: open, and no bookie could take the place of "
                f"{', '.join(sorted(fragment.bookies[position] for position in leaves))}: start more bookies"
                + (f" in pool {metadata.pool}" if metadata.pool else "")
            )
            return OpenAction.LEAVE
        return OpenAction.RECOVER if grace_is_over else OpenAction.WAIT

    def _has_replacement(
        self,
        metadata: LedgerMetadata,
        ensemble: tuple[BookieId, ...],
        leaves: set[int],
        findings: Findings,
    ) -> bool:
        """Whether the writer could go on after a recovery (rule 45)."""
        try:
            self._replace(metadata, ensemble, leaves, findings)
        except NotEnoughBookiesError:
            return False
        return True

    def _stays_in_place(
        self,
        metadata: LedgerMetadata,
        ensemble: tuple[BookieId, ...],
        leaves: set[int],
        findings: Findings,
    ) -> bool:
        """Whether those in limbo can keep their places: the next ledger may name them, and this one can be closed."""
        gone = {position for position in leaves if not _serves_others(ensemble[position], findings)}
        return (
            gone != leaves
            and self._can_be_closed(metadata.quorum, ensemble, findings)
            and (not gone or self._has_replacement(metadata, ensemble, gone, findings))
        )

    def _can_be_closed(self, quorum: Quorum, ensemble: tuple[BookieId, ...], findings: Findings) -> bool:
        """Whether those that can vouch suffice for a recovery, wherever the ledger ends: limbo proves nothing (rule 6, rule 29)."""
        sound = _sound(findings)
        return covers_every_write_set(quorum, mask_of({p for p, b in enumerate(ensemble) if b in sound}))

    def _open_gap(self, metadata: LedgerMetadata, position: int, findings: Findings) -> IntervalSet | None:
        """What the bookie lacks of the open fragment up to the LAC; None if it, or the LAC, is not known."""
        fragment = metadata.last_fragment
        listed = (findings.listed or {}).get(fragment.bookies[position])
        if listed is None or findings.last_add_confirmed is None:
            return None
        if findings.last_add_confirmed < fragment.first_entry:
            return IntervalSet()
        return listed.missing(
            fragment.first_entry, findings.last_add_confirmed, stripe_of(metadata.quorum, position)
        )


def reasons_of(bookie: BookieId, findings: Findings, gap: IntervalSet | None) -> tuple[Reason, ...]:
    """What is wrong with `bookie`: the worst, but that one leaves, which is harmless, hides no gap (rule 47) and no limbo.

    Neither hides that it leaves: a task must not forget that. `gap` None: it did not list what it holds.
    """
    if bookie in findings.lost:
        return (Reason.LOST,)
    if bookie not in findings.registered:
        return (Reason.MISSING,)
    reasons = (Reason.LEAVING,) if bookie in findings.leaving else ()
    if bookie in findings.limbo:
        return (*reasons, Reason.LIMBO)
    if gap is None:
        return reasons if findings.listed is None else (*reasons, Reason.UNLISTED)
    return (*reasons, Reason.GAP) if gap else reasons


def _sound(findings: Findings) -> AbstractSet[BookieId]:
    """The bookies that are there and can vouch for what they lack."""
    return findings.registered.keys() - findings.lost - findings.limbo


def _serves_others(bookie: BookieId, findings: Findings) -> bool:
    """Whether a bookie in limbo takes part in a ledger that begins now."""
    info = findings.registered.get(bookie)
    stays = bookie in findings.limbo and bookie not in findings.lost | findings.leaving
    return stays and info is not None and info.writable


def _replicas_min(metadata: LedgerMetadata, findings: Findings) -> int:
    """The smallest number of bookies that are there and can vouch, over all write sets; gaps are not counted.

    Fragments that hold no entry, and never will, do not count.
    """
    sound = _sound(findings)
    masks = write_set_masks(metadata.quorum)
    return min(
        (
            (sum(1 << p for p, bookie in enumerate(fragment.bookies) if bookie in sound) & mask).bit_count()
            for index, fragment in enumerate(metadata.fragments)
            if metadata.fragment_end(index) != fragment.first_entry - 1
            for mask in masks
        ),
        default=metadata.quorum.write_quorum,
    )
