"""Rules of the auditor's and the workers' processes, taken out one at a time; tests/model/mutants/catalog/auditor.py has the core's."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from daybook.autorecovery.asked import AskedOrder
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.guard import Guarded
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.audit.auditor import Auditor, AuditorPolicy
from daybook.core.audit.cycle import CycleScope
from daybook.core.effects import Effect
from daybook.core.ids import LedgerId
from daybook.core.repair.order import TaskOrder
from daybook.core.repair.task import BackOff, DueTimes
from daybook.metadata.lease import Lease
from daybook.metadata.tasks import RepairTasks
from tests.model.mutants.catalog.swarms import REPAIRS
from tests.model.mutants.registry import around, instead_of, mutant

_PROCESS = "it is in the auditor's and the workers' processes; the simulator runs the core's machines alone"
by_slow_test = partial(mutant, slow=True, not_simulated=_PROCESS)
by_test = partial(mutant, not_simulated=_PROCESS)

_WORKER = "tests/unit/autorecovery/test_worker.py"
_AUDITOR = "tests/unit/autorecovery/test_auditor.py"


@by_test(31, f"{_WORKER}::test_rule_31_an_open_ledger_is_closed_after_its_grace_period_and_never_copied_open")
def workers_fence_without_the_auditors_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker recovers an open ledger that the auditor has not watched for a grace period."""
    monkeypatch.setattr(TaskOrder, "grace_is_over", lambda self, metadata, now_ms: True)


@by_test(31, f"{_WORKER}::test_rule_31_who_asks_by_id_waits_out_the_grace_period")
def asking_by_id_fences_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who names a ledger has it fenced without a grace period."""
    monkeypatch.setattr(AskedOrder, "grace_is_over", lambda self, metadata, now_ms: True)


@mutant(
    33, f"{_WORKER}::test_rule_33_a_bookie_that_is_merely_away_is_not_taken_for_the_lost_one", swarm=REPAIRS
)
def workers_take_every_absent_bookie_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that restarts while a worker looks loses its replicas."""
    monkeypatch.setattr(
        TaskOrder, "lost", lambda self, metadata, registered, now_ms: metadata.bookies() - registered.keys()
    )


@by_test(33, f"{_AUDITOR}::test_rule_33_a_bookie_that_returns_during_a_cycle_is_not_lost_for_the_rest_of_it")
@instead_of(AuditCycles, "observe_always")
async def bookies_are_observed_between_cycles_only(self: AuditCycles) -> None:
    """What was found at the beginning of a round holds to its end."""
    return


@by_test(33, f"{_WORKER}::test_rule_33_a_switch_thrown_during_a_repair_stops_it_after_the_fragment")
@instead_of(RepairTasks, "watch_disabled")
async def the_switch_is_read_before_the_work_only(_self: RepairTasks) -> AsyncIterator[bool]:
    """A worker that has begun goes through all its ledgers although repair is switched off."""
    never: tuple[bool, ...] = ()
    for disabled in never:
        yield disabled


@by_test(34, f"{_WORKER}::test_rule_34_a_worker_that_lost_its_lock_commits_nothing")
@around(Guarded, "__init__")
def machines_commit_without_the_lock(
    init: Any, self: Guarded[Effect], machine: Any, _may_commit: Any, *others: Any
) -> None:
    """A worker that was paused beyond its session commits what it had begun."""
    init(self, machine, lambda: True, *others)


@by_slow_test(34, f"{_WORKER}::test_rule_34_work_ends_at_the_instant_the_session_may_have_ended")
@instead_of(Lease, "lost")
async def locks_are_lost_only_when_told(self: Lease) -> None:
    """A worker goes on until the server tells it that its lock is gone."""
    await self._gone()


@by_test(34, f"{_AUDITOR}::test_rule_34_an_auditor_that_may_have_lost_the_leadership_marks_nothing")
@around(AuditCycles, "__init__")
def deposed_auditors_mark_tasks(init: Any, self: AuditCycles, *terms: Any, **named: Any) -> None:
    """An auditor writes after its session may have ended."""
    init(self, *terms, **(named | {"may_act": lambda: True}))


@by_slow_test(
    35, f"{_WORKER}::test_rule_35_an_unrecoverable_ledger_blocks_no_other_and_waits_longer_each_time"
)
@instead_of(RepairTasks, "set_aside")
async def failed_tasks_are_not_set_aside(self: RepairTasks, *_: Any, **__: Any) -> None:
    """A ledger that cannot be repaired stays at the front of the queue."""
    return


@by_test(
    35,
    (
        "tests/unit/operator/test_recovery_seen.py::"
        "test_rule_35_no_stored_time_keeps_a_job_from_a_ledger_for_longer_than_the_longest_back_off"
    ),
)
def stored_times_are_obeyed_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose clock is a year ahead parks a ledger for a year."""
    monkeypatch.setattr(DueTimes, "not_before_ms", lambda self, task, **_: task.not_before_ms)


@by_test(35, f"{_WORKER}::test_rule_35_an_unrecoverable_ledger_blocks_no_other_and_waits_longer_each_time")
def pauses_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every failed repair costs the same short pause."""
    monkeypatch.setattr(BackOff, "pause_ms", lambda self, failures: self.first_ms)


@by_test(37, f"{_AUDITOR}::test_rule_37_reads_are_paced_and_few_at_a_time")
def settings_of_the_pace_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The auditor reads as fast as it can, whatever its settings say."""
    monkeypatch.setattr(
        AutoRecoverySettings,
        "auditor_policy",
        lambda self, lost_delay_ms: AuditorPolicy(
            lost_delay_ms, self.open_grace_ms, reads_per_second=10**6, reads_in_flight_max=10**6
        ),
    )


@by_test(
    47,
    f"{_AUDITOR}::test_rule_47_a_missing_entry_in_the_middle_is_found_by_a_quick_cycle_once_and_by_every_full_one",
)
@around(Auditor, "begin")
def a_comparison_lasts_for_ever(
    begin: Any, self: Auditor, now_ms: int, ledger_ids: Iterable[LedgerId], scope: CycleScope
) -> None:
    """What was whole once is never compared again, in a full round neither."""
    begin(self, now_ms, ledger_ids, replace(scope, full=False))


@by_test(56, f"{_WORKER}::test_rule_56_what_is_marked_after_the_last_examination_is_not_done_with_the_task")
@around(RepairTasks, "done")
async def tasks_are_done_whatever_was_added(
    done: Callable[..., Awaitable[bool]], self: RepairTasks, ledger_id: LedgerId, version: int
) -> bool:
    """A repaired ledger's task is deleted with what an auditor has found in it meanwhile."""
    newest = await self.read(ledger_id)
    return await done(self, ledger_id, newest.version if newest else version)
