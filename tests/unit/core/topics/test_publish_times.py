"""Where a time is in a topic, as far as the list of its ledgers says it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, ListState, Position
from daybook.core.topics.publish_times import around

TOLERANCE_MS = 10


def topic(*ledgers: tuple[int, int | None, int | None]) -> LedgerList:
    """Ledgers 1, 2, … with so many entries, sent from one time to another."""
    listed = tuple(
        ListedLedger(
            number,
            0,
            entries=entries,
            closed_at_ms=10**6,
            first_published_at_ms=first_ms,
            last_published_at_ms=last_ms,
        )
        for number, (entries, first_ms, last_ms) in enumerate(ledgers, 1)
    )
    last = max((ledger.last_position for ledger in listed if ledger.entries), default=Position(-1, -1))
    return LedgerList(ListState.CLOSED, listed, last)


LIST = topic((5, 100, 200), (0, None, None), (4, None, None), (3, 300, 400), (2, 500, 600))


@pytest.mark.parametrize(
    ("unix_ms", "expected"),
    [
        (0, (Position(1, -1), Position(1, -1))),
        (90, (Position(1, -1), Position(1, -1))),
        (91, (Position(1, -1), Position(3, 3))),
        (210, (Position(1, -1), Position(3, 3))),
        (211, (Position(1, 4), Position(3, 3))),
        (300, (Position(1, 4), Position(4, 2))),
        (411, (Position(4, 2), Position(4, 2))),
        (500, (Position(4, 2), Position(5, 1))),
        (611, (Position(5, 1), Position(5, 1))),
    ],
)
def test_only_what_is_near_the_time_is_to_be_read(unix_ms: int, expected: tuple[Position, Position]) -> None:
    assert around(TopicExtent(LIST), unix_ms, tolerance_ms=TOLERANCE_MS) == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.integers(0, 60),
    st.integers(-TOLERANCE_MS, TOLERANCE_MS),
)
def test_whatever_the_clocks_the_place_is_between_the_two(
    shapes: list[tuple[int, int, int]], unix_ms: int, skew_ms: int
) -> None:
    """Every entry is as old as its producer's clock says, which is `skew_ms` from the owner's."""
    now_ms, ledgers, published = 0, list[tuple[int, int | None, int | None]](), dict[Position, int]()
    for number, (entries, pause_ms, step_ms) in enumerate(shapes, 1):
        now_ms += pause_ms
        times = [now_ms + step_ms * entry for entry in range(entries)]
        now_ms = times[-1] if times else now_ms
        ledgers.append((entries, times[0] if times else None, times[-1] if times else None))
        published |= {Position(number, entry): time + skew_ms for entry, time in enumerate(times)}
    found = topic(*ledgers)
    earlier, last = around(TopicExtent(found), unix_ms, tolerance_ms=TOLERANCE_MS)
    assert all(time < unix_ms for position, time in published.items() if position <= earlier)
    assert all(time >= unix_ms for position, time in published.items() if position > last)
    assert all(before <= after for before, after in pairwise(published.values()))


def test_an_open_ledger_is_read() -> None:
    listed = LedgerList(ListState.OPEN, (ListedLedger(7, 0),))
    extent = TopicExtent(listed)
    extent.confirm(Position(7, 9))
    assert around(extent, 10**9) == (Position(7, -1), Position(7, 9))
