"""What one repair may do: copy its share, leave alone what others have changed, end only when it has read the metadata.

The rules of repair back each other up as those of recovery do: a lock keeps workers apart (rule 34), and without it a
changed fragment does (rule 56). So each step of a repair is checked by itself.
"""

from collections.abc import Sequence

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import decode_header
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.repair.plan import RepairPlan, index_of
from daybook.core.repair.repair import LedgerRepair
from tests.model.sim.checkers import Checkers


class RepairChecks:
    """The checks of one repair of the ledger that was found as `metadata`."""

    def __init__(
        self, checkers: Checkers, name: str, metadata: LedgerMetadata, plan: RepairPlan, machine: LedgerRepair
    ) -> None:
        self._checkers = checkers
        self._name = name
        self._ledger_id = metadata.ledger_id
        self._plan = plan
        self._machine = machine
        self._has_read = self._must_copy = self._is_cleared = self._is_someone_elses = False
        self._members = self._members_in(metadata)

    def stepped(self, event: ev.Event, effects: Sequence[fx.Effect]) -> None:
        """The repair took `event` and asks for `effects`."""
        self._record(event)
        for effect in effects:
            match effect:
                case fx.SendFrame():
                    self._copies(effect)
                case fx.CasMetadata(metadata=metadata):
                    self._checkers.oracles[self._ledger_id].proposed = metadata
                    self._names()
                case fx.RepairFinished():
                    self._finishes()
                case _:
                    pass
        if isinstance(event, ev.LockLost) and not self._machine.is_done:
            self._fail("a worker without its lock stops", "it does not (rule 34)")

    def _fail(self, invariant: str, why: str) -> None:
        self._checkers.fail(invariant, f"{self._name}, ledger {self._ledger_id}: {why}")

    def _record(self, event: ev.Event) -> None:
        match event:
            case ev.CasAnswered(outcome=ev.CasOutcome.DONE):
                self._has_read = True
                self._members = self._with_successors()
            case ev.CasAnswered(outcome=ev.CasOutcome.CONFLICT):
                self._must_copy = True
            case ev.FrameAcked():
                self._must_copy = self._has_read = False
            case ev.LimboCleared(cleared=cleared):
                self._is_cleared = cleared
            case ev.LimboRead(nonce=None):
                self._is_cleared = True
            case ev.MetadataRead(metadata=metadata):
                self._has_read = True
                self._compare(metadata)
            case _:
                pass

    # Whose the fragment is

    def _members_in(self, metadata: LedgerMetadata | None) -> tuple[BookieId, ...]:
        """Who is in the fragment that gets successors; a plan with several fragments names none."""
        if metadata is None or not self._plan.fragments:
            return ()
        index = index_of(metadata, self._plan.fragments[0].first_entry)
        return () if index is None else metadata.fragments[index].bookies

    def _with_successors(self) -> tuple[BookieId, ...]:
        members = list(self._members)
        for job in self._plan.fragments[0].jobs:
            members[job.position] = job.target
        return tuple(members)

    def _compare(self, metadata: LedgerMetadata | None) -> None:
        """A fragment that is neither as it was nor as this repair wants it is someone else's now (rule 56)."""
        now = self._members_in(metadata)
        if self._members and now == self._with_successors():
            self._members = now
        elif now != self._members:
            self._is_someone_elses = True

    def _leave_alone(self) -> None:
        if self._is_someone_elses and self._plan.clear_limbo is None:
            self._fail("what someone else changed is left alone", "it continues (rule 56)")

    # What it does

    def _copies(self, effect: fx.SendFrame) -> None:
        self._leave_alone()
        header = decode_header(effect.frame)
        entries = [entry.entry_id for entry in decode_entries(effect.frame, header, 0)[0]]
        self._checkers.audits.copied(self._machine.metadata, self._plan, effect.bookie, entries)

    def _names(self) -> None:
        """After a conflict on a closed ledger the copies are made anew (rule 47)."""
        self._leave_alone()
        if self._must_copy and self._machine.copied_entries and self._machine.metadata.is_closed:
            self._fail("after a conflict the copies are made anew", "it makes none (rule 47)")

    def _finishes(self) -> None:
        """It has read the metadata since its last copy (rule 56), and a refused clearing is no end (rule 29)."""
        plan, checkers = self._plan, self._checkers
        checkers.audits.finished(self._ledger_id, has_read=self._has_read or not self._machine.copied_entries)
        if plan.clear_limbo is not None and not self._is_cleared:
            self._fail("a refused clearing is no end of limbo", f"{plan.clear_limbo} is in limbo (rule 29)")
        for repair in plan.fragments:
            for job in repair.jobs:
                if job.replaces:
                    checkers.successor_holds(job.target, self._ledger_id, repair.first_entry)
