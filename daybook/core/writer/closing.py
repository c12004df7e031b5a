"""How a writer's metadata changes end, and how its ledger does.

Whatever was proposed, its outcome comes here: done, or read again after a conflict or a lost answer. The ledger may be
someone else's by then. A close is a compare-and-set like any other: who loses the race returns the winner's close (rule 11).
"""

from daybook.core.effects import Closed, Fail
from daybook.core.errors import DaybookError, EntryIdError, LedgerClosedError
from daybook.core.events import (
    CasAnswered,
    CloseRequested,
    MetadataConnection,
    MetadataRead,
    MetadataUnreadable,
)
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.writer.ensemble import EnsembleKeeper
from daybook.core.writer.replacement import why_not_own


class Closing(EnsembleKeeper):
    """The part of a writer that takes the metadata store's answers and closes the ledger."""

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

    def _lost(self, error: DaybookError) -> None:
        """The ledger is not ours any more."""
        self._is_closing = False
        self._end(error)
        for token in self._close_tokens:
            self._out.append(Fail(token, error))
        self._close_tokens.clear()

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
        self._update.unreadable(event, self._now_ms)

    def _metadata_connection(self, event: MetadataConnection) -> None:
        self._is_connected = event.connected
        if event.connected:
            self._update.reconnected(self._out)
            self._advance()
