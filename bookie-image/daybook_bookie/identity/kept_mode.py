"""The read-only mode that an administrator set, kept over restarts: a small file beside the store's cookie.

It is kept on the bookie's own disk, as BookKeeper keeps its status, and not in ZooKeeper: it must hold from the first
frame after a start, before ZooKeeper answers. It ends with the bookie's life: after a replacement the person who drains the
bookie must set it again. The existence of the file decides; its content is for people. A full disk is no reason to accept writes: the
bookie stays read-only while it runs, and the administrator gets an error that says that the mode was not kept.
"""

from typing import Final

from daybook_bookie.disk.disk import Disk
from daybook_bookie.disk.small_files import read_whole, remove_durably, write_durably

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
        data = read_whole(self._disk, FILE)
        if data is None:
            return ""
        return data[:REASON_BYTES_MAX].decode(errors="replace") or NO_REASON

    def keep(self, reason: str) -> None:
        """Read-only for `reason` from now on; writable if it is empty. Raises OSError if that is not durable."""
        if reason:
            write_durably(self._disk, FILE, reason.encode()[:REASON_BYTES_MAX])
        else:
            remove_durably(self._disk, FILE)
