"""Mutants of the restore of offloaded ledgers: what the owner names, what is read, and what is deleted."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from daybook_broker.topics import ledger_reads, offloads
from daybook_spark.jobs import restore_topic, restoring

from daybook.core.topics import ledger_list
from daybook.core.topics.offload import changes, plan
from daybook.core.topics.offload import restore as core
from daybook.offload.store import delete_file
from tests.model.mutants.registry import around, instead_of, mutant

by_test = partial(mutant, not_simulated="the simulator has no object store")

CORE = "tests/unit/core/topics/offload/test_restore.py"
BROKER = "tests/unit/broker/admin/test_restores.py"
TOPIC = "tests/unit/spark/test_restore_topic.py"
JOB = "tests/unit/spark/test_restore.py"


@by_test(
    72, f"{CORE}::test_rule_72_a_ledger_has_its_entries_where_it_had_them_unless_a_copy_replaces_its_file"
)
@instead_of(ledger_list, "why_illegal")
def a_copy_may_replace_anything(_old: Any, _new: Any) -> None:
    """The list names another ledger for entries that have replicas, or forgets the copy that has them."""


@by_test(72, f"{CORE}::test_rule_72_a_copy_takes_the_place_of_the_file_alone_that_it_was_planned_on")
@instead_of(core, "is_planned")
def a_copy_of_any_file_is_named(row: Any, _restored: Any) -> bool:
    """The owner names a copy whatever has become of the row since the job has planned."""
    return not row.is_open


@by_test(72, f"{CORE}::test_rule_72_an_answer_that_was_lost_is_known_by_the_copy_whatever_came_after_it")
@around(core, "is_restored")
def a_copy_is_unknown_once_there_is_a_file_again(is_restored: Any, row: Any, restored: Any) -> bool:
    """The owner refuses a request that it has carried out, although the list names the copy."""
    return row.offload is None and bool(is_restored(row, restored))


@by_test(72, f"{CORE}::test_rule_72_bookies_keep_the_copy_and_earlier_releases_refuse_the_list")
def copies_are_not_named(patch: pytest.MonkeyPatch) -> None:
    """The ledgers of a list are those of its rows, so somebody deletes the copies."""
    patch.setattr(ledger_list.LedgerList, "named_ids", property(lambda self: self.ids | self.compacted_ids))


@by_test(72, f"{CORE}::test_rule_72_bookies_keep_the_copy_and_earlier_releases_refuse_the_list")
def earlier_releases_read_lists_with_copies(patch: pytest.MonkeyPatch) -> None:
    """A release that knows no copies finds no ledger of the row's id, and skips it as one that was trimmed."""
    patch.setattr(ledger_list, "FORMAT_WITH_COPIES", ledger_list.FORMAT_WITHOUT_REPLICAS)


@by_test(72, f"{CORE}::test_rule_72_the_file_of_a_restored_ledger_stays_for_its_lag")
@around(plan, "unnamed_files")
def files_of_restored_ledgers_go_at_once(
    unnamed: Any, ledgers: Any, job: str, found: Any, _unix_ms: int
) -> Any:
    """A run deletes the file as soon as the list names the copy."""
    return unnamed(ledgers, job, found, 2**62)


@by_test(72, f"{CORE}::test_rule_72_a_former_file_stays_for_its_lag_also_once_another_one_is_the_only_copy")
@around(changes.ReplicasUnneeded, "applied")
def another_offload_forgets_the_former_file(applied: Any, self: Any, current: Any) -> Any:
    """A run deletes the file that a backup of the metadata has as the only copy, before its lag is over."""
    changed = applied(self, current)
    rows = [row if row.has_replicas else replace(row, restored=None) for row in changed.ledgers]
    return replace(changed, ledgers=tuple(rows))


@by_test(72, f"{CORE}::test_rule_72_a_ledger_is_not_restored_from_another_file_before_the_former_one_may_go")
@instead_of(core, "former_file")
def another_restore_forgets_the_former_file(_row: Any, _unix_ms: int) -> None:
    """The row names the last one of two files that have to stay."""


@by_test(
    72,
    f"{BROKER}::test_rule_72_the_owner_names_only_what_is_a_copy_and_only_in_place_of_the_file_of_the_plan",
    slow=True,
)
@instead_of(offloads, "check_copies")
async def any_ledger_is_a_copy(_topic: Any, _restored: Any) -> None:
    """The owner takes what a job says of a copy for granted."""


@by_test(
    72,
    f"{BROKER}::test_rule_72_restored_ledgers_are_read_under_their_own_ids_and_their_copies_go_with_them",
    slow=True,
)
@around(ledger_reads.LedgerReads, "_explained")
async def a_lost_copy_is_a_trimmed_ledger(
    explained: Any, self: Any, ledger_id: int, error: Any, _own: Any
) -> Any:
    """Readers skip a ledger whose copy cannot be read."""
    return await explained(self, ledger_id, error, lambda _: None)


@by_test(72, f"{JOB}::test_rule_72_a_copy_that_is_not_what_the_file_has_is_no_copy", slow=True)
@instead_of(restoring, "_check")
def copies_are_not_read_back(_asked: Any, _client: Any, _copy: int) -> None:
    """A copy is whole because it was written."""


@by_test(
    72,
    f"{TOPIC}::test_rule_72_a_copy_that_the_owner_was_asked_to_name_is_not_deleted_whatever_it_answers",
    slow=True,
)
@around(restore_topic._TopicRun, "_explain")
async def copies_that_an_owner_refuses_are_deleted(explain: Any, self: Any, *arguments: Any) -> None:
    """An owner that has refused, or did not answer, will not name the copy."""
    await explain(self, *arguments)
    self.asked.clear()


@by_test(
    72,
    f"{TOPIC}::test_rule_72_killed_before_or_after_each_of_its_steps_and_run_again_the_result_is_the_same",
    slow=True,
)
@around(restore_topic, "restore_topic")
async def files_go_before_the_copies_are_named(
    restore: Any, client: Any, admin: Any, name: Any, job: str, settings: Any, copy: Any
) -> Any:
    """The files of what is copied are deleted while the list still names them."""

    def copied(asked: Any) -> Any:
        for each in asked:
            delete_file(each.place)
        return copy(asked)

    return await restore(client, admin, name, job, settings, copied)
