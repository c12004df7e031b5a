"""How a writer continues when bookies fail: with another ensemble from LAC + 1 on, or, for want of a spare, without them.

A change is a compare-and-set that names the new fragment. It is made at once if an entry waits for the failed bookie, or if the bookie
has not answered for acknowledged entries of the last fragment: repair copies them once that fragment has an end, and an idle writer may never
append again (rule 31, rule 45). Otherwise it is made with the next append. Until it is decided nothing is acknowledged, and a new bookie is sent nothing (rule 15,
rule 16); then the new bookie gets all that is not acknowledged. Without a spare the failed bookie stays in the ensemble; when it
answers again, a new fragment with the same bookies begins (rule 45). While ZooKeeper is unavailable there is never a spare
(rule 46). The first change that is possible and exceeds the limit ends the handle (rule 21).

Where no quorum is left without those in quarantine, they are taken again, one change after the other until something is
acknowledged, and each after a longer pause than the last: bookies that restart at once would otherwise use up the limit of rule 21
while they are away.

A bookie that falls too far behind the others has failed as well: this circuit breaker keeps one slow disk from holding the memory
of every writer. `member` has the states of a member; here are the decisions that lead from one to the next.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from daybook.core.effects import Degraded, EnsembleChanged, Quarantined
from daybook.core.errors import DaybookError
from daybook.core.ids import NO_ENTRY, BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.ledger.transitions import check_transition
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import can_still_ack, is_ack_quorum
from daybook.core.writer.errors import frame_refused, no_spare, too_many_changes
from daybook.core.writer.member import MemberState
from daybook.core.writer.policy import PROBE_DOUBLINGS_MAX
from daybook.core.writer.queue import EntryQueue
from daybook.core.writer.replacement import Quarantine, Replacer, RetakePause
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import Batch, BatchWindow, Member


class Stop(NamedTuple):
    """No append is taken any more, because of `error`."""

    error: DaybookError
    may_complete: bool = False
    """Whether what is under way can still be acknowledged."""


class Ensemble:
    """Keeps an ensemble that the writer can write to."""

    __slots__ = (
        "_queue",
        "_replacer",
        "_retake_pause",
        "_state",
        "_stuck_lac",
        "_stuck_since_ms",
        "_window",
        "changes",
        "quarantine",
        "reported_missing",
    )

    def __init__(
        self, state: WriterState, queue: EntryQueue, window: BatchWindow, replacer: Replacer
    ) -> None:
        self._state = state
        self._queue = queue
        self._window = window
        self._replacer = replacer
        self.quarantine = Quarantine()
        self._retake_pause = RetakePause(state.policy.probe_ms)
        self.changes = 0
        """How often the ensemble changed."""
        self.reported_missing: tuple[BookieId, ...] = ()
        """The bookies of the last `Degraded`."""
        self._stuck_since_ms: int | None = None
        """Since when nothing was acknowledged for want of an ack quorum. A bookie that takes a place ends that once it has answered for an
        entry: it may refuse all of them, as one in limbo does."""
        self._stuck_lac = NO_ENTRY
        """The LAC then."""

    @property
    def is_degraded(self) -> bool:
        """Whether the writer continues without some bookies, for want of a spare (rule 45)."""
        return bool(self._window.in_state(MemberState.MISSING, MemberState.RETURNED))

    # What becomes of a member.

    def failed(self, member: Member, batch: Batch | None = None) -> bool:
        """`member` failed, at the frame of `batch` if that is not None; whether the ensemble may have to change for it."""
        is_live = member.state is MemberState.LIVE
        if is_live:
            self._window.note_owed(member, batch)
        self._window.forget_sends(member)
        if is_live:
            self._window.set_state(member, MemberState.FAILED)
            self._avoid(member.bookie)
            return True
        if member.state is MemberState.RETURNED:
            self._window.set_state(member, MemberState.MISSING)
        return False

    def _avoid(self, bookie: BookieId) -> None:
        state = self._state
        until_ms = state.now_ms + state.policy.quarantine_ms
        boot_id = state.bookies[bookie].boot_id if bookie in state.bookies else ""
        self.quarantine.add(bookie, until_ms, boot_id)
        state.out.append(Quarantined(bookie, until_ms))

    def too_slow(self) -> Iterator[Member]:
        """The circuit breaker: the live members that owe acknowledged entries for too long, or too many of them.

        None with deferred sync, where a failure would end the handle (rule 22).
        """
        if self._window.lagging and not self._state.deferred_sync:
            yield from filter(self._lags_too_far, self._window.in_state(MemberState.LIVE))

    def _lags_too_far(self, member: Member) -> bool:
        policy = self._state.policy
        since_ms = self._window.lag_since_ms(member)
        if since_ms is None:
            return False
        lag_ms = self._state.now_ms - since_ms
        is_full = lag_ms > policy.lag_bytes_ms and self._window.lag_bytes(member) > policy.lag_bytes_max
        return is_full or lag_ms > policy.lag_ms_max

    def probe_missing(self) -> None:
        """Ask the missing bookies whether they are back.

        Only those that could take entries: registered and writable. One that keeps failing is asked less and less,
        because each return costs an ensemble change.
        """
        state = self._state
        for member in self._window.in_state(MemberState.MISSING):
            if state.now_ms >= member.next_probe_ms and _is_writable(state.bookies, member.bookie):
                self._probe(member)

    def _probe(self, member: Member) -> None:
        self._schedule_probe(member)
        if not member.outstanding:
            self._window.send_empty(member, self._state.lac_frame(), self._state.out)

    def _schedule_probe(self, member: Member) -> None:
        doublings = min(member.absences - 1, PROBE_DOUBLINGS_MAX)
        member.next_probe_ms = self._state.now_ms + (self._state.policy.probe_ms << doublings)

    def probe_answered(self, member: Member) -> None:
        """`member` was missing and answered the frame without entries: a new fragment can bring it back."""
        self._window.set_state(member, MemberState.RETURNED)

    def bookies_changed(self, bookies: Mapping[BookieId, BookieInfo]) -> None:
        """`bookies` are registered now: whoever restarted leaves quarantine, and is asked at once if it was missing."""
        state = self._state
        before, state.bookies = state.bookies, bookies
        self.quarantine.release(bookies, state.now_ms)
        if state.has_ended:
            return
        for member in self._window.in_state(MemberState.MISSING):
            if _came_back(member.bookie, before, bookies):
                self._probe(member)

    # Changes.

    def change(self) -> Stop | None:
        """Propose another ensemble from LAC + 1 on, or continue without the failed bookies (rule 15, rule 45, rule 46).

        Returns why the handle has to stop, if neither is possible.
        """
        state, window = self._state, self._window
        failed = window.in_state(MemberState.FAILED)
        missing = window.in_state(MemberState.MISSING)
        returned = window.in_state(MemberState.RETURNED)
        must_settle = state.update.must_settle
        is_urgent = any(map(self._is_needed, failed))
        if not (is_urgent or missing or returned or must_settle):
            return None
        may_change = must_settle or state.is_connected
        bookies = self._replacements([*failed, *missing]) if may_change else window.bookies
        if not (bookies != window.bookies or must_settle or (returned and may_change)):
            return self._continue_without(failed if is_urgent else [])
        if not must_settle and self.changes >= state.policy.ensemble_changes_max:
            return self._stop_at_limit(failed if is_urgent else [])
        self._propose(bookies)
        return None

    def _is_needed(self, member: Member) -> bool:
        """Whether `member` lacks an entry, or will lack one; if not, its replacement waits for the next append.

        An acknowledged entry that it lacks counts in the last fragment alone: repair copies those of earlier ones (rule 31).
        """
        owes_acknowledged = member.last_owed >= self._state.metadata.last_fragment.first_entry
        return (
            owes_acknowledged
            or bool(self._queue)
            or any(
                batch.frames[member.position] is not None and not batch.acked & member.bit
                for batch in self._window.uncompleted.values()
            )
        )

    def _replacements(self, members: Sequence[Member]) -> tuple[BookieId, ...]:
        """The ensemble without `members`, as far as there are others; the quarantined only if no quorum is left."""
        state, bookies = self._state, self._window.bookies
        positions = [member.position for member in members]
        if not positions:
            return bookies
        found = self._replacer.replace(bookies, positions, state.bookies, self.quarantine.bookies)
        if found == bookies and self._may_retake():
            found = self._replacer.replace(bookies, positions, state.bookies, frozenset())
            self._retake_pause.tried(state.now_ms, state.last_add_confirmed)
        return found

    def _may_retake(self) -> bool:
        """Whether those in quarantine may be taken: no quorum is left without them, and the pause since the last time is over."""
        state = self._state
        return not can_still_ack(state.quorum, self._window.live) and self._retake_pause.is_over(
            state.now_ms, state.last_add_confirmed
        )

    @property
    def is_retake_due(self) -> bool:
        """Whether time alone has made another change possible: the ensemble waits for a quorum, and somebody may be taken again."""
        return bool(self.reported_missing and self.quarantine) and self._may_retake()

    def _propose(self, bookies: tuple[BookieId, ...]) -> None:
        state = self._state
        assert state.last_add_confirmed == state.completed
        state.propose(
            state.metadata.with_ensemble(state.last_add_confirmed + 1, state.length_at_lac, bookies)
        )

    def _stop_at_limit(self, failed: Sequence[Member]) -> Stop:
        """A change is possible and exceeds the limit: take nothing more and close, so that a new ledger begins (rule 21).

        Otherwise the ledger would lack a bookie that is available, for as long as it is written. What is under way
        still completes, if those that are left can acknowledge it.
        """
        error = too_many_changes(self._state.ledger_id, self.changes)
        self._leave_out(failed)
        return Stop(error, may_complete=self._can_ack and self._state.policy.go_on_without_spare)

    def _leave_out(self, failed: Sequence[Member]) -> None:
        for member in failed:
            self._window.set_state(member, MemberState.MISSING)
            self._schedule_probe(member)
        self._report_missing()

    def _continue_without(self, failed: Sequence[Member]) -> Stop | None:
        """No spare, or no way to name one now: continue with those that are left (rule 45, rule 46)."""
        state = self._state
        self._leave_out(failed)
        if state.is_connected and not state.policy.go_on_without_spare:
            return Stop(no_spare(state.ledger_id, self.reported_missing))
        if not self._can_ack and (self._stuck_since_ms is None or state.last_add_confirmed > self._stuck_lac):
            self._stuck_since_ms, self._stuck_lac = state.now_ms, state.last_add_confirmed
        return self.check_stuck()

    @property
    def _can_ack(self) -> bool:
        """Whether the live members can acknowledge what waits and what comes."""
        return can_still_ack(self._state.quorum, self._window.live) and self._held_up() is None

    def _held_up(self) -> Batch | None:
        """A batch that some bookie refused, so that it gets no quorum without those that are missing (rule 21)."""
        live = self._window.live
        for batch in self._window.uncompleted.values():
            within_reach = (batch.acked | live) & ~batch.refused
            if batch.refused and not is_ack_quorum(self._state.quorum, within_reach, batch.first, batch.last):
                return batch
        return None

    def check_stuck(self) -> Stop | None:
        """Why the handle has to stop, if writes have waited for a quorum too long."""
        state = self._state
        if self._stuck_since_ms is None or not state.is_connected or state.update.is_pending:
            return None
        if self._can_ack:
            if not state.appends or state.last_add_confirmed > self._stuck_lac:
                self._stuck_since_ms = None
        elif not state.appends:
            self._stuck_since_ms = state.now_ms
        elif state.now_ms - self._stuck_since_ms >= state.policy.quorum_wait_ms:
            held_up = self._held_up() if can_still_ack(state.quorum, self._window.live) else None
            if held_up is not None:
                return Stop(frame_refused(state.ledger_id, held_up))
            return Stop(no_spare(state.ledger_id, self.reported_missing))
        return None

    def _report_missing(self) -> None:
        missing = tuple(
            member.bookie for member in self._window.in_state(MemberState.MISSING, MemberState.RETURNED)
        )
        if missing != self.reported_missing:
            self.reported_missing = missing
            self._state.out.append(Degraded(missing))

    def adopt(self, metadata: LedgerMetadata, version: int) -> None:
        """Metadata is now `metadata`: seat the bookies that it names, and send them what is not complete."""
        state, window = self._state, self._window
        old = state.metadata.last_fragment
        check_transition(state.metadata, metadata)
        state.metadata, state.version = metadata, version
        fragment = metadata.last_fragment
        if state.has_ended:
            return
        starts_here = fragment.first_entry == state.last_add_confirmed + 1
        for member, bookie in zip(tuple(window.members), fragment.bookies, strict=True):
            is_back = member.state is MemberState.RETURNED and starts_here
            if bookie != member.bookie or is_back:
                assert starts_here, "an ensemble changes at LAC + 1"
                window.seat(member.position, bookie, state.out)
                self._publish_to(bookie)
        assert window.bookies == fragment.bookies
        if fragment != old:
            self.changes += 1
            state.out.append(EnsembleChanged(fragment.first_entry, fragment.bookies))
        self._report_missing()

    def _publish_to(self, bookie: BookieId) -> None:
        """Send a new `bookie` the LAC where nothing else will: no entry is under way, and the others have it already (rule 48)."""
        state = self._state
        is_published = state.last_add_confirmed != NO_ENTRY and state.unpublished_since_ms is None
        if is_published and not self._window.uncompleted:
            self._window.publish_lac_again(state, bookie)


def _is_writable(bookies: Mapping[BookieId, BookieInfo], bookie: BookieId) -> bool:
    return bookie in bookies and bookies[bookie].writable


def _came_back(
    bookie: BookieId, before: Mapping[BookieId, BookieInfo], now: Mapping[BookieId, BookieInfo]
) -> bool:
    """Whether `bookie` is writable now and was not, or runs anew."""
    if not _is_writable(now, bookie):
        return False
    return not _is_writable(before, bookie) or before[bookie].boot_id != now[bookie].boot_id
