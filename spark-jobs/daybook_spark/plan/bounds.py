"""What part of what exists a query wants: by position, by ids, by publish time; from options and from Spark's filters.

Bounds only leave out. Spark applies every filter again itself, so a filter that is not understood here costs reading and nothing else.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from daybook.core.ids import MAX_ID, EntryId, LedgerId
from daybook.core.topics.ledger_list import Position
from daybook_spark.options import ReadOptions
from daybook_spark.rows.topic_rows import TimeRange


class Span(NamedTuple):
    """Ids from `first` to `last`, both included."""

    first: int = 0
    last: int = MAX_ID

    def within(self, other: "Span") -> "Span":
        """The ids in both."""
        return Span(max(self.first, other.first), min(self.last, other.last))


FIRST: Final = Position(0, 0)
BEYOND: Final = Position(MAX_ID, MAX_ID)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Entries and times that a query wants: all of them unless it says otherwise."""

    start: Position = FIRST
    end: Position = BEYOND
    """Entries before it."""
    ledgers: Span = field(default_factory=Span)
    entries: Span = field(default_factory=Span)
    times: TimeRange = field(default_factory=TimeRange)

    def of_ledger(self, ledger_id: LedgerId, first: EntryId, last: EntryId) -> Span | None:
        """Which of the entries first … last of a ledger are wanted; None: none of them."""
        if not self.ledgers.first <= ledger_id <= self.ledgers.last:
            return None
        if not self.start.ledger_id <= ledger_id <= self.end.ledger_id:
            return None
        span = Span(first, last).within(self.entries)
        if ledger_id == self.start.ledger_id:
            span = span.within(Span(first=self.start.entry_id))
        if ledger_id == self.end.ledger_id:
            span = span.within(Span(last=self.end.entry_id - 1))
        return span if span.first <= span.last else None


def bounds_of(options: ReadOptions) -> Bounds:
    """The bounds that options name."""
    times = TimeRange(options.start_time_ms, options.end_time_ms)
    return Bounds(options.start or FIRST, options.end or BEYOND, times=times)


def narrowed(bounds: Bounds, filters: Iterable[Filter]) -> Bounds:
    """The bounds, less what none of the filters' rows can be in."""
    for each in filters:
        kind = _SPANS.get(type(each))
        if kind is None:
            continue
        column, value = getattr(each, "attribute", ()), getattr(each, "value", None)
        if column == ("ledger_id",) and type(value) is int:
            bounds = replace(bounds, ledgers=bounds.ledgers.within(kind(value)))
        elif column == ("entry_id",) and type(value) is int:
            bounds = replace(bounds, entries=bounds.entries.within(kind(value)))
        elif column == ("publish_time",) and isinstance(value, datetime) and value.tzinfo is not None:
            bounds = replace(bounds, times=_narrower(bounds.times, kind(int(value.timestamp() * 1000))))
    return bounds


def _narrower(times: TimeRange, span: Span) -> TimeRange:
    """The times in both. A time of Spark may be a fraction of a millisecond later than its span's, so one more belongs to each end."""
    start_ms = times.start_ms
    if span.first > 0:
        start_ms = max(span.first - 1, start_ms or 0)
    end_ms = times.end_ms
    if span.last < MAX_ID:
        end_ms = span.last + 2 if end_ms is None else min(end_ms, span.last + 2)
    return TimeRange(start_ms, end_ms)


_SPANS: Final[Mapping[type[Filter], Callable[[Any], Span]]] = {
    EqualTo: lambda value: Span(value, value),
    GreaterThan: lambda value: Span(first=value + 1),
    GreaterThanOrEqual: lambda value: Span(first=value),
    LessThan: lambda value: Span(last=value - 1),
    LessThanOrEqual: lambda value: Span(last=value),
}
