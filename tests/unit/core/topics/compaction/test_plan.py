"""What a compaction reads, and up to where."""

from dataclasses import replace

import pytest

from daybook.core.topics.compaction.plan import CompactionPlan, plan_compaction
from daybook.core.topics.ledger_list import (
    NO_POSITION,
    CompactedLedger,
    Compaction,
    LedgerList,
    ListedLedger,
    ListState,
    Position,
)

LEDGERS = tuple(
    ListedLedger(ledger_id, 0, entries=2, size_bytes=100 * ledger_id, closed_at_ms=1) for ledger_id in (3, 5)
)
OPEN = LedgerList(ListState.OPEN, (*LEDGERS, ListedLedger(8, 0)), Position(5, 1))
FORMER = Compaction(Position(3, 1), (CompactedLedger(6, 1, 7, Position(3, 1)),))


def test_the_first_compaction_reads_everything_that_is_acknowledged() -> None:
    plan = plan_compaction(OPEN, Position(8, 4), open_bytes=11)
    assert plan == CompactionPlan(None, Position(8, 4), 811)
    assert plan.start == NO_POSITION


def test_the_next_one_reads_what_the_former_one_left_and_what_came_since() -> None:
    plan = plan_compaction(replace(OPEN, compaction=FORMER), Position(8, 4), open_bytes=11)
    assert plan == CompactionPlan(FORMER, Position(8, 4), 7 + 500 + 11)
    assert plan.start == FORMER.horizon


@pytest.mark.parametrize(
    ("ledger_list", "last"),
    [
        (LedgerList(), NO_POSITION),
        (replace(OPEN, compaction=Compaction(Position(8, 4))), Position(8, 4)),
    ],
)
def test_there_is_nothing_to_compact_where_nothing_came(ledger_list: LedgerList, last: Position) -> None:
    assert plan_compaction(ledger_list, last, open_bytes=0) is None
