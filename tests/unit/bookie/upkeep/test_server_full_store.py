"""A store without room gets out of it by deletions alone, whatever waits to be flushed before them (rule 30)."""

from collections.abc import Callable

import pytest
from daybook_bookie.disk.errors import StorageFullError
from daybook_bookie.store import thread as store_thread
from daybook_bookie.store.store import Store

from daybook.core.errors import Code
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, eventually, frame_of
from tests.unit.bookie.stream_kit import WAIT_S

StartBookie = Callable[..., RunningBookie]


def no_room_while(monkeypatch: pytest.MonkeyPatch, ledger_id: int) -> list[int]:
    """No flush has room as long as `ledger_id` is in the store; counts the refusals."""
    refusals: list[int] = []

    def check_room(store: Store, size_bytes: int) -> None:
        if store.stored(ledger_id) is not None:
            refusals.append(size_bytes)
            raise StorageFullError("no room in the store")

    monkeypatch.setattr(Store, "check_room", check_room)
    monkeypatch.setattr(store_thread, "_FULL_RETRY_S", 0.02)
    return refusals


def collect(bookie: RunningBookie) -> list[int]:
    return list(bookie.stub.collect_garbage(pb.CollectGarbageRequest(), timeout=WAIT_S).deleted)


@pytest.fixture
def bookie(bookie: RunningBookie) -> RunningBookie:
    """A bookie whose store has a bit of ledger 2."""
    bookie.create_ledger(2)
    stream = bookie.open_stream()
    stream.attach(2)
    assert stream.add(frame_of(2, 0, [b"old"])) == {}
    assert bookie.flush()
    return bookie


@OVER_BOTH
def test_rule_30_a_deletion_makes_room_for_the_flush_that_waits(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = no_room_while(monkeypatch, 2)
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"new"])) == {}
    bookie.bookie.table.flush_wanted.set()
    assert eventually(lambda: len(refusals) > 1)
    bookie.delete_ledger(2)
    assert collect(bookie) == [2]
    assert bookie.flush()
    assert bookie.bookie.table.known_ids() == [1]
    assert bookie.read(1, 0, 0)[1] == [(0, b"new")]
    assert bookie.failures == []


@OVER_BOTH
def test_rule_30_a_deletion_comes_before_the_entries_of_its_flush(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart both are in one generation."""
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"new"])) == {}
    bookie.delete_ledger(2)
    refusals = no_room_while(monkeypatch, 2)
    assert collect(bookie) == [2]
    assert bookie.flush()
    assert len(refusals) <= 1
    assert bookie.bookie.table.known_ids() == [1]


@OVER_BOTH
def test_a_bookie_that_stops_while_a_flush_waits_for_room_has_not_failed(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        refusals = no_room_while(patch, 2)
        stream = bookie.open_stream()
        stream.attach(1)
        assert stream.add(frame_of(1, 0, [b"a"])) == {}
        bookie.bookie.table.flush_wanted.set()
        assert eventually(lambda: bool(refusals))
        assert Code(bookie.fence(1).code) is Code.OK
        bookie.stop()
        assert bookie.failures == []
    bookie.restart()
    assert bookie.read(1, 0, 0)[1] == [(0, b"a")]
