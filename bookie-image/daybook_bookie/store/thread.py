"""The one thread that writes the store: it flushes the cache, trims the journal, removes what was deleted.

A flush begins when the cache is full enough or its oldest frame old enough. A mass deletion, which may take minutes, stops
for it after each of its bounded transactions, or every writer would wait for the cache. The cache drops a generation, and
the journal its files, only after the store's commit (rule 24). A commit that fails stops the bookie (rule 23); a full
store makes it read-only, and the thread retries the flush until there is room (rule 30).
"""

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from daybook.core.bookie.refusals import Refusals
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.health import Progress
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.errors import StorageError, StorageFullError
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.removing import delete_some, mark_deleted
from daybook_bookie.store.storage import Storage

_LOG: Final = get_logger(__name__)
_FULL_RETRY_S: Final = 1.0


class StorageOwner(Protocol):
    """The object that accepts frames into the storage, under its lock."""

    @property
    def storage(self) -> Storage:
        """Journal, cache and store."""

    @property
    def lock(self) -> threading.Lock:
        """Held while a thread reads or changes the cache."""

    @property
    def flush_wanted(self) -> threading.Event:
        """Set when the cache should be flushed now."""

    def room_made(self) -> None:
        """The cache was swapped: writers may continue. Called under the lock."""


class StoreThread:
    """Owns the store's writing side from `start` to `close`."""

    def __init__(
        self,
        owner: StorageOwner,
        refusals: Refusals,
        metrics: BookieMetrics,
        *,
        interval_ms: int,
        stuck_after_ms: int,
        on_full: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """`on_full`: the disk is full, the bookie should become read-only. `on_failure`: it must stop (rule 23)."""
        self.progress = Progress("the store thread", stuck_after_ms)
        self._owner = owner
        self._refusals = refusals
        self._metrics = metrics
        self._interval_s = interval_ms / 1000
        self._on_full = on_full
        self._on_failure = on_failure
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self.has_room = True
        """Whether no flush waits for room. Only a flush that succeeded proves that there is some."""
        self._is_deleting = False
        """Whether blocks of deleted ledgers are left for which there was no time."""

    def start(self) -> None:
        """Start the thread."""
        if self._owner.storage.store.needs_confirmation:
            self._owner.flush_wanted.set()  # the disk is full: the bookie should become read-only now
        self._thread.start()

    def close(self) -> None:
        """Flush what is in the cache, then stop. Nothing is lost if that fails: the journal has it."""
        self._closing.set()
        self._owner.flush_wanted.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._owner.flush_wanted.wait(0 if self._is_deleting else self._interval_s)
                self._owner.flush_wanted.clear()
                self._run_cycle()
            self._run_cycle()
        except StorageError as error:
            self._on_failure(f"the store failed: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the bookie must stop
            _LOG.exception("unexpected error in the store thread")
            self._on_failure(f"the store failed: {type(error).__name__}: {error}")

    def _run_cycle(self) -> None:
        """One flush, if there is anything to flush, and removals until the next one is due."""
        self.progress.stamp()
        owner = self._owner
        with owner.lock:
            if owner.storage.cache.is_flushing:
                return  # the previous flush had no room, and the bookie stops
            refusals = self._refusals.count
            generation = owner.storage.begin_flush() if owner.storage.cache.has_changes else None
            owner.room_made()
        if generation is not None:
            started = perf_counter()
            if not self._flush(generation):
                return
            with owner.lock:
                owner.storage.end_flush()
            self._metrics.flush_seconds.observe(perf_counter() - started)
            self._metrics.flushed_bytes.inc(generation.size_bytes)
        elif not self._confirm():
            return
        self._refusals.stored(refusals)
        self._remove_deleted()
        self.progress.rest()

    def _flush(self, generation: Generation) -> bool:
        """Store the generation; False if there is no room and the bookie stops (the journal still has it)."""
        while True:
            try:
                self._owner.storage.flush(generation, self.progress.stamp)
            except StorageFullError as error:
                _LOG.warning("no room for a flush", reason=str(error))
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

    def _confirm(self) -> bool:
        """Make the newest commit certain where no other commit follows; False if there is no room for that."""
        try:
            self._owner.storage.store.confirm()
        except StorageFullError as error:
            _LOG.warning("no room in the store", reason=str(error))
            self.has_room = False
            self._on_full()
        else:
            self.has_room = True
        return self.has_room

    def _make_room(self) -> None:
        """Carry out newer deletions: their own flush would wait behind the one that has no room."""
        storage = self._owner.storage
        with self._owner.lock:
            generations = storage.cache.generations
        try:
            mark_deleted(storage.store, generations)
        except StorageFullError as error:
            _LOG.warning("no room for deletions yet", reason=str(error))
        self._remove_deleted()

    def _remove_deleted(self) -> None:
        """Remove the blocks of deleted ledgers, until a flush is due; needs no room that is not reserved."""
        ends_at_ms = monotonic_ms() + 1000 * self._interval_s
        self._is_deleting = True
        try:
            while self._is_deleting:
                self.progress.stamp()
                self._is_deleting = not delete_some(self._owner.storage.store)
                if self._owner.flush_wanted.is_set() or monotonic_ms() > ends_at_ms:
                    return
        except StorageFullError as error:
            _LOG.warning("no room for a deletion yet", reason=str(error))
            self._is_deleting = False
