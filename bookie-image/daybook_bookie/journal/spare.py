"""The next journal file, made before it is needed: preallocation costs time, and a descriptor that may be missing later.

Whoever keeps the journal's thread free of that calls `make` from another one; who needs the file takes it, and makes it
himself if nobody did. It has no header and no journal file's name until then, so one that was never used means nothing to
a replay, and the next start makes it anew (rule 24, rule 25).
"""

import threading
from contextlib import suppress
from typing import Final

from daybook_bookie.disk.disk import Disk, DiskFile

SPARE: Final = "journal.tmp"


class SpareFile:
    """At most one file, preallocated and open. From any thread."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        """Nothing is made yet, so that a bookie starts on a full disk (rule 30)."""
        self._disk = disk
        self._file_bytes = file_bytes
        self._file: DiskFile | None = None
        self._making = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether `take` need not make it."""
        return self._file is not None

    def make(self) -> None:
        """Make it, unless it is there. Raises OSError, and leaves nothing behind."""
        with self._making:
            if self._file is None:
                self._file = self._made()

    def take(self) -> DiskFile:
        """The file, under the name SPARE; waits for who makes it just now. Raises OSError."""
        with self._making:
            file, self._file = self._file or self._made(), None
        return file

    def close(self) -> None:
        """Close it. It stays where it is: to remove it takes as long as to make it, and the next start does both."""
        with self._making:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _made(self) -> DiskFile:
        with suppress(FileNotFoundError):
            self._disk.unlink(SPARE)
        file = self._disk.open(SPARE, create=True)
        try:
            file.preallocate(self._file_bytes)
            file.fdatasync()
        except OSError:
            file.close()
            with suppress(OSError):
                self._disk.unlink(
                    SPARE
                )  # what it took is missed; what fails here is met again by the next one
            raise
        return file
