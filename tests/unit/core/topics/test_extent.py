"""The extent of a topic: what exists, what comes next, how much lies between; beside a plain list of its entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListState, Position
from tests.unit.core.topics.lists import closed_list, extent_of, open_list, positions, topics


@given(topics(), positions)
def test_neighbours_are_those_of_the_list_of_entries(
    topic: tuple[TopicExtent, list[Position]], position: Position
) -> None:
    extent, entries = topic
    later = [each for each in entries if each > position]
    earlier = [each for each in entries if each < position]
    assert extent.contains(position) is (position in entries)
    if later:
        assert extent.after(position) == later[0]
    else:
        assert extent.after(position) > max([position, *entries])
    if earlier:
        assert extent.before(position) == earlier[-1]
    else:
        assert extent.after(extent.before(position)) == extent.first
    assert extent.first == (entries[0] if entries else extent.end)
    assert extent.last_confirmed == (entries[-1] if entries else NO_POSITION)
    from_here = [each for each in entries if each >= position]
    assert extent.at_or_after(position) >= position
    if from_here:
        assert extent.at_or_after(position) == from_here[0]
    else:
        assert extent.at_or_after(position) >= extent.end


@given(topics(), positions, positions, st.integers(0, 8))
def test_counts_are_those_of_the_list_of_entries(
    topic: tuple[TopicExtent, list[Position]], after: Position, through: Position, n: int
) -> None:
    extent, entries = topic
    later = [each for each in entries if each > after]
    assert extent.count(after) == len(later)
    assert extent.count(after, through) == len([each for each in later if each <= through])
    assert extent.nth_after(after, n) == ([after, *later[:n]][-1])


@given(topics(), positions, st.integers(1, 4))
def test_a_run_is_of_one_ledger_and_begins_with_the_next_entry(
    topic: tuple[TopicExtent, list[Position]], position: Position, most: int
) -> None:
    extent, entries = topic
    later = [each for each in entries if each >= position]
    run = extent.run(position, most)
    if not later:
        assert run is None
        return
    assert run is not None
    ledger_id, first, last = run
    mine = [each for each in later if each.ledger_id == later[0].ledger_id][:most]
    assert [Position(ledger_id, entry) for entry in range(first, last + 1)] == mine


def test_the_end_of_a_topic_without_an_open_ledger_is_before_whatever_comes() -> None:
    extent = extent_of((3, 2), (5, 0))
    assert extent.end == Position(3, 2)
    assert extent.after(Position(3, 1)) == Position(3, 2)
    extent.update(open_list((3, 2), (5, 0), open_id=9))
    assert extent.end == extent.at_or_after(Position(3, 2)) == Position(9, 0)
    assert extent.run(Position(3, 2), 10) is None
    extent.confirm(Position(9, 4))
    assert extent.run(Position(3, 2), 3) == (9, 0, 2)


def test_what_is_confirmed_of_the_open_ledger_outlives_a_new_list() -> None:
    extent = extent_of((1, 2), open_with=(4, 3))
    extent.update(open_list(open_id=4, last_confirmed=Position(1, 1)))
    assert extent.last_confirmed == Position(4, 2)
    assert extent.first == Position(4, 0)
    extent.confirm(Position(4, 1))
    assert extent.count(NO_POSITION) == 3, "late news changes nothing"
    extent.update(closed_list((4, 5)))
    assert extent.count(NO_POSITION) == 5
    assert extent.last_confirmed == Position(4, 4)


def test_a_list_may_say_that_the_open_ledger_has_entries() -> None:
    assert TopicExtent(open_list(open_id=4, last_confirmed=Position(4, 2))).count(NO_POSITION) == 3


def test_the_last_position_outlives_trimming() -> None:
    extent = TopicExtent(LedgerList(ListState.TERMINATED, (), Position(7, 3)))
    assert extent.is_terminated
    assert extent.last_confirmed == Position(7, 3)
    assert extent.first == extent.end == Position(7, 4)
    assert extent.before(extent.first) == Position(7, 3)


def test_what_cannot_be_is_refused() -> None:
    extent = extent_of(open_with=(4, 3))
    with pytest.raises(AssertionError, match="not in ledger 4"):
        extent.confirm(Position(5, 0))
    with pytest.raises(AssertionError, match="lost acknowledged entries"):
        extent.update(closed_list((4, 2)))
    with pytest.raises(AssertionError, match="no ledger is open"):
        extent_of((4, 2)).confirm(Position(4, 2))


def test_a_topic_that_was_never_written_begins_with_its_first_ledger() -> None:
    extent = TopicExtent()
    assert extent.run(NO_POSITION, 1) is None
    assert extent.before(extent.first) == NO_POSITION
    extent.update(open_list(open_id=0))
    assert extent.after(NO_POSITION) == Position(0, 0)
