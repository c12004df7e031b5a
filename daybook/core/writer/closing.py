"""How a writer ends its handle, and when and where it closes its ledger (rule 11).

A close is asked for by the user, or follows from the end of a handle that leaves an open ledger behind. It waits until
nothing that could still succeed is pending, and ends the ledger at the LAC. It is a compare-and-set like any other change:
who loses the race reports the winner's close.
"""

from daybook.core.effects import Closed, Fail, HandleEnded
from daybook.core.errors import DaybookError, EntryIdError, LedgerClosedError
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.writer.ensemble import Stop
from daybook.core.writer.errors import unforced_lost
from daybook.core.writer.forcing import Forcing
from daybook.core.writer.handle import OPEN, HandleState
from daybook.core.writer.queue import EntryQueue
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import BatchWindow


class Closing:
    """The requests to close, and what a close waits for. `handle` has the states that lead to one."""

    __slots__ = ("_forcing", "_queue", "_state", "_window", "tokens")

    def __init__(self, state: WriterState, queue: EntryQueue, window: BatchWindow, forcing: Forcing) -> None:
        self._state = state
        self._queue = queue
        self._window = window
        self._forcing = forcing
        self.tokens: list[int] = []
        """The requests without an answer."""

    def request(self, token: int) -> None:
        """The user asks for a close."""
        state = self._state
        if not state.is_closing:
            state.set_handle(HandleState.FAILED if state.has_ended else HandleState.CLOSING)
        self.tokens.append(token)

    @property
    def is_due(self) -> bool:
        """Whether the ledger is to be closed and nothing that could still succeed is pending."""
        state = self._state
        if state.handle is OPEN:
            return False
        if state.handle is not HandleState.CLOSING:
            return state.handle is HandleState.FAILED
        return state.completed + 1 not in self._window.uncompleted and not self._forcing

    def advance(self) -> None:
        """Close at the LAC if that is due."""
        state = self._state
        if not self.is_due or state.update.is_pending:
            return
        self._fail_beyond_gap()
        state.propose(state.metadata.closed(state.last_add_confirmed, state.length_at_lac))

    def _fail_beyond_gap(self) -> None:
        """Entries behind an id that was never appended can never be confirmed (rule 55)."""
        if self._state.appends:
            gap = self._state.completed + 1
            self._state.fail_appends(
                EntryIdError(
                    f"entry {gap} was never appended, so the ledger ends before it and nothing follows"
                )
            )

    # How the handle ends.

    def stop(self, stop: Stop | None) -> None:
        """The ensemble cannot continue, if `stop` says so: close the ledger behind what can still be acknowledged."""
        state = self._state
        if stop is None:
            return
        if not stop.may_complete:
            self.end(stop.error, close=True)
        elif not state.is_closing:
            state.set_handle(HandleState.CLOSING)
            state.error = stop.error
            state.out.append(HandleEnded(stop.error))
            self._window.seal(state, self._queue.drain(only_full=False))

    def end(self, error: DaybookError, *, close: bool = False) -> None:
        """No append can succeed any more: fail what is pending. `close`: at the LAC, because nobody else will."""
        state = self._state
        self._end(HandleState.FAILED if close or state.is_closing else HandleState.LOST, error)
        self.advance()

    def _end(self, handle: HandleState, error: DaybookError) -> None:
        state = self._state
        state.set_handle(handle)
        self._fail_pending(error)
        if state.error is None:
            state.out.append(HandleEnded(error))
        state.error = error

    def end_unforced(self, bookie: BookieId, what: str) -> None:
        """With deferred sync any bookie's failure ends the handle: it may have lost what is not forced (rule 22)."""
        state = self._state
        self.end(unforced_lost(state.ledger_id, bookie, what, state.last_add_confirmed), close=True)

    def lost(self, error: DaybookError) -> None:
        """The ledger is not this writer's any more, and not its to close."""
        state = self._state
        if not state.has_ended:
            self._end(HandleState.LOST, error)
        elif state.is_closing:
            state.set_handle(HandleState.LOST)
        state.out.extend(Fail(token, error) for token in self.tokens)
        self.tokens.clear()

    def was_closed(self, metadata: LedgerMetadata, version: int) -> None:
        """The ledger is closed, by this writer or by whoever was first: their end is the end."""
        state = self._state
        state.metadata, state.version = metadata, version
        if state.handle is HandleState.CLOSING:
            state.error = LedgerClosedError(f"ledger {state.ledger_id} is closed at {metadata.last_entry}")
        assert state.error is not None
        state.set_handle(HandleState.CLOSED)
        self._fail_pending(state.error)
        tokens: list[int] | list[None] = self.tokens or [None]
        state.out.extend(Closed(token, metadata) for token in tokens)
        self.tokens.clear()

    def _fail_pending(self, error: DaybookError) -> None:
        self._state.fail_appends(error)
        self._forcing.fail(error)
        self._queue.clear()
        self._window.clear()
