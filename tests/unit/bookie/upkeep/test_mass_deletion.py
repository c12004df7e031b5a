"""Thousands of ledgers go in a few transactions, none of them large, and no writer waits for all of them."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from daybook_bookie.journal.format import START, deletion_record
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.store import flushing, removing
from daybook_bookie.store.entry_store import LedgerChange
from daybook_bookie.store.removing import delete_some
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.errors import Code
from daybook.core.format.frame import decode_header
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, eventually, frame_of
from tests.unit.bookie.store.benches import Bench, LmdbBench, ModelBench
from tests.unit.bookie.store.kit import entries, frame
from tests.unit.bookie.stream_kit import WAIT_S

StartBookie = Callable[..., RunningBookie]


@pytest.fixture(params=["lmdb", "model"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return LmdbBench(tmp_path) if request.param == "lmdb" else ModelBench()


def commits_of(monkeypatch: pytest.MonkeyPatch, store: object) -> list[int]:
    """How many ledgers each commit of the store is about, from now on."""
    sizes: list[int] = []
    real = store.commit  # type: ignore[attr-defined]  # an EntryStore

    def commit(changes: list[object], mark: object) -> None:
        sizes.append(len(changes))
        real(changes, mark)

    monkeypatch.setattr(store, "commit", commit)
    return sizes


def test_small_ledgers_share_a_transaction_and_a_large_one_takes_several(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put(*[frame(ledger, [0]) for ledger in range(9)], *[frame(9, [n], size=1400) for n in range(7)])
    bench.put(frame(10, [0]))
    bench.put(records=tuple(deletion_record(ledger) for ledger in range(10)))
    sizes = commits_of(monkeypatch, bench.store)
    left = []
    while not delete_some(bench.store):
        left.append(len(bench.store.deletions()))
    assert left == sorted(left, reverse=True)
    assert max(sizes) == 2, "a block and a record each fill a transaction of 3"
    assert len(sizes) < 10
    bench.reopen()
    assert list(bench.store.ledgers()) == [10]
    assert bench.read(10) == entries([0])
    assert all(bench.store.block_keys(ledger, 10) == [] for ledger in range(10))


@pytest.mark.pure
def test_no_transaction_is_about_too_many_ledgers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removing, "LEDGERS_MAX", 4)
    monkeypatch.setattr(flushing, "LEDGERS_MAX", 4)
    bench.put(*[frame(ledger, [0], size=10) for ledger in range(20)])
    sizes = commits_of(monkeypatch, bench.store)
    cache = WriteCache()
    for ledger in (*range(10), 99):
        cache.apply(deletion_record(ledger))
    for ledger in range(30, 39):
        cache.add_frame(data := frame(ledger, [], lac=0, length=1), decode_header(data))
    flushing.flush(bench.store, cache.swap(), START)
    assert sizes == [4, 4, 2, 4, 4, 1], "ten marks, nine LACs; of ledger 99 there was nothing"
    assert bench.store.deletions() == list(range(10))
    assert bench.store.stored(99) is None


@OVER_BOTH
def test_a_deletion_of_many_ledgers_gives_way_to_a_flush(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = start_bookie()
    bookie.create_ledger(1)
    table, store = bookie.bookie.table, bookie.bookie.storage.store
    with table.lock:
        frames = [frame(ledger, [0]) for ledger in range(1000, 4100)]
        records = [table.storage.accept(data, decode_header(data)) for data in frames]
        bookie.bookie.journal.put(Barrier(records))
    assert bookie.flush()
    stream = bookie.open_stream()
    stream.attach(1)
    left_when_flushed: list[int] = []
    begun, written = threading.Event(), threading.Event()
    commit = Store.commit

    def watch(self: Store, changes: list[LedgerChange], mark: object) -> None:
        if any(change.puts for change in changes):
            left_when_flushed.append(len(store.deletions()))
        elif any(change.record is None for change in changes):
            begun.set()
            assert written.wait(WAIT_S)
        commit(self, changes, mark)  # type: ignore[arg-type]  # a Position

    monkeypatch.setattr(Store, "commit", watch)
    with table.lock:
        deletions = [table.storage.decide(deletion_record(ledger)) for ledger in range(1000, 4100)]
        bookie.bookie.journal.put(Barrier(deletions))
    table.flush_wanted.set()
    assert begun.wait(WAIT_S)
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    table.flush_wanted.set()
    written.set()
    assert eventually(lambda: bool(left_when_flushed))
    assert left_when_flushed[0] > 2000, "after one transaction"
    assert eventually(lambda: not store.deletions()), "and then it goes on, before anyone asks for a flush"
    assert bookie.read(1, 0, 0)[1] == [(0, b"a")]


def test_ledgers_that_are_gone_share_a_sync_of_the_journal(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bookie.bookie.table
    with table.lock:
        frames = [frame(ledger, [0]) for ledger in range(2, 502)]
        records = [table.storage.accept(data, decode_header(data)) for data in frames]
        barrier = Barrier(records)
        bookie.bookie.journal.put(barrier)
    assert barrier.wait(WAIT_S) is Code.OK
    bookie.create_ledger(502)
    deletions: list[int] = []
    put = JournalThread.put

    def watch(self: JournalThread, item: Barrier) -> None:
        deletions.append(len(item.records))
        put(self, item)

    existing = {1, 502}
    monkeypatch.setattr(bookie.bookie.collector._source, "ledger_ids", lambda: existing)
    monkeypatch.setattr(
        bookie.bookie.collector._source, "read_ledger", lambda each: object() if each in existing else None
    )
    monkeypatch.setattr(JournalThread, "put", watch)
    assert bookie.bookie.collector.collect(over_replicated=False).deleted == list(range(2, 502))
    assert deletions == [200, 200, 100]
