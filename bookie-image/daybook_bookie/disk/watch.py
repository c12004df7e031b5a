"""When a bookie refuses normal writes for want of space, and when it accepts them again (rule 30).

Three thresholds with hysteresis: from `full` on the bookie is read-only, below `low_water` it is writable again, and
between `full` and `reserve` recovery and repair may still write, since without them space elsewhere is of no use.
Deletions and fences are never refused. Pages that the store can reuse count as free (its file never shrinks), or the
bookie would stay read-only for ever.

A disk that refused a write is not the same as a disk that is full by its figures, which need not show a quota, for
example. It accepts no normal writes until an allocation has proved that there is room; see `Trial`.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from daybook.runtime.logs import get_logger
from daybook_bookie.poller import Poller

_LOG: Final = get_logger(__name__)

TRIAL_POLLS_MAX: Final = 64
"""A refused disk is tried at least every so many polls; after so many polls without a refusal the wait is short again."""


class SpaceState(Enum):
    """What the space allows."""

    WRITABLE = "writable"
    READ_ONLY = "read-only: recovery may still write"
    EXHAUSTED = "read-only: nothing may be written but fences and deletions"


class Usage(NamedTuple):
    """The space of one directory; `free_bytes` includes what its files can reuse."""

    name: str
    capacity_bytes: int
    free_bytes: int
    capped_by: str = ""
    """The setting that is a lower limit than the disk, if there is one."""

    @property
    def ratio(self) -> float:
        """How much of it is used, 0 to 1."""
        if self.capacity_bytes <= 0:
            return 1.0
        return 1.0 - min(self.free_bytes, self.capacity_bytes) / self.capacity_bytes


def file_system(name: str, path: str) -> Usage:
    """The space of the file system of `path`, as `df` counts: what is reserved for root is no capacity."""
    stat = os.statvfs(path)
    used = stat.f_blocks - stat.f_bfree
    return Usage(name, (used + stat.f_bavail) * stat.f_frsize, stat.f_bavail * stat.f_frsize)


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """Ratios of use, 0 to 1: low_water ≤ full < reserve."""

    warn: float = 0.90
    full: float = 0.95
    low_water: float = 0.90
    reserve: float = 0.98


def next_state(state: SpaceState, ratio: float, limits: SpaceLimits) -> SpaceState:
    """The state that follows from `state` at a use of `ratio`."""
    if ratio >= limits.reserve:
        return SpaceState.EXHAUSTED
    if ratio >= limits.full:
        return SpaceState.READ_ONLY
    if may_become_writable(ratio, limits):
        return SpaceState.WRITABLE
    return SpaceState.WRITABLE if state is SpaceState.WRITABLE else SpaceState.READ_ONLY


def may_become_writable(ratio: float, limits: SpaceLimits) -> bool:
    """Hysteresis: without it a bookie near the limit would change its state with every deletion."""
    return ratio < limits.low_water


class Trial:
    """When a directory that refused a write is tried again: after twice as many polls each time.

    It is tried at once, however, if its figures show more room than at the last trial. The wait also grows with trials that
    find room: with room for a single file the bookie would otherwise change its state with every file.
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        """`has_room` tries to allocate what the next write needs; it may raise OSError."""
        self.has_room = has_room
        self.is_refused = False
        self.refusals = 0
        """How many writes were refused."""
        self._free_bytes = 0
        self._wait_polls = 1
        self._polls = 0

    def refuse(self, free_bytes: int) -> None:
        """A write was refused when `free_bytes` were free by the figures."""
        self.refusals += 1
        if not self.is_refused:
            self.is_refused = True
            self._free_bytes, self._polls = free_bytes, 0

    def is_due(self, free_bytes: int) -> bool:
        """Count a poll; whether it is time to try."""
        self._polls += 1
        if self.is_refused:
            return self._polls >= self._wait_polls or free_bytes > self._free_bytes
        if self._polls >= TRIAL_POLLS_MAX:
            self._wait_polls = 1
        return False

    def tried(self, free_bytes: int, *, found_room: bool) -> None:
        """Record the outcome of a trial."""
        self.is_refused = not found_room
        self._wait_polls = min(2 * self._wait_polls, TRIAL_POLLS_MAX)
        self._free_bytes, self._polls = free_bytes, 0


class DiskWatch:
    """Polls the space; `state` is what the fullest directory allows."""

    def __init__(
        self,
        usages: Callable[[], list[Usage]],
        limits: SpaceLimits,
        interval_ms: int,
        has_room: Mapping[str, Callable[[], bool]] = MappingProxyType({}),
    ) -> None:
        """Poll once, at once: a bookie with a full disk starts read-only. `has_room`: by directory, see `Trial`."""
        self._measure = usages
        self._limits = limits
        self._poller = Poller(
            "disk-watch", interval_ms / 1000, self._poll, failed="the space could not be polled"
        )
        self._warned = False
        self._trials = {name: Trial(each) for name, each in has_room.items()}
        self._lock = threading.Lock()
        self.state = SpaceState.WRITABLE
        self.usages: list[Usage] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called when the state changed."""
        self.on_poll: Callable[[], None] = lambda: None
        """Called after every poll of the thread."""
        self.check()

    @property
    def fullest(self) -> Usage:
        """The directory that decides the state."""
        return max(self.usages, key=lambda usage: usage.ratio)

    @property
    def refused(self) -> list[str]:
        """The directories that refused a write and where no trial has found room since."""
        return [name for name, trial in self._trials.items() if trial.is_refused]

    def check(self) -> SpaceState:
        """Poll now and carry out the trials that are due; the new state."""
        self._try_refused()
        with self._lock:
            self.usages = self._measure()
            fullest = self.fullest
            before, self.state = self.state, next_state(self.state, fullest.ratio, self._limits)
            if self.refused:
                self.state = max(self.state, SpaceState.READ_ONLY, key=_severity)
            now = self.state
        if now is not before:
            _LOG.warning("space", state=now.name, **fullest._asdict(), used=round(fullest.ratio, 4))
            self.on_change()
        elif (fullest.ratio >= self._limits.warn) is not self._warned:
            self._warned = not self._warned
            if self._warned:
                _LOG.warning("space runs low", **fullest._asdict(), used=round(fullest.ratio, 4))
        return now

    def refuse_writes(self, name: str) -> None:
        """A write to the directory met a full disk: read-only until a trial finds room."""
        with self._lock:
            self._trials[name].refuse(self._free_bytes()[name])
            before, self.state = self.state, max(self.state, SpaceState.READ_ONLY, key=_severity)
            changed = self.state is not before
        if changed:
            _LOG.warning("the disk is full: read-only until there is space", state=self.state.name, name=name)
            self.on_change()

    def _try_refused(self) -> None:
        """Try the directories that refused a write, without the lock, since a slow disk must not delay a refusal."""
        with self._lock:
            free = self._free_bytes()
            due = {
                name: trial.refusals
                for name, trial in self._trials.items()
                if trial.is_due(free.get(name, 0))
            }
        for name, refusals in due.items():
            found_room = self._has_room(name)
            with self._lock:
                trial = self._trials[name]
                trial.tried(free[name], found_room=found_room and trial.refusals == refusals)
            _LOG.info("tried to allocate space on a full disk", name=name, found_room=found_room)

    def _has_room(self, name: str) -> bool:
        """Whether the directory has room for what the next write needs; any other failure proves nothing."""
        try:
            return self._trials[name].has_room()
        except OSError as error:
            _LOG.warning("could not try to allocate space on a full disk", name=name, reason=str(error))
            return False

    def _free_bytes(self) -> dict[str, int]:
        return {usage.name: usage.free_bytes for usage in self._measure()}

    def start(self) -> None:
        """Poll in a thread from now on."""
        self._poller.start()

    def close(self) -> None:
        """Stop polling."""
        self._poller.close()

    def _poll(self) -> None:
        self.check()
        self.on_poll()


def _severity(state: SpaceState) -> int:
    return list(SpaceState).index(state)
