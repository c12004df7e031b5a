"""A bound for what the kernel's page cache holds of the store's file.

A log is written once and mostly read at its end, which the write cache has. Without a bound the cache keeps all that was
written until the machine has no other memory left: every block then takes memory that has to be found first, and
displaces what other processes have cached. With one, new blocks use the memory of older ones again (docs/performance.md
has the figures). A pod's memory limit does the same by reclaim.

Nothing depends on it, so no error of it can fail a commit (ADR 13): the kernel drops only what is on the disk already, and whoever reads that waits for the disk. Pages
that are mapped stay: those of LMDB's trees, which each commit reads, and blocks that were read.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from daybook_bookie.settings import MIB

_FOLIO_BYTES_MAX: Final = 2 * MIB
"""The kernel caches in folios of up to this size, aligned to theirs, and drops only whole ones."""


class PageCacheBound:
    """Drops pages of a file behind its writer; one thread calls it.

    While the file grows, LMDB writes at its end, so the pages before the last `limit_bytes` are the oldest. What it writes
    into pages of deleted blocks may be anywhere: after `limit_bytes` of that, all pages go.
    """

    def __init__(self, file: Path, limit_bytes: int) -> None:
        """`file` exists; a limit of 0 drops nothing. Raises OSError if it cannot be opened."""
        self._limit_bytes = limit_bytes
        self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        self._end = os.fstat(self._descriptor).st_size
        self._kept_from = _aligned(self._end)
        self._reused_bytes = 0

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def committed(self, size_bytes: int) -> None:
        """Blocks of `size_bytes` were written and synced. What cannot be dropped now may be with a later commit."""
        if self._limit_bytes:
            with suppress(OSError):
                self._drop_older(size_bytes)

    def _drop_older(self, size_bytes: int) -> None:
        end = os.fstat(self._descriptor).st_size
        self._reused_bytes += max(0, size_bytes - (end - self._end))
        self._end = end
        if self._reused_bytes >= self._limit_bytes:
            self._drop(0, end)
            self._reused_bytes = 0
        elif end - self._limit_bytes >= self._kept_from + _FOLIO_BYTES_MAX:
            self._drop(self._kept_from, _aligned(end - self._limit_bytes))

    def _drop(self, begin: int, end: int) -> None:
        os.posix_fadvise(self._descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)
        self._kept_from = _aligned(end)


def _aligned(offset: int) -> int:
    return offset - offset % _FOLIO_BYTES_MAX
