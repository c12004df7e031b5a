"""Whether a bookie accepts normal writes, why not, and what its registration says of that.

Two things decide: the space on its disks (rule 30), and an administrator, whose decision lasts over restarts. The machine,
the metrics and the registration in ZooKeeper follow both.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from daybook.core.placement.policy import BookieInfo
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.watch import DiskWatch, SpaceState
from daybook_bookie.identity.kept_mode import KeptMode
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics

_LOG: Final = get_logger(__name__)
UPDATE_RATIO: Final = 0.01
"""How much usage moves before the registration is updated."""


class Availability:
    """Of one bookie."""

    def __init__(
        self,
        table: LedgerTable,
        disk_watch: DiskWatch,
        mode: KeptMode,
        link: MetadataLink,
        metrics: BookieMetrics,
        on_update: Callable[[bool], None],
    ) -> None:
        """`on_update` is called with whether normal writes are accepted."""
        self._table = table
        self._disk_watch = disk_watch
        self._mode = mode
        self._mode_lock = threading.Lock()
        self._link = link
        self._metrics = metrics
        self._on_update = on_update
        self._lock = threading.Lock()
        self._info: BookieInfo | None = None
        self._registered_ratio = 0.0
        table.set_read_only(mode.reason())
        disk_watch.on_change = self.update
        disk_watch.on_poll = self._space_moved

    def start(self) -> None:
        """Apply what was decided before this start."""
        if self._table.read_only_reason:
            _LOG.warning("read-only, as before the restart", reason=self._table.read_only_reason)
        self.update()

    def register(
        self, info: BookieInfo, *, wait_for_topology: bool, on_registered: Callable[[], None]
    ) -> None:
        """Let clients find the bookie, now or as soon as ZooKeeper answers; `on_registered` is called once."""
        self._info = info
        self._link.register(
            self._current_info(), wait_for_topology=wait_for_topology, on_registered=on_registered
        )

    @property
    def is_writable(self) -> bool:
        """Whether normal writes are accepted."""
        return self._table.space is SpaceState.WRITABLE and not self._table.read_only_reason

    @property
    def reason(self) -> str:
        """Why they are not; empty if they are."""
        if self._table.read_only_reason:
            return self._table.read_only_reason
        if self.is_writable:
            return ""
        watch = self._disk_watch
        full = watch.refused or [watch.fullest.name]
        caps = {each.capped_by for each in watch.usages if each.name in full and each.capped_by}
        advice = "".join(f" (raise the setting {cap}: the disk has more)" for cap in caps)
        return f"{', '.join(full)} is full{advice}: {self._table.space.value}"

    def set_read_only(self, reason: str) -> None:
        """Refuse normal writes for `reason`, or allow them if it is empty, over restarts as well.

        Raises OSError if that cannot be kept; the bookie is read-only then, whatever was asked for.
        """
        with self._mode_lock:
            if reason:
                self._refuse_writes(reason)
            self._mode.keep(reason)
            if not reason:
                self._refuse_writes("")

    def _refuse_writes(self, reason: str) -> None:
        self._table.set_read_only(reason)
        self.update()

    def update(self) -> None:
        """Space or the administrator's decision changed: streams, registration and metrics follow."""
        # one at a time, or whoever read the state before another changed it would have the last word
        with self._lock:
            self._table.set_space(self._disk_watch.state)
            self._metrics.server_status.set(1 if self.is_writable else 0)
            self._on_update(self.is_writable)
            if self._info is not None:
                self._link.update(self._current_info())

    def _space_moved(self) -> None:
        """Placement weighs bookies by what is free: update the registration when that has moved noticeably."""
        ratio = self._disk_watch.fullest.ratio
        with self._lock:
            if self._info is not None and abs(ratio - self._registered_ratio) >= UPDATE_RATIO:
                self._link.update(self._current_info())

    def _current_info(self) -> BookieInfo:
        assert self._info is not None
        fullest = self._disk_watch.fullest
        self._registered_ratio = fullest.ratio
        return replace(
            self._info,
            writable=self.is_writable,
            free_bytes=fullest.free_bytes,
            capacity_bytes=fullest.capacity_bytes,
            boot_id=self._link.claim.boot_id,
        )
