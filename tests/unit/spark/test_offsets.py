"""How far the next batch of a stream goes, against a plain list of a topic's entries."""

from dataclasses import replace

import pytest
from daybook_spark.stream.losses import has_gone
from daybook_spark.stream.offsets import Limits, Offset, advance, backlog, shares
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import MetadataError
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState, Position


def topic(
    counts: list[int],
    *,
    trimmed: int = 0,
    open_entries: int | None = None,
    follows: Position | None = None,
) -> TopicExtent:
    """Ledgers 1, 2, … with so many entries each, of which the first `trimmed` are gone; perhaps another one that is open.

    `follows` is the last entry before the first ledger that is left.
    """
    ledgers = [
        ListedLedger(number, 0, entries=count, size_bytes=100 * count, closed_at_ms=1)
        for number, count in enumerate(counts, 1)
    ]
    last = max([each.last_position for each in ledgers if each.entries], default=Position(-1, -1))
    state = ListState.CLOSED
    if open_entries is not None:
        ledgers.append(ListedLedger(len(counts) + 1, 0))
        state = ListState.OPEN
    if follows is not None:
        ledgers[trimmed] = replace(ledgers[trimmed], follows=follows)
    extent = TopicExtent(LedgerList(state, tuple(ledgers[trimmed:]), last))
    if open_entries:
        extent.confirm(Position(len(counts) + 1, open_entries - 1))
    return extent


counts = st.lists(st.integers(0, 6), max_size=5)


@given(counts, st.none() | st.integers(0, 6), st.integers(1, 7))
def test_batches_read_each_entry_once_and_in_order(sizes: list[int], last: int | None, entries: int) -> None:
    extent = topic(sizes, open_entries=last)
    everything = [
        Position(number, entry)
        for number, count in enumerate([*sizes, last or 0], 1)
        for entry in range(count)
    ]
    seen: list[Position] = []
    at = extent.first
    while (end := advance(extent, at, entries)) != at:
        batch = [each for each in everything if at <= each < end]
        assert 0 < len(batch) <= entries
        assert backlog(extent, at) == len(everything) - len(seen)
        seen += batch
        at = end
    assert seen == everything


def test_a_last_entry_that_seems_to_go_back_is_waited_for() -> None:
    assert advance(topic([3], open_entries=2), Position(2, 5), 10) == Position(2, 5)


@given(
    st.lists(counts, min_size=1, max_size=4),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 2_000),
)
def test_limits_hold_and_every_topic_proceeds(
    topics: list[list[int]], entries: int | None, size: int | None
) -> None:
    extents = {str(number): topic(each) for number, each in enumerate(topics)}
    starts = {name: extent.first for name, extent in extents.items()}
    taken = shares(extents, starts, Limits(entries, size))
    waiting = {name: sum(each) for name, each in zip(extents, topics, strict=True)}
    assert all(taken[name] <= waiting[name] and bool(taken[name]) == bool(waiting[name]) for name in extents)
    budget = min(
        [each for each in (entries, None if size is None else max(1, size // 100)) if each is not None],
        default=None,
    )
    if budget is not None:
        assert sum(taken.values()) <= max(budget, sum(1 for each in waiting.values() if each))


def test_an_offset_survives_its_storage() -> None:
    offset = Offset({"persistent://a/b/c": Position(7, 3)})
    assert Offset.from_dict(offset.to_dict()) == offset
    for stored in ({}, {"formatVersion": 2, "next": {}}, {"formatVersion": 1, "next": {"a": "x"}}):
        with pytest.raises(MetadataError, match="another checkpoint"):
            Offset.from_dict(stored)


def test_what_was_trimmed_is_told_from_what_was_read() -> None:
    assert has_gone(topic([3, 3, 3], trimmed=2), Position(1, 1))
    assert not has_gone(topic([3, 3, 3], trimmed=1), Position(2, 1))
    assert not has_gone(topic([3, 3], trimmed=2), Position(2, 3)), "all of it was read before it was trimmed"
    assert not has_gone(topic([3], open_entries=2), Position(2, 5)), "an older answer"


def test_a_list_that_ends_before_what_was_read_is_that_of_another_topic() -> None:
    again = topic([0, 3], trimmed=1, follows=NO_POSITION)
    assert has_gone(again, Position(1, 2)), "whether ledger 1 had more nobody knows"
    assert has_gone(topic([]), Position(1, 2)), "nothing was sent to it yet"
    assert has_gone(topic([0, 0], trimmed=1, follows=NO_POSITION), Position(1, 2)), "nothing is left of it"
    assert not has_gone(again, Position(1, 0)), "nothing of ledger 1 was read, and it may have been empty"


@given(counts.filter(any), st.integers(0, 4), st.integers(1, 6), st.integers(0, 7))
def test_a_query_has_lost_exactly_the_entries_that_were_trimmed_from_its_position_on(
    sizes: list[int], trimmed: int, ledger: int, entry: int
) -> None:
    """Positions are those of a query: within a ledger, or behind its last entry."""
    trimmed = min(trimmed, len(sizes) - 1)
    entries = [Position(number, each) for number, count in enumerate(sizes, 1) for each in range(count)]
    gone = [each for each in entries if each.ledger_id <= trimmed]
    ledger = min(ledger, len(sizes))
    start = Position(ledger, min(entry, sizes[ledger - 1]))
    extent = topic(sizes, trimmed=trimmed, follows=max(gone, default=NO_POSITION))
    assert has_gone(extent, start) == any(each >= start for each in gone)
