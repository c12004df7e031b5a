"""What a driver may ask of a ledger's writer, at any time."""

from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.writer.ensemble import Ensemble
from daybook.core.writer.queue import EntryQueue
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import BatchWindow


class WriterView:
    """A `LedgerWriter` without its events."""

    _state: WriterState
    _queue: EntryQueue
    _window: BatchWindow
    _ensemble: Ensemble

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this writer knows it."""
        return self._state.metadata

    @property
    def version(self) -> int:
        """The version of `metadata`."""
        return self._state.version

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        """The bookies that the next frame goes to, unless they are missing."""
        return self._window.bookies

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry that is acknowledged together with all before it; −1 if there is none."""
        return self._state.last_add_confirmed

    @property
    def length_at_lac(self) -> int:
        """The payload bytes up to `last_add_confirmed`."""
        return self._state.length_at_lac

    @property
    def last_add_pushed(self) -> EntryId:
        """The highest entry id that an append got."""
        return self._queue.next_entry - 1

    @property
    def pending_bytes(self) -> int:
        """Payload bytes that are held: not sealed, not acknowledged, or owed to a straggler."""
        return self._queue.payload_bytes + self._window.payload_bytes

    @property
    def is_replicated(self) -> bool:
        """Whether nothing is held, not even entries without payload, which `pending_bytes` does not count."""
        return not (self._queue or self._window.uncompleted or self._window.lagging)

    @property
    def is_deferred(self) -> bool:
        """Whether bookies answer its frames before they sync (rule 22)."""
        return self._state.deferred_sync

    @property
    def missing_entry(self) -> EntryId | None:
        """The id that everything appended waits for and that nobody has appended yet (rule 55); None without a gap."""
        return self._queue.gap

    @property
    def has_unsealed(self) -> bool:
        """Whether a flush would send anything."""
        return bool(self._queue)

    @property
    def is_degraded(self) -> bool:
        """Whether the writer continues without some bookies, for want of a spare (rule 45)."""
        return self._ensemble.is_degraded

    @property
    def is_closing(self) -> bool:
        """Whether the ledger is still to be closed: a close was asked for, or the handle ended and leaves one behind."""
        return self._state.is_closing

    @property
    def has_ended(self) -> bool:
        """Whether the handle ended or was closed: no append can succeed any more."""
        return self._state.has_ended

    @property
    def is_done(self) -> bool:
        """Whether the handle ended and its ledger needs nothing more from it."""
        return self.has_ended and not self.is_closing
