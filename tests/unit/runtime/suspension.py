"""A suspended machine: time advances for Daybook's clock, and stands still for Python's and asyncio's."""

import time
from typing import Final

import pytest

_READ: Final = time.clock_gettime_ns


class Suspension:
    """From here on the clock of `daybook.runtime.clock` is ahead of the others by the time passed to `lasts`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._slept_ns = 0
        monkeypatch.setattr(time, "clock_gettime_ns", self._now_ns)

    def _now_ns(self, clock: int) -> int:
        return _READ(clock) + self._slept_ns

    def lasts(self, seconds: float) -> None:
        """Suspend the machine for this time."""
        self._slept_ns += round(seconds * 1e9)
