"""How old a backlog is, by what the owner noted and by the times of the list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics.confirm_times import NOTES_MAX, ConfirmTimes
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState, Position

OPEN = ListedLedger(5, created_at_ms=1_000)
CLOSED = ListedLedger(
    3,
    created_at_ms=100,
    entries=11,
    closed_at_ms=900,
    first_published_at_ms=200,
    last_published_at_ms=700,
)
RECOVERED = ListedLedger(4, created_at_ms=910, entries=10, closed_at_ms=1_000)
LIST = LedgerList(
    state=ListState.OPEN,
    ledgers=(CLOSED, RECOVERED, OPEN),
    last_confirmed=Position(4, 9),
)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position(3, 0), 200),
        (Position(3, 5), 450),
        (Position(3, 10), 700),
        (Position(4, 9), 1_000),
        (Position(4, 4), 955),
        (Position(5, 0), 1_000),  # of a ledger that nothing was seen of, but for its beginning
        (Position(2, 0), None),
        (Position(6, 0), None),
    ],
)
def test_the_times_of_the_list_are_those_of_its_entries(position: Position, expected: int | None) -> None:
    times = ConfirmTimes(Position(4, 9), 1_000)
    assert times.published_at_ms(position, LIST, 9_000) == expected


def test_what_came_after_a_pause_is_not_as_old_as_what_came_before_it() -> None:
    times = ConfirmTimes(Position(4, 9), 1_000)
    times.note(Position(5, 9), 2_000)
    for now_ms in (3_000, 4_000, 500_000):
        times.note(Position(5, 9), now_ms)
    times.note(Position(5, 19), 501_000)
    found = [times.published_at_ms(Position(5, entry), LIST, 502_000) for entry in (0, 9, 10, 19, 20)]
    assert found == [1_100, 2_000, 500_100, 501_000, 502_000]
    assert times.published_at_ms(Position(3, 5), LIST, 502_000) == 450, "by the times of that ledger alone"


@given(st.lists(st.integers(1, 1_000), max_size=400))
def test_notes_are_bounded_and_their_times_rise(steps: list[int]) -> None:
    times = ConfirmTimes(NO_POSITION, 1_000)
    entry, now_ms = -1, 1_000
    for step in steps:
        entry, now_ms = entry + step, now_ms + 1_000
        times.note(Position(5, entry), now_ms)
    assert len(times._notes) <= NOTES_MAX
    found = [
        times.published_at_ms(Position(5, each), LIST, now_ms)
        for each in range(0, entry + 1, max(entry // 50, 1))
    ]
    assert all(each is not None and 1_000 <= each <= now_ms for each in found)
    assert found == sorted(found, key=lambda each: each or 0)
