"""The entry store: blocks in LMDB, and an index in memory that decides what exists.

A block is a frame at rest under (ledger, first entry). Ranges of blocks never overlap, so the block that holds an
entry is the last one that begins at or before it. What exists is decided by the ledger's interval index, not by what
LMDB finds: it is verified against the root's digest when the store opens and kept in memory from then on, so that an
entry that it names and LMDB does not find is an I/O error and never "not found" (rule 26).

Writes (`flush`, `delete_some`, `remove`) belong to one thread; reads to any. A reader takes the ledger's record before
it opens its snapshot, and a record is published only after its commit, so a snapshot is never older than the index.
"""

import errno
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeAlias

import lmdb

from daybook.core.ids import EntryId, LedgerId
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import FULL, Disk
from daybook_bookie.disk.errors import (
    BookieMustStopError,
    CorruptStoreError,
    StorageError,
    StorageFullError,
    StoreRefusedError,
)
from daybook_bookie.disk.private_files import FILE_MODE
from daybook_bookie.disk.settings import StorageSettings
from daybook_bookie.journal.format import Position
from daybook_bookie.store.checkpoint import CHECKPOINT, Checkpoint, refuse_unless_current
from daybook_bookie.store.entry_store import LedgerChange, Space
from daybook_bookie.store.index import LedgerIndex
from daybook_bookie.store.ledger_record import (
    DIGEST_MODULUS,
    WHAT_TO_DO,
    LedgerRecord,
    Root,
    ledger_key,
    ledger_of_key,
    pack_record,
    record_digest,
    unpack_record,
    unpack_root,
)
from daybook_bookie.store.opening import DATA_FILE, why_not_opened, write_meta_pages_again
from daybook_bookie.store.reading import BlockReader

_LOG: Final = get_logger(__name__)

Transaction: TypeAlias = Any
"""lmdb.Transaction; the package has no usable types."""

_ROOT_KEY: Final = b"root"
_CUT_SHORT_BYTES: Final = 64 * 1024
"""Less than this is left once a write was cut short for want of room; a failed transaction is written whole again."""


class Store:
    """The open store."""

    def __init__(self, directory: Path, disk: Disk, settings: StorageSettings, *, new: bool = False) -> None:
        """Open and verify the store in `directory`, which is `disk`'s; with `new`, create it if it is not there.

        `new` is for a bookie that is being created: ever after, a missing store is a loss. Raises StoreRefusedError if
        the store is missing, damaged or older than its checkpoint, StoreNotOpenedError for what says nothing about it,
        BookieMustStopError if the disk refuses writes; OSError. Without room it opens, and `is_owing`.
        """
        self.settings = settings
        self._disk = disk
        self._failed: str | None = None
        self.is_owing = True
        """Whether the newest commit is not certain yet, for want of room: `settle` has to make it so before the next one."""
        self._pages_owed = True
        self._gate = threading.Condition()
        self._committing = threading.Lock()
        """Held from a commit's beginning until its records are published."""
        self._readers = 0
        self._growing = False
        self._index = LedgerIndex()
        exists = DATA_FILE in disk.names()
        if not exists and (not new or CHECKPOINT in disk.names()):
            msg = f"there is no store in {directory}, although this bookie had one: {WHAT_TO_DO}"
            raise StoreRefusedError(msg)
        try:
            self._environment = lmdb.open(
                str(directory),
                map_size=settings.store_map_bytes,
                max_dbs=3,
                max_spare_txns=16,
                max_readers=512,
                mode=FILE_MODE,
            )
        except lmdb.Error as error:
            raise why_not_opened(directory, settings, error) from error
        try:
            self._blocks = self._environment.open_db(b"blocks")
            self._ledgers = self._environment.open_db(b"ledgers")
            self._meta = self._environment.open_db(b"meta")
            if not exists:
                disk.sync_directory()
            self.root = self._load()
            self._checkpoint = self._open_checkpoint()
            self._settle_if_there_is_room()
        except lmdb.Error as error:
            self._environment.close()
            raise why_not_opened(directory, settings, error) from error
        except (StorageError, OSError):
            self._environment.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; the caller has ended all reads."""
        self._checkpoint.close()
        self._environment.close()

    # -- opening ---------------------------------------------------------------------------------------------------

    def _load(self) -> Root:
        """Read every ledger's record and check that they add up to the root."""
        with self._environment.begin() as transaction:
            stored = transaction.get(_ROOT_KEY, db=self._meta)
            if stored is None and transaction.stat(self._ledgers)["entries"] == 0:
                return Root()
            root = unpack_root(stored) if stored is not None else None
            if root is None:
                msg = f"the store's root is missing or damaged: {WHAT_TO_DO}"
                raise StoreRefusedError(msg)
            total = 0
            for key, value in transaction.cursor(self._ledgers):
                ledger_id = ledger_of_key(key)
                try:
                    record = unpack_record(ledger_id, value)
                except CorruptStoreError as error:
                    msg = f"{error}: {WHAT_TO_DO}"
                    raise StoreRefusedError(msg) from error
                digest = record_digest(ledger_id, value)
                self._index.put(ledger_id, record, digest)
                total += digest
        self._check_sum(root, total % DIGEST_MODULUS)
        return root

    def _check_sum(self, root: Root, digest: int) -> None:
        if (len(self._index), digest) != (root.count, root.digest):
            msg = (
                f"{len(self._index)} ledger records were found, {root.count} were committed, "
                f"and their digests do {'' if digest == root.digest else 'not '}add up: {WHAT_TO_DO}"
            )
            raise StoreRefusedError(msg)

    def _open_checkpoint(self) -> Checkpoint:
        """Compare with the checkpoint; create both at the very first start."""
        if self.root == Root():
            if CHECKPOINT in self._disk.names():
                msg = f"the store is empty, although it has a checkpoint: {WHAT_TO_DO}"
                raise StoreRefusedError(msg)
            self._commit([], self.root.mark)
        if CHECKPOINT not in self._disk.names():
            refuse_unless_current(self.root, None)
            Checkpoint.create(self._disk, self.root)
        checkpoint = Checkpoint(self._disk)
        try:
            refuse_unless_current(self.root, checkpoint.read())
        except (StorageError, OSError):
            checkpoint.close()
            raise
        return checkpoint

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def mark(self) -> Position:
        """The journal before this position is wholly in the store: replay begins here (rule 24)."""
        return self.root.mark

    def ledger(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """What is stored of a ledger; None if nothing is, or it is being deleted."""
        record = self._index.record(ledger_id)
        return None if record is None or record.deleting else record

    def stored(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """The record as it lies in the store, also of a ledger that is being deleted."""
        return self._index.record(ledger_id)

    def ledgers(self) -> Mapping[LedgerId, LedgerRecord]:
        """All ledgers but those that are being deleted, as of now."""
        return {ledger_id: record for ledger_id, record in self._index if not record.deleting}

    def deletions(self) -> list[LedgerId]:
        """The ledgers whose blocks are still being removed, rising: call `delete_some` until there is none."""
        return self._index.deleting()

    def limbo_marks(self) -> Mapping[LedgerId, bytes]:
        """The nonces of the stored ledgers that are in limbo, as of now."""
        return self._index.limbo_marks()

    def read_blocks(self, ledger_id: LedgerId, first: EntryId, last: EntryId, max_bytes: int) -> list[bytes]:
        """Frames that hold the stored entries of first … last, rising, about `max_bytes` of them, at least one.

        A frame may also hold entries before `first` and after `last`. Empty if none of these entries is stored: whether
        that proves anything is the caller's to say. Raises CorruptStoreError if an entry that exists cannot be read.
        """
        record = self.ledger(ledger_id)
        while record is not None:
            try:
                return self._read_blocks(ledger_id, record, first, last, max_bytes)
            except CorruptStoreError:
                before, record = record, self._published(ledger_id)
                if record is before:
                    raise
        return []

    def _read_blocks(
        self, ledger_id: LedgerId, record: LedgerRecord, first: EntryId, last: EntryId, max_bytes: int
    ) -> list[bytes]:
        try:
            with self.blocks(ledger_id) as blocks:
                return blocks.read(
                    record.intervals, first, last, max_bytes, self.settings.read_overshoot_bytes
                )
        except lmdb.Error as error:
            msg = f"LMDB cannot read entry {first} of ledger {ledger_id} ({error})"
            raise CorruptStoreError(msg) from error

    def _published(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """The record that belongs to the newest snapshot: a commit made blocks anew, and its index comes after it."""
        with self._committing:
            return self.ledger(ledger_id)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """A read transaction; short, because pages that it can see are not reused."""
        with self._gate:
            while self._growing:
                self._gate.wait()
            self._readers += 1
        try:
            with self._environment.begin(buffers=True) as transaction:
                yield transaction
        finally:
            with self._gate:
                self._readers -= 1
                self._gate.notify_all()

    def block_keys(self, ledger_id: LedgerId, limit: int) -> list[bytes]:
        """The keys of the ledger's first `limit` blocks, whatever is in them."""
        prefix = ledger_key(ledger_id)
        keys: list[bytes] = []
        with self.snapshot() as transaction:
            cursor = transaction.cursor(self._blocks)
            found = cursor.set_range(prefix)
            while found and len(keys) < limit and bytes(cursor.key()[: len(prefix)]) == prefix:
                keys.append(bytes(cursor.key()))
                found = cursor.next()
        return keys

    @contextmanager
    def blocks(self, ledger_id: LedgerId) -> Iterator[BlockReader]:
        """The ledger's blocks as of now; short, as `snapshot` is."""
        with self.snapshot() as transaction:
            yield BlockReader(transaction.cursor(self._blocks), ledger_id)

    # -- writing: one thread ---------------------------------------------------------------------------------------

    def commit(self, changes: Iterable[LedgerChange], mark: Position) -> None:
        """Make the changes durable in one transaction, with the root and the checkpoint.

        Raises StorageFullError when there is no room: nothing of this transaction happened, or all of it and the
        checkpoint does not say so yet (rule 30). Raises BookieMustStopError for any other failure, and ever after (rule 23).
        """
        self.settle()
        self._commit(changes, mark)
        self.is_owing = True
        self.settle()

    def settle(self) -> None:
        """Make the newest commit certain if it is not: its page, and only then the checkpoint. Raises as `commit` does."""
        if self._failed is not None:
            raise BookieMustStopError(self._failed)
        if not self.is_owing:
            return
        try:
            if self._pages_owed:
                write_meta_pages_again(self._disk, self._environment.stat()["psize"])
                self._pages_owed = False
            self._checkpoint.write(self.root)
        except BookieMustStopError as error:
            self._failed = str(error)
            raise
        self.is_owing = False

    def _settle_if_there_is_room(self) -> None:
        try:
            self.settle()
        except StorageFullError as error:
            _LOG.warning("the store opens on a full disk", reason=str(error))

    def _commit(self, changes: Iterable[LedgerChange], mark: Position) -> None:
        digests: dict[LedgerId, int | None] = {}
        records: dict[LedgerId, LedgerRecord | None] = {}
        with self._committing:
            try:
                with self._environment.begin(write=True) as transaction:
                    for change in changes:
                        digests[change.ledger_id] = self._apply(transaction, change)
                        records[change.ledger_id] = change.record
                    root = self._next_root(digests, mark)
                    transaction.put(_ROOT_KEY, root.pack(), db=self._meta)
                    self._sync_commit(transaction)
            except lmdb.Error as error:
                self._refuse_or_fail(error)
            self._publish(root, records, digests)

    def _publish(
        self,
        root: Root,
        records: Mapping[LedgerId, LedgerRecord | None],
        digests: Mapping[LedgerId, int | None],
    ) -> None:
        """What was committed is what exists."""
        self.root = root
        for ledger_id, record in records.items():
            digest = digests[ledger_id]
            if record is None or digest is None:
                self._index.remove(ledger_id)
            else:
                self._index.put(ledger_id, record, digest)

    def _apply(self, transaction: Transaction, change: LedgerChange) -> int | None:
        """Write one ledger's part; returns its record's digest."""
        for key in change.deletes:
            transaction.delete(key, db=self._blocks)
        if change.puts:
            cursor = transaction.cursor(self._blocks)
            cursor.putmulti(change.puts)
        key = ledger_key(change.ledger_id)
        if change.record is None:
            transaction.delete(key, db=self._ledgers)
            return None
        packed = pack_record(change.ledger_id, change.record)
        transaction.put(key, packed, db=self._ledgers)
        return record_digest(change.ledger_id, packed)

    def _next_root(self, digests: Mapping[LedgerId, int | None], mark: Position) -> Root:
        """The root after a commit that gives these ledgers these digests (None: they go)."""
        digest, count = self.root.digest, self.root.count
        for ledger_id, new in digests.items():
            digest += (new or 0) - self._index.digest(ledger_id)
            count += (new is not None) - (self._index.record(ledger_id) is not None)
        return Root(self.root.generation + 1, count, digest % DIGEST_MODULUS, mark)

    def _sync_commit(self, transaction: Transaction) -> None:
        """The moment at which a commit is durable, or fails."""
        transaction.commit()

    def _refuse_or_fail(self, error: lmdb.Error) -> NoReturn:
        """A full map or disk is met before anything is promised; whatever else failed, stop (rule 23)."""
        is_map_full = isinstance(error, lmdb.MapFullError)
        if is_map_full or self._is_disk_full(getattr(error, "code", 0)):
            cure = "store_map_bytes is raised" if is_map_full else "the disk has more room"
            msg = (
                f"no room in the store ({error}): the bookie is read-only until ledgers are deleted or {cure}"
            )
            raise StorageFullError(msg) from error
        self._failed = (
            f"a commit of the store failed ({error}): stop the bookie, its next start replays the journal"
        )
        raise BookieMustStopError(self._failed) from error

    def _is_disk_full(self, code: int) -> bool:
        """LMDB says EIO of a write that was cut short; a disk that is full cuts it short and has nothing left after."""
        return code in FULL or (code == errno.EIO and self._disk.free_bytes() < _CUT_SHORT_BYTES)

    # -- space -----------------------------------------------------------------------------------------------------

    def space(self) -> Space:
        """What is left, by file system, reusable pages and map."""
        with self.snapshot() as transaction:
            stats = [self._environment.stat()]
            stats += [transaction.stat(db) for db in (self._blocks, self._ledgers, self._meta)]
            info = self._environment.info()
        page = stats[0]["psize"]
        used = page * sum(s["branch_pages"] + s["leaf_pages"] + s["overflow_pages"] for s in stats)
        file_bytes = page * (info["last_pgno"] + 1)
        reserve = self.settings.store_reserve_bytes
        return Space(
            self._disk.free_bytes(), max(0, file_bytes - used), max(0, info["map_size"] - used - reserve)
        )

    def check_room(self, size_bytes: int) -> None:
        """Raise StorageFullError unless a normal write of `size_bytes` leaves the reserve that deletions need."""
        space = self.space()
        if space.map_free < size_bytes:
            msg = (
                f"a flush of {size_bytes} bytes does not fit the {space.map_free} that are left of "
                f"store_map_bytes={self.settings.store_map_bytes}: the bookie is read-only until ledgers are deleted or "
                "that setting is raised"
            )
            raise StorageFullError(msg)

    def grow(self, map_bytes: int) -> None:
        """Raise the cap, on the writing thread: waits until no snapshot is open, and holds new ones back meanwhile."""
        with self._gate:
            self._growing = True
            try:
                while self._readers:
                    self._gate.wait()
                self._environment.set_mapsize(map_bytes)
            finally:
                self._growing = False
                self._gate.notify_all()

    def reader_check(self) -> int:
        """Clear reader slots of processes that died, whose snapshots would keep pages from reuse; return how many."""
        return int(self._environment.reader_check())
