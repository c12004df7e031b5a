"""A task: what its reasons say, how it changes, how it is stored, and when it is due."""

import pytest

from daybook.core.errors import MetadataError
from daybook.core.repair.judgement import Findings, Reason
from daybook.core.repair.task import (
    BackOff,
    DueTimes,
    RepairTask,
    bookies_of,
    bookies_with,
    is_harmless,
    leaving_reason,
    reasons_of,
)
from tests.unit.core.repair.judgement_kit import audit, listing, successors, up
from tests.unit.core.repair.queue_kit import task_for
from tests.unit.core.repair.repair_model import Cluster, closed_ledger, open_ledger

YEAR_MS = 365 * 86_400_000
LONGEST_MS = 3_600_000
METADATA = closed_ledger(3, 3, 2, [(0, "abc")], 9)


def test_the_reasons_of_an_audit_name_each_bookie_that_a_worker_can_do_something_about() -> None:
    cluster = Cluster(METADATA)
    del cluster.bookies["b"].entries[4]
    found = audit(METADATA, Findings(up("bcd"), lost=frozenset("a"), listed=listing(cluster)))
    assert reasons_of(found) == ("gap b", "lost a")
    assert bookies_of(found) == ("a", "b")
    missing = audit(METADATA, Findings(up("bcd"), listed=listing(cluster)))
    assert reasons_of(missing) == ("gap b",), "a is away, but not for long"
    unfinished = open_ledger(3, 3, 2, [(0, "abc")]).in_recovery()
    assert reasons_of(audit(unfinished, Findings(up("abc")), grace_is_over=True)) == ("recover", "unfinished")
    assert bookies_of(audit(unfinished, Findings(up("abc")), grace_is_over=True)) == ()


def test_a_task_says_which_bookies_leave_and_whether_the_ledger_may_be_recovered() -> None:
    task = task_for(leaving_reason("a"), "gap b", "recover")
    assert (task.leaving, task.may_recover) == (frozenset("a"), True)
    assert bookies_with(Reason.GAP, task.reasons) == frozenset("b")
    assert not task_for("lost a").may_recover
    assert not task_for("lost a").is_unrecoverable
    assert task_for("lost a").set_aside(until_ms=1, why="unrecoverable: entry 4").is_unrecoverable


def test_reasons_are_harmless_while_every_entry_has_all_its_replicas() -> None:
    assert is_harmless(["leaving a", "misplaced b"])
    assert not is_harmless(["leaving a", "gap b"])
    assert not is_harmless(["a word of a later release"])


def test_rule_33_a_worker_examines_again_before_it_copies() -> None:
    found = audit(METADATA, Findings(up("ade"), lost=frozenset("bc")))
    task = task_for(*reasons_of(found))
    assert task.still_lost(frozenset("ade")) == frozenset("bc")
    back = up("abde")
    again = audit(METADATA, Findings(back, lost=task.still_lost(back.keys())))
    assert {old for _, old, _ in successors(again.plans)} == {"c"}
    missing_only = task_for(*reasons_of(audit(METADATA, Findings(up("ade"), lost=frozenset("b")))))
    assert missing_only.still_lost(frozenset("ade")) == frozenset("b"), "c is away, but not for long"


def test_a_task_is_outdated_when_one_of_its_reasons_no_longer_holds() -> None:
    cluster = Cluster(METADATA)
    sound = audit(METADATA, Findings(up("abc"), listed=listing(cluster)))
    assert task_for("gap b").is_outdated(sound)
    del cluster.bookies["b"].entries[4]
    gap = audit(METADATA, Findings(up("abc"), listed=listing(cluster)))
    assert not task_for("gap b").is_outdated(gap)
    assert task_for("gap b", "lost a").is_outdated(gap)
    unlisted = audit(METADATA, Findings(up("abc"), listed={}))
    assert not task_for("gap b").is_outdated(unlisted), "whoever lists nothing leaves it open"


def test_a_new_reason_makes_a_task_due_and_a_known_one_changes_nothing() -> None:
    aside = task_for("gap a").set_aside(until_ms=9_000, why="no spare")
    assert (aside.attempts, aside.not_before_ms, aside.why_not) == (1, 9_000, "no spare")
    assert aside.marked(task_for("gap a")) is aside
    both = aside.marked(task_for("lost b"))
    assert (both.reasons, both.bookies, both.since_ms) == (("gap a", "lost b"), ("a", "b"), 5)
    assert (both.attempts, both.not_before_ms, both.why_not) == (1, 0, "")
    free = aside.set_free()
    assert (free.attempts, free.not_before_ms, free.why_not) == (1, 0, "no spare")


def test_a_task_survives_its_json_and_no_other_bytes_are_one() -> None:
    task = RepairTask(7, ("gap b1", "lost b2"), ("b1", "b2"), 1, 2, 3, "no spare")
    stored = (
        b'{"formatVersion": 1, "reasons": ["gap b1", "lost b2"], "bookies": ["b1", "b2"], "sinceMs": 1, '
        b'"attempts": 2, "notBeforeMs": 3, "whyNot": "no spare"}'
    )
    assert task.to_json() == stored
    assert RepairTask.from_json(7, stored) == task
    for bad in (b"", b"[]", b"{}", stored.replace(b": 1,", b": 2,", 1), stored.replace(b": 2,", b': "x",')):
        with pytest.raises(MetadataError):
            RepairTask.from_json(7, bad)


# When a task that was set aside is due.


def test_rule_35_pauses_double_up_to_the_longest() -> None:
    back_off = BackOff(first_ms=1_000, max_ms=8_000)
    assert [back_off.pause_ms(failures) for failures in (1, 2, 3, 4, 5, 99)] == [
        1_000,
        2_000,
        4_000,
        8_000,
        8_000,
        8_000,
    ]


def aside(not_before_ms: int, ledger_id: int = 7) -> RepairTask:
    return RepairTask(ledger_id, ("gap b1",), ("b1",), 1, 3, not_before_ms, "no spare")


def test_a_stored_time_within_the_longest_back_off_is_kept_to() -> None:
    due_times = DueTimes(LONGEST_MS)
    for left_ms in (-5, 0, 1, LONGEST_MS):
        found = due_times.not_before_ms(aside(1_000_000 + left_ms), unix_ms=1_000_000, monotonic_ms=50)
        assert found == 1_000_000 + left_ms


def test_a_time_that_cannot_be_is_waited_for_from_when_it_was_first_seen() -> None:
    due_times, now_ms = DueTimes(LONGEST_MS), 5 * YEAR_MS
    task = aside(now_ms + YEAR_MS)
    for passed_ms in (0, 1_000, LONGEST_MS):
        due_ms = due_times.not_before_ms(task, unix_ms=now_ms + passed_ms, monotonic_ms=70 + passed_ms)
        assert due_ms == now_ms + LONGEST_MS
    stepped_back_ms = due_times.not_before_ms(task, unix_ms=now_ms - 9, monotonic_ms=70 + LONGEST_MS)
    assert stepped_back_ms == now_ms - 9, "due, whatever the wall clock does meanwhile"


def test_each_setback_is_waited_for_anew_so_that_wrong_clocks_make_no_haste() -> None:
    due_times, now_ms = DueTimes(LONGEST_MS), 5 * YEAR_MS
    for attempt in range(3):
        task = aside(now_ms + YEAR_MS + attempt)
        assert due_times.not_before_ms(task, unix_ms=now_ms, monotonic_ms=now_ms) == now_ms + LONGEST_MS
        now_ms += LONGEST_MS


def test_tasks_that_are_done_are_forgotten() -> None:
    due_times, now_ms = DueTimes(LONGEST_MS), 5 * YEAR_MS
    first, other = aside(now_ms + YEAR_MS, 1), aside(now_ms + YEAR_MS, 2)
    for task in (first, other):
        due_times.not_before_ms(task, unix_ms=now_ms, monotonic_ms=0)
    due_times.keep_only({2})
    later_ms = now_ms + 1_000
    assert due_times.not_before_ms(first, unix_ms=later_ms, monotonic_ms=1_000) == later_ms + LONGEST_MS
    assert due_times.not_before_ms(other, unix_ms=later_ms, monotonic_ms=1_000) == now_ms + LONGEST_MS
