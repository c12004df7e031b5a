"""The spare file: the journal's next file, created ahead of time, as preallocation takes time and a file descriptor.

A thread of its own calls `make`, so that the journal's thread need not; the journal calls `take`, which creates the file
if it does not exist yet. Until then it has neither a header nor a journal file's name, so a replay ignores a spare file
that was never used, and the next start creates it again (rule 24, rule 25).
"""

import threading
from contextlib import suppress
from typing import Final

from daybook_bookie.disk.disk import Disk, DiskFile

SPARE: Final = "journal.tmp"


class SpareFile:
    """At most one file, preallocated and open. From any thread."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        """Create nothing yet, so that a bookie starts on a full disk (rule 30)."""
        self._disk = disk
        self._file_bytes = file_bytes
        self._file: DiskFile | None = None
        self._making = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether the file exists, so that `take` need not create it."""
        return self._file is not None

    def make(self) -> None:
        """Create the file, unless it exists. Raises OSError, and leaves nothing behind."""
        with self._making:
            if self._file is None:
                self._file = self._created()

    def take(self) -> DiskFile:
        """Hand over the file, under the name SPARE; waits for a `make` that runs. Raises OSError."""
        with self._making:
            file, self._file = self._file or self._created(), None
        return file

    def close(self) -> None:
        """Close the file, without removing it: that takes as long as creating it, and the next start does both."""
        with self._making:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _created(self) -> DiskFile:
        with suppress(FileNotFoundError):
            self._disk.unlink(SPARE)
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
