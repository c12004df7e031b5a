"""The entry stores that the contract is checked on, and what can be done to them from outside: crashes, damage, no room."""

import errno
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from daybook_bookie.journal.format import START, Position, Record
from daybook_bookie.settings import MIB
from daybook_bookie.store.entry_store import EntryStore
from daybook_bookie.store.environment import Environment
from daybook_bookie.store.reading import block_key
from daybook_bookie.store.store import Store

from daybook.core.format.entries import Entry
from tests.unit.bookie.store.kit import SMALL, alter, open_store, put, read_store, vanish
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

    def put(self, *frames: bytes, checkpoint: Position = START, records: tuple[Record, ...] = ()) -> None:
        """Flush a generation of these."""
        put(self.store, *frames, checkpoint=checkpoint, records=records)

    def reopen(self) -> None:
        self.store.close()
        self.open()

    def read(self, ledger_id: int, first: int = 0, last: int = 10**6, max_bytes: int = 10**6) -> list[Entry]:
        """See `read_store`."""
        return read_store(self.store, ledger_id, first, last, max_bytes)


class LmdbBench(Bench):
    """The real store, in a directory."""

    store: Store

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._settings = SMALL
        self._patch = pytest.MonkeyPatch()
        self.store = open_store(directory, new=True)

    def open(self) -> None:
        self._patch.undo()
        self.store = open_store(self._directory, settings=self._settings)

    def fail_commit(self, after: int, *, happened: bool) -> None:
        left, commit = after, Environment.commit

        def fail(environment: Environment, transaction: object) -> None:
            nonlocal left
            left -= 1
            if left < 0 and not happened:
                raise lmdb.DiskError("injected")
            commit(environment, transaction)

        def fail_sync() -> None:
            if left < 0:
                raise OSError(errno.EIO, "injected")
            sync()

        sync = self.store._checkpoint_file._file.fdatasync
        self._patch.setattr(Environment, "commit", fail)
        if happened:
            self._patch.setattr(self.store._checkpoint_file._file, "fdatasync", fail_sync)

    def shut(self) -> None:
        """End it."""
        self._patch.undo()
        self.store.close()

    def take_out(self, ledger_id: int, first: int) -> None:
        self.store.close()
        alter(self._directory, "blocks", block_key(ledger_id, first), vanish)
        self.open()

    def flip(self, ledger_id: int, first: int, byte: int) -> None:
        self.store.close()
        alter(self._directory, "blocks", block_key(ledger_id, first), lambda data: flipped(data, byte))
        self.open()

    def tighten(self) -> None:
        self._settings = TIGHT
        self.reopen()


class ModelBench(Bench):
    """The simulator's."""

    store: StoreModel

    def __init__(self) -> None:
        self._platter = StorePlatter()
        self.open()

    def open(self) -> None:
        self.store = StoreModel(self._platter, SMALL)

    def fail_commit(self, after: int, *, happened: bool) -> None:
        left = after

        def fail() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.EIO, "injected")

        setattr(self.store, "after_commit" if happened else "before_commit", fail)

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
