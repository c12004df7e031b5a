"""Which ledgers a job copies, whose replicas can go, and which files nobody names (rule 70, rule 73)."""

from dataclasses import replace

import pytest

from daybook.core.topics.ledger_list import ListedLedger
from daybook.core.topics.offload.plan import OffloadLimits, plan_offload, replicas_due, unnamed_files
from tests.unit.core.topics.lists import open_list
from tests.unit.core.topics.offload.kit import (
    JOB,
    LAG_MS,
    LATER_JOB,
    NOW_MS,
    offload,
    offloaded_list,
    place,
)


def ids(ledgers: list[ListedLedger]) -> list[int]:
    return [ledger.ledger_id for ledger in ledgers]


def test_closed_ledgers_with_entries_and_without_a_file_are_copied() -> None:
    assert ids(plan_offload(open_list((3, 10), (4, 0), (5, 1), open_id=6), OffloadLimits(), 2)) == [3, 5]
    assert ids(plan_offload(offloaded_list({3: offload(3, 10), 4: None}), OffloadLimits(), 2)) == [4]


@pytest.mark.parametrize(
    ("keep_bytes", "chosen"), [(0, [4, 5]), (99, [4, 5]), (100, [4]), (200, []), (999, [])]
)
def test_the_newest_ledgers_up_to_a_size_stay(keep_bytes: int, chosen: list[int]) -> None:
    found = offloaded_list({3: offload(3, 10), 4: None, 5: None})
    found = replace(found, ledgers=tuple(replace(ledger, size_bytes=100) for ledger in found.ledgers))
    assert ids(plan_offload(found, OffloadLimits(keep_bytes=keep_bytes), 2)) == chosen


def test_ledgers_that_were_closed_lately_stay() -> None:
    found = offloaded_list({3: None, 4: None})
    late = replace(found.ledgers[1], closed_at_ms=NOW_MS)
    found = replace(found, ledgers=(found.ledgers[0], late))
    assert ids(plan_offload(found, OffloadLimits(keep_ms=1_000), NOW_MS + 999)) == [3]
    assert ids(plan_offload(found, OffloadLimits(keep_ms=1_000), NOW_MS + 1_000)) == [3, 4]


def test_rule_70_replicas_are_due_once_the_list_names_the_file_and_the_lag_is_over() -> None:
    for_ever = offload(6, 10, until_ms=None)
    found = offloaded_list({3: None, 4: offload(4, 10), 5: offload(5, 10).without_replicas, 6: for_ever})
    assert replicas_due(found, NOW_MS + LAG_MS - 1) == {}
    assert replicas_due(found, NOW_MS + LAG_MS) == {4: offload(4, 10)}


def test_rule_70_files_that_the_list_names_or_may_name_are_not_deleted() -> None:
    found = offloaded_list({3: offload(3, 10), 4: None}, job=LATER_JOB)
    places = [place(3), place(4), place(4, LATER_JOB), place(2)]
    assert unnamed_files(found, LATER_JOB, places, NOW_MS) == [place(2), place(4)]
    assert unnamed_files(found, JOB, places, NOW_MS) == [], "another run has begun, whose files these may be"


def test_rule_73_files_of_a_topic_that_was_deleted_are_left_to_a_retention() -> None:
    """A restore of the metadata may bring back a list that names them: only the grace of a retention takes them away."""
    assert unnamed_files(None, LATER_JOB, [place(3), place(4, LATER_JOB)], NOW_MS) == []


@pytest.mark.parametrize(
    ("folder", "options"),
    [("file:///cold", "?region=a&scheme=https"), ("file:///cold/", ""), ("s3://other/cold", "?region=a")],
)
def test_rule_70_a_named_file_stays_however_the_folder_is_spelled(folder: str, options: str) -> None:
    """A run may get the place with other options than the run that wrote the file, which may be the only copy."""
    found = offloaded_list({3: offload(3, 10).without_replicas, 4: None}, job=LATER_JOB)
    named, left = (place(ledger_id, folder=folder, options=options) for ledger_id in (3, 2))
    assert unnamed_files(found, LATER_JOB, [named, left], NOW_MS) == [left]
