"""How a writer goes on when bookies fail: another ensemble from LAC + 1, or, for want of a spare, without them.

A change is a compare-and-set that names the new fragment. It is made at once if an entry waits for the failed bookie,
otherwise with the next append. Until it is decided nothing is acknowledged, and a new bookie is sent nothing (rule 15,
rule 16); then it gets all that is not acknowledged. Without a spare the failed bookie stays in the ensemble; when it
answers again, a new fragment with the same bookies begins (rule 45). While ZooKeeper is away there is never a spare (rule 46).
The first change that is possible and exceeds the limit ends the handle (rule 21).
"""

from collections.abc import Sequence
from typing import Final

from daybook.core.effects import Degraded, EnsembleChanged, HandleEnded, Quarantined
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.ledger.transitions import check_transition
from daybook.core.quorum import can_still_ack, is_ack_quorum
from daybook.core.writer.batch import Batch
from daybook.core.writer.errors import frame_refused, no_spare, too_many_changes
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import Member, MemberState

_PROBE_DOUBLINGS_MAX: Final = 6


class EnsembleKeeper(WriterState):
    """The part of a writer that keeps an ensemble it can write to."""

    def _member_failed(self, member: Member) -> None:
        self._window.forget_sends(member)
        if member.state is MemberState.LIVE:
            self._window.set_state(member, MemberState.FAILED)
            self._avoid(member.bookie)
            self._advance()
        elif member.state is MemberState.RETURNED:
            self._window.set_state(member, MemberState.MISSING)

    def _avoid(self, bookie: BookieId) -> None:
        until_ms = self._now_ms + self._policy.quarantine_ms
        boot_id = self._bookies[bookie].boot_id if bookie in self._bookies else ""
        self._quarantine.add(bookie, until_ms, boot_id)
        self._out.append(Quarantined(bookie, until_ms))

    def _is_needed(self, member: Member) -> bool:
        """Whether an entry waits for `member`; if not, its replacement waits for the next append."""
        return bool(self._queue) or any(
            batch.frames[member.position] is not None
            and not batch.acked & member.bit
            and not self._is_acknowledged(batch)
            for batch in self._window.uncompleted.values()
        )

    def _change_ensemble(self) -> None:
        """Propose another ensemble from LAC + 1 on, or go on without the failed bookies (rule 15, rule 45, rule 46)."""
        window = self._window
        failed = window.in_state(MemberState.FAILED)
        missing = window.in_state(MemberState.MISSING)
        returned = window.in_state(MemberState.RETURNED)
        must_settle = self._update.must_settle
        is_urgent = any(map(self._is_needed, failed))
        if not (is_urgent or missing or returned or must_settle):
            return
        may_change = must_settle or self._is_connected
        bookies = self._replacements([*failed, *missing]) if may_change else window.bookies
        if not (bookies != window.bookies or must_settle or (returned and may_change)):
            self._go_on_without(failed if is_urgent else [])
        elif must_settle or self._ensemble_changes < self._policy.ensemble_changes_max:
            self._propose(bookies)
        else:
            self._retire(failed if is_urgent else [])

    def _replacements(self, members: Sequence[Member]) -> tuple[BookieId, ...]:
        """The ensemble without `members`, as far as there are others; the quarantined only if no quorum is left."""
        window = self._window
        bookies = window.bookies
        positions = [member.position for member in members]
        if not positions:
            return bookies
        found = self._replacer.replace(bookies, positions, self._bookies, self._quarantine.bookies)
        if found == bookies and not can_still_ack(self._quorum, window.live):
            found = self._replacer.replace(bookies, positions, self._bookies, frozenset())
        return found

    def _propose(self, bookies: tuple[BookieId, ...]) -> None:
        assert self.last_add_confirmed == self._completed
        target = self.metadata.with_ensemble(self.last_add_confirmed + 1, self.length_at_lac, bookies)
        self._propose_metadata(target)

    def _retire(self, failed: Sequence[Member]) -> None:
        """A change is possible and exceeds the limit: take nothing more and close, so that a new ledger begins (rule 21).

        Otherwise the ledger would do without a bookie that is there for as long as it is written. What is under way still
        completes, if those that are left can acknowledge it.
        """
        error = too_many_changes(self.metadata.ledger_id, self._ensemble_changes)
        self._leave_out(failed)
        if not (self._can_ack and self._policy.go_on_without_spare):
            self._end(error, close=True)
        elif not self._is_closing:
            self._is_closing = True
            self._retired = error
            self._out.append(HandleEnded(error))
            self._seal(only_full=False)

    def _leave_out(self, failed: Sequence[Member]) -> None:
        for member in failed:
            self._window.set_state(member, MemberState.MISSING)
            self._schedule_probe(member)
        self._report_missing()

    def _go_on_without(self, failed: Sequence[Member]) -> None:
        """No spare, or no way to name one now: go on with those that are left (rule 45, rule 46)."""
        self._leave_out(failed)
        if self._is_connected and not self._policy.go_on_without_spare:
            self._end(no_spare(self.metadata.ledger_id, self._reported_missing), close=True)
        elif self._can_ack:
            self._stuck_since_ms = None
        elif self._stuck_since_ms is None:
            self._stuck_since_ms = self._now_ms
            self._check_stuck()

    @property
    def _can_ack(self) -> bool:
        """Whether those that are there can acknowledge what waits and what comes."""
        return can_still_ack(self._quorum, self._window.live) and self._held_up() is None

    def _held_up(self) -> Batch | None:
        """A batch that some bookie refused, so that it gets no quorum without those that are missing (rule 21)."""
        live = self._window.live
        for batch in self._window.uncompleted.values():
            within_reach = (batch.acked | live) & ~batch.refused
            if batch.refused and not is_ack_quorum(self._quorum, within_reach, batch.first, batch.last):
                return batch
        return None

    def _schedule_probe(self, member: Member) -> None:
        doublings = min(member.absences - 1, _PROBE_DOUBLINGS_MAX)
        member.next_probe_ms = self._now_ms + (self._policy.probe_ms << doublings)

    def _check_stuck(self) -> None:
        """End the handle if writes have waited for a quorum too long."""
        if self._stuck_since_ms is None or not self._is_connected or self._update.is_pending:
            return
        if not self._tokens:
            self._stuck_since_ms = self._now_ms
        elif self._now_ms - self._stuck_since_ms >= self._policy.quorum_wait_ms:
            held_up = self._held_up() if can_still_ack(self._quorum, self._window.live) else None
            if held_up is not None:
                self._end(frame_refused(self.metadata.ledger_id, held_up), close=True)
            else:
                self._end(no_spare(self.metadata.ledger_id, self._reported_missing), close=True)

    def _report_missing(self) -> None:
        missing = tuple(
            member.bookie for member in self._window.in_state(MemberState.MISSING, MemberState.RETURNED)
        )
        if missing != self._reported_missing:
            self._reported_missing = missing
            self._out.append(Degraded(missing))

    def _adopt(self, metadata: LedgerMetadata, version: int) -> None:
        """Metadata is now `metadata`: seat the bookies that it names, and send them what is not complete."""
        old = self.metadata.last_fragment
        check_transition(self.metadata, metadata)
        self.metadata, self.version = metadata, version
        fragment = metadata.last_fragment
        if self._ended is not None:
            return
        starts_here = fragment.first_entry == self.last_add_confirmed + 1
        for member, bookie in zip(tuple(self._window.members), fragment.bookies, strict=True):
            is_back = member.state is MemberState.RETURNED and starts_here
            if bookie != member.bookie or is_back:
                assert starts_here, "an ensemble changes at LAC + 1"
                self._window.seat(member.position, bookie, self._out)
        assert self._window.bookies == fragment.bookies
        if fragment != old:
            self._ensemble_changes += 1
            self._out.append(EnsembleChanged(fragment.first_entry, fragment.bookies))
        if self._can_ack:
            self._stuck_since_ms = None
        self._report_missing()
