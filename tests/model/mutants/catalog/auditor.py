"""Rules of the auditor, taken out one at a time."""

import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import pytest

from daybook.core.audit.auditor import Auditor
from daybook.core.audit.lost_bookies import GracePeriods, LostBookies
from daybook.core.audit.pace import PacedReads
from daybook.core.bookie.over_replicated import OverReplicatedRemoval
from daybook.core.bookie.watch import Watch
from daybook.core.events import CasOutcome
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import NO_ENTRY, BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policies import SpreadPolicy
from daybook.core.repair import judgement
from daybook.core.repair.judgement import Findings, LedgerAudit, LedgerJudge, OpenAction
from daybook.core.repair.task import BackOff, RepairTask
from tests.model.mutants.catalog.swarms import (
    LATE_WORKERS,
    NO_SPARES,
    READ_ONLY,
    REPAIRS,
    SIMPLE_DISKS,
    SWITCHED_OFF,
)
from tests.model.mutants.registry import around, instead_of, mutant
from tests.model.sim.bookie_gc import Collector
from tests.model.sim.metadata_model import Versioned

_AUDITOR = "tests/unit/core/audit/test_auditor.py::"
_LOST = "tests/unit/core/audit/test_lost_bookies.py::"
_LEDGER = "tests/unit/core/repair/test_judgement.py::"
_OVER_REPLICATED = "tests/unit/core/bookie/test_over_replicated.py::"
_PACE = "tests/unit/core/audit/test_pace.py::"
_TASK = "tests/unit/core/repair/test_task.py::"
_WORK = "tests/unit/core/repair/test_work.py::"


@mutant(31, f"{_AUDITOR}test_rule_31_the_auditor_counts_the_grace_period_over_its_cycles")
def open_fragments_get_no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is about to change its ensemble is fenced at once."""
    monkeypatch.setattr(GracePeriods, "is_over", lambda self, ledger_id, fragment, now_ms: True)


@mutant(
    31,
    f"{_LEDGER}test_rule_31_a_lost_bookie_without_a_replacement_leaves_the_writer_alone",
    swarm=SIMPLE_DISKS,
)
@around(LedgerJudge, "audit")
def writers_are_fenced_without_a_spare(
    audit: Callable[..., LedgerAudit], self: LedgerJudge, *read: Any, grace_is_over: bool
) -> LedgerAudit:
    """An open ledger is recovered although its writer would find no bookie to continue with."""
    found = audit(self, *read, grace_is_over=grace_is_over)
    if found.open_action is not OpenAction.LEAVE:
        return found
    return replace(found, open_action=OpenAction.RECOVER if grace_is_over else OpenAction.WAIT)


@mutant(
    29,
    f"{_LEDGER}test_rule_29_an_open_ledger_is_closed_with_the_bookie_in_limbo_where_nobody_else_could_take_its_place",
    swarm=NO_SPARES,
)
def limbo_of_open_ledgers_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open ledger without a writer waits for a replacement, which may never come, and the mark with it."""
    monkeypatch.setattr(judgement, "covers_every_write_set", lambda *_: False)


@mutant(
    29,
    f"{_LEDGER}test_rule_29_an_open_ledger_keeps_its_mark_while_its_last_fragment_names_the_bookie",
    not_simulated="seeds are judged once their ledgers are closed, and a close ends the mark, too",
)
def limbo_of_former_fragments_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open ledger that continues without the bookie keeps its mark until somebody closes it."""
    monkeypatch.setattr(judgement, "may_end_limbo", lambda metadata, bookie: metadata.is_closed)


@mutant(
    29,
    f"{_LEDGER}test_rule_29_two_of_three_in_limbo_leave_a_writer_alone_because_nobody_could_say_where_it_ends",
    swarm=NO_SPARES,
)
def writers_are_fenced_though_nobody_can_vouch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery is begun that cannot come to its end, and the writer is stopped for nothing."""
    monkeypatch.setattr(judgement, "covers_every_write_set", lambda *_: True)


@mutant(33, f"{_LOST}test_rule_33_a_rolling_restart_loses_no_bookie")
@around(LostBookies, "observe")
def bookies_are_lost_at_once(observe: Callable[..., None], self: LostBookies, *listing: Any) -> None:
    """A bookie that is missing from one listing is lost."""
    self.delay_ms = 0
    observe(self, *listing)


@mutant(33, f"{_LOST}test_rule_33_a_read_only_bookie_is_not_lost", swarm=READ_ONLY)
@around(LostBookies, "observe")
def read_only_bookies_are_lost(
    observe: Any,
    self: LostBookies,
    now_ms: int,
    writable: AbstractSet[BookieId],
    read_only: AbstractSet[BookieId],
) -> None:
    """Only the list of writable bookies counts."""
    observe(self, now_ms, writable, frozenset())


@mutant(33, f"{_TASK}test_rule_33_a_worker_examines_again_before_it_copies")
def workers_trust_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker copies the ledgers of a bookie that has come back meanwhile."""
    still_lost = RepairTask.still_lost
    monkeypatch.setattr(RepairTask, "still_lost", lambda self, registered: still_lost(self, frozenset()))


@mutant(33, f"{_LOST}test_rule_33_auto_recovery_can_be_turned_off_for_all", swarm=SWITCHED_OFF)
def the_global_switch_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookies are lost although auto-recovery is turned off."""
    monkeypatch.setattr(LostBookies, "set_enabled", lambda self, *, enabled: None)


@mutant(35, f"{_TASK}test_rule_35_pauses_double_up_to_the_longest")
def failed_ledgers_are_tried_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that cannot be repaired is tried again and again."""
    monkeypatch.setattr(BackOff, "pause_ms", lambda self, failures: 0)


@mutant(35, f"{_WORK}test_rule_35_a_failed_repair_is_set_aside_for_a_time_that_doubles")
@instead_of(RepairTask, "set_aside")
def failed_ledgers_are_due_at_once(self: RepairTask, *, until_ms: int, why: str) -> RepairTask:
    """The task of a ledger whose repair failed is stored as one that is due."""
    return self


@mutant(
    35,
    f"{_WORK}test_rule_35_a_task_that_another_worker_set_aside_since_it_was_found_is_left_alone",
    swarm=LATE_WORKERS,
)
def tasks_are_tried_by_all_who_found_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker tries a ledger that another worker has just failed to repair."""
    monkeypatch.setattr(RepairTask, "was_set_aside_since", lambda self, found: False)


@mutant(
    35,
    f"{_AUDITOR}test_rule_35_a_newcomer_is_remembered_until_a_cycle_has_ended_that_could_set_tasks_free",
    not_simulated="no check of the simulator limits how long a task waits",
)
@around(Auditor, "begin")
def newcomers_are_forgotten_when_a_cycle_begins(
    begin: Callable[..., None], self: Auditor, *cycle: Any
) -> None:
    """If the cycle breaks off, what waited for the bookie that came waits for its whole pause."""
    begin(self, *cycle)
    self._unheeded = False


@mutant(36, f"{_LEDGER}test_rule_36_a_fragment_that_lost_its_rack_spread_is_moved_once_the_rack_is_back")
def misplaced_fragments_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a recovery put into one rack stays there."""
    monkeypatch.setattr(SpreadPolicy, "least_misplacement", lambda self, *_: (math.inf,))


@mutant(37, f"{_PACE}test_rule_37_fifty_thousand_ledgers_are_read_at_the_pace_of_the_metadata_store")
@around(PacedReads, "__init__")
def metadata_is_read_without_a_pace(
    init: Callable[..., None], self: PacedReads, per_second: int, in_flight_max: int
) -> None:
    """Only the reads in flight are limited, so the metadata store is kept busy for as long as a cycle lasts."""
    init(self, 1_000_000 * per_second, in_flight_max)


@mutant(45, f"{_LEDGER}test_rule_45_open_fragments_count_as_replicated_up_to_their_lac")
@around(LedgerJudge, "audit")
def open_fragments_always_count_as_replicated(
    audit: Callable[..., LedgerAudit],
    self: LedgerJudge,
    metadata: LedgerMetadata,
    findings: Findings,
    **named: bool,
) -> LedgerAudit:
    """What a bookie of an open fragment lacks below the LAC is not looked at."""
    return audit(self, metadata, replace(findings, last_add_confirmed=NO_ENTRY), **named)


@mutant(
    45,
    "tests/unit/autorecovery/test_second_look.py::test_rule_45_a_full_audit_beside_a_writer_counts_what_is_missing_in_two_listings",
    not_simulated="the simulator's auditor looks once, and calls nothing replicated while a writer writes",
)
def gaps_of_live_writers_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a writer is about to give to its slowest bookie is told as missing."""
    monkeypatch.setattr(LedgerJudge, "has_open_gap", lambda self, *_: False)


@mutant(
    47,
    f"{_AUDITOR}test_rule_47_a_quick_cycle_finds_the_gap_in_an_ended_fragment_of_an_open_ledger",
    not_simulated="the simulator's auditor has full cycles alone",
)
def open_ledgers_wait_for_a_full_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick cycle leaves the ended fragments of open ledgers to the next full one, a day later."""
    monkeypatch.setattr(
        "daybook.core.audit.cycle_judge._has_fragment_with_end", lambda metadata: metadata.is_closed
    )


@mutant(47, f"{_LEDGER}test_rule_47_one_missing_entry_in_the_middle_is_found")
@around(judgement, "owed_by")
def gap_checks_look_at_first_and_last(
    owed_by: Callable[..., IntervalSet], metadata: LedgerMetadata, index: int, position: int
) -> IntervalSet:
    """A bookie that has the first and the last entry that it owes is believed to have the rest."""
    ends = IntervalSet()
    for interval in owed_by(metadata, index, position):
        ends.add_ids(sorted({interval.first, interval.last}))
    return ends


@mutant(
    47,
    f"{_OVER_REPLICATED}test_rule_47_a_removal_beside_a_repair_that_names_the_bookie_again_loses_nothing",
    swarm=REPAIRS,
)
@around(OverReplicatedRemoval, "may_remove")
def removal_overlooks_new_adds(may_remove: Callable[..., bool], self: OverReplicatedRemoval) -> bool:
    """A bookie removes replicas that a repair has just copied to it."""
    return may_remove(replace(self, watch=Watch(self.watch.ledger_id)))


@mutant(
    47, f"{_OVER_REPLICATED}test_rule_47_a_removal_beside_a_repair_that_names_the_bookie_again_loses_nothing"
)
def removal_raises_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie removes replicas without the compare-and-set that a repair would notice."""
    monkeypatch.setattr(OverReplicatedRemoval, "may_remove", lambda self: not self.watch.changes)
    read = Collector.read_for_removal

    def without_raise(self: Collector, removal: OverReplicatedRemoval, answer: object) -> None:
        if isinstance(answer, Versioned):
            listed = self._bookie.removable(removal.watch.ledger_id)
            removal.metadata_read(answer.metadata, answer.version, listed)
            self.raised(removal, (CasOutcome.DONE, answer.version + 1))
        else:
            read(self, removal, answer)

    monkeypatch.setattr(Collector, "read_for_removal", without_raise)
