"""What opening an LMDB environment takes besides LMDB: its newest page made certain, and its errors told apart.

LMDB commits in two steps: the data, synced, then one of two meta pages that names it. A meta page whose sync failed may be
read by the next process although it is on no disk, or LMDB has put the older one back and that one is on no disk; so both
pages are written again before anything rests on them (rule 23). All other pages were synced before a meta page named them.

Most errors at opening say nothing about what is stored: advice to replace a bookie because a file's owner is wrong would
cost its replicas. Only what LMDB finds in the file is damage.
"""

import errno
from pathlib import Path
from typing import Final

import lmdb

from daybook_bookie.disk.disk import FULL, Disk
from daybook_bookie.disk.errors import (
    BookieMustStopError,
    StorageError,
    StorageFullError,
    StoreNotOpenedError,
    StoreRefusedError,
)
from daybook_bookie.disk.settings import StorageSettings
from daybook_bookie.store.ledger_record import WHAT_TO_DO

DATA_FILE: Final = "data.mdb"
_META_PAGES: Final = 2


def write_meta_pages_again(disk: Disk, page_bytes: int) -> None:
    """Write LMDB's two meta pages as they are read, and sync. Raises StorageFullError and BookieMustStopError."""
    try:
        file = disk.open(DATA_FILE)
        try:
            file.pwritev([file.read(0, _META_PAGES * page_bytes)], 0)
            file.fdatasync()
        finally:
            file.close()
    except OSError as error:
        if error.errno in FULL:
            msg = f"no room to write the store's newest page again ({error}): the bookie is read-only until there is"
            raise StorageFullError(msg) from error
        msg = f"the store's newest page could not be written again ({error}): look at the disk"
        raise BookieMustStopError(msg) from error


def why_not_opened(directory: Path, settings: StorageSettings, error: lmdb.Error) -> StorageError:
    """The error to raise for one of LMDB's: what it means, and what to do."""
    code = getattr(error, "code", 0)
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        cure = "this process may not read and write its files: check their owner and mode, and that the volume is mounted for writing"
    elif code == errno.ENOMEM:
        cure = (
            f"there is no address space for a map of store_map_bytes={settings.store_map_bytes}: raise the limit of the "
            "process (RLIMIT_AS, vm.overcommit_memory), or lower that setting"
        )
    elif code in (errno.EMFILE, errno.ENFILE):
        cure = "no file descriptor is left: raise the limit of open files (RLIMIT_NOFILE, fs.file-max)"
    elif code in FULL:
        cure = "the disk has no room for its lock file: make some"
    elif code in (errno.EAGAIN, errno.EBUSY):
        cure = "another process holds its lock: stop whatever else has it open"
    elif code in (errno.ENODEV, errno.EINVAL):
        cure = "the file system cannot map files into memory: put the store on a local one, ext4 or XFS"
    elif code == errno.EIO:
        cure = (
            "the disk does not read: look at the kernel's log; if the disk is broken, replace the bookie "
            "(`daybook bookie replace`)"
        )
    elif isinstance(error, lmdb.VersionMismatchError):
        cure = "another release of LMDB wrote it: start the release of the bookie that did"
    else:
        return StoreRefusedError(f"LMDB cannot read the store in {directory} ({error}): {WHAT_TO_DO}")
    return StoreNotOpenedError(f"the store in {directory} cannot be opened ({error}): {cure}")
