"""Frames that every bookie would refuse, because they are too large or malformed (rule 21): none of the bookies is blamed."""

from heapq import heapify

from daybook.core.effects import Fail
from daybook.core.quorum import is_ack_quorum
from daybook.core.writer.closing import Closing
from daybook.core.writer.errors import frame_refused
from daybook.core.writer.queue import AppendQueue, EntryQueue
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import Batch, BatchWindow


class Refusals:
    """Decides what becomes of a batch that bookies refused; the batch itself notes who did."""

    __slots__ = ("_closing", "_queue", "_state", "_window")

    def __init__(self, state: WriterState, queue: EntryQueue, window: BatchWindow, closing: Closing) -> None:
        self._state = state
        self._queue = queue
        self._window = window
        self._closing = closing

    def decide(self, batch: Batch) -> bool:
        """Fail the appends of `batch` if it can get no quorum; whether its ids are free again.

        They are if no bookie can have it and nothing was sent after it. Otherwise an id would have to be given twice, or a
        hole would stay that no later entry can pass: the handle ends. With deferred sync it also ends once one
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
        if is_stored or not is_newest or not isinstance(queue, AppendQueue):
            self._closing.end(error, close=True)
            return False
        if batch.waiting:
            return False
        self._window.withdraw(batch)
        state.length -= batch.payload_bytes + queue.payload_bytes
        queue.roll_back(batch.first)
        state.out.extend(
            Fail(token, error) for last, _, token in sorted(state.appends) if last >= batch.first
        )
        state.appends = [entry for entry in state.appends if entry[0] < batch.first]
        heapify(state.appends)
        return True
