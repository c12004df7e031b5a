"""What each refusal of a bookie does to a writer: the error table (rule 20, rule 21)."""

import pytest

from daybook.core.effects import Closed, Complete, Forced, HandleEnded
from daybook.core.errors import (
    Code,
    EntryTooLargeError,
    FrameError,
    LedgerFencedError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from daybook.core.ids import ENTRY_BYTES_MAX
from daybook.core.writer.policy import WriterPolicy
from tests.unit.core.writer.writer_world import WriterWorld

_ADD_FAILS = {Code.TOO_LARGE, Code.BAD_FRAME}


_HANDLE_ENDS = {
    Code.FENCED: LedgerFencedError,
    Code.UNAUTHORIZED: UnauthorizedError,
    Code.NO_SUCH_LEDGER: NoSuchLedgerError,
    Code.NOT_OPEN: LedgerFencedError,
}


@pytest.mark.parametrize("code", [Code.NO_SUCH_LEDGER, Code.NOT_OPEN])
def test_rule_20_a_ledger_that_is_gone_ends_the_handle(code: Code) -> None:
    world = WriterWorld()
    token = world.write("x")
    world.fail("a", code)
    assert world.end is not None
    assert type(world.end) is type(world.errors[token])
    world.ack("b c")
    assert world.completed == []
    assert world.pending_cas is None, "there is nothing left to change"


@pytest.mark.parametrize("code", sorted(set(Code) - {Code.OK}))
def test_rule_21_every_code_has_its_reaction(code: Code) -> None:
    world = WriterWorld()
    token = world.write("x")
    world.fail("c", code)
    if code in _HANDLE_ENDS:
        assert type(world.end) is _HANDLE_ENDS[code]
        assert type(world.errors[token]) is _HANDLE_ENDS[code]
        assert world.pending_cas is None
        return
    assert world.end is None
    assert world.errors == {}
    if code not in _ADD_FAILS:
        assert world.pending_cas is not None
        assert world.quarantined == ["c"]
        world.cas()
        world.ack("a d")
    else:
        assert world.pending_cas is None
        assert world.quarantined == [], "no bookie is blamed"
        world.ack("a b")
    assert world.completed == [token]


def test_rule_21_an_oversized_entry_burns_no_bookie() -> None:
    world = WriterWorld()
    too_large = world.append_bytes(b"fits", bytes(ENTRY_BYTES_MAX + 1))
    assert isinstance(world.errors[too_large], EntryTooLargeError)
    world.flush()
    assert world.all_sent == []
    good = world.write("x")
    world.ack("a b c")
    assert world.of_kind(Complete) == [Complete(good, 0, 0)]
    assert world.end is None


def test_rule_21_a_frame_that_every_bookie_refuses_fails_alone_and_its_ids_are_free_again() -> None:
    world = WriterWorld()
    before = world.write("x")
    refused = world.write("y")
    queued = world.append("z")
    for bookie in "abc":
        world.fail(bookie, Code.TOO_LARGE, 1)
    assert set(world.errors) == {refused, queued}
    assert world.end is None
    assert world.quarantined == []
    assert world.writer._state.length == 1
    after = world.write("u")
    world.ack("a b")
    assert world.completed == [before, after]
    assert world.of_kind(Complete)[-1] == Complete(after, 1, 1)
    assert world.writer.pending_bytes == 2, "c has not answered"
    assert not world.writer.is_replicated


@pytest.mark.parametrize("deferred_sync", [False, True])
@pytest.mark.parametrize("is_first_complete", [True, False])
def test_rule_21_a_force_does_not_wait_for_entries_that_were_refused(
    deferred_sync: bool, is_first_complete: bool
) -> None:
    """Their ids are free again, and perhaps no entry gets them: neither the force nor a close would ever be answered."""
    world = WriterWorld(deferred_sync=deferred_sync)
    world.write("x")
    if is_first_complete:
        world.ack("a b c", 0)
    refused = world.write("y", "y")
    force = world.force()
    assert world.of_kind(Forced) == []
    for bookie in "abc":
        world.fail(bookie, Code.TOO_LARGE, 1)
    assert set(world.errors) == {refused}
    if not is_first_complete:
        assert world.of_kind(Forced) == []
        world.ack("a b c", 0)
    if deferred_sync:
        world.answer_force("a b c")
    assert world.of_kind(Forced) == [Forced(force, 0)]
    world.close()
    world.cas()
    assert (world.current.is_closed, world.current.last_entry) == (True, 0)


def test_rule_21_a_refused_frame_whose_ids_were_promised_ends_the_handle() -> None:
    """Its user counts on the id, so no other entry may get it, and without it no later one is ever complete."""
    world = WriterWorld()
    world.write("x")
    world.ack("a b c")
    promised = world.append("y")
    world.promise()
    behind = world.append("z")
    world.flush()
    for bookie in "abc":
        world.fail(bookie, Code.TOO_LARGE, 1)
    assert set(world.errors) == {promised, behind}
    assert isinstance(world.end, EntryTooLargeError)
    world.cas()
    assert (world.current.last_entry, world.writer.last_add_pushed) == (0, 2)


def test_rule_21_a_refused_frame_behind_what_was_promised_fails_alone() -> None:
    world = WriterWorld()
    world.write("x")
    world.promise()
    world.ack("a b c")
    refused = world.write("y")
    for bookie in "abc":
        world.fail(bookie, Code.TOO_LARGE, 1)
    assert (set(world.errors), world.end) == ({refused}, None)


def test_rule_21_a_refused_frame_that_one_bookie_has_ends_the_handle() -> None:
    """Its id was given, so another payload under it could be read as if it were the first."""
    world = WriterWorld()
    done = world.write("x")
    world.ack("a b c")
    refused = world.write("y")
    world.fail("a", Code.BAD_FRAME)
    world.fail("b", Code.BAD_FRAME)
    assert world.end is None, "c may refuse it as well"
    world.ack("c")
    assert isinstance(world.of_kind(HandleEnded)[0].error, type(world.errors[refused]))
    world.cas()
    assert world.completed == [done]
    assert world.current.is_closed
    assert world.current.last_entry == 0
    assert world.of_kind(Closed) == [Closed(None, world.current)]


@pytest.mark.parametrize("refused_first", [True, False])
def test_rule_21_a_refused_frame_and_a_missing_bookie_end_the_handle_in_time(refused_first: bool) -> None:
    """Two of three are there, which is a quorum for every entry but for the one that one of them refused."""
    world = WriterWorld(spares="", policy=WriterPolicy(quorum_wait_ms=50))
    token = world.write("x")
    answers = [("c", Code.BAD_FRAME), ("a", Code.TIMEOUT)]
    for bookie, code in answers if refused_first else reversed(answers):
        world.fail(bookie, code)
    world.ack("b")
    assert world.end is None, "a may come back"
    world.tick(60)
    assert isinstance(world.end, FrameError)
    assert set(world.errors) == {token}


def test_rule_21_a_refused_frame_waits_for_a_missing_bookie_that_comes_back() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(quorum_wait_ms=50, probe_ms=10))
    token = world.write("x")
    world.fail("a", Code.TIMEOUT)
    world.fail("c", Code.BAD_FRAME)
    world.ack("b")
    world.tick(20)
    world.ack("a")
    world.cas()
    world.ack("a")
    world.tick(200)
    assert world.completed == [token]
    assert world.end is None


def test_rule_21_ids_that_a_removed_bookie_has_are_not_given_again() -> None:
    """It may come back into the ensemble, with the first payload under that id."""
    world = WriterWorld()
    world.write("x")
    world.write("y")
    world.ack("c", 1)
    world.fail("c", Code.TIMEOUT, 0)
    world.cas()
    world.ack("a b", 0)
    for bookie in "abd":
        world.fail(bookie, Code.TOO_LARGE, 1)
    assert world.lac == 0
    assert world.end is not None


def test_rule_21_a_refused_frame_with_others_behind_it_ends_the_handle() -> None:
    world = WriterWorld()
    first, second = world.write("x"), world.write("y")
    for bookie in "abc":
        world.fail(bookie, Code.TOO_LARGE, 0)
    assert set(world.errors) == {first, second}
    assert world.end is not None


def test_rule_21_one_bookie_that_refuses_does_not_stop_a_quorum() -> None:
    world = WriterWorld()
    token = world.write("x")
    world.fail("c", Code.BAD_FRAME)
    world.ack("a b")
    assert world.completed == [token]
    assert world.writer.pending_bytes == 0
    assert world.writer.is_replicated
    assert world.pending_cas is None


def test_a_probe_that_is_refused_as_every_bookie_would_ends_nothing() -> None:
    world = WriterWorld(spares="")
    world.write("x")
    world.fail("a", Code.IO_ERROR)
    world.ack("b c")
    world.write("y")
    world.ack("b c")
    world.tick(1000)
    (probe,) = world.owed("a")
    assert probe.entries == ()
    world.fail("a", Code.BAD_FRAME)
    assert (world.end, world.pending_cas) == (None, None)


def test_a_frame_refused_after_it_was_acknowledged_changes_nothing() -> None:
    world = WriterWorld()
    token = world.write("x")
    world.ack("a b")
    assert world.completed == [token]
    world.fail("c", Code.BAD_FRAME)
    assert (world.end, world.pending_cas, world.quarantined) == (None, None, [])
    world.write("y")
    world.ack("a b c")
    assert len(world.completed) == 2


def test_a_bookie_too_slow_ends_a_handle_that_must_not_go_on_without_a_spare() -> None:
    policy = WriterPolicy(go_on_without_spare=False)
    world = WriterWorld(spares="", policy=policy)
    world.write("x")
    world.ack("a b")
    world.write("y")
    assert not world.writer.is_closing
    world.tick(policy.lag_ms_max + 1)
    assert isinstance(world.end, NotEnoughBookiesError)
    assert world.writer.is_closing, "the ledger is closed behind it"
    assert world.tick(10**6) == [], "time does nothing more to it"
