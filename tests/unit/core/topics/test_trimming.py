"""Which ledgers can go: rule 51 of docs/protocol.md, and the retention."""

from dataclasses import replace

import pytest

from daybook.core.topics import trimming
from daybook.core.topics.ledger_list import Compaction, LedgerList, ListedLedger, ListState, Position
from daybook.core.topics.trimming import Retention

NOW_MS = 10_000


def closed(ledger_id: int, entries: int, ended_ms: int) -> ListedLedger:
    return ListedLedger(
        ledger_id,
        0,
        entries=entries,
        size_bytes=100 * entries,
        closed_at_ms=NOW_MS,
        last_published_at_ms=ended_ms or None,
    )


LEDGERS = (closed(3, 2, 1_000), closed(4, 0, 0), closed(6, 3, 9_000))
CLOSED = LedgerList(ListState.CLOSED, LEDGERS, Position(6, 2))
OPEN = LedgerList(ListState.OPEN, (*LEDGERS, ListedLedger(8, 0)), Position(6, 2))


@pytest.mark.parametrize(
    ("marks", "count"),
    [
        ((), 3),
        ((Position(6, 2),), 3),
        ((Position(6, 1),), 2),
        ((Position(3, 1),), 1),
        ((Position(4, -1),), 2),
        ((Position(3, 0),), 0),
        ((Position(-1, -1),), 0),
        ((Position(8, 5), Position(3, 1)), 1),
        ((Position(3, 0), Position(8, 5)), 0),
    ],
)
def test_rule_51_trimming_never_passes_a_mark(marks: tuple[Position, ...], count: int) -> None:
    assert trimming.trimmed(CLOSED, marks, Retention(), NOW_MS) == count
    assert trimming.trimmed(OPEN, marks, Retention(), NOW_MS) == count, "the open ledger stays"


@pytest.mark.parametrize(
    ("horizon", "count"), [(Position(3, 0), 0), (Position(3, 1), 1), (Position(6, 1), 2), (Position(6, 2), 3)]
)
def test_rule_51_what_is_not_compacted_stays_where_compacted_messages_are_read(
    horizon: Position, count: int
) -> None:
    compacted = replace(CLOSED, compaction=Compaction(horizon))
    assert trimming.trimmed(compacted, (), Retention(), NOW_MS) == count


@pytest.mark.parametrize(
    ("retention", "count"),
    [
        (Retention(), 3),
        (Retention(None, None), 0),
        (Retention(9_000), 1),
        (Retention(9_001), 0),
        (Retention(None, 500), 0),
        (Retention(None, 499), 1),
        (Retention(None, 299), 3),
        (Retention(10**6, 299), 3),
        (Retention(9_000, 10**6), 1),
    ],
)
def test_what_is_retained_stays_until_it_is_too_old_or_too_large(retention: Retention, count: int) -> None:
    assert trimming.trimmed(CLOSED, (), retention, NOW_MS) == count


@pytest.mark.parametrize(
    ("retention", "is_kept"),
    [
        (Retention(), False),
        (Retention(None, None), True),
        (Retention(1_001), True),
        (Retention(1_000), False),
        (Retention(None, 300), True),
        (Retention(None, 299), False),
        (Retention(1_000, 10**6), False),
    ],
)
def test_a_topic_is_retained_while_the_retention_alone_keeps_an_entry(
    retention: Retention, is_kept: bool
) -> None:
    compacted = replace(CLOSED, compaction=Compaction(Position(3, 0)))
    for ledger_list in (CLOSED, OPEN, compacted):
        assert trimming.retains(ledger_list, Position(6, 2), retention, NOW_MS) == is_kept
    assert trimming.retains(OPEN, Position(8, 0), retention, NOW_MS) == (retention.time_ms != 0)


def test_a_topic_without_entries_is_not_retained() -> None:
    for_ever = Retention(None, None)
    trimmed = Position(2, 7)
    empty = replace(CLOSED, ledgers=(closed(4, 0, 0),))
    opened = LedgerList(ListState.OPEN, (closed(4, 0, 0), ListedLedger(8, 0)), trimmed)
    for ledger_list in (replace(CLOSED, ledgers=()), empty, opened):
        assert not trimming.retains(ledger_list, trimmed, for_ever, NOW_MS)
