"""A read beside a commit: what was only moved is not damaged."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.journal.format import deletion_record
from daybook_bookie.store import store as store_module
from daybook_bookie.store.environment import Environment, Transaction
from daybook_bookie.store.reading import block_key

from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import Buffer, decode_header
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import (
    add,
    alter,
    decide,
    decoded,
    entries,
    flush,
    frame,
    open_storage,
    open_store,
    put,
)

WAIT_S = 40.0
MIB = 1 << 20


def test_a_read_between_a_commit_and_its_index_finds_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block that the second flush makes of both holds more than the index of before knows."""
    storage = open_storage(tmp_path, SimDisk(), new=True)
    store = storage.store
    add(storage, frame(1, [0, 2, 4]))
    flush(storage)
    reads: list[Future[list[Buffer]]] = []
    commit = Environment.commit
    with ThreadPoolExecutor(1) as reader:

        def read_after(self: Environment, transaction: Transaction) -> None:
            commit(self, transaction)
            if not reads:
                reads.append(reader.submit(store.read_blocks, 1, 0, 4, MIB))
                with suppress(FutureTimeoutError, CorruptStoreError):
                    reads[0].result(0.2)

        monkeypatch.setattr(Environment, "commit", read_after)
        add(storage, frame(1, [1, 3]))
        flush(storage)
        found = [
            entry
            for data in reads[0].result(WAIT_S)
            for entry in decode_entries(data, decode_header(data))[0]
        ]
    assert [entry for entry in found if entry.entry_id % 2 == 0] == entries([0, 2, 4])
    storage.close()


def test_views_keep_what_they_show_while_it_is_deleted_and_written_over(tmp_path: Path) -> None:
    storage = open_storage(tmp_path, SimDisk(), new=True)
    store = storage.store
    add(storage, frame(1, range(200)))
    flush(storage)
    with ExitStack() as views:
        shown = store.read_blocks(1, 0, 199, MIB, views=views)
        assert all(isinstance(each, memoryview) for each in shown)
        decide(storage, deletion_record(1))
        for ledger in range(2, 6):
            add(storage, frame(ledger, range(200)))
            flush(storage)
        assert store.read_blocks(1, 0, 199, MIB) == []
        assert decoded(shown) == entries(range(200))
    storage.close()


def test_views_are_bounded_and_what_is_beyond_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps a snapshot, of which LMDB has only so many."""
    monkeypatch.setattr(store_module, "VIEWS_MAX", 2)
    storage = open_storage(tmp_path, SimDisk(), new=True)
    store = storage.store
    add(storage, frame(1, range(200)))
    flush(storage)
    with ExitStack() as some:
        for kind in (memoryview, memoryview, bytes, bytes):
            shown = store.read_blocks(1, 0, 199, MIB, views=some)
            assert [type(each) for each in shown] == [kind] * len(shown)
            assert decoded(shown) == entries(range(200))
    with ExitStack() as others:
        assert isinstance(store.read_blocks(1, 0, 199, MIB, views=others)[0], memoryview)
    storage.close()


def test_a_store_that_is_closed_keeps_the_file_that_somebody_has_views_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To look at a view of a file that is closed would end the process."""
    store = open_store(tmp_path, new=True)
    put(store, frame(7, range(3)))
    with ExitStack() as views:
        shown = store.read_blocks(7, 0, 2, MIB, views=views)
        store.close()
        assert decoded(shown) == entries(range(3))
    assert "stays open" in caplog.text
    store._environment.close()


def test_a_read_that_fails_keeps_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "VIEWS_MAX", 1)
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, range(3)))
    alter(tmp_path, "blocks", block_key(7, 0), lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    with open_store(tmp_path) as store, ExitStack() as views:
        for _ in range(3):
            with pytest.raises(CorruptStoreError):
                store.read_blocks(7, 2, 2, MIB, views=views)
        assert decoded(store.read_blocks(7, 0, 1, MIB, views=views)) == entries(range(2))
        assert not store._viewing.acquire(blocking=False), "that one keeps the only snapshot"


def test_a_read_whose_ledger_goes_meanwhile_finds_nothing_or_what_was_there(tmp_path: Path) -> None:
    """Readers continue while blocks are rewritten and removed; they always find what exists all the time."""
    storage = open_storage(tmp_path, SimDisk(), new=True)
    store = storage.store
    add(storage, frame(1, list(range(0, 40, 2))))
    flush(storage)
    stop = threading.Event()

    def keep_reading() -> int:
        reads = 0
        while not stop.is_set():
            found = {
                entry.entry_id
                for data in store.read_blocks(1, 0, 40, MIB)
                for entry in decode_entries(data, decode_header(data))[0]
            }
            assert found, "what is there all the time is found"
            reads += 1
        return reads

    with ThreadPoolExecutor(2) as readers:
        reading = [readers.submit(keep_reading) for _ in range(2)]
        try:
            for n in range(1, 40, 2):
                add(storage, frame(1, [n]))
                flush(storage)
        finally:
            stop.set()
        assert all(each.result(WAIT_S) > 0 for each in reading)
    storage.close()
