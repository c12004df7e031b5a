"""Deferred sync: what only a force acknowledges."""

import pytest

from daybook.core.effects import Closed, Forced, SendForce
from daybook.core.errors import Code, ForceFailedError, FrameError, LedgerClosedError, LedgerFencedError
from daybook.core.events import ForceAnswered
from daybook.core.format.frame import FLAG_DEFERRED_SYNC
from tests.unit.core.writer.writer_world import WriterWorld


def _deferred() -> WriterWorld:
    return WriterWorld(deferred_sync=True)


def test_rule_22_only_a_force_by_the_whole_ensemble_moves_the_lac() -> None:
    world = _deferred()
    token = world.write("x", "y")
    assert {sent.header.flags for sent in world.all_sent} == {FLAG_DEFERRED_SYNC}
    assert world.writer.is_deferred
    world.ack("a b")
    assert world.completed == [token], "accepted"
    assert world.lac == -1
    force = world.force()
    assert world.of_kind(SendForce) == [], "c has not accepted it yet, so its answer would say nothing"
    world.ack("c")
    world.answer_force("a b")
    assert world.lac == -1
    world.answer_force("c")
    assert world.lac == 1
    assert world.of_kind(Forced) == [Forced(force, 1)]
    assert world.writer.length_at_lac == 2


def test_rule_22_a_force_covers_what_was_appended_before_it_and_no_more() -> None:
    world = _deferred()
    world.append("x")
    world.force()
    world.write("y")
    world.ack("a b c")
    world.answer_force("a b c")
    assert world.lac == 0
    second = world.force()
    world.answer_force("a b c")
    assert world.lac == 1
    assert world.of_kind(Forced)[-1] == Forced(second, 1)


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.IO_ERROR, Code.CONNECTION_LOST])
def test_rule_22_one_force_that_fails_leaves_the_lac(code: Code) -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b c")
    force = world.force()
    world.answer_force("a c")
    world.answer_force("b", code)
    assert world.lac == -1
    assert isinstance(world.errors[force], ForceFailedError)
    assert isinstance(world.end, ForceFailedError)


def test_rule_22_a_bookie_that_restarted_does_not_answer_a_force() -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b c")
    world.restart("b")
    force = world.force()
    world.answer_force("a c b")
    assert world.lac == -1
    assert isinstance(world.errors[force], ForceFailedError)


def test_rule_22_a_restart_between_two_appends_is_noticed_too() -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b c")
    world.restart("b")
    world.write("y")
    world.ack("a b c")
    assert isinstance(world.end, ForceFailedError)
    assert world.lac == -1


def test_a_restart_while_nothing_is_unforced_does_no_harm() -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b c")
    world.force()
    world.answer_force("a b c")
    world.restart("b")
    world.write("y")
    world.ack("a b c")
    world.force()
    world.answer_force("a b c")
    assert world.lac == 1


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.READ_ONLY, Code.LIMBO, Code.CONNECTION_LOST])
def test_rule_22_any_failure_ends_the_handle_and_the_ensemble_never_changes(code: Code) -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b c")
    world.force()
    world.answer_force("a b c")
    world.write("y")
    world.fail("c", code)
    assert isinstance(world.end, ForceFailedError)
    world.cas()
    assert len(world.current.fragments) == 1
    assert (world.current.is_closed, world.current.last_entry) == (True, 0)


def test_rule_22_a_frame_that_one_bookie_refuses_is_never_forced() -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b")
    world.fail("c", Code.BAD_FRAME)
    assert isinstance(world.end, ForceFailedError)


def test_rule_22_a_refusal_before_the_quorum_accepted_is_never_forced_either() -> None:
    """Found by DeferredHistory: a, which refused entry 0, would have answered the force for what it never had."""
    world = _deferred()
    world.write("x")
    world.force()
    world.write("y")
    world.fail("a", Code.BAD_FRAME)
    world.ack("b c")
    assert world.of_kind(SendForce) == []
    assert isinstance(world.end, FrameError)
    assert world.lac == -1


def test_a_fence_found_by_a_force_ends_the_handle() -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b c")
    force = world.force()
    world.answer_force("a", Code.FENCED)
    assert isinstance(world.errors[force], LedgerFencedError)


def test_a_close_waits_for_a_force_and_ends_where_it_ended() -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b c")
    world.force()
    world.write("unforced")
    world.ack("a b c")
    close = world.close()
    assert world.pending_cas is None
    world.answer_force("a b c")
    world.cas()
    assert world.of_kind(Closed) == [Closed(close, world.current)]
    assert world.current.last_entry == 0


def test_forces_are_answered_in_order_and_together_where_one_covers_them() -> None:
    world = _deferred()
    world.write("x")
    tokens = [world.force(), world.force()]
    world.ack("a b c")
    assert len(world.forces) == 3
    world.answer_force("a b c")
    assert [forced.token for forced in world.of_kind(Forced)] == tokens


def test_a_force_of_nothing_is_done() -> None:
    world = _deferred()
    token = world.force()
    assert world.of_kind(Forced) == [Forced(token, -1)]


def test_a_late_answer_to_a_force_changes_nothing() -> None:
    world = _deferred()
    world.write("x")
    world.ack("a b c")
    world.force()
    late = world.forces["a"]
    world.answer_force("a b c")
    assert world.step(ForceAnswered("a", late, Code.TIMEOUT)) == []
    assert world.end is None


def test_without_deferred_sync_a_force_waits_for_what_was_appended_before() -> None:
    world = WriterWorld()
    world.append("x")
    token = world.force()
    assert world.of_kind(Forced) == []
    world.ack("a")
    assert world.of_kind(Forced) == []
    world.ack("b")
    assert world.of_kind(Forced) == [Forced(token, 0)]
    assert world.of_kind(SendForce) == []


def test_a_force_after_the_end_fails() -> None:
    world = WriterWorld()
    world.close()
    token = world.force()
    assert isinstance(world.errors[token], LedgerClosedError)
