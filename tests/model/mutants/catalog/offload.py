"""Mutants of offload: when the list names a file, when the replicas go, and which files are deleted."""

from dataclasses import replace
from functools import partial
from typing import Any

from daybook_broker.topics import ledger_reads, offloaded_files
from daybook_broker.topics import reading as topic_reading

from daybook.core.topics import ledger_list, managed_ledger
from daybook.core.topics.offload import changes, plan
from daybook.offload import reading
from tests.model.mutants.registry import around, instead_of, mutant

by_test = partial(mutant, not_simulated="the simulator has no object store")

NAMED = "tests/unit/core/topics/offload/test_named.py"
PLAN = "tests/unit/core/topics/offload/test_plan.py"
BROKER = "tests/unit/broker/admin/test_offloads.py"
FILES = "tests/unit/offload/test_files.py"
RECORD = "tests/unit/core/topics/offload/test_record.py"


@by_test(70, f"{RECORD}::test_rule_70_a_file_is_named_before_the_replicas_go_and_stays_after_that")
@instead_of(ledger_list, "why_illegal")
def any_change_of_a_file_is_legal(_old: Any, _new: Any) -> None:
    """The list gives replicas up in the change that names the file, or forgets the only copy."""


@by_test(70, f"{NAMED}::test_rule_70_while_nobody_knows_whether_the_list_gave_replicas_up_they_stay")
@around(managed_ledger.ManagedLedger, "_begin_change")
def replicas_go_before_the_list_has_changed(begin: Any, self: Any, out: list[Any]) -> None:
    """The ledger is deleted while the change is under way."""
    begin(self, out)
    self._deletions.begin(self.orders.done(), out)


@by_test(70, f"{NAMED}::test_rule_70_replicas_go_by_a_change_of_their_own_and_entries_keep_their_positions")
@around(changes.OffloadsWritten, "applied")
def replicas_go_with_the_change_that_names_the_file(applied: Any, self: Any, current: Any) -> Any:
    """A file is the only copy from the moment at which it is named."""
    changed = applied(self, current)
    rows = [
        row if row == before else replace(row, offload=row.offload.without_replicas)
        for row, before in zip(changed.ledgers, current.ledgers, strict=True)
    ]
    return replace(changed, ledgers=tuple(rows))


@by_test(70, f"{NAMED}::test_rule_70_replicas_stay_if_the_list_names_another_file_than_the_one_that_was_read")
@instead_of(changes.ReplicasUnneeded, "applied")
def any_file_is_the_one_that_was_read(self: Any, current: Any) -> Any:
    """The owner gives the replicas up for whatever file the list names by now."""
    rows = [
        replace(row, offload=row.offload.without_replicas) if row.ledger_id in self.offloads else row
        for row in current.ledgers
    ]
    return replace(current, ledgers=tuple(rows))


@by_test(70, f"{NAMED}::test_rule_70_a_run_that_another_one_has_followed_names_nothing")
@around(changes.OffloadsWritten, "applied")
def a_slow_run_names_its_files(applied: Any, self: Any, current: Any) -> Any:
    """The list names files of a run after another one has begun, which may have deleted them."""
    return replace(applied(self, replace(current, offload_job=self.job)), offload_job=current.offload_job)


@by_test(70, f"{NAMED}::test_rule_70_a_file_is_named_only_for_the_ledger_that_was_copied")
@instead_of(changes, "check_unchanged")
def a_file_is_named_whatever_was_copied(_plan: Any, _found: Any) -> None:
    """The owner takes what a job has copied for granted."""


@by_test(70, f"{PLAN}::test_rule_70_replicas_are_due_once_the_list_names_the_file_and_the_lag_is_over")
@around(plan, "replicas_due")
def no_lag_is_kept(due: Any, ledgers: Any, _unix_ms: int) -> Any:
    """Replicas go as soon as the file is named."""
    return due(ledgers, 2**62)


@by_test(70, f"{PLAN}::test_rule_70_files_that_the_list_names_or_may_name_are_not_deleted")
@around(plan, "unnamed_files")
def files_of_a_later_run_are_deleted(unnamed: Any, ledgers: Any, job: str, found: Any, unix_ms: int) -> Any:
    """A run deletes what the list does not name, although another run has begun to write."""
    return unnamed(None if ledgers is None else replace(ledgers, offload_job=job), job, found, unix_ms)


@by_test(70, f"{PLAN}::test_rule_70_a_named_file_stays_however_the_folder_is_spelled")
@instead_of(plan, "name_of")
def files_are_known_by_their_whole_uri(place: str) -> str:
    """A run that gets the place with other options deletes what the list names."""
    return place


@by_test(70, f"{FILES}::test_rule_70_a_file_is_that_of_its_ledger_with_all_its_entries", slow=True)
@instead_of(reading.EntriesFile, "_check_ids")
def any_rows_are_those_of_the_ledger(self: Any, _number: int, _ids: Any) -> None:
    """A reader takes whatever is in a file for the entries that it asked for."""
    self.ledger_id = self._columns(0, ("ledger",))[0][0]


@by_test(70, f"{BROKER}::test_rule_70_the_owner_names_and_trusts_only_files_that_it_has_read", slow=True)
@instead_of(offloaded_files.OffloadedFiles, "check")
async def files_are_not_read_back(_self: Any, _place: str, _ledger_id: int, _written: Any) -> None:
    """The owner names a file, and makes it the only copy, by what a job says of it."""


@by_test(
    70, f"{BROKER}::test_rule_70_a_topic_is_read_byte_for_byte_from_files_and_a_lost_one_is_no_end", slow=True
)
@instead_of(ledger_reads.LedgerReads, "_explained")
async def a_lost_file_is_a_trimmed_ledger(_self: Any, _ledger_id: int, error: Any, _own: Any) -> Any:
    """Readers skip a ledger whose file is missing."""
    return ledger_reads.LedgerGoneError(str(error))


@by_test(
    70,
    f"{BROKER}::test_rule_70_a_superseded_owner_ends_and_skips_no_ledger_that_is_in_a_file_by_now",
    slow=True,
)
@instead_of(topic_reading.TopicReads, "_explain")
async def a_missing_ledger_is_a_trimmed_one(self: Any, position: Any, _error: Any) -> None:
    """An owner believes its own list: a ledger of it that is gone is skipped."""
    known = self._extent.ledger_list
    left = tuple(row for row in known.ledgers if row.ledger_id != position.ledger_id)
    self._extent.update(replace(known, ledgers=left))
