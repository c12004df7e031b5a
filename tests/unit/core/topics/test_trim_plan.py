"""Which trims that jobs planned an owner carries out: rule 38 and rule 51 of docs/protocol.md."""

from dataclasses import replace

import pytest

from daybook.core.errors import DaybookError, LedgersNeededError, PlanOutdatedError
from daybook.core.topics import trim_plan
from daybook.core.topics.ledger_list import Compaction, LedgerList, ListedLedger, ListState, Position
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.core.topics.trimming import Retention, trimmed

NOW_MS = 10_000


def closed(ledger_id: int, entries: int, ended_ms: int) -> ListedLedger:
    return ListedLedger(
        ledger_id, 0, entries, 100 * entries, closed_at_ms=ended_ms, last_published_at_ms=ended_ms
    )


LEDGERS = (closed(3, 2, 1_000), closed(4, 0, 2_000), closed(6, 3, 9_000))
LIST = LedgerList(ListState.OPEN, (*LEDGERS, ListedLedger(8, 0)), Position(6, 2))
PLANNED = [PlannedLedger(each.ledger_id, each.entries, each.size_bytes) for each in LEDGERS]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_rule_51_a_planned_trim_drops_the_planned_ledgers_and_no_others(count: int) -> None:
    marks = {"s": Position(8, 5), "t": Position(6, 2)}
    end = trim_plan.check_plan(LIST, PLANNED[:count][::-1], marks, Retention(), NOW_MS)
    assert trimmed(LIST, (*marks.values(), end), Retention(), NOW_MS) == count


def test_rule_38_a_plan_is_outdated_only_by_a_change_of_a_ledger_that_it_names() -> None:
    later = replace(
        LIST,
        ledgers=(*LEDGERS, closed(8, 7, 9_500), ListedLedger(9, 0)),
        last_confirmed=Position(8, 6),
        owner_token="another",
    )
    assert trim_plan.check_plan(later, PLANNED[:2], {}, Retention(), NOW_MS) == Position(4, -1)
    for plan in (
        [PlannedLedger(2, 1, 100), *PLANNED],
        [PLANNED[0]._replace(entries=1)],
        [PLANNED[0], PLANNED[1]._replace(size_bytes=1)],
    ):
        with pytest.raises(PlanOutdatedError, match="plan again"):
            trim_plan.check_plan(later, plan, {}, Retention(), NOW_MS)


@pytest.mark.parametrize(
    ("plan", "marks", "retention", "text"),
    [
        (PLANNED, {"a": Position(8, 0), "s": Position(6, 1)}, Retention(), "'s' has acknowledged up to 6:1 and needs ledger 6"),
        (PLANNED, {"s": Position(-1, -1)}, Retention(), "needs ledger 3, which ends at 3:1"),
        (PLANNED[1:], {}, Retention(), "ledger 3 comes before ledger 6"),
        ([PLANNED[0], PLANNED[2]], {}, Retention(), "ledger 4 comes before ledger 6"),
        (PLANNED, {}, Retention(8_000), "keeps messages of 8000 ms, and so ledger 6, with which the topic has 300 bytes"),
        (PLANNED, {}, Retention(None, None), "keeps everything, and so ledger 3"),
        (PLANNED, {}, Retention(None, 400), "keeps 400 bytes, and so ledger 4"),
        ([PlannedLedger(8, 0, 0)], {}, Retention(), "ledger 8 is being written: leave it out"),
    ],
)  # fmt: skip
def test_rule_51_a_ledger_that_stays_is_explained(
    plan: list[PlannedLedger], marks: dict[str, Position], retention: Retention, text: str
) -> None:
    with pytest.raises(LedgersNeededError, match=text):
        trim_plan.check_plan(LIST, plan, marks, retention, NOW_MS)


def test_rule_51_what_is_not_compacted_stays_in_a_topic_that_is_compacted() -> None:
    compacted = replace(LIST, compaction=Compaction(Position(6, 1)))
    assert trim_plan.check_plan(compacted, PLANNED[:2], {}, Retention(), NOW_MS) == Position(4, -1)
    with pytest.raises(LedgersNeededError, match=r"compacted up to 6:1, .* ends at 6:2: compact"):
        trim_plan.check_plan(compacted, PLANNED, {}, Retention(), NOW_MS)


def test_a_topic_without_ledgers_refuses_every_plan() -> None:
    with pytest.raises(DaybookError, match="no ledger 3 any more"):
        trim_plan.check_plan(LedgerList(), PLANNED, {}, Retention(), NOW_MS)
