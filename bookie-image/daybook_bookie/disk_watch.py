"""When a bookie stops to take normal writes for want of space, and when it starts again (rule 30).

Three thresholds with hysteresis: from `full` on the bookie is read-only, below `low_water` it is writable again, and
between `full` and `reserve` recovery and repair may still write, since they are what will make space elsewhere useful.
Deletions and fences are never refused. Space counts what a store keeps for itself (its file never shrinks), or
read-only would never end.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)


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


class DiskWatch:
    """Looks at the space now and then; `state` is what the fullest directory allows."""

    def __init__(self, look: Callable[[], list[Usage]], limits: SpaceLimits, interval_ms: int) -> None:
        """Look once, at once: a full disk boots read-only."""
        self._look = look
        self._limits = limits
        self._interval_s = interval_ms / 1000
        self._wake = threading.Event()
        self._closing = False
        self._warned = False
        self._refused: dict[str, int] = {}
        """What was free, by directory, when a write was refused for want of space."""
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

    def check(self) -> SpaceState:
        """Look now; the new state."""
        with self._lock:
            self.usages = self._look()
            fullest = self.fullest
            before, self.state = self.state, next_state(self.state, fullest.ratio, self._limits)
            if self._is_still_refused():
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

    def refuse_writes(self) -> None:
        """The disk itself said that it is full: read-only until a look finds more space than now."""
        with self._lock:
            self._refused = {usage.name: usage.free_bytes for usage in self._look()}
            before, self.state = self.state, max(self.state, SpaceState.READ_ONLY, key=_severity)
            changed = self.state is not before
        if changed:
            _LOG.warning("the disk is full: read-only until there is space", state=self.state.name)
            self.on_change()

    def _is_still_refused(self) -> bool:
        """Whether no directory has more room than when a write was refused, whatever the ratio says."""
        if any(usage.free_bytes > self._refused.get(usage.name, 0) for usage in self.usages):
            self._refused = {}
        return bool(self._refused)

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
