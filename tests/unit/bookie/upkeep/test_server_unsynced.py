"""What the journal refused for want of space is in the cache and nowhere else: nobody may take it for durable."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from daybook_bookie.disk.errors import StorageFullError
from daybook_bookie.disk.watch import Usage
from daybook_bookie.store.generation import Generation

from daybook.core.errors import Code
from daybook.core.format.frame import FLAG_DEFERRED_SYNC
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, eventually, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S


@contextmanager
def full_journal(bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While it is entered the journal has no space; after it there is some again."""

    def full(*_: object) -> None:
        raise StorageFullError("no room for a journal file")

    with monkeypatch.context() as patch:
        patch.setattr(bookie.bookie.storage.journal, "append", full)
        yield
    bookie.usages = [Usage("journal", 100, 95), Usage("store", 100, 95)]
    bookie.bookie.disk_watch.check()


@contextmanager
def held_store(bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is entered no flush ends; the event is set once one has begun."""
    begun, go_on = threading.Event(), threading.Event()
    storage = bookie.bookie.storage
    flush = storage.flush

    def held(generation: Generation, on_progress: Callable[[], None]) -> object:
        begun.set()
        assert go_on.wait(WAIT_S)
        return flush(generation, on_progress)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "flush", held)
        try:
            yield begun
        finally:
            go_on.set()


def force(bookie: RunningBookie, ledger_id: int = 1) -> Code:
    return Code(bookie.stub.force(pb.ForceRequest(ledger_id=ledger_id), timeout=WAIT_S).code)


def intervals(bookie: RunningBookie) -> tuple[Code, list[tuple[int, int]]]:
    answer = bookie.stub.entry_intervals(pb.EntryIntervalsRequest(ledger_id=1), timeout=WAIT_S)
    return Code(answer.code), [(i.first_entry, i.last_entry) for i in answer.intervals]


@OVER_BOTH
def test_rule_22_a_force_does_not_answer_for_what_the_journal_refused(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    with held_store(bookie, monkeypatch):
        with full_journal(bookie, monkeypatch):
            assert stream.add(frame_of(1, 0, [b"a"], flags=FLAG_DEFERRED_SYNC)) == {}
            assert force(bookie) is not Code.OK
        assert stream.add(frame_of(1, 1, [b"b"], flags=FLAG_DEFERRED_SYNC)) == {}
        assert force(bookie) is not Code.OK, "the sync of a later frame does not cover it"
    assert bookie.flush()
    assert force(bookie) is Code.OK, "the store has it now"


@OVER_BOTH
def test_rule_47_what_the_journal_refused_is_not_listed_before_the_store_has_it(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    with held_store(bookie, monkeypatch):
        with full_journal(bookie, monkeypatch):
            assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.READ_ONLY}
        assert intervals(bookie)[0] is not Code.OK
    assert bookie.flush()
    assert intervals(bookie) == (Code.OK, [(0, 1)])


def lac_request(timeout_ms: int = 0) -> pb.ReadLacRequest:
    return pb.ReadLacRequest(ledger_id=1, known_lac=-1, timeout_ms=timeout_ms, key=KEY)


@OVER_BOTH
def test_a_lac_that_the_journal_refused_is_not_told_before_the_store_has_it(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill would take it back."""
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    parked = bookie.stub.read_lac.future(lac_request(60_000), timeout=2 * WAIT_S)
    assert eventually(lambda: bookie.metric("read_lac_long_polls") == 1)
    with held_store(bookie, monkeypatch):
        with full_journal(bookie, monkeypatch):
            assert stream.add(frame_of(1, 1, [b"b"], lac=0, length=1)) == {0: Code.READ_ONLY}
        assert stream.add(frame_of(1, 2, [b"c"], lac=-1)) == {}, "its sync does not cover the frame before"
        assert Code(parked.result(WAIT_S).code) is Code.UNAVAILABLE
        for timeout_ms in (0, 100):
            answer = bookie.stub.read_lac(lac_request(timeout_ms), timeout=WAIT_S)
            assert (Code(answer.code), answer.last_add_confirmed) == (Code.UNAVAILABLE, -1)
        assert Code(bookie.fence(1).code) is Code.OK, "a fence has no need of it"
    assert bookie.flush()
    answer = bookie.stub.read_lac(lac_request(), timeout=WAIT_S)
    assert (Code(answer.code), answer.last_add_confirmed) == (Code.OK, 0)


@OVER_BOTH
def test_a_flush_that_had_begun_does_not_answer_for_what_was_refused_after(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    with held_store(bookie, monkeypatch) as begun:
        bookie.bookie.table.flush_wanted.set()
        assert begun.wait(WAIT_S)
        with full_journal(bookie, monkeypatch):
            assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.READ_ONLY}
        bookie.bookie.table.flush_wanted.clear()
    assert eventually(lambda: not bookie.bookie.storage.cache.is_flushing)
    assert intervals(bookie)[0] is not Code.OK
    assert bookie.flush()
    assert intervals(bookie) == (Code.OK, [(0, 1)])


@OVER_BOTH
def test_the_journal_is_flushed_when_it_is_full(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files go only after a flush, and the next one may be far away."""
    stream = bookie.open_stream()
    stream.attach(1)
    with full_journal(bookie, monkeypatch):
        assert stream.add(frame_of(1, 0, [b"a"])) == {0: Code.READ_ONLY}
    assert eventually(lambda: intervals(bookie) == (Code.OK, [(0, 0)]))


def test_a_bookie_that_has_nothing_of_a_ledger_yet_answers_a_force(bookie: RunningBookie) -> None:
    """Of a striped ledger's first entries not every bookie gets one, and every one is asked."""
    assert force(bookie) is Code.OK
