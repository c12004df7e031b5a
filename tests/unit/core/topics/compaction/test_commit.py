"""Which compactions that a job wrote an owner names: rule 38 and rule 41 of docs/protocol.md."""

from dataclasses import replace
from typing import Any

import pytest

from daybook.core.errors import MetadataError, PlanOutdatedError
from daybook.core.topics.compaction.commit import (
    CompactionCommit,
    FormerCompaction,
    check_commit,
    former_of,
    is_committed,
    planned_ledgers,
)
from daybook.core.topics.ledger_list import (
    CompactedLedger,
    Compaction,
    LedgerList,
    ListedLedger,
    ListState,
    Position,
)
from daybook.core.topics.trim_plan import PlannedLedger


def closed(ledger_id: int, entries: int) -> ListedLedger:
    return ListedLedger(ledger_id, 0, entries, 100 * entries, closed_at_ms=1)


FORMER = Compaction(Position(3, 1), (CompactedLedger(6, 1, 7, Position(3, 1)),))
LIST = LedgerList(
    ListState.OPEN,
    (closed(2, 4), closed(3, 2), closed(4, 0), closed(5, 3), ListedLedger(8, 0)),
    Position(5, 2),
    compaction=FORMER,
)
END = Position(8, 4)
"""Acknowledged in the open ledger."""


def commit(start: Compaction | None, horizon: Position, ledger_list: LedgerList = LIST) -> CompactionCommit:
    """What a job asks for that has compacted `ledger_list` from `start` on."""
    former = former_of(start)
    begin = Position(-1, -1) if former is None else former.horizon
    planned = tuple(
        PlannedLedger(each.ledger_id, each.entries, each.size_bytes)
        for each in planned_ledgers(ledger_list, begin, horizon)
    )
    return CompactionCommit(
        "job", former, planned, Compaction(horizon, (CompactedLedger(9, 2, 10, horizon),))
    )


def test_a_plan_has_the_ledgers_with_entries_behind_the_former_horizon_up_to_the_new_one() -> None:
    assert [plan.ledger_id for plan in commit(FORMER, END).planned] == [5, 8]
    assert [plan.ledger_id for plan in commit(FORMER, Position(5, 0)).planned] == [5]
    first = replace(LIST, compaction=None)
    assert [plan.ledger_id for plan in commit(None, END, first).planned] == [2, 3, 5, 8]


def test_rule_38_a_list_that_has_grown_is_no_reason_to_refuse() -> None:
    planned = commit(FORMER, END)
    check_commit(LIST, END, planned)
    rolled = replace(
        LIST, ledgers=(*LIST.ledgers[:-1], closed(8, 7), closed(11, 5)), state=ListState.CLOSED, last_confirmed=Position(11, 4)
    )  # fmt: skip
    check_commit(rolled, Position(11, 4), planned)
    trimmed = replace(rolled, ledgers=rolled.ledgers[2:])
    check_commit(trimmed, Position(11, 4), planned)


OTHER = replace(FORMER, ledgers=(replace(FORMER.ledgers[0], ledger_id=7),))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (replace(LIST, compaction=None), "is not compacted, by other"),
        (replace(LIST, compaction=OTHER), "is compacted up to 3:1, by other ledgers"),
        (replace(LIST, compaction=Compaction(Position(5, 0))), "is compacted up to 5:0, by other ledgers .* from 3:1 on"),
        (replace(LIST, ledgers=(*LIST.ledgers[:3], closed(5, 2), LIST.ledgers[-1])), "ledger 5 has 2 entries and 200 bytes, and the plan says 3 and 300"),
        (replace(LIST, ledgers=LIST.ledgers[-1:]), r"differ by the ledgers \[5\]"),
        (LedgerList(ListState.OPEN, (ListedLedger(12, 0),), Position(8, 9), compaction=FORMER), r"differ by the ledgers \[5, 8\]"),
        (replace(LIST, ledgers=(*LIST.ledgers[:-1], closed(8, 4)), state=ListState.CLOSED, last_confirmed=Position(8, 4)), "ledger 8 has 4 entries"),
    ],
)  # fmt: skip
def test_rule_41_a_plan_is_outdated_once_something_that_it_names_is_another(
    changed: LedgerList, text: str
) -> None:
    with pytest.raises(PlanOutdatedError, match=text):
        check_commit(changed, END, commit(FORMER, END))


def test_rule_41_a_first_compaction_takes_no_other_ones_place() -> None:
    with pytest.raises(PlanOutdatedError, match="compacted it from its beginning on"):
        check_commit(LIST, END, commit(None, END))


@pytest.mark.parametrize("horizon", [Position(8, 5), Position(3, 1)])
def test_rule_41_a_horizon_is_behind_the_former_one_and_acknowledged(horizon: Position) -> None:
    with pytest.raises(PlanOutdatedError, match=f"from 3:1 to {horizon}, and it ends at 8:4"):
        check_commit(LIST, END, commit(FORMER, horizon))


def test_rule_41_a_plan_leaves_no_ledger_out() -> None:
    planned = commit(FORMER, END)
    with pytest.raises(PlanOutdatedError, match=r"differ by the ledgers \[5\]"):
        check_commit(LIST, END, planned._replace(planned=planned.planned[1:]))


def test_a_request_that_was_carried_out_is_known_again() -> None:
    planned = commit(FORMER, END)
    assert not is_committed(LIST, planned)
    assert is_committed(replace(LIST, compaction=planned.written), planned)
    emptied = planned._replace(written=Compaction(END))
    assert not is_committed(replace(LIST, compaction=planned.written), emptied)


@pytest.mark.parametrize("start", [None, FORMER])
def test_a_commit_travels_as_json(start: Compaction | None) -> None:
    planned = commit(start, END)
    assert CompactionCommit.of(planned.record()) == planned


@pytest.mark.parametrize(
    "changes",
    [
        {"job": ""},
        {"job": 7},
        {"former": {"horizon": "3:1"}},
        {"former": {"horizon": "3", "ledgers": []}},
        {"planned": [{"ledgerId": "5", "entries": 1, "size": 1}]},
        {"planned": None},
        {"compaction": None},
        {"compaction": {"horizon": "8:4", "ledgers": [{"ledgerId": 9, "entries": 1, "size": 1, "through": "9:0"}]}},
    ],
)  # fmt: skip
def test_what_is_no_commit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MetadataError):
        CompactionCommit.of({**commit(FORMER, END).record(), **changes})


def test_the_former_compaction_is_named_by_its_horizon_and_its_ledgers() -> None:
    assert former_of(FORMER) == FormerCompaction(Position(3, 1), (6,))
