"""The allocator's settings of processes that handle frames; glibc reads them only when a process starts.

Whoever starts such a process gives them, and a program that was started without starts itself again.
"""

from collections.abc import Mapping
from typing import Final

ALLOCATOR: Final[Mapping[str, str]] = {
    # Frames are as large as glibc's limit for mapping memory anew: without these every message costs page faults.
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_ARENA_MAX": "2",
}
