"""Mutants of the backup of metadata."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.upkeep.gc import Collector
from daybook_operator.plan.pool import lost_disk
from daybook_spark.write import sweep

from daybook.core.effects import SendRead
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.recovery.elsewhere import Elsewhere
from daybook.metadata.backup import readmission, restore
from daybook.metadata.backup.readmission import Readmissions
from daybook.metadata.creation import read_counter
from daybook.metadata.store.tree_watch import TreeWatch
from tests.model.mutants.registry import around, mutant

by_test = partial(mutant, not_simulated="the simulator has no backup of its metadata")

SNAPSHOT = "tests/unit/metadata/backup/test_snapshot.py::"
RESTORE = "tests/unit/metadata/backup/test_restore.py::"
ELSEWHERE = "tests/unit/core/recovery/test_elsewhere.py::"
SWEEP = "tests/unit/spark/test_manifest_commit.py::"
DECOMMISSION = "tests/unit/autorecovery/test_decommission.py::"
READMISSION = "tests/unit/metadata/backup/test_readmission.py::"
HOLD = "tests/unit/bookie/upkeep/test_server_hold.py::"
LOST_DISKS = "tests/unit/operator/test_pool_bookies.py::"


@by_test(68, SNAPSHOT + "test_rule_68_what_changes_while_it_is_read_is_read_again_until_nothing_did")
def what_changes_while_an_export_reads_stays_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The export has one node from before a transaction and another one from after it."""
    monkeypatch.setattr(TreeWatch, "take", lambda self: [])


@by_test(68, RESTORE + "test_rule_68_a_restore_brings_back_all_but_the_counter_and_writers")
def an_unclosed_ledger_comes_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody attaches a ledger that had a writer since the export, and a recovery trusts its old ensemble."""
    monkeypatch.setattr(LedgerMetadata, "in_recovery", lambda self: self)


@by_test(68, RESTORE + "test_rule_68_no_ledger_begins_before_the_counter_is_above_all_that_bookies_hold")
def ids_continue_where_the_export_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of ledgers that began after the export are given out again."""
    finish: Callable[..., Any] = restore.finish

    async def without_bookies(store: Any, layout: Any, export: Any, *, highest_held: int) -> Any:
        return await finish(store, layout, export, highest_held=-1)

    monkeypatch.setattr("tests.unit.metadata.backup.test_restore.finish", without_bookies)


@by_test(68, RESTORE + "test_rule_68_a_restore_that_breaks_off_anywhere_holds_collection_and_has_no_identity")
def collection_is_held_once_all_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookies compare what they have with half of the metadata."""

    async def hold_nothing(*_: Any, **__: Any) -> None:
        return

    monkeypatch.setattr(restore, "begin_hold", hold_nothing)


@by_test(68, HOLD + "test_rule_68_nothing_is_collected_while_a_restore_is_not_confirmed", slow=True)
def bookies_collect_whatever_was_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie deletes the ledgers that began after the export."""
    monkeypatch.setattr(MetadataLink, "collection_hold", lambda self: None)


@by_test(68, HOLD + "test_rule_68_a_restore_that_begins_and_ends_during_a_cycle_stops_the_cycle", slow=True)
def a_cycle_asks_for_the_hold_only_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle judges by half of the metadata, and deletes after the restore."""
    collect: Callable[..., Any] = Collector.collect
    hold = MetadataLink.collection_hold

    def with_one_answer(self: Collector, **named: bool) -> Any:
        monkeypatch.setattr(MetadataLink, "collection_hold", cache(hold))
        return collect(self, **named)

    monkeypatch.setattr(Collector, "collect", with_one_answer)


@by_test(68, ELSEWHERE + "test_rule_68_an_entry_that_lies_elsewhere_refuses_the_close")
def a_recovery_trusts_restored_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bookies of the old ensemble have no more, so the ledger ends there."""
    monkeypatch.setattr(Elsewhere, "refusal", lambda self: "")


@by_test(68, ELSEWHERE + "test_rule_68_bookies_that_cannot_say_so_refuse_the_close")
@around(Elsewhere, "refusal")
def a_bookie_that_does_not_answer_has_nothing(refusal: Callable[[Elsewhere], str], self: Elsewhere) -> str:
    """What is silent counts as an explicit "not found"."""
    self.silent.clear()
    return refusal(self)


@by_test(68, ELSEWHERE + "test_a_search_fences_those_who_are_asked")
@around(Elsewhere, "start")
def a_search_only_reads(start: Callable[[Elsewhere], list[SendRead]], self: Elsewhere) -> list[SendRead]:
    """A writer that lives on acknowledges entries elsewhere after the close."""
    return [replace(read, fence=False) for read in start(self)]


@by_test(68, SWEEP + "test_rule_68_nothing_is_swept_after_a_restore_that_no_person_confirmed")
def a_sweep_trusts_restored_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """It deletes what a job committed after the export."""

    async def always_fine(*_: Any) -> None:
        return

    monkeypatch.setattr(sweep, "check_not_held", always_fine)


@by_test(68, DECOMMISSION + "test_rule_68_after_a_restore_no_bookie_is_forgotten_before_a_person_confirms")
def a_decommission_trusts_restored_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disks of a bookie are emptied that alone has what the metadata does not name it for."""

    async def always_fine(*_: Any) -> None:
        return

    monkeypatch.setattr("daybook.metadata.bookies.check_not_held", always_fine)


@by_test(68, LOST_DISKS + "test_rule_68_a_bookie_that_restored_metadata_does_not_know_keeps_its_disks")
@around(lost_disk, "lost_disk_step")
def the_operator_empties_whom_the_restore_forgot(step: Callable[..., Any], pool: Any) -> Any:
    """It replaces a bookie that has no cookie and that no ledger names, although both say only how old the export is."""
    return step(replace(pool, cluster=replace(pool.cluster, collection_held=False)))


@by_test(68, READMISSION + "test_rule_68_no_ledger_begins_between_a_readmission_and_the_bookies_answer")
def ledgers_begin_while_a_bookie_is_readmitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new ledger gets the id of one that lies on the bookie's disks."""

    async def only_the_cookie(self: Any, planned: Any) -> None:
        await self._store.create(self._layout.cookie(planned.cookie.bookie), planned.cookie.to_json())

    monkeypatch.setattr(Readmissions, "begin", only_the_cookie)


@by_test(68, READMISSION + "test_rule_68_a_recovery_asks_the_readmitted_bookie_before_it_closes")
@around(Readmissions, "check")
async def a_recovery_does_not_ask_whom_the_export_lacks(check: Any, self: Any, cookie: Any) -> Any:
    """A ledger whose writer moved to younger bookies alone is closed before what they acknowledged."""
    return replace(await check(self, cookie), unclosed=())


@by_test(68, READMISSION + "test_rule_68_once_a_ledger_has_begun_nobody_is_readmitted")
@around(readmission, "read_hold")
async def ids_that_were_given_out_again_do_not_count(read_hold: Any, store: Any, layout: Any) -> Any:
    """A readmission looks at the counter of now alone, and the bookie has other ledgers of the same ids."""
    hold, counter = await read_hold(store, layout), await read_counter(store, layout)
    return replace(hold, next_id=counter.value)


@by_test(68, READMISSION + "test_rule_68_disks_that_may_lack_what_the_metadata_names_them_for_are_refused")
def whoever_the_metadata_names_is_readmitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie honestly answers "not found" for what its metadata says it has."""
    monkeypatch.setattr(LedgerMetadata, "bookies", lambda self: frozenset())
