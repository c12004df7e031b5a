"""Mutants of compaction: what it keeps, and when the list names it."""

from dataclasses import replace
from functools import partial
from typing import Any

from daybook_broker.topics import compacted_reads, compaction
from daybook_spark.compact import kept as second_pass

from daybook.core.errors import DaybookError
from daybook.core.topics import list_orders, managed_ledger, unnamed
from daybook.core.topics.compaction import commit, keys
from daybook.core.topics.ledger_list import CompactedLedger, Position
from daybook.wire.pulsar import compacting
from tests.model.mutants.registry import around, instead_of, mutant

by_test = partial(mutant, not_simulated="the simulator's topics are not compacted")

READ = "tests/unit/broker/consuming/test_compacted.py"
KEYS = "tests/unit/core/topics/compaction/test_keys.py"
COMMIT = "tests/unit/core/topics/compaction/test_commit.py"
NAMED = "tests/unit/core/topics/test_compaction_named.py"


@by_test(41, f"{NAMED}::test_rule_41_while_nobody_knows_whether_the_horizon_is_stored_nothing_is_deleted")
@around(managed_ledger.ManagedLedger, "_begin_change")
def former_ledgers_go_before_the_list_has_changed(begin: Any, self: Any, out: list[Any]) -> None:
    """What the list named before is deleted while the change is under way."""
    begin(self, out)
    self._deletions.begin(self.orders.done(), out)


@by_test(41, f"{NAMED}::test_rule_41_former_compacted_ledgers_go_once_the_list_names_the_new_ones")
@instead_of(list_orders.ListOrders, "done")
def former_ledgers_stay(_self: Any) -> tuple[int, ...]:
    """What the list named before is never deleted."""
    return ()


@by_test(
    28, "tests/unit/core/topics/test_unnamed.py::test_rule_28_a_ledger_goes_only_if_nothing_can_ever_name_it"
)
@around(unnamed.TopicLedger, "of")
def a_compacted_ledger_is_one_of_messages(of: Any, metadata: Any) -> Any:
    """A ledger that a compaction has just written goes, because its id is below the newest of the list."""
    found = of(metadata)
    return None if found is None else replace(found, holds_messages=True)


@by_test(
    41,
    f"{READ}::test_rule_41_a_reader_receives_the_last_value_of_each_key_with_its_id_and_then_the_tail",
    slow=True,
)
@around(compacting, "encode_compacted")
def ids_are_renumbered(encode: Any, position: Position, data: Any, kept: Any) -> Any:
    """What a compaction leaves has other ids than it had."""
    return encode(Position(position.ledger_id, position.entry_id // 2), data, kept)


@by_test(
    41,
    "tests/unit/wire/pulsar/test_compacting.py::test_rule_41_what_a_job_removed_from_a_batch_that_a_broker_cannot_open_stays_removed",
)
@around(compacting, "encode_left")
def a_batch_that_cannot_be_opened_is_whole_again(
    encode: Any, position: Position, data: Any, _words: Any
) -> Any:
    """A compaction forgets what an earlier one removed from a batch that it cannot open."""
    return encode(position, data, ())


@by_test(41, f"{READ}::test_rule_41_a_compacted_ledger_that_is_missing_is_an_error_and_not_an_end", slow=True)
@instead_of(compacted_reads.CompactedReads, "last")
async def a_ledger_that_is_missing_is_an_empty_one(_self: Any) -> None:
    """A reader takes a compacted ledger that does not exist for one without entries."""


@by_test(41, f"{KEYS}::test_rule_41_what_stays_is_what_a_table_of_the_keys_would_have")
@around(keys.LastOfKeys, "kept")
def whole_batches_stay(kept: Any, self: Any, entry: Any) -> Any:
    """A batch of which a message stays keeps all its messages."""
    found = kept(self, entry)
    return tuple(True for _ in found) if any(found) else found


@by_test(
    41,
    "tests/unit/broker/admin/test_commits.py::test_rule_41_ledgers_that_are_not_what_the_job_says_are_not_named",
    slow=True,
)
@instead_of(compaction, "check_written")
async def the_horizon_of_a_job_comes_before_its_ledgers(_topic: Any, _commit: Any) -> None:
    """An owner names what a job says that it wrote, whether the ledgers are closed or not."""


@by_test(
    52,
    "tests/unit/broker/consuming/test_compaction_fails.py::test_rule_52_a_compaction_that_fails_at_any_step_names_nothing_and_the_next_one_does_all_of_it",
    slow=True,
)
@around(compaction._CompactedWriter, "close")
async def a_ledger_that_could_not_be_closed_is_named(close: Any, self: Any, horizon: Position) -> Any:
    """A compaction takes what it has written for persisted when the close of its ledger fails."""
    try:
        return await close(self, horizon)
    except DaybookError:
        return (CompactedLedger(self.handle.id, self.entries, self.size_bytes, horizon),)


@by_test(41, f"{COMMIT}::test_rule_41_a_plan_is_outdated_once_something_that_it_names_is_another")
@instead_of(commit, "planned_ledgers")
def a_plan_is_never_outdated(*_: Any) -> list[Any]:
    """An owner does not see that a ledger of a job's plan has changed or is gone."""
    return []


@by_test(
    41,
    "tests/unit/spark/test_compaction_places.py::test_rule_41_the_places_that_stay_tell_of_each_entry_what_the_core_tells",
    slow=True,
)
@around(second_pass.KeptPlaces, "kept")
def a_job_keeps_whole_batches(kept: Any, self: Any, number: Any, entry: Any) -> Any:
    """A task keeps all messages of a batch of which one stays."""
    found = kept(self, number, entry)
    return tuple(True for _ in found) if any(found) else found
