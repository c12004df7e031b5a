"""When a bookie stops to take normal writes for want of space, and when it starts again (rule 30).

Three thresholds with hysteresis: from `full` on the bookie is read-only, below `low_water` it is writable again, and
between `full` and `reserve` recovery and repair may still write, since they are what will make space elsewhere useful.
Deletions and fences are never refused. Space counts what a store keeps for itself (its file never shrinks), or
read-only would never end.

A disk that refused a write is another matter than one that is full by its figures: a quota, say, need not show in them.
It takes no normal writes until room is proved by taking it, which no figure can do; see `Trial`.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)

TRIAL_LOOKS_MAX: Final = 64
"""A refused disk is tried at least every so many looks; one that took writes for so long begins anew."""


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
    """The setting that ends it before the disk does, if one does."""

    @property
    def ratio(self) -> float:
        """How much of it is used, 0 to 1."""
        if self.capacity_bytes <= 0:
            return 1.0
        return 1.0 - min(self.free_bytes, self.capacity_bytes) / self.capacity_bytes


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
    if _may_become_writable(ratio, limits):
        return SpaceState.WRITABLE
    return SpaceState.WRITABLE if state is SpaceState.WRITABLE else SpaceState.READ_ONLY


def _may_become_writable(ratio: float, limits: SpaceLimits) -> bool:
    """Hysteresis: at the edge a bookie would otherwise come and go with every deletion."""
    return ratio < limits.low_water


class Trial:
    """When a directory that refused a write is tried again: after twice as many looks each time.

    At once, however, if it shows more room than at the last trial. The wait grows with every trial, also with those that
    find room: a disk that has room for one file and no more would else come and go with every file.
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        """`has_room` takes the room that the next write needs, or fails to; it may raise OSError."""
        self.has_room = has_room
        self.is_refused = False
        self.refusals = 0
        """How many writes were refused."""
        self._free_bytes = 0
        self._wait_looks = 1
        self._looks = 0

    def refuse(self, free_bytes: int) -> None:
        """A write was refused when so much was free by the figures."""
        self.refusals += 1
        if not self.is_refused:
            self.is_refused = True
            self._free_bytes, self._looks = free_bytes, 0

    def is_due(self, free_bytes: int) -> bool:
        """Count a look; whether it is time to try."""
        self._looks += 1
        if self.is_refused:
            return self._looks >= self._wait_looks or free_bytes > self._free_bytes
        if self._looks >= TRIAL_LOOKS_MAX:
            self._wait_looks = 1
        return False

    def tried(self, free_bytes: int, *, found_room: bool) -> None:
        """What came of it."""
        self.is_refused = not found_room
        self._wait_looks = min(2 * self._wait_looks, TRIAL_LOOKS_MAX)
        self._free_bytes, self._looks = free_bytes, 0


class DiskWatch:
    """Looks at the space now and then; `state` is what the fullest directory allows."""

    def __init__(
        self,
        look: Callable[[], list[Usage]],
        limits: SpaceLimits,
        interval_ms: int,
        has_room: Mapping[str, Callable[[], bool]] = MappingProxyType({}),
    ) -> None:
        """Look once, at once: a full disk boots read-only. `has_room`: by directory, see `Trial`."""
        self._look = look
        self._limits = limits
        self._interval_s = interval_ms / 1000
        self._wake = threading.Event()
        self._closing = False
        self._warned = False
        self._trials = {name: Trial(each) for name, each in has_room.items()}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.state = SpaceState.WRITABLE
        self.usages: list[Usage] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called when the state changed."""
        self.on_look: Callable[[], None] = lambda: None
        """Called after every look of the thread."""
        self.check()

    @property
    def fullest(self) -> Usage:
        """The directory that decides."""
        return max(self.usages, key=lambda usage: usage.ratio)

    @property
    def refused(self) -> list[str]:
        """The directories that refused a write, and have not proved since that they have room."""
        return [name for name, trial in self._trials.items() if trial.is_refused]

    def check(self) -> SpaceState:
        """Look now, try what is to be tried; the new state."""
        self._try_refused()
        with self._lock:
            self.usages = self._look()
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
        """A directory's disk itself said that it is full: read-only until it has proved that there is room."""
        with self._lock:
            self._trials[name].refuse(self._free_bytes()[name])
            before, self.state = self.state, max(self.state, SpaceState.READ_ONLY, key=_severity)
            changed = self.state is not before
        if changed:
            _LOG.warning("the disk is full: read-only until there is space", state=self.state.name, name=name)
            self.on_change()

    def _try_refused(self) -> None:
        """Let those that refused show that they have room; without the lock, since a slow disk must hold up no refusal."""
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
            _LOG.info("a full disk was tried", name=name, found_room=found_room)

    def _has_room(self, name: str) -> bool:
        """Whether the directory takes what the next write needs; what fails otherwise proves nothing."""
        try:
            return self._trials[name].has_room()
        except OSError as error:
            _LOG.warning("a full disk could not be tried", name=name, reason=str(error))
            return False

    def _free_bytes(self) -> dict[str, int]:
        return {usage.name: usage.free_bytes for usage in self._look()}

    def start(self) -> None:
        """Go on looking, in a thread."""
        self._thread = threading.Thread(target=self._run, name="disk-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if not self._closing:
                self._check_again()

    def _check_again(self) -> None:
        """One look of the thread; what fails is tried again at the next, since nobody else would look."""
        try:
            self.check()
            self.on_look()
        except Exception:  # noqa: BLE001 - whatever it is, the next look tries again
            _LOG.exception("the space could not be looked at")


def _severity(state: SpaceState) -> int:
    return list(SpaceState).index(state)
