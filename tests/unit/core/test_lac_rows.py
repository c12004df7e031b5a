"""LACs that a client publishes to one bookie: the newest row goes, and is kept in mind until something proves it durable."""

import pytest

from daybook.core.errors import Code
from daybook.core.format.lac_table import LAC_ROWS_MAX
from daybook.core.lac_rows import LacRows


def sent(*tokens: str, before: int = 1) -> LacRows[str]:
    """Rows that were sent before a message."""
    rows: LacRows[str] = LacRows()
    for token in tokens:
        rows.publish(token, b"row")
    rows.take(before)
    return rows


def lost(rows: LacRows[str]) -> list[str]:
    """What would vanish with the stream."""
    rows.stream_ended()
    return rows.take_lost()


def test_the_newest_row_of_a_ledger_goes_once() -> None:
    rows: LacRows[str] = LacRows()
    assert not rows.is_waiting
    rows.publish("a", b"1")
    rows.publish("b", b"2")
    rows.publish("a", b"3")
    assert rows.is_waiting
    assert rows.take(1) == [("a", b"3"), ("b", b"2")]
    assert rows.take(1) == []


def test_a_table_has_a_limit_and_the_rest_follows() -> None:
    rows: LacRows[int] = LacRows()
    for token in range(LAC_ROWS_MAX + 1):
        rows.publish(token, b"")
    assert len(rows.take(1)) == LAC_ROWS_MAX
    assert rows.take(1) == [(LAC_ROWS_MAX, b"")]


def test_rule_48_a_row_is_lost_with_its_stream_unless_something_synced_came_after_it() -> None:
    rows = sent("a", before=3)
    rows.publish("b", b"")
    rows.take(4)
    assert rows.is_unsynced
    rows.synced(2)
    assert lost(rows) == ["a", "b"]
    rows = sent("a", before=3)
    rows.publish("b", b"")
    rows.take(4)
    rows.synced(3)
    assert lost(rows) == ["b"], "message 3 was synced, and came before the row"
    rows = sent("a", before=3)
    rows.synced(7)
    assert not rows.is_unsynced
    assert lost(rows) == []


def test_a_row_that_is_sent_again_is_proved_by_what_follows_the_last_one() -> None:
    rows = sent("a", "b")
    rows.publish("a", b"")
    rows.take(5)
    rows.synced(1)
    assert lost(rows) == ["a"]


def test_rule_48_what_waits_for_the_stream_is_lost_with_it() -> None:
    rows = sent("a")
    rows.publish("b", b"")
    rows.stream_ended()
    assert not rows.is_waiting
    assert rows.has_lost
    assert rows.take_lost() == ["a", "b"]
    assert not rows.has_lost


@pytest.mark.parametrize(
    ("code", "is_lost"),
    [
        (Code.TIMEOUT, True),
        (Code.UNAVAILABLE, True),
        (Code.TOO_MANY_REQUESTS, True),
        (Code.NOT_OPEN, False),
        (Code.UNAUTHORIZED, False),
    ],
)
def test_a_bookie_that_has_judged_the_ledger_is_published_nothing_again(code: Code, is_lost: bool) -> None:
    rows: LacRows[str] = LacRows()
    rows.attach_failed("a", code)
    assert rows.has_lost is is_lost


def test_a_writer_that_is_gone_leaves_nothing() -> None:
    rows = sent("a", "b", "c")
    rows.publish("b", b"")
    rows.attach_failed("c", Code.TIMEOUT)
    for token in ("a", "b", "c", "d"):
        rows.forget(token)
    assert lost(rows) == []
