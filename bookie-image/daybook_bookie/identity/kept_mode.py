"""That an administrator made a bookie read-only, kept over restarts: a small file beside the store's cookie.

It is kept on the bookie's own disk, as BookKeeper keeps its status, and not in ZooKeeper: it must hold from the first
frame after a start, whoever answers by then, and it ends with the bookie's life: after a replacement whoever drains the
bookie says it again. That the file is there decides; what is in it is for people. No room on the disk is no reason to
take writes either: the bookie stays read-only for as long as it runs, and whoever asked is told that it is not kept.
"""

from typing import Final

from daybook_bookie.disk.disk import Disk, write_durably

FILE: Final = "read-only"
REASON_BYTES_MAX: Final = 1000
NO_REASON: Final = "set read-only"


class KeptMode:
    """The file of one bookie."""

    def __init__(self, disk: Disk) -> None:
        """On the disk of its store."""
        self._disk = disk

    def reason(self) -> str:
        """Why the bookie is read-only; empty if it is not. Raises OSError."""
        if FILE not in self._disk.names():
            return ""
        file = self._disk.open(FILE)
        try:
            return file.read(0, REASON_BYTES_MAX).decode(errors="replace") or NO_REASON
        finally:
            file.close()

    def keep(self, reason: str) -> None:
        """Read-only for `reason` from now on; writable if it is empty. Raises OSError when that is not durable."""
        if reason:
            write_durably(self._disk, FILE, reason.encode()[:REASON_BYTES_MAX])
            return
        if FILE in self._disk.names():
            self._disk.unlink(FILE)
        self._disk.sync_directory()
