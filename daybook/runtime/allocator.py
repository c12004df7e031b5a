"""glibc's allocator settings of processes that handle frames; glibc reads them only when a process starts.

The parent of such a process sets them, and a program that was started without them starts itself again. A client lives in a process of its user's,
whose settings are not ours; but the workers of a Spark that Daybook starts inherit them from its Java.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

ALLOCATOR: Final[Mapping[str, str]] = {
    # Frames reach the size at which glibc maps new memory: without these settings every message causes page faults.
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_ARENA_MAX": "2",
}


def missing_settings() -> dict[str, str]:
    """Those that this process was not given: a value of the user's stays."""
    return {name: value for name, value in ALLOCATOR.items() if name not in os.environ}


def start_with_allocator(module: str) -> None:
    """Start this program, `python -m module` with its arguments, again if it was started without these settings."""
    missing = missing_settings()
    if missing and sys.platform == "linux":
        os.execve(  # noqa: S606 - this very program
            sys.executable,
            [sys.executable, "-m", module, *sys.argv[1:]],
            {**os.environ, **missing},
        )
