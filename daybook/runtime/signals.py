"""How a process stops: by an event that SIGTERM, SIGINT or its own code sets, or, of a program that serves nobody, by an exit.

The event is a pipe that is written once and never read. So a signal handler may set it (a lock in a handler could
deadlock against the code that it interrupted), and any thread or asyncio task may wait for it.
"""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopEvent:
    """An event that is set once, for threads, asyncio tasks and signal handlers."""

    def __init__(self) -> None:
        """Open the pipe; `close` closes it."""
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """The reason for which the process stops; None before the event is set."""
        return self._reason

    def set(self, reason: str) -> None:
        """Request the stop; the first reason is kept."""
        if self._reason is None:
            self._reason = reason
            os.write(self._write, b"!")

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Block until the event is set, at most `timeout_ms`; return whether it is set."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        return bool(poll.poll(timeout_ms))

    async def wait_async(self) -> None:
        """Await the event without blocking the loop."""
        loop = asyncio.get_running_loop()
        mine = os.dup(self._read)  # a loop allows one reader for each descriptor, and several tasks may wait
        done = asyncio.Event()
        loop.add_reader(mine, done.set)
        try:
            await done.wait()
        finally:
            loop.remove_reader(mine)
            os.close(mine)

    def close(self) -> None:
        """Close the descriptors; no thread may wait any more."""
        os.close(self._read)
        os.close(self._write)


@contextmanager
def stop_on_signals() -> Iterator[StopEvent]:
    """An event that SIGTERM and SIGINT set. A second signal has its default effect: it ends the process at once.

    Only the main thread may enter. At the end the previous handlers are restored.
    """
    stop = StopEvent()

    def ask(number: int, _: FrameType | None) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        stop.set(signal.Signals(number).name)

    previous = {each: signal.signal(each, ask) for each in STOP_SIGNALS}
    try:
        yield stop
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
        stop.close()


def exit_on_sigterm() -> None:
    """From now on SIGTERM raises SystemExit in the main thread, so that `with` and `finally` end what the program has started.

    Only the main thread may call it. SIGINT raises KeyboardInterrupt anyway.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
