"""Entry ids that the caller assigns (rule 55)."""

import pytest

from daybook.core.effects import Closed
from daybook.core.errors import Code, EntryIdError
from daybook.core.ids import MAX_ID
from daybook.core.ledger.metadata import Fragment
from tests.unit.core.writer.writer_world import WriterWorld


def _explicit() -> WriterWorld:
    return WriterWorld(explicit_ids=True)


def test_rule_55_a_writer_tells_which_entry_all_others_wait_for() -> None:
    world = _explicit()
    assert world.writer.missing_entry is None
    world.append("2", ids=[2])
    world.append("0", ids=[0])
    assert world.writer.missing_entry is None, "entry 0 is on its way"
    world.flush()
    world.ack("a b c")
    assert world.writer.missing_entry == 1
    world.append("1", ids=[1])
    assert world.writer.missing_entry is None
    consecutive = WriterWorld()
    consecutive.append("0")
    assert consecutive.writer.missing_entry is None


def test_rule_55_a_close_ends_before_the_gap_and_fails_the_rest() -> None:
    world = _explicit()
    first = world.append("0", ids=[0])
    beyond = world.append("2", ids=[2])
    world.flush()
    world.ack("a b c")
    close = world.close()
    world.cas()
    assert world.completed == [first]
    assert isinstance(world.errors[beyond], EntryIdError)
    assert world.of_kind(Closed) == [Closed(close, world.current)]
    assert (world.current.last_entry, world.current.length) == (0, 1)


def test_rule_55_a_close_waits_for_what_has_no_gap_before_it() -> None:
    world = _explicit()
    world.append("0", ids=[0])
    world.append("2", ids=[2])
    close = world.close()
    assert world.pending_cas is None
    world.ack("a b c")
    world.cas()
    assert world.of_kind(Closed)[0].token == close
    assert world.current.last_entry == 0


@pytest.mark.parametrize("ids", [[0], [1], [3, 2], [7, 7], [-1], [MAX_ID]])
def test_rule_55_ids_that_were_used_or_cannot_be_are_refused(ids: list[int]) -> None:
    world = _explicit()
    world.append("0", ids=[0])
    world.flush()
    world.ack("a b c")
    world.append("1", ids=[1])
    world.flush()
    world.append("2", ids=[2])
    token = world.append(*(["x"] * len(ids)), ids=ids)
    assert isinstance(world.errors[token], EntryIdError)
    assert world.end is None
    good = world.append("3", "4", ids=[4, 3])
    world.flush()
    world.ack("a b c")
    assert world.completed[-1] == good
    assert world.lac == 4


@pytest.mark.parametrize("ids", [None, [0], [0, 1, 2]])
def test_rule_55_each_entry_needs_its_id(ids: list[int] | None) -> None:
    world = _explicit()
    token = world.append("x", "y", ids=ids)
    assert isinstance(world.errors[token], EntryIdError)


def test_runs_are_split_at_gaps_and_sorted() -> None:
    world = _explicit()
    world.append("5", "1", "0", "4", ids=[5, 1, 0, 4])
    world.flush()
    assert world.sent_to("a") == [(0, 1), (4, 5)]


def test_an_ensemble_change_resends_what_waits_behind_a_gap() -> None:
    world = _explicit()
    world.append("0", ids=[0])
    world.append("2", ids=[2])
    world.flush()
    world.ack("a b c", 0)
    world.ack("a", 2)
    world.fail("c", Code.TIMEOUT, 2)
    world.cas()
    assert world.current.last_fragment == Fragment(1, 1, ("a", "b", "d"))
    assert world.sent_to("d") == [(2,)]
    world.append("1", ids=[1])
    world.flush()
    world.ack("a b d")
    assert world.lac == 2
