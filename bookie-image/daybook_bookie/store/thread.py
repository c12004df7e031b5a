"""The one thread that writes the store: flushes the cache, trims the journal, removes what was deleted.

A flush begins when enough has gathered or the oldest of it is old enough; a mass deletion, which may take minutes, gives way
to it after each of its bounded transactions, or every writer would wait for the cache. The cache lets go of a generation, and the
journal of its files, only after the store's commit (rule 24). A commit that fails stops the bookie (rule 23); a full
store makes it read-only, and the flush is tried again until there is room (rule 30).
"""

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Final

from daybook.runtime.clock import monotonic_ms
from daybook.runtime.health import Progress
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.errors import StorageError, StorageFullError
from daybook_bookie.journal.thread import JournalThread
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.ledgers import LedgerTable
from daybook_bookie.store.write_cache import Generation
from daybook_bookie.store.writing import delete_some, mark_deleted

_LOG: Final = get_logger(__name__)
_FULL_RETRY_S: Final = 1.0


class StoreThread:
    """Owns the store's writing side from `start` to `close`."""

    def __init__(
        self,
        table: LedgerTable,
        journal: JournalThread,
        metrics: BookieMetrics,
        *,
        interval_ms: int,
        stuck_after_ms: int,
        on_full: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """`on_full`: the disk is full, the bookie should become read-only. `on_failure`: it must stop (rule 23)."""
        self.progress = Progress("the store thread", stuck_after_ms)
        self._table = table
        self._journal = journal
        self._metrics = metrics
        self._interval_s = interval_ms / 1000
        self._on_full = on_full
        self._on_failure = on_failure
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self.has_room = True
        """Whether no flush waits for room. One that went through is the only proof that there is some."""
        self._rounds = 0
        self._round_done = threading.Condition()
        self._ended = False
        self._is_deleting = False
        """Whether deleted ledgers are left for which there was no time."""

    def start(self) -> None:
        """Begin to flush."""
        if self._table.storage.store.is_owing:
            self._table.flush_wanted.set()  # the disk is full: the bookie should say so now
        self._thread.start()

    def flush_now(self, timeout_s: float) -> bool:
        """Flush everything that is in the cache now and wait for it; False if that did not end in time."""
        with self._round_done:
            wanted = self._rounds + 2  # the round under way may have begun before what is wanted came
            self._table.flush_wanted.set()
            return (
                self._round_done.wait_for(lambda: self._again(wanted) or self._ended, timeout_s)
                and not self._ended
            )

    def _again(self, wanted: int) -> bool:
        if self._rounds < wanted:
            self._table.flush_wanted.set()
        return self._rounds >= wanted

    def close(self) -> None:
        """Flush what is in the cache, then stop. Nothing is lost if that fails: the journal has it."""
        self._closing.set()
        self._table.flush_wanted.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._table.flush_wanted.wait(0 if self._is_deleting else self._interval_s)
                self._table.flush_wanted.clear()
                self._round()
            self._round()
        except StorageError as error:
            self._on_failure(f"the store failed: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the bookie must stop
            _LOG.exception("the store thread met an error that it does not know")
            self._on_failure(f"the store failed: {type(error).__name__}: {error}")
        finally:
            with self._round_done:
                self._ended = True
                self._round_done.notify_all()

    def _round(self) -> None:
        self.progress.stamp()
        table = self._table
        with table.lock:
            if table.storage.cache.is_flushing:
                return  # the flush before had no room and was given up
            refusals = self._journal.refusals
            generation = table.storage.begin_flush() if table.storage.cache.has_changes else None
            table.room_made()
        if generation is not None:
            started = perf_counter()
            if not self._flush(generation):
                return
            with table.lock:
                table.storage.end_flush()
            self._metrics.flush_seconds.observe(perf_counter() - started)
            self._metrics.flushed_bytes.inc(generation.size_bytes)
        elif not self._settle():
            return
        self._journal.stored(refusals)
        self._remove_deleted()
        self.progress.rest()
        with self._round_done:
            self._rounds += 1
            self._round_done.notify_all()

    def _flush(self, generation: Generation) -> bool:
        """Store the generation; False if there is no room and the bookie stops (the journal still has it)."""
        while True:
            try:
                self._table.storage.flush(generation)
            except StorageFullError as error:
                _LOG.warning("a flush has no room", reason=str(error))
                self.has_room = False
                self._on_full()
                self._make_room()
                self.progress.rest()
                if self._closing.wait(0 if self._is_deleting else _FULL_RETRY_S):
                    return False
                self.progress.stamp()
            else:
                self.has_room = True
                return True

    def _settle(self) -> bool:
        """Make the newest commit certain where no other follows; False if there is no room for that."""
        try:
            self._table.storage.store.settle()
        except StorageFullError as error:
            _LOG.warning("the store has no room", reason=str(error))
            self.has_room = False
            self._on_full()
        else:
            self.has_room = True
        return self.has_room

    def _make_room(self) -> None:
        """Carry out deletions that came since: their own flush would wait behind the one that has no room."""
        storage = self._table.storage
        with self._table.lock:
            generations = storage.cache.generations
        try:
            mark_deleted(storage.store, generations)
        except StorageFullError as error:
            _LOG.warning("deletions have no room yet", reason=str(error))
        self._remove_deleted()

    def _remove_deleted(self) -> None:
        """Remove the blocks of deleted ledgers, until a flush is due; needs no room that is not reserved."""
        ends_at_ms = monotonic_ms() + 1000 * self._interval_s
        self._is_deleting = True
        try:
            while self._is_deleting:
                self.progress.stamp()
                self._is_deleting = not delete_some(self._table.storage.store)
                if self._table.flush_wanted.is_set() or monotonic_ms() > ends_at_ms:
                    return
        except StorageFullError as error:
            _LOG.warning("a deletion has no room yet", reason=str(error))
            self._is_deleting = False
