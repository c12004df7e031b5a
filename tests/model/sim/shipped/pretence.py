"""The clock and the chance that a simulated process meets: production asks `time`, `random`, `secrets` and `uuid`.

Each of these is replaced for the length of a run, and only for code on a `SimLoop`: anything else in the process that
runs the simulation, a progress bar say, still gets the real ones. So production needs no switch for it.
"""

import asyncio
import gc
import logging
import random
import secrets
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final
from unittest import mock

from daybook.runtime import clock
from tests.model.sim.shipped.loop import SimLoop

START_S: Final = 1_750_000_000
"""The wall clock of a run begins here; one second of a process is one second of it."""
_NS: Final = 1_000_000_000


def _loop() -> SimLoop | None:
    running = asyncio._get_running_loop()
    return running if isinstance(running, SimLoop) else None


class _Time:
    """`time`, as `daybook.runtime.clock` sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @staticmethod
    def clock_gettime_ns(clock_id: int) -> int:
        loop = _loop()
        return time.clock_gettime_ns(clock_id) if loop is None else round(loop.time() * _NS)

    @staticmethod
    def time_ns() -> int:
        loop = _loop()
        return time.time_ns() if loop is None else START_S * _NS + round(loop.time() * _NS)


class TraceHandler(logging.Handler):
    """What production logs, as lines of the trace; an error with its exception is a finding."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record of a simulated process; others have handlers of their own."""
        loop = _loop()
        if loop is not None:
            loop.logged(record.getMessage(), record.exc_info if record.levelno >= logging.ERROR else None)


@contextmanager
def pretence(chance: Random, *, tracing: bool) -> Iterator[None]:
    """Let simulated processes meet simulated time, and draw from `chance`; with `tracing` their logs are traced.

    Garbage is not collected meanwhile: what an abandoned generator does at its end must not depend on when that is.
    """

    def token_hex(count: int = 32) -> str:
        return chance.randbytes(count).hex()

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    loggers, handler = [logging.getLogger(name) for name in ("daybook", "daybook_broker")], TraceHandler()
    real_state, collects = random.getstate(), gc.isenabled()
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if tracing else logging.ERROR)
    random.seed(chance.getrandbits(64))
    gc.disable()
    dice = mock.patch.multiple(
        secrets, token_bytes=chance.randbytes, token_hex=token_hex, randbits=chance.getrandbits
    )
    try:
        with (
            warnings.catch_warnings(),
            dice,
            mock.patch.object(uuid, "uuid4", uuid4),
            mock.patch.object(clock, "time", _Time()),
        ):
            # a process that dies leaves coroutines that were to begin in its next turn
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
        random.setstate(real_state)
        if collects:
            gc.enable()
