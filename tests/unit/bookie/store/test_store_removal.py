"""Removal of over-replicated entries: bounded in a flush, for which writers wait; the next flush removes the rest."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from daybook_bookie.disk.errors import StorageFullError
from daybook_bookie.journal.format import START, Position, deletion_record
from daybook_bookie.store import flushing, removing
from daybook_bookie.store.checkpoint import CheckpointFile
from daybook_bookie.store.entry_store import LedgerChange
from daybook_bookie.store.index import Root
from daybook_bookie.store.storage import Storage
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.format.block import Block
from daybook.core.format.frame import FLAG_RECOVERY
from daybook.core.format.intervals import IntervalSet
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import (
    add,
    decide,
    entries,
    flush,
    frame,
    open_storage,
    open_store,
    put,
    read_all,
    read_store,
)

BLOCKS_MAX = 12
"""Of one flush with the settings of these tests: four transactions of three blocks."""


def ids(entry_ids: Iterable[int]) -> IntervalSet:
    found = IntervalSet()
    found.add_ids(entry_ids)
    return found


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Ledger 7 has 20 blocks of an entry each."""
    storage = open_storage(tmp_path, SimDisk(), new=True)
    add(storage, *[frame(7, [n], size=1400) for n in range(20)])
    flush(storage)
    return storage


def test_rule_47_a_flush_removes_some_replicas_and_the_next_one_the_others(storage: Storage) -> None:
    storage.remove(7, ids(range(20)))
    flush(storage)
    assert read_all(storage, 7) == entries(range(BLOCKS_MAX, 20), 1400)
    assert storage.cache.has_changes
    flush(storage)
    assert read_all(storage, 7) == []
    assert storage.store.block_keys(7, 99) == []
    assert not storage.cache.has_changes
    storage.close()


def test_rule_47_what_a_repair_brings_back_stays_though_its_removal_has_to_wait(storage: Storage) -> None:
    storage.remove(7, ids(range(20)))
    add(storage, frame(7, [1, 18], size=1400))
    flush(storage)
    add(storage, frame(7, [16], size=1400))
    flush(storage)
    assert read_all(storage, 7) == entries([1, 16, 18], 1400)
    storage.close()


@pytest.mark.parametrize("brought", [range(20), [1, 16, 18]], ids=str)
def test_rule_24_a_repeated_flush_removes_nothing_that_came_after_the_removal(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, brought: range | list[int]
) -> None:
    """The checkpoint is past the repair after the first attempt, so no replay would bring it back after a crash."""
    storage.remove(7, ids(range(20)))
    add(storage, *[frame(7, [n], size=1400, flags=FLAG_RECOVERY) for n in brought])
    swapped, before = storage.begin_flush(), storage.store.checkpoint
    write = CheckpointFile.write

    def write_unless_last(file: CheckpointFile, root: Root) -> None:
        if root.checkpoint > before:
            raise StorageFullError("injected")
        write(file, root)

    def is_all_there() -> None:
        record = storage.store.ledger(7)
        assert record is not None
        assert all(map(record.intervals.contains, brought))

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "write", write_unless_last)
        with pytest.raises(StorageFullError):
            storage.flush(swapped)
    assert storage.store.checkpoint > before, "all of it is stored, and that is not certain yet"
    storage.flush(swapped, is_all_there)
    storage.end_flush()
    flush(storage)
    assert read_all(storage, 7) == entries(brought, 1400)
    storage.close()


def test_a_ledger_that_is_deleted_meanwhile_does_not_come_back(storage: Storage) -> None:
    storage.remove(7, ids(range(20)))
    decide(storage, deletion_record(7))
    flush(storage)
    assert not storage.cache.has_changes
    storage.close()


def test_a_ledger_that_is_deleted_while_its_removal_waits_does_not_come_back(storage: Storage) -> None:
    storage.remove(7, ids(range(20)))
    swapped = storage.begin_flush()
    decide(storage, deletion_record(7))
    storage.flush(swapped)
    storage.end_flush()
    flush(storage)
    while not removing.delete_some(storage.store):
        pass
    assert storage.store.stored(7) is None
    assert not storage.cache.has_changes
    storage.close()


def test_small_ledgers_share_a_transaction_and_each_commit_is_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    commit = Store.commit

    def note(store: Store, changes: list[LedgerChange], checkpoint: Position) -> None:
        seen.append(f"{len(changes)}")
        commit(store, changes, checkpoint)

    with open_store(tmp_path, new=True) as store:
        put(store, *[frame(ledger, [0, 1]) for ledger in range(8)])
        cache = WriteCache()
        for ledger in range(8):
            cache.remove(ledger, ids([0]))
        monkeypatch.setattr(Store, "commit", note)
        left = flushing.flush(store, cache.swap(), START, lambda: seen.append("progress"))
        assert seen == ["progress", "2"] * 4 + ["progress", "8"]
        assert left == {}
        assert all(read_store(store, ledger) == entries([1]) for ledger in range(8))


def test_a_block_that_goes_as_a_whole_is_not_read(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(block: Block) -> list[Block]:
        raise AssertionError(block.first)

    monkeypatch.setattr(removing, "sound_parts", read)
    storage.remove(7, ids(range(5)))
    flush(storage)
    assert read_all(storage, 7) == entries(range(5, 20), 1400)
    storage.close()


def test_what_stays_of_blocks_fills_no_transaction_beyond_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    commit = Store.commit

    def note(store: Store, changes: list[LedgerChange], checkpoint: Position) -> None:
        written.append(sum(len(data) for change in changes for _, data in change.puts))
        commit(store, changes, checkpoint)

    storage = open_storage(tmp_path, SimDisk(), new=True)
    add(storage, *[frame(7, range(at, at + 10), size=200) for at in range(0, 90, 10)])
    flush(storage)
    storage.remove(7, ids(range(0, 90, 5)))
    monkeypatch.setattr(Store, "commit", note)
    while storage.cache.has_changes:
        flush(storage)
    assert max(written) < 2 * 2500, "one block more than the limit, at most"
    assert read_all(storage, 7) == entries([n for n in range(90) if n % 5], 200)
    storage.close()
