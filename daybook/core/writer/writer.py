"""The machine of an open ledger's one writer: one `match` over its events, and what each outcome allows next.

An entry is acknowledged when Qa bookies of its write set have it durably and all entries before it are acknowledged
(rule 14). The bookies are those that metadata names: when one fails, the ensemble changes by compare-and-set at LAC + 1,
nothing is acknowledged while that is undecided, and nothing is sent to a new bookie before it is decided (rule 15, rule 16).
A recovery may take the ledger away at any time; then the outcome of what is pending is unknown (rule 13).

The package's docstring follows one append from the queue to its acknowledgement. The parts (queue, window, ensemble, forcing,
closing, reactions) share one `WriterState` and note what happened; what follows from it is decided here, in `_advance`.
"""

from collections.abc import Mapping, Sequence
from heapq import heappush
from typing import assert_never

from daybook.core.effects import Closed, Complete, Fail, WriterEffect
from daybook.core.errors import Code, DaybookError
from daybook.core.events import (
    AppendRequested,
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CloseRequested,
    FlushRequested,
    ForceAnswered,
    ForceRequested,
    FrameAcked,
    FrameFailed,
    LacLost,
    MetadataConnection,
    MetadataRead,
    MetadataUnreadable,
    Tick,
    WriterEvent,
)
from daybook.core.format.frame import Buffer
from daybook.core.format.payloads import check_payloads, payload_bytes
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.quorum import is_ack_quorum
from daybook.core.writer.closing import Closing
from daybook.core.writer.ensemble import Ensemble
from daybook.core.writer.errors import takes_no_more
from daybook.core.writer.forcing import Forcing
from daybook.core.writer.handle import OPEN
from daybook.core.writer.policy import WriterPolicy
from daybook.core.writer.queue import AppendQueue, ExplicitQueue
from daybook.core.writer.reactions import Reactions
from daybook.core.writer.replacement import Replacer, why_not_own
from daybook.core.writer.state import WriterState
from daybook.core.writer.timing import next_tick_ms
from daybook.core.writer.view import WriterView
from daybook.core.writer.window import BatchWindow


class LedgerWriter(WriterView):
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
        state = self._state = WriterState(
            metadata, version, policy=policy, bookies=bookies, now_ms=now_ms, deferred_sync=deferred_sync
        )
        queue_of = ExplicitQueue if explicit_ids else AppendQueue
        self._queue = queue_of(policy.frame_bytes_target)
        self._window = BatchWindow(metadata.last_fragment.bookies)
        self._ensemble = Ensemble(state, self._queue, self._window, Replacer(metadata, placement, rng))
        self._forcing = Forcing(state, self._window)
        self._closing = Closing(state, self._queue, self._window, self._forcing)
        self._reactions = Reactions(
            state, self._queue, self._window, self._ensemble, self._forcing, self._closing
        )
        self.next_tick_ms: int | None = None
        """No `Tick` has anything to do before; None: none has, unless an event comes first. It may be early, never late."""

    # Time.

    def pass_time(self, now_ms: int) -> bool:
        """Take note of the time, which a writer that gets no `Tick` would not know; whether a `Tick` has anything to do now."""
        state = self._state
        state.now_ms = max(state.now_ms, now_ms)
        self.next_tick_ms = next_tick_ms(state, self._window, self._ensemble)
        return self.next_tick_ms is not None and state.now_ms >= self.next_tick_ms

    def tick(self, now_ms: int) -> list[WriterEffect] | None:
        """`pass_time`, and then `Tick`; None if that has nothing to do."""
        if not self.pass_time(now_ms):
            return None
        state = self._state
        out: list[WriterEffect] = []
        state.out = out
        self._tick(now_ms)
        self.next_tick_ms = next_tick_ms(state, self._window, self._ensemble)
        return out

    # Events.

    def start(self) -> list[WriterEffect]:
        """Nothing: a writer waits for its user."""
        return []

    def step(self, event: WriterEvent) -> list[WriterEffect]:  # noqa: C901 - one case for each event
        """Take `event`; the effects, in order."""
        state = self._state
        out: list[WriterEffect] = []
        state.out = out
        match event:
            case AppendRequested(token, payloads, entry_ids):
                self._request_append(token, payloads, entry_ids)
            case FrameAcked(bookie, send_id, boot_id):
                self._frame_acked(bookie, send_id, boot_id)
            case FlushRequested():
                self._seal(only_full=False)
            case FrameFailed():
                self._frame_failed(event)
            case BookieFailed():
                self._bookie_failed(event)
            case LacLost(bookie):
                if not self.has_ended:
                    self._window.publish_lac_again(state, bookie)
            case Tick(now_ms):
                self._tick(now_ms)
            case ForceRequested(token):
                self._force(token)
            case ForceAnswered():
                self._force_answered(event)
            case CloseRequested(token):
                self._close(token)
            case BookiesChanged(bookies):
                self._ensemble.bookies_changed(bookies)
                if self.is_degraded and not self.has_ended:
                    self._advance()
            case CasAnswered():
                self._cas_answered(event)
            case MetadataRead():
                self._metadata_read(event)
            case MetadataUnreadable():
                state.update.unreadable(event, state.now_ms)
            case MetadataConnection(connected):
                state.is_connected = connected
                if connected:
                    state.update.reconnected(out)
                    self._advance()
            case _:
                assert_never(event)
        self.next_tick_ms = next_tick_ms(state, self._window, self._ensemble)
        return out

    # The events that every entry causes, without an object for each; otherwise each is `step` of its event.

    def check_append(self, payloads: Sequence[Buffer], entry_ids: Sequence[EntryId] | None) -> None:
        """Raise LedgerClosedError, EntryTooLargeError or EntryIdError for what cannot be appended."""
        state = self._state
        if state.handle is not OPEN:
            raise takes_no_more(state.ledger_id, state.error)
        if payloads:
            check_payloads(payloads)
            self._queue.check(payloads, entry_ids)

    def append(
        self, token: int, payloads: Sequence[Buffer], entry_ids: Sequence[EntryId] | None
    ) -> list[WriterEffect]:
        """`AppendRequested` of what `check_append` let pass."""
        state = self._state
        out: list[WriterEffect] = []
        state.out = out
        self._append(token, payloads, entry_ids)
        if out:
            self.next_tick_ms = next_tick_ms(state, self._window, self._ensemble)
        return out

    def promise_ids(self) -> None:
        """The user was given the ids of all appends so far, so no other entry may get one of them (rule 21)."""
        self._state.promised = self._queue.next_entry - 1

    def flush(self) -> list[WriterEffect]:
        """`FlushRequested`."""
        state = self._state
        out: list[WriterEffect] = []
        state.out = out
        self._seal(only_full=False)
        return out

    def acked(self, bookie: BookieId, send_id: int, boot_id: str, now_ms: int) -> list[WriterEffect] | None:
        """`FrameAcked`, at `now_ms`. Two of three answers complete nothing, and cost next to nothing.

        None: nothing that a driver may ask for has changed.
        """
        state, window = self._state, self._window
        state.now_ms = max(state.now_ms, now_ms)
        out: list[WriterEffect] = []
        state.out = out
        completed, lagging = state.completed, len(window.lagging)
        self._frame_acked(bookie, send_id, boot_id)
        if out or state.completed != completed:
            self.next_tick_ms = next_tick_ms(state, window, self._ensemble)
        elif state.handle is OPEN and len(window.lagging) == lagging and not self._queue:
            return None
        return out

    # The user's requests.

    def _request_append(
        self, token: int, payloads: Sequence[Buffer], entry_ids: Sequence[EntryId] | None
    ) -> None:
        try:
            self.check_append(payloads, entry_ids)
        except DaybookError as error:
            self._state.out.append(Fail(token, error))
        else:
            self._append(token, payloads, entry_ids)

    def _append(self, token: int, payloads: Sequence[Buffer], entry_ids: Sequence[EntryId] | None) -> None:
        """Take what `check_append` let pass."""
        state, queue = self._state, self._queue
        if not payloads:
            state.out.append(Complete(token, NO_ENTRY, NO_ENTRY))
            return
        size_bytes = payload_bytes(payloads)
        first, last = queue.add(payloads, entry_ids, size_bytes)
        state.length += size_bytes
        heappush(state.appends, (last, first, token))
        if self._window.has_failed:
            self._advance()
        if queue.is_full:
            self._seal(only_full=True)

    def _seal(self, *, only_full: bool) -> None:
        self._window.seal(self._state, self._queue.drain(only_full=only_full))

    def _force(self, token: int) -> None:
        state = self._state
        if state.handle is not OPEN:
            state.out.append(Fail(token, takes_no_more(state.ledger_id, state.error)))
            return
        self._seal(only_full=False)
        self._forcing.request(token, self.last_add_pushed)
        self._forcing.advance()

    def _close(self, token: int) -> None:
        if self.metadata.is_closed:
            self._state.out.append(Closed(token, self.metadata))
            return
        self._seal(only_full=False)
        self._closing.request(token)
        self._advance()

    # The bookies' answers.

    def _frame_acked(self, bookie: BookieId, send_id: int, boot_id: str) -> None:
        state, window = self._state, self._window
        answered = window.answered(bookie, send_id)
        if answered is None:
            return
        member, batch = answered
        if batch is None:
            self._ensemble.probe_answered(member)
            self._advance()
            return
        if state.deferred_sync and not self._forcing.same_boot(bookie, boot_id):
            self._closing.end_unforced(bookie, "restarted")
            return
        batch.acked |= member.bit
        window.release(batch)
        if batch.refused:
            self._reactions.decide(batch)
        if state.update.is_pending:
            return
        if batch.first == state.completed + 1:
            self._complete()
        if self._forcing.waiting:
            self._forcing.advance()
        if state.handle is not OPEN:
            self._closing.advance()

    def _frame_failed(self, event: FrameFailed) -> None:
        answered = self._window.answered(event.bookie, event.send_id)
        if answered is None:
            return
        member, batch = answered
        if self._reactions.failed(member, event.code, batch):
            self._advance()

    def _bookie_failed(self, event: BookieFailed) -> None:
        member = self._window.by_bookie.get(event.bookie)
        if member is not None and not self.has_ended and self._reactions.failed(member, event.code, None):
            self._advance()

    def _force_answered(self, event: ForceAnswered) -> None:
        forcing = self._forcing
        if not forcing.is_owed(event):
            return
        if event.code is not Code.OK:
            self._reactions.force_failed(event)
        elif not forcing.same_boot(event.bookie, event.boot_id):
            self._closing.end_unforced(event.bookie, "restarted")
        else:
            forcing.synced(event.bookie, self.last_add_pushed)
            self._advance()

    # The metadata store's answers: whatever was proposed, its outcome comes here.

    def _cas_answered(self, event: CasAnswered) -> None:
        stored = self._state.update.cas_answered(event, self._state.out)
        if stored is None:
            return
        if stored.is_closed:
            self._closing.was_closed(stored, event.version)
        else:
            self._ensemble.adopt(stored, event.version)
            self._advance()

    def _metadata_read(self, event: MetadataRead) -> None:
        """After a conflict or a lost answer. The ledger may be someone else's by now.

        The next change builds on all that was read, repairs of older fragments included (rule 19).
        """
        state = self._state
        if not state.update.was_read(event):
            return
        read = event.metadata
        if read is not None and read.is_closed and state.is_closing:
            self._closing.was_closed(read, event.version)
            return
        error = why_not_own(state.metadata, read)
        if error is not None:
            self._closing.lost(error)
            return
        assert read is not None
        self._ensemble.adopt(read, event.version)
        self._advance()

    # As time passes.

    def _tick(self, now_ms: int) -> None:
        state, window, ensemble = self._state, self._window, self._ensemble
        state.now_ms = max(state.now_ms, now_ms)
        state.update.tick(state.now_ms, state.out)
        if self.has_ended:
            return
        if state.is_lac_due:
            window.publish_lac(state)
            due_ms = next_tick_ms(state, window, ensemble)
            if due_ms is None or due_ms > state.now_ms:
                return  # mostly it is the LAC alone that was due
        for member in ensemble.too_slow():
            ensemble.failed(member)
            self._advance()
        if (
            ensemble.quarantine.release(state.bookies, state.now_ms) and self.is_degraded
        ) or ensemble.is_retake_due:
            self._advance()
        if self.has_ended:
            return
        ensemble.probe_missing()
        self._closing.stop(ensemble.check_stuck())

    # Outcomes.

    def _advance(self) -> None:
        """Do what waited for an outcome: change the ensemble if an entry needs it, complete, force, close."""
        update = self._state.update
        if update.is_pending:
            return
        if not self.has_ended and not self._closing.is_due:
            self._closing.stop(self._ensemble.change())
        if not self.has_ended and not update.is_pending:
            self._complete()
            self._forcing.advance()
        self._closing.advance()

    def _complete(self) -> None:
        """Acknowledge in order whatever has its quorum (rule 14)."""
        state, window = self._state, self._window
        assert not state.update.is_pending, "nothing completes while a metadata change is undecided (rule 15)"
        before = state.completed
        while True:
            batch = window.uncompleted.get(state.completed + 1)
            if batch is None or not is_ack_quorum(state.quorum, batch.acked, batch.first, batch.last):
                break
            window.complete(batch, state.now_ms)
            state.completed = batch.last
            state.completed_length += batch.payload_bytes
            self._queue.confirm(batch.first, batch.last)
            if state.deferred_sync:
                self._forcing.completed()
            else:
                state.confirm(state.completed, state.completed_length)
        if state.completed != before:
            state.complete_appends()
