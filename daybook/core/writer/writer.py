"""The writer of an open ledger: what may be acknowledged, in which order, and through which bookies.

An entry is acknowledged when Qa bookies of its write set have it durably and all entries before it are acknowledged
(rule 14). The bookies are those that metadata names: when one fails, the ensemble changes by compare-and-set at LAC + 1,
nothing is acknowledged while that is undecided, and nothing is sent to a new bookie before it is (rule 15, rule 16).
A recovery may take the ledger away at any time; then the outcome of what is pending is unknown (rule 13).

The machine asks for effects and never performs them; docs/protocol.md has the rules, `daybook.core.events` the words.
"""

from heapq import heapify, heappush
from typing import Final

from daybook.core.effects import Complete, Effect, Fail
from daybook.core.errors import REACTIONS, Code, EntryIdError, EntryTooLargeError, Reaction
from daybook.core.events import (
    AppendRequested,
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CloseRequested,
    Event,
    FlushRequested,
    ForceAnswered,
    ForceRequested,
    FrameAcked,
    FrameFailed,
    MetadataConnection,
    MetadataRead,
    MetadataUnreadable,
    Tick,
)
from daybook.core.format.frame import check_payloads
from daybook.core.ids import NO_ENTRY
from daybook.core.quorum import is_ack_quorum
from daybook.core.writer.batch import Batch
from daybook.core.writer.errors import bookie_refuses_ledger, frame_refused, takes_no_more
from daybook.core.writer.queue import AppendQueue
from daybook.core.writer.upkeep import Upkeep
from daybook.core.writer.window import Member

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


class LedgerWriter(Upkeep):
    """The one writer of a ledger that was created or attached by it (rule 53).

    `metadata` and `version` are what the attach wrote. `explicit_ids`: every append brings its entry ids (rule 55).
    `deferred_sync`: bookies accept before they sync, only `ForceRequested` moves the LAC, and any bookie's failure ends
    the handle (rule 22). Raises MetadataError for a ledger that is not OPEN, not attached or was written before.
    """

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

    def _append(self, event: AppendRequested) -> None:
        payloads = event.payloads
        if self._ended is not None or self._is_closing:
            self._out.append(
                Fail(event.token, takes_no_more(self.metadata.ledger_id, self._ended or self._retired))
            )
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

    def _flush(self, _event: FlushRequested) -> None:
        self._seal(only_full=False)

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
            self._end(self._unforced_lost(event.bookie, "restarted"), close=True)
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
            self._end(bookie_refuses_ledger(self.metadata.ledger_id, member.bookie, code))
        elif reaction is Reaction.ADD_FAILS:
            if batch is not None:
                self._refused(member, batch, code)
        elif self._deferred_sync:
            self._end(self._unforced_lost(member.bookie, f"failed ({code.name})"), close=True)
        else:
            self._member_failed(member)

    def _refused(self, member: Member, batch: Batch, code: Code) -> None:
        """A bookie refused the frame as every bookie would: none is blamed."""
        batch.refused |= member.bit
        batch.refusal = code
        self._window.release(batch)
        if batch.completed_ms is None:
            self._decide_refused(batch)
            if self.is_degraded and self._ended is None:
                self._advance()
        elif self._deferred_sync:
            self._end(self._unforced_lost(member.bookie, f"failed ({code.name})"), close=True)

    def _decide_refused(self, batch: Batch) -> None:
        """Fail the appends of a batch that can get no quorum (rule 21).

        If no bookie can have it and nothing was sent after it, its ids are free again and the handle lives. Otherwise
        an id would have to be given twice, or a hole would stay that no later entry can pass: the handle ends. It ends
        as well with deferred sync once one bookie has what another refused: no force could make that whole (rule 22).
        """
        is_split = self._deferred_sync and bool(batch.acked)
        if not is_split and is_ack_quorum(
            self._quorum, batch.holders & ~batch.refused, batch.first, batch.last
        ):
            return
        error = frame_refused(self.metadata.ledger_id, batch)
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
