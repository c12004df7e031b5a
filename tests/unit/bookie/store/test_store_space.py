"""Room in the store: what deletions free counts (rule 27), and a full store still takes them (rule 30)."""

import errno
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import (
    StorageFullError,
)
from daybook_bookie.journal.format import (
    START,
    deletion_record,
)
from daybook_bookie.settings import MIB
from daybook_bookie.store import flushing
from daybook_bookie.store.environment import Environment
from daybook_bookie.store.removing import delete_some
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import (
    SMALL,
    add,
    entries,
    frame,
    open_storage,
    open_store,
    put,
    read_all,
    read_store,
)


def test_rule_27_space_that_deletions_free_counts_as_free(tmp_path: Path) -> None:
    settings = replace(SMALL, block_bytes=100_000, flush_transaction_bytes=MIB, delete_transaction_blocks=100)
    with open_store(tmp_path, new=True, settings=settings) as store:
        before = store.space()
        for ledger in range(8):
            put(store, frame(ledger, range(1000), size=500))
        full = store.space()
        assert full.map_free < before.map_free - 4_000_000
        for ledger in range(8):
            delete(store, ledger)
        after = store.space()
        assert after.reusable > 3_500_000
        assert after.map_free > before.map_free - 500_000
        assert after.free > full.free + 3_500_000
        size = (tmp_path / "data.mdb").stat().st_size
        for ledger in range(10, 17):
            put(store, frame(ledger, range(1000), size=500))
        assert (tmp_path / "data.mdb").stat().st_size <= size * 1.1, "freed pages are used again"


def delete(store: Store, ledger: int) -> None:
    cache = WriteCache()
    cache.apply(deletion_record(ledger))
    flushing.flush(store, cache.swap(), START)
    assert store.ledger(ledger) is None
    while not delete_some(store):
        assert ledger in store.deletions()


def test_rule_30_a_full_store_refuses_writes_but_takes_deletions_and_then_writes_again(
    tmp_path: Path,
) -> None:
    tight = replace(SMALL, store_map_bytes=4 * MIB, block_bytes=100_000, flush_transaction_bytes=MIB)
    with open_store(tmp_path, new=True, settings=tight) as store:
        stored = fill(store)
        assert len(stored) >= 3
        assert store.space().free < 100_000
        assert read_store(store, 1) == entries(range(1000), 100)
    with open_store(tmp_path, settings=tight) as store:
        delete(store, stored[0])
        delete(store, stored[1])
        put(store, frame(99, range(1000), size=100))
        assert read_store(store, 99) == entries(range(1000), 100)
        fill(store)
        with pytest.raises(StorageFullError):
            put(store, frame(100, range(2000), size=500))
    with open_store(tmp_path, settings=replace(tight, store_map_bytes=16 * MIB)) as store:
        put(store, frame(101, range(1000), size=500))


def fill(store: Store) -> list[int]:
    """Write ledgers until there is no room; those that were stored."""
    stored: list[int] = []

    def write_on() -> None:
        while True:
            put(store, frame(len(stored), range(1000), size=100))
            stored.append(len(stored))

    with pytest.raises(StorageFullError, match="read-only"):
        write_on()
    return stored


@pytest.mark.parametrize(
    ("code", "free_bytes"), [(errno.ENOSPC, 10**9), (errno.EDQUOT, 10**9), (errno.EIO, 0)]
)
def test_rule_30_no_space_in_a_commit_is_read_only_and_the_flush_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, free_bytes: int
) -> None:
    """LMDB calls a write that the full disk cut short an I/O error: only the free space tells it from a broken disk."""
    full = lmdb.Error("injected")
    vars(full)["code"] = code

    def fail(*_: object) -> None:
        raise full

    disk = SimDisk()
    storage = open_storage(tmp_path, disk, new=True)
    add(storage, frame(7, range(100), size=100), frame(8, range(10)))
    swapped = storage.begin_flush()
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "commit", fail)
        patch.setattr(RealDisk, "free_bytes", lambda _: free_bytes)
        with pytest.raises(StorageFullError):
            storage.flush(swapped)
    assert read_all(storage, 7) == entries(range(100), 100)
    storage.flush(swapped)
    storage.end_flush()
    assert read_all(storage, 7) == entries(range(100), 100)
    assert storage.cache.size_bytes == 0
    storage.close()
