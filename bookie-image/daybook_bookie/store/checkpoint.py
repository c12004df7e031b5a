"""The checkpoint file: a second copy of the store's root, outside of LMDB, so that a start detects an older store.

LMDB keeps two meta pages without checksums and opens the one that looks newer; damage to one silently takes the whole
store back by a commit, and the journal that held the difference may be gone. So after each commit the root is written to
this file, into one of two slots in turn, and a store older than this copy is refused (rule 26).
"""

from typing import Final

from daybook_bookie.disk.disk import FULL, Disk
from daybook_bookie.disk.errors import BookieMustStopError, StorageFullError, StoreRefusedError
from daybook_bookie.disk.small_files import write_durably
from daybook_bookie.journal.format import PAGE_BYTES
from daybook_bookie.store.index import ROOT_BYTES, Root, unpack_root

CHECKPOINT: Final = "checkpoint"


class CheckpointFile:
    """The open file."""

    def __init__(self, disk: Disk) -> None:
        """Open it; raises OSError."""
        self._file = disk.open(CHECKPOINT)

    @staticmethod
    def create(disk: Disk, root: Root) -> None:
        """Write a new file with `root` in its slot; raises OSError."""
        slots = bytearray(2 * PAGE_BYTES)
        at = root.generation % 2 * PAGE_BYTES
        slots[at : at + ROOT_BYTES] = root.pack()
        write_durably(disk, CHECKPOINT, slots)

    def read(self) -> Root | None:
        """The newest root that is whole; None if neither is."""
        roots = [unpack_root(self._file.read(slot * PAGE_BYTES, ROOT_BYTES)) for slot in (0, 1)]
        return max(filter(None, roots), key=lambda root: root.generation, default=None)

    def write(self, root: Root) -> None:
        """Make `root` durable in the slot that does not hold the one before; may be repeated.

        Raises StorageFullError, as a file system that copies on write needs room for it, and BookieMustStopError.
        """
        try:
            self._file.pwritev([root.pack()], root.generation % 2 * PAGE_BYTES)
            self._file.fdatasync()
        except OSError as error:
            if error.errno in FULL:
                msg = f"no room for the store's checkpoint ({error}): the bookie is read-only until there is"
                raise StorageFullError(msg) from error
            msg = f"the checkpoint could not be written ({error}): stop the bookie, its next start replays"
            raise BookieMustStopError(msg) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def refuse_unless_current(root: Root, checkpointed: Root | None) -> None:
    """Raise StoreRefusedError unless `root` is the one in the checkpoint file, or its successor by one commit."""
    if checkpointed is None:
        if root == Root(generation=1):
            return  # the very first start ended between the two
        msg = "both slots of the checkpoint file are damaged or it is missing"
    elif root.generation < checkpointed.generation:
        msg = (
            f"the store is at generation {root.generation}, but generation {checkpointed.generation} was committed: "
            "a damaged meta page took it back, or an older copy was put in place"
        )
    elif root.generation > checkpointed.generation + 1:
        msg = (
            f"the store is at generation {root.generation}, the checkpoint at {checkpointed.generation}: "
            "they do not belong together"
        )
    elif root.generation == checkpointed.generation and root != checkpointed:
        msg = f"the store and the checkpoint disagree about generation {root.generation}"
    else:
        return
    raise StoreRefusedError(msg)
