"""The writer of an open ledger: what may be acknowledged, in which order, and through which bookies.

An entry is acknowledged when Qa bookies of its write set have it durably and all entries before it are acknowledged
(rule 14). The bookies are those that metadata names: when one fails, the ensemble changes by compare-and-set at LAC + 1,
nothing is acknowledged while that is undecided, and nothing is sent to a new bookie before it is (rules 15 and 16).
A recovery may take the ledger away at any time; then the outcome of what is pending is unknown (rule 13).

The machine asks for effects and never performs them; docs/protocol.md has the rules, `daybook.core.events` the words.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from daybook.core.append_queue import AppendQueue, ExplicitQueue
from daybook.core.batch import Batch, seal_batch
from daybook.core.ensemble_change import Quarantine, Replacer, why_not_own
from daybook.core.errors import (
    REACTIONS,
    Code,
    DaybookError,
    EntryIdError,
    EntryTooLargeError,
    ForceFailedError,
    FrameError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    Reaction,
    UnauthorizedError,
)
from daybook.core.events import (
    AppendRequested,
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    Closed,
    CloseRequested,
    Complete,
    Degraded,
    Effect,
    EnsembleChanged,
    Event,
    Fail,
    FlushRequested,
    ForceAnswered,
    Forced,
    ForceRequested,
    FrameAcked,
    FrameFailed,
    HandleEnded,
    MetadataConnection,
    MetadataRead,
    MetadataUnreadable,
    Quarantined,
    SendForce,
    Tick,
)
from daybook.core.force import Forces, PendingForce
from daybook.core.frame import FLAG_DEFERRED_SYNC, check_payloads, encode_frame
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.metadata import LedgerMetadata, LedgerState, check_transition
from daybook.core.metadata_update import MetadataUpdate
from daybook.core.placement import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.quorum import can_still_ack, is_ack_quorum
from daybook.core.send_window import Member, MemberState, SendWindow
from daybook.core.writer_policy import WriterPolicy

_HANDLERS: Final[dict[type, str]] = {
    AppendRequested: "_append",
    FlushRequested: "_flush",
    FrameAcked: "_frame_acked",
    FrameFailed: "_frame_failed",
    BookieFailed: "_bookie_failed",
    ForceRequested: "_force_requested",
    ForceAnswered: "_force_answered",
    CloseRequested: "_close_requested",
    Tick: "_tick",
    BookiesChanged: "_bookies_changed",
    CasAnswered: "_cas_answered",
    MetadataRead: "_metadata_read",
    MetadataUnreadable: "_metadata_unreadable",
    MetadataConnection: "_metadata_connection",
}


class LedgerWriter:
    """The one writer of a ledger that was created or attached by it (rule 53).

    `metadata` and `version` are what the attach wrote. `explicit_ids`: every append brings its entry ids (rule 55).
    `deferred_sync`: bookies accept before they sync, only `ForceRequested` moves the LAC, and any bookie's failure ends
    the handle (rule 22). Raises MetadataError for a ledger that is not OPEN, not attached or was written before.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        *,
        placement: PlacementPolicy,
        rng: RandomSource,
        bookies: Mapping[BookieId, BookieInfo],
        policy: WriterPolicy = WriterPolicy(),  # noqa: B008 - frozen
        now_ms: int = 0,
        explicit_ids: bool = False,
        deferred_sync: bool = False,
    ) -> None:
        _check_attached(metadata)
        self.metadata: LedgerMetadata = metadata
        self.version: int = version
        self.last_add_confirmed: EntryId = NO_ENTRY
        self.length_at_lac: int = 0
        self.length: int = 0
        """Payload bytes of everything appended."""
        self._quorum = metadata.quorum
        self._policy = policy
        self._bookies = bookies
        self._replacer = Replacer(metadata.quorum, placement, rng)
        self._now_ms = now_ms
        self._deferred_sync = deferred_sync
        self._queue: AppendQueue | ExplicitQueue = (
            ExplicitQueue(policy.frame_bytes_target)
            if explicit_ids
            else AppendQueue(policy.frame_bytes_target)
        )
        self._window = SendWindow(metadata.last_fragment.bookies)
        self._update = MetadataUpdate(policy.metadata_retry_ms)
        self._quarantine = Quarantine()
        self._forces = Forces()
        self._tokens: list[tuple[EntryId, EntryId, int]] = []
        """A heap of (last, first, token) of the appends without an answer."""
        self._completed: EntryId = NO_ENTRY
        """Like the LAC; ahead of it where only a force confirms."""
        self._completed_length = 0
        self._published: EntryId = NO_ENTRY
        self._unpublished_since_ms: int | None = None
        self._next_probe_ms = 0
        self._stuck_since_ms: int | None = None
        self._reported_missing: tuple[BookieId, ...] = ()
        self._ensemble_changes = 0
        self._is_connected = True
        self._ended: DaybookError | None = None
        self._is_closing = False
        self._close_tokens: list[int] = []
        self._out: list[Effect] = []

    # What a driver may look at.

    @property
    def last_add_pushed(self) -> EntryId:
        """The highest entry id that an append got."""
        return self._queue.next_entry - 1

    @property
    def pending_bytes(self) -> int:
        """Payload bytes that are held: not sealed, not acknowledged, or owed to a straggler."""
        return self._queue.payload_bytes + self._window.payload_bytes

    @property
    def has_unsealed(self) -> bool:
        """Whether a flush would send anything."""
        return bool(self._queue)

    @property
    def is_degraded(self) -> bool:
        """Whether the writer goes on without some bookies, for want of a spare (rule 45)."""
        return bool(self._window.in_state(MemberState.MISSING, MemberState.RETURNED))

    @property
    def is_idle(self) -> bool:
        """Whether no append, force or metadata change waits for its outcome."""
        return not (self._queue or self._tokens or self._forces or self._update.is_pending)

    @property
    def has_ended(self) -> bool:
        """Whether the handle ended or was closed: no append can succeed any more."""
        return self._ended is not None

    def step(self, event: Event) -> list[Effect]:
        """Take `event`; the effects, in order. Raises TypeError for an event that is not a writer's."""
        name = _HANDLERS.get(type(event))
        if name is None:
            msg = f"{type(event).__name__} is no event of a writer"
            raise TypeError(msg)
        out: list[Effect] = []
        self._out = out
        getattr(self, name)(event)
        return out

    # Appends.

    def _append(self, event: AppendRequested) -> None:
        payloads = event.payloads
        if self._ended is not None or self._is_closing:
            self._out.append(Fail(event.token, LedgerClosedError(self._why_closed())))
            return
        if not payloads:
            self._out.append(Complete(event.token, NO_ENTRY, NO_ENTRY))
            return
        queue = self._queue
        try:
            check_payloads(payloads)
            queue.check(payloads, event.entry_ids)
        except (EntryTooLargeError, EntryIdError) as error:
            self._out.append(Fail(event.token, error))
            return
        size_bytes = len(payloads[0]) if len(payloads) == 1 else sum(map(len, payloads))
        first, last = queue.add(payloads, event.entry_ids, size_bytes)
        self.length += size_bytes
        heappush(self._tokens, (last, first, event.token))
        if self._window.has_failed:
            self._advance()
        if queue.is_full:
            self._seal(only_full=True)

    def _why_closed(self) -> str:
        ledger_id = self.metadata.ledger_id
        reason = f"its handle ended ({self._ended})" if self._ended is not None else "it is being closed"
        return f"ledger {ledger_id} takes no more entries: {reason}; nothing was written, use a new ledger"

    def _flush(self, _event: FlushRequested) -> None:
        self._seal(only_full=False)

    def _seal(self, *, only_full: bool) -> None:
        for run in self._queue.drain(only_full=only_full):
            batch = seal_batch(
                self.metadata.ledger_id,
                self._quorum,
                run.first,
                run.payloads,
                run.payload_bytes,
                last_add_confirmed=self.last_add_confirmed,
                length_at_lac=self.length_at_lac,
                flags=FLAG_DEFERRED_SYNC if self._deferred_sync else 0,
            )
            self._window.add(batch, self._out)
            self._unpublished_since_ms = None

    # Answers.

    def _frame_acked(self, event: FrameAcked) -> None:
        window = self._window
        answered = window.answered(event.bookie, event.send_id)
        if answered is None:
            return
        member, batch = answered
        if batch is None:
            self._probe_answered(member)
            return
        if self._deferred_sync and not self._forces.same_boot(event.bookie, event.boot_id):
            self._end(self._restarted(event.bookie), close=True)
            return
        batch.acked |= member.bit
        window.release(batch)
        if batch.refused:
            self._decide_refused(batch)
        if self._update.is_pending:
            return
        if batch.first == self._completed + 1:
            self._complete()
        self._try_force()
        self._try_close()

    def _is_acknowledged(self, batch: Batch) -> bool:
        return is_ack_quorum(self._quorum, batch.acked, batch.first, batch.last)

    def _complete(self) -> None:
        """Complete in order whatever has its quorum (rule 14)."""
        assert not self._update.is_pending, "nothing completes while a metadata change is undecided"
        window = self._window
        while True:
            batch = window.uncompleted.get(self._completed + 1)
            if batch is None or not self._is_acknowledged(batch):
                break
            window.complete(batch, self._now_ms)
            self._completed = batch.last
            self._completed_length += batch.payload_bytes
            self._queue.confirm(batch.first, batch.last)
            if self._deferred_sync:
                self._forces.passed(self._completed, self._completed_length)
            else:
                self._confirm(self._completed, self._completed_length)
        tokens = self._tokens
        while tokens and tokens[0][0] <= self._completed:
            last, first, token = heappop(tokens)
            self._out.append(Complete(token, first, last))

    def _confirm(self, last: EntryId, length: int) -> None:
        assert self.last_add_confirmed <= last <= self._completed
        assert self.length_at_lac <= length <= self.length
        self.last_add_confirmed = last
        self.length_at_lac = length
        if self._unpublished_since_ms is None:
            self._unpublished_since_ms = self._now_ms

    def _frame_failed(self, event: FrameFailed) -> None:
        answered = self._window.answered(event.bookie, event.send_id)
        if answered is None:
            return
        member, batch = answered
        if batch is not None and REACTIONS[event.code] is not Reaction.ADD_FAILS:
            batch.is_uncertain = True
            self._window.release(batch)
        self._react(member, event.code, batch)

    def _bookie_failed(self, event: BookieFailed) -> None:
        member = self._window.by_bookie.get(event.bookie)
        if member is not None and self._ended is None:
            self._react(member, event.code, None)

    def _react(self, member: Member, code: Code, batch: Batch | None) -> None:
        """The error table (rule 21)."""
        reaction = REACTIONS[code]
        if reaction is Reaction.HANDLE_ENDS:
            self._end(self._error_of(code, member.bookie))
        elif reaction is Reaction.ADD_FAILS:
            if batch is not None:
                self._refused(member, batch, code)
        elif self._deferred_sync:
            self._end(self._unforced_lost(member.bookie, code), close=True)
        else:
            self._member_failed(member)

    def _error_of(self, code: Code, bookie: BookieId) -> DaybookError:
        ledger_id = self.metadata.ledger_id
        if code is Code.UNAUTHORIZED:
            return UnauthorizedError(f"{bookie} refuses the password of ledger {ledger_id}: check it")
        if code is Code.NO_SUCH_LEDGER:
            return NoSuchLedgerError(
                f"ledger {ledger_id} was deleted while it was written ({bookie} says so)"
            )
        return LedgerFencedError(
            f"ledger {ledger_id} is fenced ({bookie} answers {code.name}): another client recovers or closed it; "
            "the outcome of what was not acknowledged is unknown until it is recovered"
        )

    def _unforced_lost(self, bookie: BookieId, code: Code) -> DaybookError:
        return ForceFailedError(
            f"{bookie} failed ({code.name}) and may have lost what ledger {self.metadata.ledger_id} sent it since the "
            f"last force: the ledger ends at entry {self.last_add_confirmed}, write the rest to a new one"
        )

    def _restarted(self, bookie: BookieId) -> DaybookError:
        return ForceFailedError(
            f"{bookie} restarted and may have lost what ledger {self.metadata.ledger_id} sent it since the last force: "
            f"the ledger ends at entry {self.last_add_confirmed}, write the rest to a new one"
        )

    def _refused(self, member: Member, batch: Batch, code: Code) -> None:
        """A bookie refused the frame as every bookie would: none is blamed."""
        batch.refused |= member.bit
        batch.refusal = code
        self._window.release(batch)
        if batch.completed_ms is None:
            self._decide_refused(batch)
        elif self._deferred_sync:
            self._end(self._unforced_lost(member.bookie, code), close=True)

    def _decide_refused(self, batch: Batch) -> None:
        """Fail the appends of a batch that can get no quorum (rule 21).

        If no bookie can have it and nothing was sent after it, its ids are free again and the handle lives. Otherwise
        an id would have to be given twice, or a hole would stay that no later entry can pass: the handle ends.
        """
        if is_ack_quorum(self._quorum, batch.holders & ~batch.refused, batch.first, batch.last):
            return
        error = self._refusal(batch)
        is_stored = bool(batch.acked) or batch.is_uncertain
        is_newest = batch.first == max(self._window.uncompleted)
        if is_stored or not is_newest or not isinstance(self._queue, AppendQueue):
            self._end(error, close=True)
        elif batch.waiting == 0:
            self._window.withdraw(batch)
            self.length -= batch.payload_bytes + self._queue.payload_bytes
            self._queue.roll_back(batch.first)
            for last, _, token in sorted(self._tokens):
                if last >= batch.first:
                    self._out.append(Fail(token, error))
            self._tokens = [entry for entry in self._tokens if entry[0] < batch.first]
            heapify(self._tokens)
            self._advance()

    def _refusal(self, batch: Batch) -> DaybookError:
        where = f"entries {batch.first} … {batch.last} of ledger {self.metadata.ledger_id}"
        if batch.refusal is Code.TOO_LARGE:
            return EntryTooLargeError(f"the bookies refuse {where} as too large: send smaller entries")
        return FrameError(
            f"the bookies refuse {where} as malformed: client and bookies must speak one version"
        )

    # Failed bookies.

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

    def _probe_answered(self, member: Member) -> None:
        if member.state is MemberState.MISSING:
            self._window.set_state(member, MemberState.RETURNED)
            self._advance()

    def _advance(self) -> None:
        """Do what waited for an outcome: change the ensemble if an entry needs it, complete, force, close."""
        if self._update.is_pending:
            return
        if self._ended is None and not self._may_close:
            self._change_ensemble()
        if self._ended is None and not self._update.is_pending:
            self._complete()
            self._try_force()
        self._try_close()

    def _is_needed(self, member: Member) -> bool:
        """Whether an entry waits for `member`; if not, its replacement waits for the next append."""
        return bool(self._queue) or any(
            batch.frames[member.position] is not None
            and not batch.acked & member.bit
            and not self._is_acknowledged(batch)
            for batch in self._window.uncompleted.values()
        )

    def _change_ensemble(self) -> None:
        """Propose another ensemble from LAC + 1 on, or go on without the failed bookies (rules 15, 45, 46)."""
        window = self._window
        failed = window.in_state(MemberState.FAILED)
        missing = window.in_state(MemberState.MISSING)
        returned = window.in_state(MemberState.RETURNED)
        must_settle = self._update.must_settle
        is_urgent = any(map(self._is_needed, failed))
        if not (is_urgent or missing or returned or must_settle):
            return
        if self._ensemble_changes >= self._policy.ensemble_changes_max and not must_settle:
            if is_urgent:
                self._end(self._too_many_changes(), close=True)
            return
        may_change = self._is_connected or must_settle
        bookies = self._replacements([*failed, *missing]) if may_change else window.bookies
        if bookies != window.bookies or must_settle or (returned and may_change):
            self._propose(bookies)
        else:
            self._go_on_without(failed if is_urgent else [])

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

    def _too_many_changes(self) -> DaybookError:
        return NotEnoughBookiesError(
            f"ledger {self.metadata.ledger_id} changed its ensemble {self._ensemble_changes} times, the limit: "
            "go on in a new ledger, and see why its bookies fail"
        )

    def _propose(self, bookies: tuple[BookieId, ...]) -> None:
        assert self.last_add_confirmed == self._completed
        target = self.metadata.with_ensemble(self.last_add_confirmed + 1, self.length_at_lac, bookies)
        self._propose_metadata(target)

    def _propose_metadata(self, target: LedgerMetadata) -> None:
        check_transition(self.metadata, target)
        self._update.propose(target, self.version, self._out)

    def _go_on_without(self, failed: Sequence[Member]) -> None:
        """No spare, or no way to name one now: go on with those that are left (rules 45 and 46)."""
        window = self._window
        for member in failed:
            window.set_state(member, MemberState.MISSING)
            self._next_probe_ms = self._now_ms + self._policy.probe_ms
        self._report_missing()
        has_quorum = can_still_ack(self._quorum, window.live)
        if self._is_connected and not self._policy.go_on_without_spare:
            self._end(self._no_spare(), close=True)
        elif has_quorum:
            self._stuck_since_ms = None
        elif self._stuck_since_ms is None:
            self._stuck_since_ms = self._now_ms
            self._check_stuck()

    def _no_spare(self) -> DaybookError:
        missing = ", ".join(
            member.bookie for member in self._window.members if member.state is not MemberState.LIVE
        )
        return NotEnoughBookiesError(
            f"ledger {self.metadata.ledger_id} lost {missing} and there is no bookie to take over: "
            "add bookies, then go on in a new ledger"
        )

    def _check_stuck(self) -> None:
        """End the handle if writes have waited for a quorum too long."""
        if self._stuck_since_ms is None or not self._is_connected or self._update.is_pending:
            return
        if self._tokens and self._now_ms - self._stuck_since_ms >= self._policy.quorum_wait_ms:
            self._end(self._no_spare(), close=True)

    def _report_missing(self) -> None:
        missing = tuple(
            member.bookie for member in self._window.in_state(MemberState.MISSING, MemberState.RETURNED)
        )
        if missing != self._reported_missing:
            self._reported_missing = missing
            self._out.append(Degraded(missing))

    # Metadata.

    def _cas_answered(self, event: CasAnswered) -> None:
        stored = self._update.cas_answered(event, self._out)
        if stored is None:
            return
        if stored.is_closed:
            self._was_closed(stored, event.version)
        else:
            self._adopt(stored, event.version)
            self._advance()

    def _metadata_read(self, event: MetadataRead) -> None:
        if not self._update.was_read(event):
            return
        read = event.metadata
        if read is not None and read.is_closed and self._is_closing:
            self._was_closed(read, event.version)
            return
        error = why_not_own(self.metadata, read)
        if error is not None:
            self._lost(error)
            return
        assert read is not None
        self._adopt(self._merged(read), event.version)
        self._advance()

    def _merged(self, read: LedgerMetadata) -> LedgerMetadata:
        """What the next change builds on: all that was read, repairs of older fragments included (rule 19)."""
        return read

    def _metadata_unreadable(self, event: MetadataUnreadable) -> None:
        self._update.unreadable(event.request_id, self._now_ms)

    def _metadata_connection(self, event: MetadataConnection) -> None:
        self._is_connected = event.connected
        if event.connected:
            self._update.reconnected(self._out)
            self._advance()

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
        if can_still_ack(self._quorum, self._window.live):
            self._stuck_since_ms = None
        self._report_missing()

    # The end.

    def _end(self, error: DaybookError, *, close: bool = False) -> None:
        """No append can succeed any more: fail what is pending; `close`: at the LAC, which nobody else will do."""
        if self._ended is not None:
            return
        self._ended = error
        self._fail_pending(error)
        self._window.clear()
        self._out.append(HandleEnded(error))
        self._is_closing = self._is_closing or close
        self._advance()

    def _fail_pending(self, error: DaybookError) -> None:
        for _, _, token in sorted(self._tokens):
            self._out.append(Fail(token, error))
        for token in self._forces.tokens:
            self._out.append(Fail(token, error))
        self._tokens.clear()
        self._forces.clear()
        self._queue.clear()

    def _lost(self, error: DaybookError) -> None:
        """The ledger is not ours any more."""
        self._is_closing = False
        self._end(error)
        for token in self._close_tokens:
            self._out.append(Fail(token, error))
        self._close_tokens.clear()

    def _close_requested(self, event: CloseRequested) -> None:
        if self.metadata.is_closed:
            self._out.append(Closed(event.token, self.metadata))
            return
        self._seal(only_full=False)
        self._is_closing = True
        self._close_tokens.append(event.token)
        self._advance()

    @property
    def _may_close(self) -> bool:
        """Whether a close was asked for and nothing that could still succeed is pending."""
        if not self._is_closing:
            return False
        if self._ended is not None:
            return True
        return self._completed + 1 not in self._window.uncompleted and not self._forces

    def _try_close(self) -> None:
        """Close at the LAC once everything pending is decided (rule 11)."""
        if not self._may_close or self._update.is_pending:
            return
        if self._ended is None:
            self._fail_beyond_gap()
        self._propose_metadata(self.metadata.closed(self.last_add_confirmed, self.length_at_lac))

    def _fail_beyond_gap(self) -> None:
        """Entries behind an id that was never appended can never be confirmed (rule 55)."""
        if self._tokens:
            gap = self._completed + 1
            self._fail_pending(
                EntryIdError(
                    f"entry {gap} was never appended, so the ledger ends before it and nothing follows"
                )
            )

    def _was_closed(self, metadata: LedgerMetadata, version: int) -> None:
        """The ledger is closed, by us or by whoever was first: their end is the end."""
        self.metadata, self.version = metadata, version
        if self._ended is None:
            self._ended = LedgerClosedError(f"ledger {metadata.ledger_id} is closed at {metadata.last_entry}")
        self._is_closing = False
        self._fail_pending(self._ended)
        self._window.clear()
        tokens: list[int] | list[None] = self._close_tokens or [None]
        self._out.extend(Closed(token, metadata) for token in tokens)
        self._close_tokens.clear()

    # Force.

    def _force_requested(self, event: ForceRequested) -> None:
        if self._ended is not None or self._is_closing:
            self._out.append(Fail(event.token, LedgerClosedError(self._why_closed())))
            return
        self._seal(only_full=False)
        self._forces.waiting.append(PendingForce(event.token, self.last_add_pushed))
        self._forces.passed(self._completed, self._completed_length)
        self._try_force()

    def _try_force(self) -> None:
        """Answer the forces that are done; ask every bookie for the next one when all have accepted its entries."""
        forces = self._forces
        while forces.is_answered(self.last_add_confirmed):
            self._out.append(Forced(forces.waiting.popleft().token, self.last_add_confirmed))
        point = forces.next_point
        if point == NO_ENTRY or any(batch.last <= point for batch in self._window.lagging.values()):
            return
        force = forces.begin()
        for member in self._window.members:
            force.owing[member.bookie] = self._update.new_request_id()
            self._out.append(SendForce(member.bookie, force.owing[member.bookie]))

    def _force_answered(self, event: ForceAnswered) -> None:
        force = self._forces.active
        if force is None or force.owing.get(event.bookie) != event.request_id:
            return
        if event.code is not Code.OK:
            is_final = REACTIONS[event.code] is Reaction.HANDLE_ENDS
            if is_final:
                self._end(self._error_of(event.code, event.bookie))
            else:
                self._end(self._unforced_lost(event.bookie, event.code), close=True)
            return
        if not self._forces.same_boot(event.bookie, event.boot_id):
            self._end(self._restarted(event.bookie), close=True)
            return
        del force.owing[event.bookie]
        if not force.owing:
            assert force.point is not None
            self._confirm(force.point, force.length)
            self._forces.was_forced(self.last_add_pushed)
            self._out.append(Forced(force.token, self.last_add_confirmed))
            self._try_force()
            self._try_close()

    # Time and the registry.

    def _tick(self, event: Tick) -> None:
        self._now_ms = max(self._now_ms, event.now_ms)
        self._update.tick(self._now_ms, self._out)
        if self._ended is not None:
            return
        self._publish_lac()
        if self._window.lagging and not self._deferred_sync:
            self._break_slow()
        if self._quarantine.release(self._bookies, self._now_ms) and self.is_degraded:
            self._advance()
        if self._ended is not None:
            return
        self._probe_missing()
        self._check_stuck()

    def _publish_lac(self) -> None:
        """Tell the bookies the LAC if no frame has carried it for a while, or a tailing reader waits for ever (48)."""
        since_ms = self._unpublished_since_ms
        if since_ms is None or self._now_ms - since_ms < self._policy.lac_publish_ms:
            return
        frame = self._lac_frame()
        for member in self._window.in_state(MemberState.LIVE):
            self._window.publish(member, frame, self._out)
        self._unpublished_since_ms = None

    def _lac_frame(self) -> bytes:
        lac = self.last_add_confirmed
        return encode_frame(
            self.metadata.ledger_id,
            lac + 1,
            [],
            [],
            last_add_confirmed=lac,
            length_at_lac=self.length_at_lac,
        )

    def _break_slow(self) -> None:
        """The circuit breaker: who owes acknowledged entries for too long, or too many of them, has failed."""
        policy = self._policy
        for member in self._window.in_state(MemberState.LIVE):
            since_ms = self._window.lag_since_ms(member)
            if since_ms is not None and (
                self._now_ms - since_ms > policy.lag_ms_max
                or self._window.lag_bytes(member) > policy.lag_bytes_max
            ):
                self._member_failed(member)

    def _probe_missing(self) -> None:
        """Ask the bookies that the writer goes on without whether they are back."""
        if self._now_ms < self._next_probe_ms:
            return
        for member in self._window.in_state(MemberState.MISSING):
            self._probe(member)
            self._next_probe_ms = self._now_ms + self._policy.probe_ms

    def _probe(self, member: Member) -> None:
        if not member.outstanding:
            self._window.publish(member, self._lac_frame(), self._out)

    def _bookies_changed(self, event: BookiesChanged) -> None:
        before, self._bookies = self._bookies, event.bookies
        self._quarantine.release(self._bookies, self._now_ms)
        if self._ended is not None:
            return
        for member in self._window.in_state(MemberState.MISSING):
            if _has_restarted(member.bookie, before, self._bookies):
                self._probe(member)
        if self.is_degraded:
            self._advance()


def _has_restarted(
    bookie: BookieId, before: Mapping[BookieId, BookieInfo], now: Mapping[BookieId, BookieInfo]
) -> bool:
    if bookie not in now:
        return False
    return bookie not in before or before[bookie].boot_id != now[bookie].boot_id


def _check_attached(metadata: LedgerMetadata) -> None:
    """Raise MetadataError unless `metadata` is fresh from its one attach (rule 53)."""
    why = ""
    if metadata.state is not LedgerState.OPEN:
        why = f"it is {metadata.state.value}"
    elif metadata.writer_token is None:
        why = "it is not attached"
    elif len(metadata.fragments) > 1:
        why = "it was written before"
    if why:
        msg = f"ledger {metadata.ledger_id} cannot be written: {why}; recover it and create a new one"
        raise MetadataError(msg)
