"""When the writers of a client want a `Tick`: a heap of times, so that thousands of idle ledgers cost nothing.

The time is that of the last tick of the client, and the same for all writers until the next one. So most of those that wait
do so for the same few moments, and the heap holds each moment once.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

from daybook.core.writer.writer import LedgerWriter

_NEVER: Final = -1
"""The moment of an alarm that is stopped: no other one is earlier, and none wakes it."""


class Timed(Protocol):
    """A writer that waits for a moment."""

    def wake(self, due_ms: int, now_ms: int) -> None:
        """The moment `due_ms` has come; it may have asked for an earlier one since."""


class Timers:
    """The moments for which writers wait, and the client's clock, in ms of a monotonic clock."""

    def __init__(self, now_ms: int) -> None:
        """Nobody waits."""
        self.now_ms = now_ms
        """As of the last tick."""
        self._moments: list[int] = []
        self._waiting: dict[int, dict[Timed, None]] = {}

    def wake_at(self, due_ms: int, writer: Timed) -> int:
        """Wake `writer` with the first tick at `due_ms` or later; the moment, which is always a later one than now."""
        due_ms = max(due_ms, self.now_ms + 1)
        waiting = self._waiting.get(due_ms)
        if waiting is None:
            waiting = self._waiting[due_ms] = {}
            heappush(self._moments, due_ms)
        waiting[writer] = None
        return due_ms

    def tick(self, now_ms: int) -> None:
        """It is `now_ms`: wake everybody who waits for a moment until then, the oldest first."""
        self.now_ms = now_ms
        while self._moments and self._moments[0] <= now_ms:
            due_ms = heappop(self._moments)
            for writer in self._waiting.pop(due_ms):
                writer.wake(due_ms, now_ms)


class Alarm:
    """Wakes one writer when it wants a `Tick`, which `tick` gives to it."""

    def __init__(self, timers: Timers, writer: LedgerWriter, tick: Callable[[int], None]) -> None:
        """Set for no moment."""
        self._timers = timers
        self._writer = writer
        self._tick = tick
        self._due_ms: int | None = None

    def set(self) -> None:
        """The writer may want a `Tick` earlier than before."""
        due_ms = self._writer.next_tick_ms
        if due_ms is not None and (self._due_ms is None or due_ms < self._due_ms):
            self._due_ms = self._timers.wake_at(due_ms, self)

    def wake(self, due_ms: int, now_ms: int) -> None:
        """See Timed."""
        if due_ms == self._due_ms:
            self._due_ms = None
            self._tick(now_ms)
            self.set()

    def stop(self) -> None:
        """Nothing is done for the writer any more: an alarm that is set again would keep it, and all of its handle, in memory."""
        self._due_ms = _NEVER
