"""Journal, write cache and store together: the order in which things must happen, and nothing else.

A passive object: the server calls it from its own threads. Under one lock of its own, under which it also checks the
fence, it calls `accept`, `decide`, `begin_flush`, `end_flush`, `ledger`, and reads the cache. The journal's thread calls
`journal.append` and `journal.sync`, the store's thread `flush` and `delete_some`. Any thread reads the store; a reader
asks the cache first, since a generation is dropped only after its commit.

A frame is in the cache before it is in the journal, and is answered after the journal's fsync (rule 23, rule 43); a
duplicate takes the same way as the first, so it is answered only when it is durable itself (rule 54). A flush takes the
journal's durable position together with the generation: everything before that position is in the generation or stored,
so it becomes the checkpoint once the flush has committed, and the journal before it may be removed (rule 24).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer, FrameHeader
from daybook.core.format.intervals import IntervalSet
from daybook.core.format.lac_table import LacRow
from daybook.core.ids import LedgerId
from daybook_bookie.disk.disk import Disk
from daybook_bookie.journal.format import Position, Record, frame_record, lac_table_record
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store import flushing
from daybook_bookie.store.entry_store import EntryStore
from daybook_bookie.store.flushing import nothing
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.store import Store
from daybook_bookie.store.stored_ledger import StoredLedger
from daybook_bookie.store.write_cache import WriteCache


class Storage:
    """What a bookie keeps."""

    def __init__(self, journal: Journal, cache: WriteCache, store: EntryStore) -> None:
        self.journal = journal
        self.cache = cache
        self.store = store
        self._flush_checkpoint = store.checkpoint
        self._replayed_to = journal.written
        """All of the journal before it is in the cache or the store, even if the journal still has to rewrite it."""
        self._to_remove: dict[LedgerId, IntervalSet] = {}
        """The replicas that the flush left for the next one to remove."""

    @classmethod
    def open(
        cls,
        journal_disk: Disk,
        store_disk: Disk,
        store_directory: Path,
        settings: StorageSettings,
        *,
        new: bool = False,
    ) -> Self:
        """Open the store, replay the journal from its checkpoint into the cache, and be ready to append.

        `new`: the bookie is being created; call this before its cookies are written. Raises StoreRefusedError,
        JournalCorruptError, StorageFullError (only with `new`), BookieMustStopError and OSError.
        """
        store = Store(store_directory, store_disk, settings, new=new)
        return cls.replayed(store, journal_disk, journal_file_bytes=settings.journal_file_bytes, new=new)

    @classmethod
    def replayed(
        cls, store: EntryStore, journal_disk: Disk, *, journal_file_bytes: int, new: bool = False
    ) -> Self:
        """Replay the journal from the checkpoint of `store` into a new cache, and be ready to append.

        Closes the store if that fails. Raises as `open` does.
        """
        try:
            cache = WriteCache()
            replay = JournalReplay(journal_disk, store.checkpoint, new=new)
            for record in replay:
                cache.apply(record)
            journal = Journal(journal_disk, replay, file_bytes=journal_file_bytes)
            if new and not replay.headers:
                journal.prepare()
        except (DaybookError, OSError):
            store.close()
            raise
        return cls(journal, cache, store)

    def close(self) -> None:
        """Close journal and store; the caller has ended reads and flushes. Nothing has to be flushed first."""
        try:
            self.journal.close()
        finally:
            self.store.close()

    # -- under the caller's lock -----------------------------------------------------------------------------------

    def accept(self, frame: Buffer, header: FrameHeader) -> Record:
        """Add a frame whose body was checked and which passed the fence; the record is to be journalled next.

        `frame` is the frame alone and must not change any more.
        """
        self.cache.add_frame(frame, header)
        return frame_record(frame)

    def publish(self, rows: Sequence[LacRow]) -> Record:
        """Add LACs that came without entries; the record is to be journalled next."""
        self.cache.publish(rows)
        return lac_table_record(rows)

    def decide(self, record: Record) -> Record:
        """Add a fence, limbo mark, intro or deletion; the record is to be journalled next."""
        self.cache.apply(record)
        return record

    def remove(self, ledger_id: LedgerId, entries: IntervalSet) -> None:
        """Remove replicas with the next flush; frames accepted after this call stay (see `WriteCache.remove`)."""
        self.cache.remove(ledger_id, entries)

    def begin_flush(self) -> Generation:
        """Swap the cache's generations, and note the journal position that the flush will cover."""
        self._flush_checkpoint = max(self.journal.durable, self._replayed_to)
        return self.cache.swap()

    def end_flush(self) -> None:
        """Drop the flushed generation: the store has it. The next one removes the replicas that it had no time for."""
        self.cache.drop_flushed()
        for ledger_id, entries in self._to_remove.items():
            if entries and self.ledger(ledger_id) is not None:
                self.cache.remove(ledger_id, entries)
        self._to_remove = {}

    # -- on the store's thread -------------------------------------------------------------------------------------

    def flush(self, generation: Generation, on_progress: Callable[[], None] = nothing) -> Position:
        """Commit the swapped generation and trim the journal; then call `end_flush` under the lock.

        `on_progress` is called before each commit. May be repeated after StorageFullError. Raises StorageFullError and BookieMustStopError.
        """
        checkpoint = self._flush_checkpoint
        self._to_remove = flushing.flush(self.store, generation, checkpoint, on_progress)
        self.journal.trim(self.store.checkpoint)
        return self.store.checkpoint

    # -- under the caller's lock, as they read the cache -----------------------------------------------------------

    def ledger(self, ledger_id: LedgerId) -> StoredLedger | None:
        """What is known of a ledger, cached or stored, without the entries of the cache; None if nothing is."""
        pending = self.cache.pending(ledger_id)
        record = self.store.stored(ledger_id)
        if record is None and not pending:
            return None
        record = record or StoredLedger()
        for newer in pending:
            record = newer.applied_to(record)
        return None if record.deleting else record

    def limbo(self, ledger_id: LedgerId) -> bytes | None:
        """The nonce of the ledger's limbo mark, cached or stored, if it has one."""
        record = self.store.ledger(ledger_id)
        nonce = None if record is None else record.limbo
        pending = self.cache.pending(ledger_id)
        if any(newer.deleted for newer in pending):
            return None
        for newer in pending:
            nonce = newer.limbo_after(nonce)
        return nonce
