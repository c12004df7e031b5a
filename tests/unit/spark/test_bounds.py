"""Bounds leave out nothing that a query wants."""

from datetime import UTC, datetime, timedelta
from typing import Any

from daybook_spark.plan.bounds import Bounds, narrowed
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from daybook.core.topics.ledger_list import Position

HOLDS: dict[Any, Any] = {
    EqualTo: lambda left, right: left == right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
small = st.integers(0, 6)
kinds = st.sampled_from(list(HOLDS))


@given(
    st.lists(st.tuples(kinds, st.sampled_from(["ledger_id", "entry_id"]), small), max_size=4), small, small
)
def test_an_entry_that_the_filters_want_is_read(filters: list[Any], ledger: int, entry: int) -> None:
    bounds = narrowed(Bounds(), [kind((column,), value) for kind, column, value in filters])
    row = {"ledger_id": ledger, "entry_id": entry}
    is_wanted = all(HOLDS[kind](row[column], value) for kind, column, value in filters)
    span = bounds.of_ledger(ledger, 0, 6)
    is_read = span is not None and span.first <= entry <= span.last
    assert is_read == is_wanted


@given(st.lists(st.tuples(kinds, st.integers(0, 5_000)), max_size=3), st.integers(1, 5))
def test_a_time_that_the_filters_want_is_read(filters: list[Any], published_ms: int) -> None:
    wanted = [kind(("publish_time",), EPOCH + timedelta(microseconds=value)) for kind, value in filters]
    times = narrowed(Bounds(), wanted).times
    if all(HOLDS[kind](published_ms * 1000, value) for kind, value in filters):
        assert times.holds(published_ms)


@given(small, small, small, small, small, small)
def test_positions_bound_entries(a: int, b: int, c: int, d: int, ledger: int, entry: int) -> None:
    span = Bounds(Position(a, b), Position(c, d)).of_ledger(ledger, 0, 6)
    is_read = span is not None and span.first <= entry <= span.last
    assert is_read == (Position(a, b) <= Position(ledger, entry) < Position(c, d))
