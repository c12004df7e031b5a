"""What an auditor and its workers may conclude and do, checked with knowledge of everything.

It covers rule 31, rule 32, rule 33, rule 34, rule 35, rule 36, rule 37, rule 45, rule 47 and rule 56.

Each check knows the truth (who was registered when, which entries a listing named) and asks only for what must hold
however old the news was that an auditor decided by.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import write_set
from daybook.core.repair.judgement import Findings, LedgerAudit, OpenAction
from daybook.core.repair.plan import RepairPlan

Fail: TypeAlias = Callable[[str, str], None]
"""Ends the run: the name of what was violated, and how."""

LOST_DELAY_MS: Final = 120
OPEN_GRACE_MS: Final = 60
RETRY_FIRST_MS: Final = 30
RETRY_MAX_MS: Final = 120
_KNOWN_ABSENCES: Final = 16
_UNNOTICED_MS: Final = 650
"""Who returns for a shorter time may not have been seen by an auditor that observes now and then and may be paused."""


@dataclass(slots=True)
class _Absence:
    since_ms: int
    until_ms: int | None = None

    def lasted_ms(self, now_ms: int) -> int:
        return (now_ms if self.until_ms is None else self.until_ms) - self.since_ms


class AuditChecks:
    """The checks of one run's auditors and workers."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._absences: dict[BookieId, deque[_Absence]] = {}
        self._limbo_since_ms: dict[tuple[BookieId, LedgerId], int] = {}
        self._failed_at_ms: dict[LedgerId, int] = {}
        self._fragment_since_ms: dict[tuple[LedgerId, Fragment], int] = {}

    # What happened

    def registered(self, bookie: BookieId, now_ms: int) -> None:
        """`bookie` is on the lists (again)."""
        absences = self._absences.setdefault(bookie, deque(maxlen=_KNOWN_ABSENCES))
        if absences and absences[-1].until_ms is None:
            absences[-1].until_ms = now_ms

    def unregistered(self, bookie: BookieId, now_ms: int) -> None:
        """`bookie` is on no list any more."""
        absences = self._absences.setdefault(bookie, deque(maxlen=_KNOWN_ABSENCES))
        if absences and absences[-1].until_ms is not None and now_ms - absences[-1].until_ms < _UNNOTICED_MS:
            absences[-1].until_ms = None
        else:
            absences.append(_Absence(now_ms))

    def ensemble_changed(self, metadata: LedgerMetadata, now_ms: int) -> None:
        """The ledger has another last fragment: someone who writes it is alive."""
        self._fragment_since_ms.setdefault((metadata.ledger_id, metadata.last_fragment), now_ms)

    def in_limbo(self, bookie: BookieId, ledger_id: LedgerId, now_ms: int) -> None:
        """`bookie` marked the ledger."""
        self._limbo_since_ms.setdefault((bookie, ledger_id), now_ms)

    def _was_unregistered_ms(self, bookie: BookieId, now_ms: int) -> int:
        """The longest time that `bookie` was unregistered in one piece."""
        absences = self._absences.get(bookie, ())
        return max((absence.lasted_ms(now_ms) for absence in absences), default=0)

    # The auditor

    def judged(self, metadata: LedgerMetadata, findings: Findings, audit: LedgerAudit, now_ms: int) -> None:
        """An audit of a ledger: is its verdict what its own findings say?"""
        lost_and_there = sorted(findings.lost & findings.registered.keys())
        if lost_and_there:
            self._fail("only absent bookies are lost", f"{lost_and_there} are there (rule 33)")
        if audit.is_fully_replicated:
            lacking = _lacking(metadata, findings)
            if lacking:
                self._fail(
                    "FullyReplicated is true when it is said",
                    f"of ledger {metadata.ledger_id} {lacking} are not listed (rule 45, rule 47)",
                )
        if audit.open_action is OpenAction.RECOVER and not metadata.is_closed:
            self._recovery_ordered(metadata, findings, now_ms)
        if audit.open_action is OpenAction.LEAVE:
            self._left_alone(metadata, findings)

    def _recovery_ordered(self, metadata: LedgerMetadata, findings: Findings, now_ms: int) -> None:
        """A writer is stopped only after its grace, and only if it could continue in another ledger (rule 29, rule 31)."""
        if metadata.state.value != "OPEN":
            return
        ledger_id, members = metadata.ledger_id, metadata.last_fragment.bookies
        spare = [
            name
            for name, info in findings.registered.items()
            if info.writable and name not in (*members, *findings.lost, *findings.limbo)
        ]
        if not spare and not _next_ledger_can_have_them(metadata, findings):
            self._fail(
                "a writer is not stopped for nothing",
                f"ledger {ledger_id}: no bookie is spare (rule 31, rule 45)",
            )
        needs = [since_ms for name in members for since_ms in self._needs_since_ms(name, ledger_id, now_ms)]
        began_ms = self._fragment_since_ms.get((ledger_id, metadata.last_fragment), 0)
        if now_ms - max(began_ms, min(needs, default=now_ms)) < OPEN_GRACE_MS:
            self._fail(
                "an open fragment gets its grace", f"ledger {ledger_id}: {members} were all there (rule 31)"
            )

    def _left_alone(self, metadata: LedgerMetadata, findings: Findings) -> None:
        """An open ledger is not left in limbo for want of a bookie where it can be closed as it stands (rule 29)."""
        members = set(metadata.last_fragment.bookies)
        limbo = members & findings.limbo
        all_stay = members <= findings.registered.keys() - findings.lost - findings.leaving
        if (
            limbo
            and all_stay
            and all(findings.registered[name].writable for name in limbo)
            and _next_ledger_can_have_them(metadata, findings)
        ):
            self._fail(
                "limbo ends sooner or later",
                f"ledger {metadata.ledger_id} is left open, {sorted(limbo)} in limbo (rule 29)",
            )

    def _needs_since_ms(self, bookie: BookieId, ledger_id: LedgerId, now_ms: int) -> Iterator[int]:
        """When an open fragment began to need help because of `bookie`.

        Nobody observes all the time: in need at two observations is in need, be it one bookie now and another one then.
        """
        for absence in self._absences.get(bookie, ()):
            if absence.lasted_ms(now_ms) >= LOST_DELAY_MS:
                yield absence.since_ms + LOST_DELAY_MS
        limbo_ms = self._limbo_since_ms.get((bookie, ledger_id))
        if limbo_ms is not None:
            yield limbo_ms

    # Workers

    def planned(
        self,
        metadata: LedgerMetadata,
        plan: RepairPlan,
        registered: Mapping[BookieId, BookieInfo],
        now_ms: int,
    ) -> None:
        """A worker, to whom `registered` were there, is about to carry out `plan`."""
        for repair in plan.fragments:
            members = metadata.fragment_of(repair.first_entry).bookies
            for job in repair.jobs:
                if not job.replaces:
                    continue
                if job.target in members:
                    self._fail(
                        "a successor is new to the fragment", f"{job.target} is in {members} (rule 32)"
                    )
                if job.old in registered:
                    if not rack_deficit(metadata, members, registered):
                        self._fail(
                            "only lost bookies are replaced",
                            f"{job.old} is there, and ledger {metadata.ledger_id} well placed (rule 33)",
                        )
                elif self._was_unregistered_ms(job.old, now_ms) < LOST_DELAY_MS:
                    self._fail(
                        "only lost bookies are replaced",
                        f"{job.old} was never unregistered for {LOST_DELAY_MS} ms (rule 33)",
                    )

    def replaced(
        self,
        metadata: LedgerMetadata,
        bookies: Iterable[BookieId],
        registered: Mapping[BookieId, BookieInfo],
        now_ms: int,
    ) -> None:
        """A worker took `bookies` out of fragments of `metadata`: each was lost, or a better place was free (rule 33)."""
        for bookie in bookies:
            badly_placed = any(
                rack_deficit(metadata, fragment.bookies, registered)
                for fragment in metadata.fragments
                if bookie in fragment.bookies
            )
            if self._was_unregistered_ms(bookie, now_ms) < LOST_DELAY_MS and not badly_placed:
                self._fail(
                    "only lost bookies are replaced",
                    f"{bookie} was never unregistered for {LOST_DELAY_MS} ms, and ledger {metadata.ledger_id} is well placed (rule 33)",
                )

    def copied(
        self, metadata: LedgerMetadata, plan: RepairPlan, target: BookieId, entries: Iterable[EntryId]
    ) -> None:
        """A repair sends `target` these entries: its position's share and no others (rule 32)."""
        places = [
            (repair.first_entry, job.position)
            for repair in plan.fragments
            for job in repair.jobs
            if job.target == target
        ]
        for entry in entries:
            fragment = metadata.fragment_of(entry)
            members = write_set(metadata.quorum, entry)
            if not any(first == fragment.first_entry and place in members for first, place in places):
                self._fail(
                    "copies keep the stripe",
                    f"{target} gets entry {entry} of ledger {metadata.ledger_id} (rule 32)",
                )

    def failed_ms_ago(self, ledger_id: LedgerId, now_ms: int) -> int | None:
        """How long ago the last repair of the ledger failed, if its task was set aside then and is not due anew."""
        failed_ms = self._failed_at_ms.get(ledger_id)
        return None if failed_ms is None else now_ms - failed_ms

    def began(self, ledger_id: LedgerId, failed_ms_ago: int | None) -> None:
        """A worker began with the ledger: after a failure not before a pause (rule 35).

        `failed_ms_ago` is as of when the worker read the task under its lock.
        """
        if failed_ms_ago is not None and failed_ms_ago < RETRY_FIRST_MS:
            self._fail(
                "a failed repair waits", f"ledger {ledger_id} again after {failed_ms_ago} ms (rule 35)"
            )

    def failed(self, ledger_id: LedgerId, now_ms: int) -> None:
        """The repair of the ledger failed, and its task is set aside."""
        self._failed_at_ms[ledger_id] = now_ms

    def due(self, ledger_id: LedgerId) -> None:
        """The task is due at once: it has a new reason, or is another one."""
        self._failed_at_ms.pop(ledger_id, None)

    def switched_off(self, lost: Collection[BookieId]) -> None:
        """Auto-recovery is switched off, and the auditor takes these for lost all the same?"""
        if lost:
            self._fail("the switch stops auto-recovery", f"{sorted(lost)} are lost (rule 33)")

    def finished(self, ledger_id: LedgerId, *, has_read: bool) -> None:
        """A repair reports that it is done: has it read the metadata since its last copy (rule 56)?"""
        if not has_read:
            what = f"that of ledger {ledger_id} did not (rule 56)"
            self._fail("a repair ends with a read of the metadata", what)


class ReadPace:
    """How fast one auditor reads metadata (rule 37): a bucket of its own."""

    def __init__(self, fail: Fail, per_second: int, now_ms: int) -> None:
        self._fail = fail
        self._per_second = per_second
        self._left = self._most = max(1.0, per_second / 4)
        self._at_ms = now_ms

    def read(self, now_ms: int) -> None:
        """One read more."""
        earned = (now_ms - self._at_ms) * self._per_second / 1000
        self._left, self._at_ms = min(self._most, self._left + earned) - 1, now_ms
        if self._left < -1:
            self._fail("metadata is read at a pace", f"over {self._per_second} a second (rule 37)")


def _next_ledger_can_have_them(metadata: LedgerMetadata, findings: Findings) -> bool:
    """Whether a bookie in limbo can serve a new ledger, and the others of each write set can say where this one ends."""
    members, quorum = metadata.last_fragment.bookies, metadata.quorum
    here = {name for name in members if name in findings.registered and name not in findings.lost}
    vouch = here - findings.limbo
    enough = all(
        sum(members[place] in vouch for place in write_set(quorum, entry))
        > quorum.write_quorum - quorum.ack_quorum
        for entry in range(quorum.ensemble_size)
    )
    return enough and any(findings.registered[name].writable for name in here & findings.limbo)


def _lacking(metadata: LedgerMetadata, findings: Findings) -> list[tuple[BookieId, EntryId]]:
    """What a bookie owes and did not list, up to the end or the LAC, entry by entry."""
    listed = findings.listed or {}
    end = metadata.last_entry if metadata.is_closed else findings.last_add_confirmed
    lacking = []
    for entry in range(0 if end is None else end + 1):
        members = metadata.fragment_of(entry).bookies
        for position in write_set(metadata.quorum, entry):
            held = listed.get(members[position])
            if held is None or not held.contains(entry):
                lacking.append((members[position], entry))
    return lacking


def rack_deficit(
    metadata: LedgerMetadata, members: Collection[BookieId], registered: Mapping[BookieId, BookieInfo]
) -> int:
    """How many write sets of `members` lie in one rack, where the registered bookies have more than one."""
    names = list(members)
    if len({info.rack for info in registered.values()}) < 2 or metadata.quorum.write_quorum < 2:
        return 0
    quorum = metadata.quorum
    racks = [registered[name].rack if name in registered else "" for name in names]
    sets = {frozenset(write_set(quorum, residue)) for residue in range(quorum.ensemble_size)}
    return sum(len({racks[position] for position in positions if racks[position]}) < 2 for positions in sets)
