"""The spare file: the journal's next file, there ahead of time, as preallocation takes time and a file descriptor.

A thread of its own calls `make`, so that the journal's thread need not; the journal calls `take`, which makes the file
if there is none yet. None of the names here is a journal file's, so a replay ignores these files, and the next start
replaces them (rule 24, rule 25).

A file that the journal needs no more becomes a spare file where it can (`keep`). Its space stays allocated, and reads as
zeros again: a file system that discards what is removed does so while syncs wait (docs/adr/0015).
"""

import errno
import threading
from contextlib import suppress
from typing import Final

from daybook_bookie.disk.disk import FULL, Disk, DiskFile

SPARE: Final = "journal.tmp"
USED: Final = "journal-used.tmp"
TAKEN: Final = "journal-taken.tmp"
_CANNOT_ZERO: Final = FULL | {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""The file system has no way to zero a range, or no room to note that it did."""


class SpareFile:
    """At most one file that is preallocated and open, and one more that the journal has used. From any thread."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        """Create nothing yet, so that a bookie starts on a full disk (rule 30)."""
        self._disk = disk
        self._file_bytes = file_bytes
        self._file: DiskFile | None = None
        self._has_used = False
        """Whether a file that was kept is under USED; it is not open, so that it takes no descriptor."""
        self._making = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether the file is open, so that `take` need not make it."""
        return self._file is not None

    @property
    def count(self) -> int:
        """How many files of the full size there are."""
        return self.is_ready + self._has_used

    def make(self) -> None:
        """Make the file ready, unless it is. Raises OSError, and leaves nothing behind."""
        with self._making:
            self._ready()

    def take(self) -> DiskFile:
        """Hand over the file, under the name TAKEN, which no other thread touches; waits for a `make` that runs. Raises OSError."""
        with self._making:
            file = self._ready()
            self._disk.rename(SPARE, TAKEN)
            self._file = None
        return file

    def keep(self, name: str) -> bool:
        """Keep the journal's file `name`, which has the full size; False if it has to be removed. Raises OSError.

        The new name is durable with the directory's next sync. The file may be written before that: the store's checkpoint is
        past what the old name stands for, so no replay reads it.
        """
        with self._making:
            if self._has_used:
                return False
            try:
                self._disk.rename(name, USED)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                return False
            self._has_used = True
            return True

    def close(self) -> None:
        """Close the file, without removing it: that takes as long as creating it, and the next start does both."""
        with self._making:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _ready(self) -> DiskFile:
        if self._file is None:
            self._file = (self._zeroed() if self._has_used else None) or self._created()
        return self._file

    def _zeroed(self) -> DiskFile | None:
        """The file that was kept, durably all zeros, so that nothing of it is ever replayed; None where that cannot be."""
        opened = self._disk.open(USED)
        file: DiskFile | None = opened
        try:
            opened.zero(self._file_bytes)
            opened.fdatasync()
            self._disk.rename(USED, SPARE)
        except OSError as error:
            opened.close()
            if error.errno not in _CANNOT_ZERO:
                raise
            file = None
        self._has_used = False
        return file

    def _created(self) -> DiskFile:
        for name in (SPARE, USED):
            with suppress(FileNotFoundError):
                self._disk.unlink(name)
        file = self._disk.open(SPARE, create=True)
        try:
            file.preallocate(self._file_bytes)
            file.fdatasync()
        except OSError:
            file.close()
            with suppress(OSError):  # it would hold space; the next attempt meets the same error
                self._disk.unlink(SPARE)
            raise
        return file
