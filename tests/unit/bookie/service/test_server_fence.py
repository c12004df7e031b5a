"""Fences over the wire: at once, durable before they are answered, and never overtaken."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from daybook.core.errors import Code
from daybook.core.format.frame import FLAG_RECOVERY
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, StalledJournal, frame_of
from tests.unit.bookie.stream_kit import WAIT_S
from tests.unit.bookie.upkeep.test_server_gc import collect

pytestmark = OVER_BOTH

StartBookie = Callable[..., RunningBookie]


def test_rule_02_a_recovery_read_fences(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"]))
    header, entries, _ = bookie.read(1, 0, 1, fence=True)
    assert (header.code, header.through) == (Code.OK, 1)
    assert [entry.entry_id for entry in entries] == [0]
    assert stream.add(frame_of(1, 1, [b"late"])) == {0: Code.FENCED}
    assert bookie.read(1, 0, 9)[1] == [(0, b"a")]


def test_rule_03_a_ledger_that_was_never_seen_is_created_and_fenced(bookie: RunningBookie) -> None:
    answer = bookie.fence(1)
    assert (Code(answer.code), answer.last_add_confirmed, answer.limbo) == (Code.OK, -1, False)
    stream = bookie.open_stream()
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"])) == {0: Code.FENCED}
    assert stream.attach(1, recovery=True) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"], flags=FLAG_RECOVERY)) == {}
    bookie.restart()
    after = bookie.open_stream()
    after.attach(1)
    assert after.add(frame_of(1, 1, [b"b"])) == {0: Code.FENCED}


def test_rule_04_a_fence_is_answered_only_when_it_is_durable(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"], lac=-1))
    with ThreadPoolExecutor(2) as callers:
        with StalledJournal(bookie) as stalled:
            first: Future[pb.FenceResponse] = callers.submit(bookie.fence, 1)
            assert stalled.reached.wait(WAIT_S)
            second = callers.submit(bookie.fence, 1)
            assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.FENCED}, "in memory it holds at once"
            answered, _ = wait((first, second), timeout=0.5)
            assert not answered, "both fencers wait for the same sync"
        assert Code(first.result(WAIT_S).code) is Code.OK
        assert Code(second.result(WAIT_S).code) is Code.OK


def test_a_fence_tells_the_lac_and_the_length(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"abc", b"de"]))
    stream.add(frame_of(1, 2, [], lac=1, length=5))
    answer = bookie.fence(1)
    assert (answer.last_add_confirmed, answer.length_at_lac) == (1, 5)
    bookie.restart()
    answer = bookie.fence(1)
    assert (answer.last_add_confirmed, answer.length_at_lac) == (1, 5)


def test_rule_43_an_add_in_the_journal_queue_is_found_by_whoever_comes_later(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    with StalledJournal(bookie) as stalled:
        number = stream.send(frame_of(1, 0, [b"a"]))
        assert stalled.reached.wait(WAIT_S)
        header, entries, _ = bookie.read(1, 0, 0)
        assert (header.code, entries) == (Code.OK, [(0, b"a")])
        with ThreadPoolExecutor(1) as callers:
            recovery = callers.submit(bookie.read, 1, 0, 0, fence=True)
            stalled.__exit__()
            assert recovery.result(WAIT_S)[1] == [(0, b"a")]
    assert stream.settle(number) == {}


FORGED = "00$made up"


def write(bookie: RunningBookie, ledger_id: int, entry: int = 0) -> dict[int, Code]:
    """What becomes of an entry of the ledger's writer."""
    stream = bookie.open_stream()
    assert stream.attach(ledger_id) is Code.OK
    outcome = stream.add(frame_of(ledger_id, entry, [b"%d" % entry]))
    stream.close()
    return outcome


def test_rule_03_a_fence_that_metadata_disproves_ends_for_good(bookie: RunningBookie) -> None:
    """Ids are sequential: whoever may connect could end the ledgers to come, by fencing them with any key."""
    for ledger_id in (1, 2):
        assert Code(bookie.fence(ledger_id, key=FORGED).code) is Code.OK
    bookie.create_ledger(2)
    assert bookie.flush()
    bookie.restart()
    for ledger_id in (1, 2):
        assert write(bookie, ledger_id) == {}
    bookie.restart()  # from the journal
    assert write(bookie, 1, 1) == {}
    assert bookie.flush()
    bookie.restart()  # from the store
    assert write(bookie, 2, 1) == {}
    assert bookie.read(2, 0, 9)[1] == [(0, b"0"), (1, b"1")]


def test_rule_03_a_forged_fence_with_an_empty_key_ends_too(bookie: RunningBookie) -> None:
    assert Code(bookie.fence(1, key="").code) is Code.OK
    assert bookie.flush()
    bookie.restart()
    assert write(bookie, 1) == {}


def test_rule_03_the_fence_of_a_recovery_outlives_a_forged_one(bookie: RunningBookie) -> None:
    assert Code(bookie.fence(1, key=FORGED).code) is Code.OK
    assert Code(bookie.fence(1).code) is Code.OK
    assert write(bookie, 1) == {0: Code.FENCED}
    assert Code(bookie.fence(1, key=FORGED).code) is Code.UNAUTHORIZED
    bookie.restart()
    assert write(bookie, 1) == {0: Code.FENCED}
    assert bookie.flush()
    bookie.restart()
    assert write(bookie, 1) == {0: Code.FENCED}


def test_rule_03_a_forged_fence_of_a_ledger_that_never_was_is_dropped_and_leaves_nothing(
    bookie: RunningBookie,
) -> None:
    """It is not deleted: a deletion would take what the ledger holds when it comes to be."""
    assert Code(bookie.fence(2, key=FORGED).code) is Code.OK
    assert bookie.flush()
    assert Code(bookie.fence(3, key=FORGED).code) is Code.OK
    collect(bookie)
    for ledger_id in (2, 3):
        bookie.create_ledger(ledger_id)
        assert write(bookie, ledger_id) == {}
    for _ in range(2):
        assert bookie.flush()
        assert [bookie.read(ledger_id, 0, 0)[1] for ledger_id in (2, 3)] == [[(0, b"0")]] * 2
        bookie.restart()
    bookie.fence(4, key=FORGED)
    collect(bookie)
    assert bookie.flush()
    assert bookie.bookie.table.known_ids() == [2, 3]
    assert bookie.bookie.storage.store.stored(4) is None


def test_rule_03_what_a_ledger_holds_outlives_the_forged_fence_of_before(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it in one generation of the write cache, and in one replay."""
    bookie.fence(2, key=FORGED)
    with monkeypatch.context() as patch:
        patch.setattr(bookie.bookie.table.flush_wanted, "set", lambda: None)
        collect(bookie)
        bookie.create_ledger(2)
        assert write(bookie, 2) == {}
    assert bookie.read(2, 0, 0)[1] == [(0, b"0")]
    bookie.restart()
    assert bookie.read(2, 0, 0)[1] == [(0, b"0")]


def test_rule_03_a_fence_of_a_ledger_that_came_to_be_meanwhile_is_kept(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the collector's look at the counter and its step the ledger is created, and recovered."""
    for ledger_id in (2, 3):
        assert Code(bookie.fence(ledger_id, key=FORGED).code) is Code.OK
    listing = bookie.link.ledger_ids

    def in_between() -> frozenset[int]:
        before = listing()
        bookie.create_ledger(2)
        assert Code(bookie.fence(2).code) is Code.OK
        bookie.create_ledger(3)
        assert write(bookie, 3) == {}
        return before

    monkeypatch.setattr(bookie.link, "ledger_ids", in_between)
    collect(bookie)
    monkeypatch.undo()
    assert write(bookie, 2) == {0: Code.FENCED}
    bookie.restart()
    assert write(bookie, 2) == {0: Code.FENCED}
    assert bookie.read(3, 0, 0)[1] == [(0, b"0")]
