"""The entry store: blocks in LMDB, and an index in memory that decides which entries exist.

A block is a frame at rest under the key (ledger, first entry). Ranges of blocks never overlap, so the block that holds an
entry is the last one that begins at or before it. The ledger's interval index decides which entries exist, not what LMDB
finds: the index is verified against the root's digest when the store opens and is kept in memory from then on, so that an
entry that the index has and LMDB does not find is an I/O error and never "not found" (rule 26).

Writes (`commit`, `confirm`) belong to one thread; any thread reads. A reader takes the ledger's record before it opens
its snapshot, and a record is published only after its commit, so a snapshot is never older than the index.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

import lmdb

from daybook.core.format.frame import Buffer
from daybook.core.ids import EntryId, LedgerId
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import Disk
from daybook_bookie.disk.errors import (
    BookieMustStopError,
    CorruptStoreError,
    StorageError,
    StorageFullError,
    StoreRefusedError,
)
from daybook_bookie.journal.format import Position
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store.checkpoint import CHECKPOINT, CheckpointFile, refuse_unless_current
from daybook_bookie.store.entry_store import LedgerChange, Space
from daybook_bookie.store.environment import DATA_FILE, Environment, Transaction
from daybook_bookie.store.index import LedgerIndex, Root, unpack_root
from daybook_bookie.store.reading import BlockReader
from daybook_bookie.store.stored_ledger import (
    StoredLedger,
    ledger_key,
    ledger_of_key,
    pack_record,
    record_digest,
    unpack_record,
)

_LOG: Final = get_logger(__name__)

_ROOT_KEY: Final = b"root"
VIEWS_MAX: Final = 128
"""Snapshots that views may keep, a quarter of LMDB's readers; what is read beyond them is copied."""


class Store:
    """The open store; see EntryStore."""

    def __init__(self, directory: Path, disk: Disk, settings: StorageSettings, *, new: bool = False) -> None:
        """Open and verify the store in `directory`, which is `disk`'s; with `new`, create it if it does not exist.

        `new` is for a bookie that is being created: later, a missing store is a loss. Raises StoreRefusedError if the
        store is missing, damaged or older than its checkpoint, StoreNotOpenedError for errors that prove nothing about
        what is stored, BookieMustStopError if the disk refuses writes; OSError. A full disk is no error: the store opens
        and `needs_confirmation`.
        """
        self.settings = settings
        self._disk = disk
        self._failed: str | None = None
        self.needs_confirmation = True
        """Whether the newest commit is not certain yet, for want of room: no other commit before `confirm`."""
        self._meta_pages_are_certain = False
        self._committing = threading.Lock()
        """Held from the beginning of a commit until its records are published."""
        self._viewing = threading.BoundedSemaphore(VIEWS_MAX)
        self._index = LedgerIndex()
        exists = DATA_FILE in disk.names()
        if not exists and (not new or CHECKPOINT in disk.names()):
            msg = f"there is no store in {directory}, although this bookie had one"
            raise StoreRefusedError(msg)
        self._environment = Environment(directory, disk, settings)
        try:
            if not exists:
                disk.sync_directory()
            self.root = self._load()
            self._checkpoint_file = self._open_checkpoint_file()
            self._confirm_if_there_is_room()
        except lmdb.Error as error:
            self._environment.close()
            raise self._environment.why_not_opened(error) from error
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
        """Close the store; the caller has ended all reads. What somebody has views of stays open: the process is about to end."""
        self._checkpoint_file.close()
        if all(self._viewing.acquire(blocking=False) for _ in range(VIEWS_MAX)):
            self._environment.close()
        else:
            _LOG.warning("the store's file stays open, because clients still take what is read from it")

    # -- opening ---------------------------------------------------------------------------------------------------

    def _load(self) -> Root:
        """Read every ledger's record and check that they add up to the root."""
        environment = self._environment
        with environment.snapshot() as transaction:
            stored = transaction.get(_ROOT_KEY, db=environment.meta)
            if stored is None and transaction.stat(environment.ledgers)["entries"] == 0:
                return Root()
            root = unpack_root(bytes(stored)) if stored is not None else None
            if root is None:
                msg = "the store's root is missing or damaged"
                raise StoreRefusedError(msg)
            for key, view in transaction.cursor(environment.ledgers):
                ledger_id, value = ledger_of_key(key), bytes(view)
                try:
                    record = unpack_record(ledger_id, value)
                except CorruptStoreError as error:
                    raise StoreRefusedError(str(error)) from error
                self._index.put(ledger_id, record, record_digest(ledger_id, value))
        self._index.check(root)
        return root

    def _open_checkpoint_file(self) -> CheckpointFile:
        """Compare the root with the checkpoint file; create both at the very first start."""
        if self.root == Root():
            if CHECKPOINT in self._disk.names():
                msg = "the store is empty, although it has a checkpoint"
                raise StoreRefusedError(msg)
            self._commit([], self.root.checkpoint)
        if CHECKPOINT not in self._disk.names():
            refuse_unless_current(self.root, None)
            CheckpointFile.create(self._disk, self.root)
        file = CheckpointFile(self._disk)
        try:
            refuse_unless_current(self.root, file.read())
        except (StorageError, OSError):
            file.close()
            raise
        return file

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> Position:
        """See EntryStore."""
        return self.root.checkpoint

    def ledger(self, ledger_id: LedgerId) -> StoredLedger | None:
        """See EntryStore."""
        record = self._index.record(ledger_id)
        return None if record is None or record.deleting else record

    def stored(self, ledger_id: LedgerId) -> StoredLedger | None:
        """See EntryStore."""
        return self._index.record(ledger_id)

    def ledgers(self) -> Mapping[LedgerId, StoredLedger]:
        """See EntryStore."""
        return {ledger_id: record for ledger_id, record in self._index if not record.deleting}

    def deletions(self) -> list[LedgerId]:
        """See EntryStore."""
        return self._index.deleting()

    def limbo_marks(self) -> Mapping[LedgerId, bytes]:
        """See EntryStore."""
        return self._index.limbo_marks()

    def read_blocks(
        self,
        ledger_id: LedgerId,
        first: EntryId,
        last: EntryId,
        max_bytes: int,
        *,
        views: ExitStack | None = None,
    ) -> list[Buffer]:
        """See EntryStore."""
        record = self.ledger(ledger_id)
        while record is not None:
            try:
                with ExitStack() as reading:
                    blocks = reading.enter_context(self.blocks(ledger_id))
                    frames = blocks.read(
                        record.intervals, first, last, max_bytes, self.settings.read_overshoot_bytes
                    )
                    if views is None or not self._viewing.acquire(blocking=False):
                        return [bytes(frame) for frame in frames]
                    views.callback(self._viewing.release)
                    views.push(reading.pop_all())  # the snapshot ends first
                    return frames
            except CorruptStoreError:
                before, record = record, self._published(ledger_id)
                if record is before:
                    raise
        return []

    def _published(self, ledger_id: LedgerId) -> StoredLedger | None:
        """The record that belongs to the newest snapshot: a commit that rewrote blocks publishes it afterwards."""
        with self._committing:
            return self.ledger(ledger_id)

    def block_keys(self, ledger_id: LedgerId, limit: int) -> list[bytes]:
        """See EntryStore."""
        prefix = ledger_key(ledger_id)
        keys: list[bytes] = []
        with self._environment.snapshot() as transaction:
            cursor = transaction.cursor(self._environment.blocks)
            found = cursor.set_range(prefix)
            while found and len(keys) < limit and bytes(cursor.key()[: len(prefix)]) == prefix:
                keys.append(bytes(cursor.key()))
                found = cursor.next()
        return keys

    @contextmanager
    def blocks(self, ledger_id: LedgerId) -> Iterator[BlockReader]:
        """See EntryStore."""
        with self._environment.snapshot() as transaction:
            yield BlockReader(transaction.cursor(self._environment.blocks), ledger_id)

    def space(self) -> Space:
        """See EntryStore."""
        return self._environment.space()

    # -- writing: one thread ---------------------------------------------------------------------------------------

    def commit(self, changes: Iterable[LedgerChange], checkpoint: Position) -> None:
        """See EntryStore: one transaction with the root, then the checkpoint file."""
        self.confirm()
        self._commit(changes, checkpoint)
        self.needs_confirmation = True
        self.confirm()

    def confirm(self) -> None:
        """See EntryStore: LMDB's meta pages, once after opening, and only then the checkpoint file."""
        if self._failed is not None:
            raise BookieMustStopError(self._failed)
        if not self.needs_confirmation:
            return
        try:
            if not self._meta_pages_are_certain:
                self._environment.rewrite_meta_pages()
                self._meta_pages_are_certain = True
            self._checkpoint_file.write(self.root)
        except BookieMustStopError as error:
            self._failed = str(error)
            raise
        self.needs_confirmation = False

    def _confirm_if_there_is_room(self) -> None:
        try:
            self.confirm()
        except StorageFullError as error:
            _LOG.warning("the store opens on a full disk", reason=str(error))

    def _commit(self, changes: Iterable[LedgerChange], checkpoint: Position) -> None:
        digests: dict[LedgerId, int | None] = {}
        records: dict[LedgerId, StoredLedger | None] = {}
        size_bytes = 0
        with self._committing:
            try:
                with self._environment.begin_write() as transaction:
                    for change in changes:
                        digests[change.ledger_id] = self._apply(transaction, change)
                        records[change.ledger_id] = change.record
                        size_bytes += sum(len(data) for _, data in change.puts)
                    root = self._index.root_after(self.root, digests, checkpoint)
                    transaction.put(_ROOT_KEY, root.pack(), db=self._environment.meta)
                    self._environment.commit(transaction)
            except lmdb.Error as error:
                self._refuse_or_fail(error)
            self._publish(root, records, digests)
        self._environment.committed(size_bytes)

    def _publish(
        self,
        root: Root,
        records: Mapping[LedgerId, StoredLedger | None],
        digests: Mapping[LedgerId, int | None],
    ) -> None:
        """Show readers what was committed."""
        self.root = root
        for ledger_id, record in records.items():
            digest = digests[ledger_id]
            if record is None or digest is None:
                self._index.remove(ledger_id)
            else:
                self._index.put(ledger_id, record, digest)

    def _apply(self, transaction: Transaction, change: LedgerChange) -> int | None:
        """Write one ledger's part; returns its record's digest."""
        blocks, ledgers = self._environment.blocks, self._environment.ledgers
        for key in change.deletes:
            transaction.delete(key, db=blocks)
        if change.puts:
            transaction.cursor(blocks).putmulti(change.puts)
        key = ledger_key(change.ledger_id)
        if change.record is None:
            transaction.delete(key, db=ledgers)
            return None
        packed = pack_record(change.ledger_id, change.record)
        transaction.put(key, packed, db=ledgers)
        return record_digest(change.ledger_id, packed)

    def _refuse_or_fail(self, error: lmdb.Error) -> NoReturn:
        """A full map or disk fails before anything is promised; any other error stops the bookie (rule 23)."""
        is_map_full = isinstance(error, lmdb.MapFullError)
        if is_map_full or self._environment.is_full(error):
            cure = "store_map_bytes is raised" if is_map_full else "the disk has more room"
            msg = (
                f"no room in the store ({error}): the bookie is read-only until ledgers are deleted or {cure}"
            )
            raise StorageFullError(msg) from error
        self._failed = (
            f"a commit of the store failed ({error}): stop the bookie, its next start replays the journal"
        )
        raise BookieMustStopError(self._failed) from error

    def check_room(self, size_bytes: int) -> None:
        """See EntryStore."""
        space = self.space()
        if space.map_free < size_bytes:
            msg = (
                f"a flush of {size_bytes} bytes does not fit the {space.map_free} that are left of "
                f"store_map_bytes={self.settings.store_map_bytes}: the bookie is read-only until ledgers are deleted or "
                "that setting is raised"
            )
            raise StorageFullError(msg)
