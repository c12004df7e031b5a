"""How a writer closes its ledger, alone and in a race."""

import pytest

from daybook.core.effects import Closed
from daybook.core.errors import Code, LedgerFencedError, NoSuchLedgerError
from daybook.core.events import CasOutcome
from tests.unit.core.writer.writer_world import WriterWorld


def test_an_empty_ledger_closes_at_minus_one() -> None:
    world = WriterWorld()
    world.close()
    world.cas()
    assert (world.current.last_entry, world.current.length) == (-1, 0)


def test_a_second_close_gets_the_same_answer() -> None:
    world = WriterWorld()
    tokens = [world.close(), world.close()]
    world.cas()
    tokens.append(world.close())
    assert [closed.token for closed in world.of_kind(Closed)] == tokens


def test_a_close_waits_for_an_ensemble_change() -> None:
    world = WriterWorld()
    world.write("x")
    world.fail("c", Code.TIMEOUT)
    world.close()
    world.ack("a b")
    world.cas()
    assert world.current.last_fragment.bookies == ("a", "b", "d")
    world.cas()
    assert world.current.is_closed
    assert world.current.last_entry == 0


@pytest.mark.parametrize(("end", "length"), [(0, 1), (1, 2)])
def test_rule_11_the_loser_of_a_closing_race_returns_the_winners_close(end: int, length: int) -> None:
    world = WriterWorld()
    world.write("x")
    world.ack("a b c")
    world.store(world.current.in_recovery())
    world.store(world.current.closed(end, length))
    close = world.close()
    world.cas()
    world.read()
    assert world.of_kind(Closed) == [Closed(close, world.current)]
    assert world.writer.metadata.last_entry == end
    assert world.errors == {}


def test_rule_11_a_writer_that_was_fenced_returns_the_winners_close() -> None:
    world = WriterWorld()
    unknown = world.write("x")
    close = world.close()
    world.store(world.current.in_recovery())
    world.fail("a", Code.FENCED)
    assert isinstance(world.errors[unknown], LedgerFencedError)
    world.store(world.current.closed(0, 1))
    world.cas()
    world.read()
    assert world.of_kind(Closed) == [Closed(close, world.current)]


def test_rule_11_a_close_never_overwrites_a_recovery_at_work() -> None:
    world = WriterWorld()
    world.write("x")
    world.ack("a b c")
    world.store(world.current.in_recovery())
    close = world.close()
    world.cas()
    world.read()
    assert isinstance(world.errors[close], LedgerFencedError)
    assert not world.current.is_closed
    assert isinstance(world.end, LedgerFencedError)
    world.store(world.current.closed(0, 1))
    again = world.close()
    world.cas()
    world.read()
    assert world.of_kind(Closed) == [Closed(again, world.current)]


def test_rule_11_a_close_after_a_fence_is_refused_while_the_recovery_is_at_work() -> None:
    world = WriterWorld()
    world.write("x")
    close = world.close()
    world.fail("a", Code.FENCED)
    assert isinstance(world.end, LedgerFencedError)
    world.store(world.current.in_recovery())
    world.cas()
    world.read()
    assert isinstance(world.errors[close], LedgerFencedError)
    assert not world.writer.is_closing


def test_a_recovery_that_is_read_after_its_fence_ends_the_handle_once() -> None:
    world = WriterWorld()
    world.write("x")
    world.fail("c", Code.TIMEOUT)
    assert world.pending_cas is not None
    world.fail("a", Code.FENCED)
    world.store(world.current.in_recovery())
    world.cas()
    world.read()
    assert isinstance(world.end, LedgerFencedError)
    assert world.writer.is_done


def test_a_close_of_a_deleted_ledger_fails() -> None:
    world = WriterWorld()
    world.store(None)
    close = world.close()
    world.cas()
    world.read()
    assert isinstance(world.errors[close], NoSuchLedgerError)


@pytest.mark.parametrize("applied", [True, False])
def test_a_close_without_an_answer_is_read_back(applied: bool) -> None:
    world = WriterWorld()
    world.write("x")
    world.ack("a b c")
    close = world.close()
    world.cas(CasOutcome.UNKNOWN, applied=applied)
    world.read()
    if not applied:
        world.cas()
    assert world.of_kind(Closed) == [Closed(close, world.current)]
    assert world.current.last_entry == 0


def test_rule_19_a_close_keeps_a_repair_of_an_older_fragment() -> None:
    world = WriterWorld(spares="d f")
    world.write("x")
    world.ack("a b c")
    world.down("c")
    world.write("y")
    world.cas()
    world.ack("a b d")
    world.store(world.current.with_replica(0, "c", "f"))
    world.close()
    world.cas()
    world.read()
    world.cas()
    assert world.current.is_closed
    assert [fragment.bookies for fragment in world.current.fragments] == [("a", "b", "f"), ("a", "b", "d")]


def test_a_handle_that_ended_leaves_a_pending_change_to_its_outcome_and_closes_then() -> None:
    world = WriterWorld(spares="d")
    world.write("x")
    world.ack("a b c")
    world.write("y")
    world.fail("c", Code.TIMEOUT)
    world.fail("b", Code.UNAUTHORIZED)
    close = world.close()
    world.cas()
    world.cas()
    assert world.of_kind(Closed) == [Closed(close, world.current)]
    assert world.current.last_entry == 0
    assert len(world.current.fragments) == 2, (
        "a closed ledger may end where its last fragment begins (rule 44)"
    )
