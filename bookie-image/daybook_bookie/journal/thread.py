"""The one thread that writes the journal: it takes all waiting items as one group, syncs once, then answers all of them.

So a slow disk makes groups larger instead of queues longer. An answer never precedes the sync that it stands for
(rule 23); if the sync fails, the thread answers nothing and the bookie stops. A full disk is an answer (rule 30); the
refused records are in the cache all the same, and are durable once the store has them: until then the bookie owes them (`daybook.core.bookie.refusals`).

A second thread creates each next file ahead of time.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Final, Protocol

from daybook.core.bookie.refusals import Refusals
from daybook.core.errors import Code
from daybook.runtime.health import Progress
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.errors import StorageError, StorageFullError
from daybook_bookie.journal.format import Record
from daybook_bookie.journal.journal import Journal
from daybook_bookie.metrics import BookieMetrics

_LOG: Final = get_logger(__name__)

GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
WAITING_BYTES_MAX: Final = 64 * 1024
"""So much of what can wait is written by itself, so that it takes little memory and leaves room in the budget of what waits."""
_SPARE_RETRY_S: Final = 10.0


class Answerer(Protocol):
    """Is called once after a group, however many of its items the group held."""

    def send_answers(self) -> None:
        """Send the answers of all settled items."""


class JournalItem(Protocol):
    """What waits for the journal. An item without records waits for everything that was queued before it."""

    records: list[Record]
    size_bytes: int

    @property
    def can_wait(self) -> bool:
        """Whether nobody waits for it: it is written with the next item for which somebody does, and synced with that."""

    def settle(self, code: Code) -> Answerer | None:
        """OK: the records are durable. READ_ONLY: there was no space, and nothing is promised."""


class Barrier:
    """An item that a thread waits for."""

    can_wait = False

    def __init__(self, records: list[Record], *, on_durable: Callable[[], None] | None = None) -> None:
        """`on_durable` runs in the journal thread, before `wait` returns."""
        self.records = records
        self.size_bytes = sum(len(record.body) for record in records)
        self._on_durable = on_durable
        self._settled = threading.Event()
        self._code = Code.UNAVAILABLE

    def settle(self, code: Code) -> None:
        """See JournalItem."""
        self._code = code
        if code is Code.OK and self._on_durable is not None:
            self._on_durable()
        self._settled.set()

    def wait(self, timeout_s: float) -> Code:
        """The outcome; TIMEOUT if it is still unknown: then nothing may be answered."""
        return self._code if self._settled.wait(timeout_s) else Code.TIMEOUT


class JournalThread:
    """Owns the journal from `start` to `close`."""

    def __init__(
        self,
        journal: Journal,
        metrics: BookieMetrics,
        refusals: Refusals,
        *,
        stuck_after_ms: int,
        on_full: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """`on_full`: the disk is full, the bookie should become read-only. `on_failure`: it must stop (rule 23)."""
        self.journal = journal
        self.progress = Progress("the journal thread", stuck_after_ms)
        self._refusals = refusals
        self._metrics = metrics
        self._on_full = on_full
        self._on_failure = on_failure
        self._queue: SimpleQueue[JournalItem | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._spare_maker = threading.Thread(target=self._make_spares, name="journal-spare", daemon=True)
        self._spare_wanted = threading.Event()
        self._closing = False

    def start(self) -> None:
        """Start both threads."""
        self._thread.start()
        self._spare_maker.start()
        self._spare_wanted.set()

    def put(self, item: JournalItem) -> None:
        """Queue `item`; the items of one thread are written in its order. Never blocks."""
        self._queue.put(item)

    def close(self) -> None:
        """Write what is queued, then stop. The journal stays open: the store's last flush trims it."""
        self._queue.put(None)
        self._thread.join()
        self._closing = True
        self._spare_wanted.set()
        self._spare_maker.join()

    def _run(self) -> None:
        try:
            while self._write_group(self._take_group()):
                pass
        except StorageError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be answered any more
            _LOG.exception("unexpected error in the journal thread")
            self._fail(f"{type(error).__name__}: {error}")

    def _make_spares(self) -> None:
        """After each roll create the next file, so that the journal's thread need not; retry what fails."""
        is_created = True
        while True:
            self._spare_wanted.wait(None if is_created else _SPARE_RETRY_S)
            self._spare_wanted.clear()
            if self._closing:
                return
            try:
                self.journal.make_spare()
            except OSError as error:
                if is_created:
                    _LOG.warning("the next journal file cannot be created ahead of time", reason=str(error))
                is_created = False
            else:
                is_created = True

    def _fail(self, reason: str) -> None:
        self._on_failure(f"the journal failed: {reason}")

    def _take_group(self) -> list[JournalItem | None]:
        """All waiting items, up to a size; at least one that cannot wait, unless those that can are many."""
        group: list[JournalItem | None] = []
        size_bytes = 0
        while True:
            item = self._queue.get()
            group.append(item)
            size_bytes += item.size_bytes if item else 0
            if item is None or not item.can_wait or size_bytes > WAITING_BYTES_MAX:
                break
        while item is not None and size_bytes < GROUP_BYTES_MAX:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            group.append(item)
            size_bytes += item.size_bytes if item else 0
        return group

    def _write_group(self, group: list[JournalItem | None]) -> bool:
        """Write, sync, answer; False if it was the last group."""
        self.progress.stamp()
        started = perf_counter()
        last = group[-1] is None
        items = [item for item in group if item is not None]
        records = [record for item in items for record in item.records]
        file_id = self.journal.written.file_id
        try:
            if records:
                self.journal.append(records)
            self.journal.sync()
            code = Code.OK
        except StorageFullError as error:
            _LOG.warning("the journal has no space", reason=str(error))
            self._refusals.refused()
            self._on_full()
            code = Code.READ_ONLY
        if self.journal.written.file_id != file_id:
            self._spare_wanted.set()
        self._answer(items, code)
        if records:
            self._metrics.journal_sync_seconds.observe(perf_counter() - started)
            self._metrics.journal_groups.inc()
            self._metrics.journal_group_bytes.observe(sum(item.size_bytes for item in items))
        self.progress.rest()
        return not last

    def _answer(self, items: list[JournalItem], code: Code) -> None:
        answerers = dict.fromkeys(item.settle(code) for item in items)
        for answerer in answerers:
            if answerer is not None:
                answerer.send_answers()
