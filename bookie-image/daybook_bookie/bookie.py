"""A bookie: its parts, put together, started and stopped in the right order.

Each part is given what it needs and knows nothing of the others; the order is here. A failure of the journal or the
store ends the process without another answer (rule 23): nobody knows what is durable, and the next start replays.
"""

import os
import threading
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Final

from daybook.core.errors import Code
from daybook.core.placement.policy import BookieInfo
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import StorageError
from daybook_bookie.disk.watch import DiskWatch, SpaceLimits, SpaceState, Usage
from daybook_bookie.identity.epoch import EpochKeeper
from daybook_bookie.identity.kept_mode import KeptMode
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.identity.rollback import RollBackGuard
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.append import AppendContext, AppendStream
from daybook_bookie.service.attach import Attacher
from daybook_bookie.service.budget import ByteBudget
from daybook_bookie.service.control import Control
from daybook_bookie.service.fencing import Fencer
from daybook_bookie.service.ledgers import LedgerTable
from daybook_bookie.service.long_poll import LongPolls
from daybook_bookie.service.passwords import Passwords
from daybook_bookie.service.reads import Reads
from daybook_bookie.settings import BookieSettings
from daybook_bookie.store.storage import Storage
from daybook_bookie.store.thread import StoreThread
from daybook_bookie.upkeep.gc import Collector
from daybook_bookie.upkeep.over_replicated import SurplusCollector
from daybook_bookie.upkeep.scrubber import Scrubber

_LOG: Final = get_logger(__name__)
ANSWER_TIMEOUT_S: Final = 30.0
"""How long an answer waits for the journal before it is given up."""
_GAVE_WAY: Final = "as many append streams are open as may (streams_max), and no ledger was attached to this one: open it again to write"
_last_heard: Final = attrgetter("heard_ms", "stream_id")
TELL_SPACE_RATIO: Final = 0.01
"""How much usage moves before the registration says so."""


class Bookie:
    """All of a bookie but its sockets. `start` before anything is asked of it."""

    def __init__(
        self,
        settings: BookieSettings,
        storage: Storage,
        link: MetadataLink,
        metrics: BookieMetrics,
        *,
        on_failure: Callable[[str], None],
        on_superseded: Callable[[str], None],
        look_at_space: Callable[[], list[Usage]] | None = None,
    ) -> None:
        """`on_failure` is told why the process must end; nothing is answered from then on.

        So is `on_superseded` when another process is the bookie (rule 57).
        """
        self.settings = settings
        self.storage = storage
        self.link = link
        self.metrics = metrics
        self.boot_id = link.claim.boot_id
        self.table = LedgerTable(
            storage, write_cache_bytes=settings.write_cache_bytes, flush_bytes=settings.flush_bytes
        )
        self._mode = KeptMode(RealDisk(settings.store_dir))
        self._mode_lock = threading.Lock()
        self.roll_back = RollBackGuard(RealDisk(settings.store_dir), link)
        self._state_lock = threading.Lock()
        self.table.read_only_reason = self._mode.reason()
        self._on_failure = on_failure
        self._on_superseded = on_superseded
        link.on_superseded = self._superseded
        self._failed = threading.Event()
        self._streams: set[AppendStream] = set()
        self._streams_lock = threading.Lock()
        self._info: BookieInfo | None = None
        self._told_ratio = 0.0
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
        self.disk_watch.on_change = self._state_changed
        self.disk_watch.on_poll = self._tell_space
        self.journal = JournalThread(
            self.storage.journal,
            metrics,
            stuck_after_ms=settings.stuck_after_ms,
            on_full=self._journal_is_full,
            on_failure=self.fail,
        )
        self.store_thread = StoreThread(
            self.table,
            self.journal,
            metrics,
            interval_ms=settings.flush_interval_ms,
            stuck_after_ms=settings.stuck_after_ms,
            on_full=partial(self.disk_watch.refuse_writes, "store"),
            on_failure=self.fail,
        )
        self.long_polls = LongPolls(
            settings.long_polls_max, metrics.long_polls.set, lambda: self.make_durable(ANSWER_TIMEOUT_S)
        )
        self.scrubber = Scrubber(
            self.storage.store,
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
            surplus=SurplusCollector(self.table, self.link, metrics, settings.bookie_id),
            surplus_interval_ms=settings.gc_surplus_interval_ms,
            on_deleted=self.scrubber.forget,
        )

    def _make_services(self) -> None:
        self.passwords = Passwords(self.table, self.link.read_ledger)
        self.fencer = Fencer(
            self.table,
            self.journal,
            self.long_polls,
            self.passwords,
            self.metrics,
            timeout_s=ANSWER_TIMEOUT_S,
        )
        self.attacher = Attacher(
            self.table,
            self.link.read_ledger,
            self.roll_back,
            self.metrics,
            workers=self.settings.attach_workers,
            waiting_max=self.settings.attaches_waiting_max,
        )
        self.budget = ByteBudget(self.settings.journal_queue_bytes, self.settings.received_bytes_max)
        self.append = AppendContext(
            self.table, self.journal, self.budget, self.long_polls, self.metrics, self.attacher.attach
        )
        self.reads = Reads(
            self.table, self.fencer, self.passwords, self.metrics, on_damage=self.scrubber.found
        )
        self.control = Control(self, timeout_s=ANSWER_TIMEOUT_S)

    # Life

    def start(self) -> None:
        """Begin to work."""
        if self.table.read_only_reason:
            _LOG.warning("read-only, as it was told before it stopped", reason=self.table.read_only_reason)
        self._state_changed()
        self.journal.start()
        self.store_thread.start()
        self.disk_watch.start()
        self.collector.start()
        self.scrubber.start()
        self.epoch.start()
        self._watch_gauges()

    def register(self, info: BookieInfo, on_registered: Callable[[], None] = lambda: None) -> None:
        """Let clients find the bookie, now or as soon as ZooKeeper answers; `on_registered` is told once."""
        self._info = info
        self.link.register(
            self._current_info(),
            wait_for_topology=self.settings.wait_for_topology,
            on_registered=on_registered,
        )

    def fail(self, reason: str) -> None:
        """The process must end: no answer may be given any more (rule 23)."""
        self._stop_answering()
        self._on_failure(reason)

    def _superseded(self, reason: str) -> None:
        self._stop_answering()
        self._on_superseded(reason)

    def _stop_answering(self) -> None:
        self._failed.set()
        self.table.stop_waiting()
        self.budget.close()

    @property
    def has_failed(self) -> bool:
        """Whether the process must end without another answer."""
        return self._failed.is_set()

    def stop(self) -> None:
        """End all streams, write what is queued, flush, close. The caller has stopped its sockets."""
        for stream in self.open_stream_list():
            stream.close()
        self.table.stop_waiting()
        self.budget.close()
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
        self.link.close()
        _LOG.info("stopped")

    # State

    @property
    def is_writable(self) -> bool:
        """Whether normal writes are taken."""
        return self.table.space is SpaceState.WRITABLE and not self.table.read_only_reason

    @property
    def read_only_reason(self) -> str:
        """Why not; empty if they are."""
        if self.table.read_only_reason:
            return self.table.read_only_reason
        if self.is_writable:
            return ""
        full = self.disk_watch.refused or [self.disk_watch.fullest.name]
        caps = {each.capped_by for each in self.disk_watch.usages if each.name in full and each.capped_by}
        advice = "".join(f" (raise the setting {cap}: the disk has more)" for cap in caps)
        return f"{', '.join(full)} is full{advice}: {self.table.space.value}"

    def set_read_only(self, reason: str) -> None:
        """Refuse normal writes for `reason`, or allow them if it is empty, over restarts as well.

        Raises OSError if it cannot be kept; the bookie is read-only then, whatever was asked for.
        """
        with self._mode_lock:
            if reason:
                self._refuse_writes(reason)
            self._mode.keep(reason)
            if not reason:
                self._refuse_writes("")

    def _refuse_writes(self, reason: str) -> None:
        with self.table.lock:
            self.table.read_only_reason = reason
        self._state_changed()

    def make_durable(self, timeout_s: float) -> bool:
        """Wait until everything accepted so far is durable; False if it is not, be it that the journal had no room."""
        barrier = Barrier([])
        with self.table.lock:
            self.journal.put(barrier)
        return barrier.wait(timeout_s) is Code.OK and not self.journal.has_unstored_refusals

    def journal_bytes(self) -> int:
        """What the journal's files take, the next one too if it is made already."""
        journal, checkpoint = self.storage.journal, self.storage.store.checkpoint
        return (
            journal.written.file_id - checkpoint.file_id + 1 + journal.has_spare
        ) * self.settings.journal_file_bytes

    # Streams

    def open_stream(self) -> AppendStream | None:
        """A new append stream; None if there are too many.

        One that no ledger is attached to writes nothing, so the one that was quiet longest gives way.
        """
        with self._streams_lock:
            gives_way = None
            if len(self._streams) >= self.settings.streams_max:
                gives_way = self._idle_stream()
                if gives_way is None:
                    return None
                self._streams.discard(gives_way)
            stream = AppendStream(self.append)
            self._streams.add(stream)
            self.metrics.streams.set(len(self._streams))
        if gives_way is not None:
            gives_way.crowd_out(_GAVE_WAY)
        return stream

    def _idle_stream(self) -> AppendStream | None:
        """Of the streams that no ledger is attached to, nor waits to be, the one that was heard of longest ago."""
        with self.table.lock:
            idle = [each for each in self._streams if not self.table.is_attached(each.stream_id)]
            return min((each for each in idle if not each.attaching), key=_last_heard, default=None)

    def stream_ended(self, stream: AppendStream) -> None:
        """The stream's handler ended."""
        with self._streams_lock:
            self._streams.discard(stream)
            self.metrics.streams.set(len(self._streams))

    def open_stream_list(self) -> list[AppendStream]:
        """The streams that are open."""
        with self._streams_lock:
            return list(self._streams)

    @property
    def open_streams(self) -> int:
        """How many there are."""
        return len(self._streams)

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
        journal = _file_system("journal", journal_dir.__fspath__())
        store = _file_system("store", store_dir.__fspath__())
        space = self.storage.store.space()
        if journal_dir.stat().st_dev == store_dir.stat().st_dev:
            journal = journal._replace(
                free_bytes=min(journal.capacity_bytes, journal.free_bytes + space.reusable)
            )
        capacity = min(store.capacity_bytes, self.storage.store.settings.store_map_bytes)
        capped_by = "store_map_bytes" if space.is_map_the_limit else ""
        return [journal, Usage("store", capacity, min(capacity, space.free), capped_by)]

    def _state_changed(self) -> None:
        """Space or an administrator's word changed: streams, registration and metrics follow."""
        # one at a time, or who read the state before another changed it would have the last word
        with self._state_lock:
            self.table.set_space(self.disk_watch.state)
            self.metrics.server_status.set(1 if self.is_writable else 0)
            if self._info is not None:
                self.link.update(self._current_info())

    def _tell_space(self) -> None:
        """Placement weighs bookies by what is free: tell it when that has moved noticeably."""
        ratio = self.disk_watch.fullest.ratio
        with self._state_lock:
            if self._info is not None and abs(ratio - self._told_ratio) >= TELL_SPACE_RATIO:
                self.link.update(self._current_info())

    def _current_info(self) -> BookieInfo:
        assert self._info is not None
        fullest = self.disk_watch.fullest
        self._told_ratio = fullest.ratio
        return BookieInfo(
            bookie=self._info.bookie,
            address=self._info.address,
            tls_address=self._info.tls_address,
            region=self._info.region,
            zone=self._info.zone,
            rack=self._info.rack,
            node=self._info.node,
            writable=self.is_writable,
            free_bytes=fullest.free_bytes,
            capacity_bytes=fullest.capacity_bytes,
            boot_id=self.boot_id,
        )

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


def _file_system(name: str, path: str) -> Usage:
    """As `df` counts: what is reserved for root is no capacity."""
    stat = os.statvfs(path)
    used = stat.f_blocks - stat.f_bfree
    return Usage(name, (used + stat.f_bavail) * stat.f_frsize, stat.f_bavail * stat.f_frsize)
