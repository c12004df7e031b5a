"""Time, chance and processes: the only three things that a simulated run has besides the machines under test.

One heap of (time, sequence, process, incarnation, function, arguments) is the whole scheduler: the same seed gives the
same run, event for event. A process that crashed gets a new incarnation, so that what was on its way to the old one is
dropped; a process that is paused gets its events when it resumes, in their order.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, TypeAlias

from tests.model.sim.trace import Tally, Trace

MS: Final = 1000
"""Microseconds, the unit of simulated time, in a millisecond."""

EVENTS_MAX: Final = 120_000
"""No run may need more: a loop without end is a bug, and shows as one."""


class ViolationError(AssertionError):
    """The promise was broken, or a machine did what the contract does not allow."""


class Process:
    """Something that can crash, pause and be cut off: a bookie or a client process."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.incarnation = 0
        self.alive = True
        self.paused_until_us = 0
        self.held_up: list[_HeldUp] = []
        """What happened to it during a pause."""

    def stop(self) -> None:
        """End this incarnation: whatever is on its way to it is lost."""
        self.alive = False
        self.incarnation += 1

    def pause(self, until_us: int) -> None:
        """Do nothing until then."""
        self.paused_until_us = max(self.paused_until_us, until_us)
        self.world.at(until_us, None, self.resume)

    def resume(self, *, early: bool = False) -> None:
        """Go on with what came meanwhile, in its order, if the pause is over; `early` ends it."""
        now_us = self.world.now_us
        if early:
            self.paused_until_us = 0
        if self.paused_until_us <= now_us:
            held_up, self.held_up = self.held_up, []
            for event in held_up:
                self.world.at_once(self, *event)

    def session_expired(self) -> None:
        """Its ZooKeeper session is gone."""

    def later(self, delay_us: int, call: Callable[..., object], *args: Any) -> None:
        """Call back after `delay_us`, unless this incarnation has ended by then."""
        self.world.at(self.world.now_us + delay_us, self, call, *args)

    def note(self, what: str) -> None:
        """A line of the trace. Callers with a costly text look at `world.tracing` first."""
        if self.world.tracing:
            self.world.trace.add(self.world.now_us, self.name, what)


_HeldUp: TypeAlias = tuple[int, int, Callable[..., object], tuple[Any, ...]]
_Event: TypeAlias = tuple[int, int, Process | None, int, Callable[..., object], tuple[Any, ...]]


class World:
    """The scheduler of one run."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.now_us = 0
        self.events = 0
        self.tracing = tracing
        self.trace = Trace(enabled=tracing)
        self.tally = Tally()
        self._heap: list[_Event] = []
        self._sequence = 0

    @property
    def now_ms(self) -> int:
        """The monotonic clock that machines get."""
        return self.now_us // MS

    def rng(self, branch: str) -> Random:
        """A random source of its own for each part, so that a change in one does not shift the draws of another."""
        return Random(f"{self.seed}/{branch}")

    def at(self, time_us: int, process: Process | None, call: Callable[..., object], *args: Any) -> None:
        """Call `call(*args)` at `time_us`, if `process` still is the same incarnation then."""
        assert time_us >= self.now_us
        self._sequence += 1
        incarnation = 0 if process is None else process.incarnation
        heappush(self._heap, (time_us, self._sequence, process, incarnation, call, args))

    def at_once(
        self,
        process: Process,
        sequence: int,
        incarnation: int,
        call: Callable[..., object],
        args: tuple[Any, ...],
    ) -> None:
        """Call what was held up now, before anything that was asked for later."""
        heappush(self._heap, (self.now_us, sequence, process, incarnation, call, args))

    def run(self, until_us: int) -> None:
        """Run what happens before `until_us`; then it is that time."""
        heap = self._heap
        while heap and heap[0][0] < until_us:
            time_us, sequence, process, incarnation, call, args = heappop(heap)
            if process is not None:
                if process.incarnation != incarnation:
                    continue
                if process.paused_until_us > time_us or process.held_up:
                    process.held_up.append((sequence, incarnation, call, args))
                    continue
            self.now_us = time_us
            self.events += 1
            if self.events > EVENTS_MAX:
                msg = f"more than {EVENTS_MAX} events: something repeats for ever"
                raise ViolationError(msg)
            call(*args)
        self.now_us = max(self.now_us, until_us)

    def note(self, who: str, what: str) -> None:
        """A line of the trace from outside any process."""
        if self.tracing:
            self.trace.add(self.now_us, who, what)
