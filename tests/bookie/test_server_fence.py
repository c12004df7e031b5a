"""Fences over the wire: at once, durable before they are answered, and never overtaken."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from daybook.core.errors import Code
from daybook.core.frame import FLAG_RECOVERY
from daybook.wire import bookie_pb2 as pb
from tests.bookie.server_kit import WAIT_S, RunningBookie, StalledJournal, frame_of

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
            assert not first.done()
            assert not second.done(), "a second fencer waits for the same sync"
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


def test_an_unknown_ledger_can_be_fenced_without_metadata(start_bookie: StartBookie) -> None:
    bookie = start_bookie()
    bookie.create_ledger(1)
    bookie.metadata.suspend()
    try:
        assert Code(bookie.fence(1).code) is Code.OK
    finally:
        bookie.metadata.resume()


def test_a_fence_with_a_wrong_key_does_not_lock_out_the_right_one(bookie: RunningBookie) -> None:
    assert Code(bookie.fence(1, key="made up").code) is Code.OK, "nobody knows better yet"
    assert Code(bookie.fence(1).code) is Code.OK
    assert Code(bookie.fence(1, key="made up").code) is Code.UNAUTHORIZED
    assert bookie.read(1, 0, 0)[0].code is Code.OK
