"""An event loop whose selector is the world: time passes when the world says so, and nothing else wakes it.

It is asyncio's own loop without a selector that could wait. Each turn of it is an event of its process, so that a pause
holds it up and a crash ends it as they do with everything that a process does. A client's clock runs `SCALE` times as
fast as the world's: the simulator's sessions, absences and grace periods are that much shorter than real ones, and the
time-outs of what ships are constants.
"""

import asyncio
from asyncio import BaseEventLoop
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, TypeVarTuple, Unpack

from tests.model.sim.world import Process

SCALE: Final = 20
"""Seconds of a client in one of the world: a session of 5 s is one of 250 ms."""
_US: Final = 1_000_000
_DIGITS: Final = 5
"""Of a microsecond: below these an instant is inexact, and the loop's clock, of 1 ns, takes a timer for due. Another digit
less, and the turn for a timer would come too early to run it: one that nothing else wakes would then wait for ever."""
_Args = TypeVarTuple("_Args")


def world_us(seconds: float) -> int:
    """A client's time in the world's; the first microsecond at which it is over."""
    exact = round(seconds * _US / SCALE, _DIGITS)
    return int(exact) + (exact > int(exact))


class _NoSelector:
    """There is no I/O to wait for."""

    def select(self, _timeout_s: float | None) -> list[Any]:
        """Nothing is ready, and nobody waits."""
        return []

    def close(self) -> None:
        """Nothing is open."""


class _Numbered:
    """Where sets of tasks are gone through, their order must not be that of addresses in memory."""

    _number: int

    def __hash__(self) -> int:
        return self._number


class _Task(_Numbered, asyncio.Task[Any]):
    """A task with a number."""

    def __init__(
        self, number: int, work: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], **more: Any
    ) -> None:
        self._number = number  # before it is put into asyncio's own set of tasks
        super().__init__(work, **more)


class _Future(_Numbered, asyncio.Future[Any]):
    """A future with a number."""


class SimLoop(BaseEventLoop):
    """The event loop of one process. `failed` is what ended a part of it that nobody awaits."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._process = process
        self._turn_is_due = False
        self._numbers = 0
        self._is_detached = False
        self.failed: BaseException | None = None
        self.set_debug(False)
        self.set_task_factory(self._make_task)

    # Time

    def time(self) -> float:
        """The process's monotonic clock, in its seconds."""
        return self._process.world.now_us * SCALE / _US

    def call_soon(
        self,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As ever; the turn that it needs is an event of the world."""
        handle = super().call_soon(callback, *args, context=context)
        self._turn_soon()
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As ever; the world knows when to come back."""
        handle = super().call_at(when, callback, *args, context=context)
        if not self._is_detached:
            world = self._process.world
            soonest_us = world.now_us + (when > self.time())  # a clock that is read again has advanced
            world.at(max(soonest_us, world_us(when)), self._process, self._due, handle)
        return handle

    def _turn_soon(self) -> None:
        if not self._turn_is_due and not self._is_detached:
            self._turn_is_due = True
            self._process.world.at(self._process.world.now_us, self._process, self._turn)

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            self._turn()

    def _turn(self) -> None:
        """Run what is ready now, once."""
        self._turn_is_due = False
        self._run_once_only()
        if self.failed is not None:
            failed, self.failed = self.failed, None
            raise failed

    def _run_once_only(self) -> None:
        self.stop()
        self.run_forever()

    # What BaseEventLoop asks of its heirs

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    # Repeatable order

    def create_future(self) -> asyncio.Future[Any]:
        """A future with a number."""
        self._numbers += 1
        future = _Future(loop=self)
        future._number = self._numbers
        return future

    def _make_task(
        self,
        _loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, Any, Any],
        **more: Any,
    ) -> asyncio.Task[Any]:
        self._numbers += 1
        return _Task(self._numbers, work, loop=self, **more)

    # Ends

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that nobody waits for is a finding, unless the process is dead."""
        if self.failed is None and not self._is_detached:
            self.failed = context.get("exception") or AssertionError(str(context.get("message")))

    def logged(self, text: str, error: Any) -> None:
        """Production logs: a line of the trace, and a finding if it is an error that it did not expect."""
        if not self._is_detached:
            self._process.note(text)
            if error and self.failed is None:
                self.failed = error[1]

    def cut_off(self) -> None:
        """The process dies within a turn, and `detach` follows: nothing that is begun in the rest of the turn continues."""
        self._is_detached = True

    def detach(self) -> None:
        """The process has died: its world continues without it, and its tasks are cancelled."""
        self._is_detached = True
        for _ in range(_TURNS_MAX):
            for task in sorted(asyncio.all_tasks(self), key=hash):
                task.cancel()
            self._run_once_only()
            if not asyncio.all_tasks(self):
                break
        self.close()


_TURNS_MAX: Final = 200
