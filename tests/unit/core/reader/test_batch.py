"""A batch from one bookie: whom it asks, and what of the answer it takes."""

from collections.abc import Sequence

import pytest

from daybook.core.effects import SendRead
from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.core.format.entries import Entry
from daybook.core.quorum import write_set
from daybook.core.reader.batch import ask_one, fitting, take_answer
from daybook.core.reader.suspects import Suspects
from daybook.core.reader.view import LedgerView
from tests.unit.core.reader.reading import closed_cluster
from tests.unit.core.small_cluster import Cluster

META = closed_cluster().meta
STRIPED = closed_cluster(5, 3, 2).meta
MOVED = Cluster(spares=2).meta.with_ensemble(6, 18, ("b4", "b2", "b3"))


def entries(*ids: int, size_bytes: int = 3) -> tuple[Entry, ...]:
    return tuple(Entry(entry_id, bytes(size_bytes)) for entry_id in ids)


def test_the_nearest_bookie_that_is_not_suspected_is_asked() -> None:
    suspects = Suspects()
    near = {"b1": 0, "b2": 1, "b3": 2}
    for expected in ("b1", "b2", "b3"):
        ask = ask_one(META, 4, 9, 100, rank=near.__getitem__, suspects=suspects, now_ms=0)
        assert ask == SendRead(expected, 0, 4, 9, 100)
        suspects.add(expected, 0)


def test_equally_near_bookies_are_asked_in_turn() -> None:
    asks = [ask_one(META, n, n, 1, rank=lambda _: 0, suspects=Suspects(), now_ms=0) for n in range(6)]
    assert len({ask.bookie for ask in asks if ask}) == 3


def test_a_striped_ledger_gives_one_entry_by_one_bookie() -> None:
    for n in range(10):
        ask = ask_one(STRIPED, n, n, 1, rank=lambda _: 0, suspects=Suspects(), now_ms=0)
        assert ask is not None
        assert STRIPED.last_fragment.bookies.index(ask.bookie) in write_set(STRIPED.quorum, n)
    assert ask_one(STRIPED, 0, 1, 1, rank=lambda _: 0, suspects=Suspects(), now_ms=0) is None


def test_a_batch_ends_with_its_fragment() -> None:
    ask = ask_one(MOVED, 4, 9, 100, rank=lambda _: 0, suspects=Suspects(), now_ms=0)
    assert ask is not None
    assert (ask.first, ask.last) == (4, 5)
    open_ended = ask_one(MOVED, 6, 9, 100, rank=lambda _: 0, suspects=Suspects(), now_ms=0)
    assert open_ended is not None
    assert (open_ended.first, open_ended.last) == (6, 9)


@pytest.mark.parametrize(
    ("given", "taken"),
    [((4, 5, 6), (4, 5, 6)), ((4, 6), (4,)), ((4, 5, 9), (4, 5)), ((5, 6), ()), ((), ())],
)
def test_what_follows_the_first_entry_without_a_gap_is_taken(
    given: Sequence[int], taken: Sequence[int]
) -> None:
    answer = ReadAnswered("b1", 0, Code.OK, entries(*given), (), 9)
    assert take_answer(SendRead("b1", 0, 4, 9, 100), answer, Suspects(), 0) == entries(*taken)


def test_rule_63_a_bookie_that_fails_gives_nothing_and_is_suspected() -> None:
    suspects = Suspects()
    answer = ReadAnswered("b1", 0, Code.TIMEOUT)
    assert take_answer(SendRead("b1", 0, 4, 9, 100), answer, suspects, 0) == ()
    assert suspects.failures("b1", 1) == 1


@pytest.mark.parametrize(("bytes_max", "count"), [(1, 1), (3, 1), (5, 1), (6, 2), (8, 2), (9, 3), (100, 3)])
def test_as_many_entries_as_fit_and_at_least_one(bytes_max: int, count: int) -> None:
    assert fitting(entries(1, 2, 3), bytes_max) == entries(1, 2, 3)[:count]


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (4, 3), (0, 100)])
def test_a_view_asks_nobody_for_what_may_not_be_read(first: int, last: int) -> None:
    assert LedgerView(META).ask_batch(first, last, 100, rank=lambda _: 0, now_ms=0) is None


def test_what_a_batch_learns_of_a_bookie_the_next_one_knows() -> None:
    view = LedgerView(META)
    ask = view.ask_batch(0, 99, 100, rank=lambda _: 0, now_ms=0)
    assert ask is not None
    assert view.take_batch(ask, ReadAnswered(ask.bookie, 0, Code.OK, entries(0, 1), (), 1), 0) == entries(
        0, 1
    )
    assert view.take_batch(ask, ReadAnswered(ask.bookie, 0, Code.TIMEOUT), 0) == ()
    again = view.ask_batch(0, 99, 100, rank=lambda _: 0, now_ms=1)
    assert again is not None
    assert again.bookie != ask.bookie
