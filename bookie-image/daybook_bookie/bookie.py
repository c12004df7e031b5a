"""A bookie: its parts, put together, started and stopped in the right order.

Each part is given what it needs and no part knows the bookie; the order is here. A failure of the journal or the
store ends the process without another answer (rule 23): nobody knows what is durable, and the next start replays.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from daybook.core.bookie.life import (
    BookieLife,
    LifeEvent,
    StopAnswering,
    StopAsked,
    StorageClosed,
    StorageFailed,
    Superseded,
    WritesAllowed,
)
from daybook.core.errors import Code
from daybook.core.placement.policy import BookieInfo
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import StorageError
from daybook_bookie.disk.watch import DiskWatch, SpaceLimits, Usage, file_system
from daybook_bookie.identity.epoch import EpochKeeper
from daybook_bookie.identity.kept_mode import KeptMode
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.identity.rollback import RollBackGuard
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.append import AppendContext
from daybook_bookie.service.attach import Attacher
from daybook_bookie.service.availability import Availability
from daybook_bookie.service.budget import ByteBudget
from daybook_bookie.service.control import Control
from daybook_bookie.service.fencing import Fencer
from daybook_bookie.service.long_poll import LongPolls
from daybook_bookie.service.questions import Questions
from daybook_bookie.service.reads import Reads
from daybook_bookie.service.recovering import Recoveries
from daybook_bookie.service.streams import AppendStreams
from daybook_bookie.settings import BookieSettings
from daybook_bookie.store.storage import Storage
from daybook_bookie.store.thread import StoreThread
from daybook_bookie.upkeep.gc import Collector
from daybook_bookie.upkeep.over_replicated import OverReplicatedCollector
from daybook_bookie.upkeep.scrubber import Scrubber

_LOG: Final = get_logger(__name__)
ANSWER_TIMEOUT_S: Final = 30.0
"""How long an answer waits for the journal before it is given up."""


class Bookie:
    """All of a bookie but its sockets. `start` before anything is asked of it."""

    def __init__(
        self,
        settings: BookieSettings,
        storage: Storage,
        link: MetadataLink,
        metrics: BookieMetrics,
        *,
        life: BookieLife,
        on_end: Callable[[str], None],
        look_at_space: Callable[[], list[Usage]] | None = None,
    ) -> None:
        """`life` has come to serve. `on_end` is called with why the process must end (`life.must_end`): a failure of the
        storage (rule 23), or a successor (rule 57). Nothing is answered from then on.
        """
        self.settings = settings
        self.storage = storage
        self.link = link
        self.metrics = metrics
        self.boot_id = link.claim.boot_id
        self.long_polls = LongPolls(
            settings.long_polls_max, metrics.long_polls.set, lambda: self.make_durable(ANSWER_TIMEOUT_S)
        )
        self.table = LedgerTable(
            storage,
            self.long_polls.has_waiters,
            write_cache_bytes=settings.write_cache_bytes,
            flush_bytes=settings.flush_bytes,
        )
        self.roll_back = RollBackGuard(RealDisk(settings.store_dir), link)
        self._on_end = on_end
        link.on_superseded = self._superseded
        self._life = life
        self._life_lock = threading.Lock()
        assert link.disk_epoch is not None, "the disks are open"
        self.epoch = EpochKeeper(
            link.disk_epoch,
            lambda: storage.journal.written,
            link.raise_epoch,
            lambda: link.is_connected,
        )
        self._make_threads(look_at_space or self._look_at_space)
        self._make_services()

    def _make_threads(self, look_at_space: Callable[[], list[Usage]]) -> None:
        settings, metrics = self.settings, self.metrics
        self.disk_watch = DiskWatch(
            look_at_space,
            SpaceLimits(
                settings.disk_warn_ratio,
                settings.disk_full_ratio,
                settings.disk_low_water_ratio,
                settings.disk_reserve_ratio,
            ),
            settings.disk_check_ms,
            {"journal": self.storage.journal.has_room, "store": lambda: self.store_thread.has_room},
        )
        self.availability = Availability(
            self.table,
            self.disk_watch,
            KeptMode(RealDisk(settings.store_dir)),
            self.link,
            metrics,
            on_update=lambda is_writable: self._live(WritesAllowed(is_writable)),
        )
        self.journal = JournalThread(
            self.storage.journal,
            metrics,
            self.table.machine.refusals,
            stuck_after_ms=settings.stuck_after_ms,
            on_full=self._journal_is_full,
            on_failure=self.fail,
        )
        self.store_thread = StoreThread(
            self.table,
            self.table.machine.refusals,
            metrics,
            interval_ms=settings.flush_interval_ms,
            stuck_after_ms=settings.stuck_after_ms,
            on_full=partial(self.disk_watch.refuse_writes, "store"),
            on_failure=self.fail,
        )
        self.scrubber = Scrubber(
            self.storage.store,
            self.table.is_cached,
            metrics,
            interval_ms=settings.scrub_interval_ms,
            bytes_per_second=settings.scrub_bytes_per_second,
        )
        self.collector = Collector(
            self.table,
            self.journal,
            self.link,
            self.roll_back,
            metrics,
            interval_ms=settings.gc_interval_ms,
            over_replicated=OverReplicatedCollector(self.table, self.link, metrics, settings.bookie_id),
            over_replicated_interval_ms=settings.gc_surplus_interval_ms,
        )

    def _make_services(self) -> None:
        self.questions = Questions(self.table, self.link.read_ledgers)
        self.fencer = Fencer(
            self.table,
            self.journal,
            self.long_polls,
            self.questions,
            self.metrics,
            timeout_s=ANSWER_TIMEOUT_S,
        )
        self.attacher = Attacher(
            self.table,
            self.questions,
            self.roll_back,
            self.metrics,
            at_once=self.settings.attaches_at_once,
            waiting_max=self.settings.attaches_waiting_max,
        )
        self.budget = ByteBudget(self.settings.journal_queue_bytes, self.settings.received_bytes_max)
        self.append = AppendContext(
            self.table, self.journal, self.budget, self.long_polls, self.metrics, self.attacher.attach
        )
        self.reads = Reads(
            self.table, self.fencer, self.questions, self.metrics, on_damage=self.scrubber.found
        )
        self.recoveries = Recoveries(self.fencer, self.reads)
        self.streams = AppendStreams(
            self.append, self.table, self.metrics, streams_max=self.settings.streams_max
        )
        self.control = Control(
            settings=self.settings,
            boot_id=self.boot_id,
            metrics=self.metrics,
            table=self.table,
            journal=self.journal,
            long_polls=self.long_polls,
            questions=self.questions,
            streams=self.streams,
            availability=self.availability,
            disk_watch=self.disk_watch,
            link=self.link,
            roll_back=self.roll_back,
            scrubber=self.scrubber,
            collector=self.collector,
            make_durable=partial(self.make_durable, ANSWER_TIMEOUT_S),
            journal_bytes=self.journal_bytes,
            timeout_s=ANSWER_TIMEOUT_S,
        )

    # Life

    def start(self) -> None:
        """Begin to work."""
        self.availability.start()
        self.journal.start()
        self.store_thread.start()
        self.attacher.start()
        self.disk_watch.start()
        self.collector.start()
        self.scrubber.start()
        self.epoch.start()
        self._watch_gauges()

    def register(self, info: BookieInfo, on_registered: Callable[[], None] = lambda: None) -> None:
        """Let clients find the bookie, now or as soon as ZooKeeper answers; `on_registered` is called once."""
        self.availability.register(
            info, wait_for_topology=self.settings.wait_for_topology, on_registered=on_registered
        )

    def fail(self, reason: str) -> None:
        """The process must end: no answer may be given any more (rule 23)."""
        self._live(StorageFailed(reason))
        _LOG.error("storage failed", reason=reason)
        self._on_end(reason)

    def _superseded(self, reason: str) -> None:
        self._live(Superseded(reason))
        self._on_end(reason)

    def _live(self, event: LifeEvent) -> None:
        """Any thread calls this, whatever other locks it holds."""
        with self._life_lock:
            effects = self._life.step(event)
        if StopAnswering() in effects:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        self.table.stop_waiting()
        self.budget.close()

    @property
    def has_failed(self) -> bool:
        """Whether the process must end without another answer."""
        return self._life.must_end

    def stop(self) -> None:
        """End all streams, write what is queued, flush, close. The caller has stopped its sockets."""
        self._live(StopAsked())
        self.streams.close()
        self._stop_waiting()
        self.attacher.close()
        self.collector.close()
        self.scrubber.close()
        self.disk_watch.close()
        self.long_polls.close()
        self.journal.close()
        self.store_thread.close()
        self.epoch.close()
        try:
            self.storage.close()
        except StorageError as error:
            self.fail(f"the journal could not be closed: {error}")
        self._live(StorageClosed())
        self.link.close()
        _LOG.info("stopped")

    # The journal

    def make_durable(self, timeout_s: float) -> bool:
        """Wait until everything accepted so far is durable; False if it is not, be it that the journal had no room."""
        barrier = Barrier([])
        with self.table.lock:
            self.journal.put(barrier)
        return self.table.machine.refusals.vouch(barrier.wait(timeout_s)) is Code.OK

    def journal_bytes(self) -> int:
        """What the journal's files take, those too that are there for what comes."""
        journal, checkpoint = self.storage.journal, self.storage.store.checkpoint
        return (
            journal.written.file_id - checkpoint.file_id + 1 + journal.spares
        ) * self.settings.journal_file_bytes

    # Space

    def _journal_is_full(self) -> None:
        """A flush makes durable what the journal refused, and lets files of the journal go."""
        self.disk_watch.refuse_writes("journal")
        self.table.flush_wanted.set()

    def _look_at_space(self) -> list[Usage]:
        """Journal and store; what LMDB's file can reuse counts as free, since it never shrinks (rule 27, rule 30).

        On one file system it counts for the journal as well: otherwise a store that once filled the disk would keep the
        bookie read-only after every ledger in it was deleted. Whether a journal file finds room then is found by trying.
        """
        journal_dir, store_dir = self.settings.journal_dir, self.settings.store_dir
        journal = file_system("journal", journal_dir.__fspath__())
        store = file_system("store", store_dir.__fspath__())
        space = self.storage.store.space()
        if journal_dir.stat().st_dev == store_dir.stat().st_dev:
            journal = journal._replace(
                free_bytes=min(journal.capacity_bytes, journal.free_bytes + space.reusable)
            )
        capacity = min(store.capacity_bytes, self.storage.store.settings.store_map_bytes)
        capped_by = "store_map_bytes" if space.is_map_the_limit else ""
        return [journal, Usage("store", capacity, min(capacity, space.free), capped_by)]

    def _watch_gauges(self) -> None:
        """Gauges that are read when somebody scrapes."""
        metrics = self.metrics
        metrics.received_bytes.set_function(lambda: self.budget.waiting_bytes)
        metrics.journal_queue_bytes.set_function(lambda: self.budget.taken_bytes)
        metrics.journal_bytes.set_function(self.journal_bytes)
        metrics.write_cache_bytes.set_function(lambda: self.storage.cache.size_bytes)
        metrics.registered.set_function(lambda: self.link.is_listed)
        metrics.ledgers.set_function(lambda: len(self.table.known_ids()))
        metrics.metadata_rolled_back.set_function(lambda: bool(self.roll_back.reason))
        metrics.disk_went_back.set(1 if self.link.disk_notice else 0)
        metrics.limbo_ledgers.set_function(lambda: len(self.table.limbo_marks()))
        for index, usage in enumerate(self.disk_watch.usages):
            metrics.disk_used_ratio.labels(usage.name).set_function(partial(self._used_ratio, index))

    def _used_ratio(self, index: int) -> float:
        return self.disk_watch.usages[index].ratio
