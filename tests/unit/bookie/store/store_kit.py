"""The entry stores that the contract is checked on, and what can be done to them from outside: crashes, damage, no room."""

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.journal.format import START, Position, Record
from daybook_bookie.settings import MIB
from daybook_bookie.store import flushing
from daybook_bookie.store.entry_store import EntryStore
from daybook_bookie.store.environment import Environment
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.reading import block_key
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.format.frame import Entry, decode_header
from tests.unit.bookie.store.storage_kit import SMALL, decoded, raw
from tests.unit.bookie.store.store_model import StoreModel, StorePlatter

TIGHT = replace(SMALL, store_map_bytes=3 * MIB, flush_transaction_bytes=MIB)
"""Room for about a megabyte, in one commit."""


class Bench(ABC):
    """One kind of store, and what can be done to it from outside."""

    store: EntryStore

    @abstractmethod
    def open(self) -> None:
        """Open what is durable, as a new process does."""

    @abstractmethod
    def fail_commit(self, after: int, *, happened: bool) -> None:
        """Let the commit fail that comes after `after` others."""

    @abstractmethod
    def take_out(self, ledger_id: int, first: int) -> None:
        """Lose the block that begins with `first`; the store is opened anew."""

    @abstractmethod
    def flip(self, ledger_id: int, first: int, byte: int) -> None:
        """Flip a bit of the block that begins with `first`; the store is opened anew."""

    @abstractmethod
    def tighten(self) -> None:
        """Leave a megabyte."""

    def put(self, *frames: bytes, mark: Position = START, records: tuple[Record, ...] = ()) -> None:
        """Flush a generation of these."""
        flushing.flush(self.store, self.generation(*frames, records=records), mark)

    def generation(self, *frames: bytes, records: tuple[Record, ...] = ()) -> Generation:
        cache = WriteCache()
        for record in records:
            cache.apply(record)
        for data in frames:
            cache.add_frame(data, decode_header(data))
        return cache.swap()

    def reopen(self) -> None:
        self.store.close()
        self.open()

    def read(self, ledger_id: int, first: int = 0, last: int = 10**6, max_bytes: int = 10**6) -> list[Entry]:
        """Every entry of first … last that can be read, asking on after each answer and past what is damaged."""
        found: dict[int, Entry] = {}
        record = self.store.ledger(ledger_id)
        at = first
        while record is not None and 0 <= (at := record.intervals.next_from(at)) <= last:
            try:
                frames = self.store.read_blocks(ledger_id, at, last, max_bytes)
            except CorruptStoreError:
                at += 1
                continue
            assert frames, "an entry that exists is given or an error"
            got = decoded(frames)
            found |= {entry.entry_id: entry for entry in got if first <= entry.entry_id <= last}
            at = got[-1].entry_id + 1
        return [found[entry] for entry in sorted(found)]


class LmdbBench(Bench):
    """The real store, in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._settings = SMALL
        self._patch = pytest.MonkeyPatch()
        self.store = Store(directory, RealDisk(directory), SMALL, new=True)

    def open(self) -> None:
        self._patch.undo()
        self.store = Store(self._directory, RealDisk(self._directory), self._settings)

    def fail_commit(self, after: int, *, happened: bool) -> None:
        left, real = after, Environment.commit

        def fail(environment: Environment, transaction: object) -> None:
            nonlocal left
            left -= 1
            if left < 0 and not happened:
                raise lmdb.DiskError("injected")
            real(environment, transaction)

        self._patch.setattr(Environment, "commit", fail)
        if happened:
            store = self.store
            assert isinstance(store, Store)
            sync = store._checkpoint_file._file.fdatasync

            def fail_sync() -> None:
                if left < 0:
                    raise OSError(errno.EIO, "injected")
                sync()

            self._patch.setattr(store._checkpoint_file._file, "fdatasync", fail_sync)

    def _alter(self, ledger_id: int, first: int, alter: Callable[[bytes], bytes | None]) -> None:
        self.store.close()
        key = block_key(ledger_id, first)
        with raw(self._directory) as environment:
            blocks = environment.open_db(b"blocks")
            with environment.begin(write=True) as transaction:
                after = alter(transaction.get(key, b"", db=blocks))
                if after is None:
                    transaction.delete(key, db=blocks)
                else:
                    transaction.put(key, after, db=blocks)
        self.open()

    def shut(self) -> None:
        """End it."""
        self._patch.undo()
        self.store.close()

    def take_out(self, ledger_id: int, first: int) -> None:
        self._alter(ledger_id, first, lambda _: None)

    def flip(self, ledger_id: int, first: int, byte: int) -> None:
        self._alter(ledger_id, first, lambda data: flipped(data, byte))

    def tighten(self) -> None:
        self._settings = TIGHT
        self.reopen()


class ModelBench(Bench):
    """The simulator's."""

    def __init__(self) -> None:
        self._platter = StorePlatter()
        self.open()

    def open(self) -> None:
        self.store: StoreModel = StoreModel(self._platter, SMALL)

    def fail_commit(self, after: int, *, happened: bool) -> None:
        left = after

        def fail() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.EIO, "injected")

        if happened:
            self.store.after_commit = fail
        else:
            self.store.before_commit = fail

    def take_out(self, ledger_id: int, first: int) -> None:
        del self._platter.blocks[ledger_id][first]
        self.reopen()

    def flip(self, ledger_id: int, first: int, byte: int) -> None:
        blocks = self._platter.blocks[ledger_id]
        blocks[first] = flipped(blocks[first], byte)
        self.reopen()

    def tighten(self) -> None:
        self.store = StoreModel(self._platter, TIGHT)
        self.store.room_bytes = MIB


def flipped(data: bytes, byte: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ 0x10]) + data[byte + 1 :]
