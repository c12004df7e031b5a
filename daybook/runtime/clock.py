"""The two clocks, in milliseconds, so that no unit is ever guessed.

Decisions use the monotonic one only: the wall clock may step. It counts on while the machine sleeps, because a
session that a server ended during a suspended minute has ended for this process, too (rule 46).
"""

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> int:
    """Milliseconds since an arbitrary start; never goes back, and includes time that the machine slept."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def unix_ms() -> int:
    """Milliseconds since 1970 by the wall clock: for people and for records, never for decisions."""
    return time.time_ns() // 1_000_000
