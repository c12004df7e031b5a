"""The LMDB environment: opened, its errors explained, its newest page made certain, its room counted.

LMDB commits in two steps: the data, synced, then one of two meta pages that names it. If the sync of a meta page failed,
the next process may read that page although it is on no disk, or LMDB has put the older one back and that one is on no
disk; so both pages are written again before anything relies on them (rule 23). All other pages were synced before a meta
page named them.

Most errors at opening prove nothing about what is stored: advice to replace a bookie because a file has the wrong owner
would cost its replicas. Only what LMDB finds in the file is damage.
"""

import errno
from pathlib import Path
from typing import Any, Final, TypeAlias

import lmdb

from daybook_bookie.disk.disk import FILE_MODE, FULL, Disk
from daybook_bookie.disk.errors import (
    BookieMustStopError,
    StorageError,
    StorageFullError,
    StoreNotOpenedError,
    StoreRefusedError,
)
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store.entry_store import Space
from daybook_bookie.store.page_cache import PageCacheBound

Transaction: TypeAlias = Any
"""lmdb.Transaction; the package has no usable types."""

DATA_FILE: Final = "data.mdb"
_META_PAGES: Final = 2
_CUT_SHORT_BYTES: Final = 64 * 1024
"""Less than this is left once a write was cut short for want of room; a failed transaction is written whole again."""


class Environment:
    """An open LMDB environment with the three databases of a store."""

    def __init__(self, directory: Path, disk: Disk, settings: StorageSettings) -> None:
        """Open it, or create it. Raises what `why_not_opened` makes of LMDB's error; OSError."""
        self._directory = directory
        self._disk = disk
        self._settings = settings
        try:
            self._lmdb = lmdb.open(
                str(directory),
                map_size=settings.store_map_bytes,
                max_dbs=3,
                max_spare_txns=16,
                max_readers=512,
                mode=FILE_MODE,
            )
        except lmdb.Error as error:
            raise self.why_not_opened(error) from error
        try:
            self.blocks = self._lmdb.open_db(b"blocks")
            self.ledgers = self._lmdb.open_db(b"ledgers")
            self.meta = self._lmdb.open_db(b"meta")
            self._page_cache = PageCacheBound(directory / DATA_FILE, settings.store_page_cache_bytes)
        except lmdb.Error as error:
            self._lmdb.close()
            raise self.why_not_opened(error) from error
        except OSError:
            self._lmdb.close()
            raise

    def close(self) -> None:
        """Close it; no transaction is open."""
        self._page_cache.close()
        self._lmdb.close()

    def snapshot(self) -> Transaction:
        """A read transaction for a `with` statement; short, because pages that it can see are not reused."""
        return self._lmdb.begin(buffers=True)

    def begin_write(self) -> Transaction:
        """A write transaction for a `with` statement; an exception ends it without a trace."""
        return self._lmdb.begin(write=True)

    def commit(self, transaction: Transaction) -> None:
        """The moment at which a commit is durable, or fails."""
        transaction.commit()

    def committed(self, size_bytes: int) -> None:
        """Blocks of `size_bytes` were committed: what the page cache holds of older ones may go."""
        self._page_cache.committed(size_bytes)

    def rewrite_meta_pages(self) -> None:
        """Write LMDB's two meta pages as they are read, and sync. Raises StorageFullError and BookieMustStopError."""
        try:
            file = self._disk.open(DATA_FILE)
            try:
                file.pwritev([file.read(0, _META_PAGES * self._lmdb.stat()["psize"])], 0)
                file.fdatasync()
            finally:
                file.close()
        except OSError as error:
            if error.errno in FULL:
                msg = f"no room to write the store's newest page again ({error}): the bookie is read-only until there is"
                raise StorageFullError(msg) from error
            msg = f"the store's newest page could not be written again ({error}): check the disk"
            raise BookieMustStopError(msg) from error

    def is_full(self, error: lmdb.Error) -> bool:
        """Whether a commit failed because the disk is full.

        LMDB reports EIO for a write that was cut short; a full disk cuts it short and has nothing left afterwards.
        """
        code = getattr(error, "code", 0)
        return code in FULL or (code == errno.EIO and self._disk.free_bytes() < _CUT_SHORT_BYTES)

    def space(self) -> Space:
        """What is left, by file system, reusable pages and map."""
        with self.snapshot() as transaction:
            stats = [self._lmdb.stat()]
            stats += [transaction.stat(db) for db in (self.blocks, self.ledgers, self.meta)]
            info = self._lmdb.info()
        page = stats[0]["psize"]
        used = page * sum(s["branch_pages"] + s["leaf_pages"] + s["overflow_pages"] for s in stats)
        file_bytes = page * (info["last_pgno"] + 1)
        map_free = info["map_size"] - used - self._settings.store_reserve_bytes
        return Space(self._disk.free_bytes(), max(0, file_bytes - used), max(0, map_free))

    def why_not_opened(self, error: lmdb.Error) -> StorageError:
        """The error to raise for LMDB's, which happened while the store was opened: what it means, and what to do."""
        directory, code = self._directory, getattr(error, "code", 0)
        if code in (errno.EACCES, errno.EPERM, errno.EROFS):
            cure = "this process may not read and write its files: check their owner and mode, and that the volume is mounted for writing"
        elif code == errno.ENOMEM:
            cure = (
                f"there is no address space for a map of store_map_bytes={self._settings.store_map_bytes}: raise the limit "
                "of the process (RLIMIT_AS, vm.overcommit_memory), or lower that setting"
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
                "the disk does not read: check the kernel's log; if the disk is broken, replace the bookie "
                "(`daybook bookie replace`)"
            )
        elif isinstance(error, lmdb.VersionMismatchError):
            cure = "another release of LMDB wrote it: start the release of the bookie that did"
        else:
            return StoreRefusedError(f"LMDB cannot read the store in {directory} ({error})")
        return StoreNotOpenedError(f"the store in {directory} cannot be opened ({error}): {cure}")
