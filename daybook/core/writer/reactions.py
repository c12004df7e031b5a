"""What follows from a bookie's error: the table of rule 21.

An error ends the handle, fails the append or makes the bookie a failed one; `core.errors.REACTIONS` says which. An append fails alone
if every bookie would refuse its frame, because it is too large or malformed: none of the bookies is blamed. With deferred
sync every failure of a bookie ends the handle (rule 22).
"""

from heapq import heapify

from daybook.core.effects import Fail
from daybook.core.errors import REACTIONS, Code, Reaction
from daybook.core.events import ForceAnswered
from daybook.core.quorum import is_ack_quorum
from daybook.core.writer.closing import Closing
from daybook.core.writer.ensemble import Ensemble
from daybook.core.writer.errors import bookie_refuses_ledger, frame_refused
from daybook.core.writer.forcing import Forcing
from daybook.core.writer.queue import AppendQueue, EntryQueue
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import Batch, BatchWindow, Member


class Reactions:
    """Decides what an error means. Each method returns whether something that waited may now proceed."""

    __slots__ = ("_closing", "_ensemble", "_forcing", "_queue", "_state", "_window")

    def __init__(
        self,
        state: WriterState,
        queue: EntryQueue,
        window: BatchWindow,
        ensemble: Ensemble,
        forcing: Forcing,
        closing: Closing,
    ) -> None:
        self._state = state
        self._queue = queue
        self._window = window
        self._ensemble = ensemble
        self._forcing = forcing
        self._closing = closing

    def failed(self, member: Member, code: Code, batch: Batch | None) -> bool:
        """`member` failed with `code`: at the frame of `batch`, if that is not None."""
        state, reaction = self._state, REACTIONS[code]
        if reaction is Reaction.ADD_FAILS:
            return batch is not None and self._refused(member, batch, code)
        if batch is not None:
            batch.is_uncertain = True
            self._window.release(batch)
        if reaction is Reaction.HANDLE_ENDS:
            self._closing.end(bookie_refuses_ledger(state.ledger_id, member.bookie, code))
        elif state.deferred_sync:
            self._closing.end_unforced(member.bookie, f"failed ({code.name})")
        else:
            return self._ensemble.failed(member, batch)
        return False

    def force_failed(self, event: ForceAnswered) -> None:
        """A bookie did not sync: the force fails, and the handle with it."""
        if REACTIONS.get(event.code) is Reaction.HANDLE_ENDS:
            self._closing.end(bookie_refuses_ledger(self._state.ledger_id, event.bookie, event.code))
        else:
            self._closing.end_unforced(event.bookie, f"failed ({event.code.name})")

    def _refused(self, member: Member, batch: Batch, code: Code) -> bool:
        """`member` refused the frame as every bookie would."""
        batch.refused |= member.bit
        batch.refusal = code
        self._window.release(batch)
        if batch.completed_ms is None:
            are_ids_free = self.decide(batch)
            return are_ids_free or self._ensemble.is_degraded
        if self._state.deferred_sync:
            self._closing.end_unforced(member.bookie, f"failed ({code.name})")
        return False

    def decide(self, batch: Batch) -> bool:
        """Fail the appends of `batch` if it can get no quorum; whether its ids are free again.

        They are if no bookie can have it, nothing was sent after it and the user does not know them yet. Otherwise an id would
        have to be given twice, or a hole would stay that no later entry can pass: the handle ends. With deferred sync it also ends once one
        bookie has what another refused, because no force could make that whole (rule 22).
        """
        state, queue = self._state, self._queue
        is_split = state.deferred_sync and bool(batch.acked)
        within_reach = batch.holders & ~batch.refused
        if not is_split and is_ack_quorum(state.quorum, within_reach, batch.first, batch.last):
            return False
        error = frame_refused(state.ledger_id, batch)
        is_stored = bool(batch.acked) or batch.is_uncertain
        is_newest = batch.first == max(self._window.uncompleted)
        is_promised = state.promised >= batch.first
        if is_stored or not is_newest or is_promised or not isinstance(queue, AppendQueue):
            self._closing.end(error, close=True)
            return False
        if batch.waiting:
            return False
        self._window.withdraw(batch)
        state.length -= batch.payload_bytes + queue.payload_bytes
        queue.roll_back(batch.first)
        self._forcing.rolled_back(batch.first)
        state.out.extend(
            Fail(token, error) for last, _, token in sorted(state.appends) if last >= batch.first
        )
        state.appends = [entry for entry in state.appends if entry[0] < batch.first]
        heapify(state.appends)
        return True
