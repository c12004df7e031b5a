"""What a writer may ask for and report to its user: each step of one writer is checked, beside the invariants of the run.

Nothing is acknowledged twice or after it failed; "nothing was written" is never said of what a recovery finds (rule 13);
a bookie is blamed only for what is its fault (rule 21); a force is answered by those that accepted (rule 22); the handle
continues as long as a quorum answers, and no gap waits for the next append (rule 45); a close leaves no append undecided (rule 55).
"""

from collections.abc import Sequence
from typing import Final

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.errors import (
    Code,
    DaybookError,
    EntryIdError,
    EntryTooLargeError,
    FrameError,
    LedgerClosedError,
    NotEnoughBookiesError,
)
from daybook.core.format.frame import decode_header, frame_entry_ids, last_entry
from daybook.core.ids import BookieId, EntryId
from daybook.core.quorum import Quorum, stripe_of, write_set
from daybook.core.writer.member import MemberState
from daybook.core.writer.writer import LedgerWriter
from tests.model.sim.checkers import Checkers

_NO_FAULT_OF_THE_BOOKIE: Final = frozenset(
    {
        Code.FENCED,
        Code.UNAUTHORIZED,
        Code.NO_SUCH_LEDGER,
        Code.NOT_OPEN,
        Code.TOO_LARGE,
        Code.BAD_FRAME,
    }
)
"""Rule 21, written down a second time."""


class WriterChecks:
    """The checks of one writer; `ensemble_changes_max` is its policy's."""

    def __init__(self, checkers: Checkers, machine: LedgerWriter, ensemble_changes_max: int) -> None:
        self._checkers = checkers
        self._machine = machine
        self._ids: dict[int, Sequence[EntryId]] = {}
        self._promised: set[EntryId] = set()
        self._changes = 0
        self._changes_max = ensemble_changes_max
        self._unknown_changes = 0
        self._answered: set[int] = set()
        self._refused: set[int] = set()
        self._closing: set[int] = set()
        self._missing: frozenset[str] = frozenset()
        self._missing_at_version = machine.version
        self._sent: dict[int, EntryId] = {}
        self._accepted: dict[BookieId, dict[EntryId, str]] = {}
        """Which start of a bookie accepted what is not forced yet, by the last entry of each frame."""
        self._force_asked: dict[BookieId, int] = {}
        self._forced_by: dict[BookieId, str] = {}
        self._unanswered: dict[int, tuple[EntryId, ...]] = {}
        """The entries of each frame without an answer."""
        self._answered_for: dict[BookieId, set[EntryId]] = {}

    @property
    def ledger_id(self) -> int:
        """The ledger that is written."""
        return self._machine.metadata.ledger_id

    def appending(self, token: int, ids: Sequence[EntryId]) -> None:
        """The user appends, and expects these ids."""
        assert token not in self._ids
        self._ids[token] = ids
        again = self._promised.intersection(ids)
        if again:
            self._fail("a promised id is given once", f"request {token} got {sorted(again)} again (rule 21)")

    def promised(self, token: int) -> None:
        """The user counts on the ids of the append: no other one may get them."""
        if token not in self._answered:  # what was refused at once got none
            self._promised.update(self._ids[token])

    def must_refuse(self, token: int) -> None:
        """The user appends what cannot be appended: an entry that is too large, an id that was used."""
        self._refused.add(token)
        self._ids[token] = ()

    def unanswered(self) -> list[int]:
        """The appends that were neither acknowledged nor failed."""
        return sorted(self._ids.keys() - self._answered)

    def stepped(self, event: ev.Event, effects: Sequence[fx.Effect]) -> None:
        """The writer took `event` and asks for `effects`."""
        if isinstance(event, ev.CasAnswered) and event.outcome is ev.CasOutcome.UNKNOWN:
            self._unknown_changes += 1  # an attempt that may still arrive has to be overtaken (rule 46)
        if (
            isinstance(event, ev.AppendRequested)
            and event.token in self._refused
            and not any(isinstance(effect, fx.Fail) and effect.token == event.token for effect in effects)
        ):
            self._fail(
                "what cannot be appended is refused at once", f"request {event.token} (rule 21, rule 55)"
            )
        self._check_forces(event, effects)
        self._check_closes(event, effects)
        for effect in effects:
            match effect:
                case fx.Complete():
                    self._complete(effect)
                case fx.Fail(token, error):
                    self._failed(token, error)
                case fx.Quarantined(bookie):
                    self._blamed(bookie, event)
                case fx.EnsembleChanged():
                    self._ensemble_changed()
                case fx.Degraded(missing):
                    self._degraded(frozenset(missing))
                case fx.HandleEnded(error):
                    self._handle_ended(error)
                case _:
                    pass

        self._check_limit()
        self._check_gaps(event, effects)

    def _check_gaps(self, event: ev.Event, effects: Sequence[fx.Effect]) -> None:
        """Who failed before it had answered for acknowledged entries of the last fragment does not stay in it (rule 45)."""
        match event:
            case ev.FrameAcked(bookie, send_id):
                self._answered_for.setdefault(bookie, set()).update(self._unanswered.pop(send_id, ()))
            case ev.FrameFailed(bookie, send_id, code) if code in _NO_FAULT_OF_THE_BOOKIE:
                self._answered_for.setdefault(bookie, set()).update(self._unanswered.pop(send_id, ()))
            case _:
                pass
        for effect in effects:
            if isinstance(effect, fx.SendFrame):
                header = decode_header(effect.frame)
                self._unanswered[effect.send_id] = tuple(frame_entry_ids(effect.frame, header))
        machine = self._machine
        if machine._state.update.is_pending or machine.has_ended or machine.is_closing:
            return
        acknowledged = range(machine.metadata.last_fragment.first_entry, machine.last_add_confirmed + 1)
        for member in machine._window.in_state(MemberState.FAILED):
            stripe = stripe_of(machine.metadata.quorum, member.position)
            answered = self._answered_for.get(member.bookie, set())
            gap = [entry for entry in acknowledged if stripe.holds(entry) and entry not in answered]
            if gap:
                self._fail("no gap waits for the next append", f"{member.bookie} lacks {gap} (rule 45)")

    def _check_limit(self) -> None:
        """A bookie that is back is taken in again, or the handle ends: it does not continue without it for good (rule 21)."""
        machine = self._machine
        may_change = machine._state.is_connected and not machine._state.update.is_pending
        if not may_change or machine.has_ended or machine.is_closing:
            return
        back = [member.bookie for member in machine._window.in_state(MemberState.RETURNED)]
        if back and machine._ensemble.changes >= self._changes_max:
            self._fail("a writer at its limit ends", f"{back} are back and never taken in again (rule 21)")

    def _fail(self, invariant: str, why: str) -> None:
        self._checkers.fail(invariant, f"ledger {self.ledger_id}: {why}")

    def _answer(self, token: int) -> None:
        if token in self._answered:
            self._fail("nothing is answered twice", f"request {token} was answered before")
        self._answered.add(token)

    def _complete(self, effect: fx.Complete) -> None:
        self._answer(effect.token)
        ids = self._ids.get(effect.token, ())
        if not ids or (effect.first, effect.last) != (min(ids), max(ids)):
            self._fail("nothing is acknowledged with other ids", f"request {effect.token}: {effect}")

    def over(self) -> None:
        """The handle is done with: who asked for a close knows how it ended, whoever closed the ledger (rule 11)."""
        if self._closing:
            self._fail("every close is answered", f"{sorted(self._closing)} are not (rule 11)")

    def _failed(self, token: int, error: DaybookError) -> None:
        self._answer(token)
        self._closing.discard(token)
        ids = self._ids.get(token, ())
        if isinstance(error, EntryTooLargeError | FrameError):
            if not self._machine.has_ended:
                self._checkers.withdrawn(self.ledger_id, ids)
        elif type(error) is DaybookError or isinstance(error, EntryIdError | LedgerClosedError):
            self._checkers.not_written(self.ledger_id, ids)

    def _check_forces(self, event: ev.Event, effects: Sequence[fx.Effect]) -> None:
        """With deferred sync it matters which start of a bookie accepted a frame, and which one answers a force."""
        match event:
            case ev.FrameAcked(bookie, send_id, boot_id) if send_id in self._sent:
                self._accepted.setdefault(bookie, {})[self._sent[send_id]] = boot_id
            case ev.ForceAnswered(bookie, request_id, Code.OK, boot_id):
                if self._force_asked.get(bookie) == request_id:
                    self._forced_by[bookie] = boot_id
            case _:
                pass
        for effect in effects:
            match effect:
                case fx.Forced(_, last):
                    self._forced(last)
                case fx.SendFrame():
                    header = decode_header(effect.frame)
                    if header.count:  # what publishes the LAC alone leaves nothing to force
                        self._sent[effect.send_id] = last_entry(effect.frame, header)
                case fx.SendForce(bookie, request_id):
                    self._force_asked[bookie] = request_id
                case _:
                    pass

    def _forced(self, last: EntryId) -> None:
        """No bookie restarted between what it accepted and the force that answers for it (rule 22)."""
        for bookie in self._force_asked:
            accepted = self._accepted.get(bookie, {})
            starts = {boot_id for entry, boot_id in accepted.items() if entry <= last}
            if starts - {self._forced_by.get(bookie)}:
                self._fail("who restarted answers no force", f"{bookie} accepted as {starts} (rule 22)")
            self._accepted[bookie] = {entry: boot for entry, boot in accepted.items() if entry > last}

    def _check_closes(self, event: ev.Event, effects: Sequence[fx.Effect]) -> None:
        """What is behind a gap is failed before the ledger ends there, not left to find out (rule 55)."""
        if isinstance(event, ev.CloseRequested):
            self._closing.add(event.token)
        answered = {effect.token for effect in effects if isinstance(effect, fx.Complete | fx.Fail)}
        for effect in effects:
            if isinstance(effect, fx.Closed) and effect.token is not None:
                self._closing.discard(effect.token)
            if isinstance(effect, fx.CasMetadata) and effect.metadata.is_closed:
                left = [token for token in self.unanswered() if token not in answered]
                if left:
                    self._fail("a close leaves no append undecided", f"{left} have no answer (rule 55)")

    def _blamed(self, bookie: str, event: ev.Event) -> None:
        if isinstance(event, ev.FrameFailed) and event.code in _NO_FAULT_OF_THE_BOOKIE:
            self._fail(
                "a bookie is blamed only for its own faults", f"{bookie} for {event.code.name} (rule 21)"
            )

    def _ensemble_changed(self) -> None:
        self._changes += 1
        if self._changes > self._changes_max + self._unknown_changes:
            self._fail("ensemble changes are capped", "the writer continues to change (rule 21)")

    def _degraded(self, missing: frozenset[str]) -> None:
        """Those that are back must be in a fragment of their own (rule 45)."""
        machine = self._machine
        begins = machine.metadata.last_fragment.first_entry == machine.last_add_confirmed + 1
        if self._missing - missing and machine.version == self._missing_at_version and not begins:
            back = sorted(self._missing - missing)
            self._fail("who returns begins a new fragment", f"{back} did not (rule 45)")
        self._missing, self._missing_at_version = missing, machine.version

    def _handle_ended(self, error: DaybookError) -> None:
        """For want of bookies only when no quorum is left, or the changes are spent (rule 21, rule 45)."""
        live = [member.position for member in self._machine._window.in_state(MemberState.LIVE)]
        spent = self._changes >= self._changes_max
        if isinstance(error, NotEnoughBookiesError) and not spent and _has_quorum(self._machine, live):
            self._fail("a writer continues while a quorum answers", f"{error} (rule 45)")


def _has_quorum(machine: LedgerWriter, live: Sequence[int]) -> bool:
    """Whether every write set has an ack quorum among the positions `live`."""
    quorum: Quorum = machine.metadata.quorum
    return all(
        sum(position in live for position in write_set(quorum, residue)) >= quorum.ack_quorum
        for residue in range(quorum.ensemble_size)
    )
