"""Mutants of topics: the list of ledgers, its owner, trimming."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from daybook.core.errors import PlanOutdatedError
from daybook.core.topics import (
    list_orders,
    list_update,
    managed_ledger,
    open_ledger,
    pending,
    trim_plan,
    trimming,
)
from daybook.core.topics.events import LedgerEnded, RecoverLedger
from daybook.core.topics.judged_change import Outcome
from daybook.core.topics.ledger_list import NO_POSITION, ListedLedger, Position
from daybook.core.topics.phases import Phase
from daybook.metadata.store.resolving import ResolvingStore
from daybook.metadata.store.store import Check
from tests.model.mutants.registry import around, instead_of, mutant
from tests.model.sim.topics.swarm import TopicSwarm

RACING = TopicSwarm(
    topics=2, publishes=16, rivals=3, trim=0.2, subscriptions=2, entries_max=2, idle_ms_max=1_200, recover=3
)
often = partial(mutant, swarm={"topics": RACING})
by_test = partial(
    mutant,
    not_simulated="the shipped store settles a lost answer itself, but for an outage just then that outlasts it",
)
by_plan = partial(mutant, not_simulated="no job asks the owners of the simulator for anything")

MACHINE = "tests/unit/core/topics/test_managed_ledger.py"
ENDS = "tests/unit/core/topics/test_ledgers_end.py"
STORE = "tests/unit/metadata/test_topics.py"
PLANS = "tests/unit/core/topics/test_trim_plan.py"
TRIMMING = "tests/unit/core/topics/test_trimming.py"
RACE = "tests/unit/core/topics/test_owners_race.py"


@mutant(38, f"{MACHINE}::test_rule_38_a_new_owner_recovers_the_open_ledger_then_changes_the_list_then_serves")
@around(managed_ledger.ManagedLedger, "step")
def a_new_owner_does_not_recover(step: Any, self: Any, event: Any) -> list[Any]:
    """A new owner takes the ledger that is open in the list for closed and empty."""
    effects: list[Any] = []
    for each in step(self, event):
        if isinstance(each, RecoverLedger) and self.phase is Phase.RECOVERING:
            effects += step(self, LedgerEnded(each.request_id, 0, 0))
        else:
            effects.append(each)
    return effects


@mutant(38, f"{ENDS}::test_rule_38_an_owner_that_was_superseded_trims_nothing")
@instead_of(list_update.ListUpdate, "judge")
def any_list_that_is_read_is_the_own_one(self: Any, event: Any, _out: Any) -> Outcome:
    """The loser of a change of the list continues with the list that it found."""
    self._target = event.ledger_list
    return Outcome(self._done(max(event.version, self.version + 1)))


@often(
    38,
    f"{RACE}::test_rule_38_whatever_two_live_owners_do_nothing_acknowledged_is_lost_reordered_or_doubled",
)
@around(managed_ledger.ManagedLedger, "_superseded")
def a_ledger_is_deleted_that_the_next_owner_names(superseded: Any, self: Any, _found: Any, out: Any) -> None:
    """An owner that lost deletes its last ledger without a look at the list of the other one."""
    superseded(self, None, out)


@mutant(38, f"{MACHINE}::test_rule_38_of_two_new_owners_the_one_that_loses_the_list_stops_everything")
@instead_of(list_update.ListUpdate, "judge")
def a_list_is_written_whoever_owns_it(self: Any, event: Any, out: list[Any]) -> Outcome:
    """An owner that meets another version writes its list over it: a list is written by another than its owner."""
    if event.ledger_list == self._target:
        return Outcome(self._done(event.version))
    self.version = event.version
    self._send(out)
    return Outcome.PENDING


@by_test(38, f"{ENDS}::test_rule_38_what_an_owner_took_out_of_the_list_before_it_was_superseded_is_deleted")
@around(managed_ledger.ManagedLedger, "_superseded")
def what_was_trimmed_is_forgotten(superseded: Any, self: Any, found: Any, out: list[Any]) -> None:
    """An owner that lost does not delete what it took out of the list, if the answer to that was lost."""
    self.orders.leaving = ()
    superseded(self, found, out)


@often(
    38,
    f"{MACHINE}::test_rule_38_a_new_owner_follows_the_list_where_the_old_one_has_trimmed_what_it_recovers",
)
@instead_of(managed_ledger.ManagedLedger, "_read_again")
def what_is_gone_is_recovered_for_ever(_self: Any) -> None:
    """An owner recovers the ledger that it has found in the list, whatever the list says by now."""


@mutant(14, f"{MACHINE}::test_messages_are_acknowledged_as_far_as_they_are_stored")
@around(managed_ledger.ManagedLedger, "_send")
def a_receipt_does_not_wait_for_the_ledger(send: Any, self: Any, out: list[Any]) -> None:
    """What is sent to a ledger is acknowledged to its publisher: a receipt before Qa."""
    send(self, out)
    if self._pending.is_sent:
        self._acknowledge(self._ledger.id, self._pending.next_entry - 1, out)


@often(38, f"{STORE}::test_rule_38_only_the_owner_writes_cursors")
@around(ResolvingStore, "multi")
async def anybody_writes_cursors(multi: Any, self: Any, operations: Any, **named: Any) -> None:
    """A cursor is written whoever owns the topic by now."""
    first, *others = operations
    is_of_a_list = isinstance(first, Check) and "/topics/" in first.path
    await multi(self, others if is_of_a_list else operations, **named)


AGAIN = f"{ENDS}::test_rule_50_after_a_fence_by_the_auditor_only_what_is_not_in_the_ledger_is_sent_again"


@often(50, AGAIN)
@around(managed_ledger.ManagedLedger, "step")
def all_that_was_not_acknowledged_is_sent_again(step: Any, self: Any, event: Any) -> list[Any]:
    """After a fence the end of the ledger is ignored: what is in it is sent to the next one, too."""
    if isinstance(event, LedgerEnded) and self.phase is Phase.RESCUING:
        self._pending.take_back()
    effects: list[Any] = step(self, event)
    return effects


@often(50, AGAIN)
@instead_of(pending.PendingPublishes, "take_back")
def what_is_sent_again_loses_its_place(self: Any) -> None:
    """What was under way goes behind what was published later."""
    self._waiting.extend(payloads for _, payloads in self._sent)
    self._sent.clear()


@often(50, f"{ENDS}::test_rule_50_after_a_fence_by_a_new_owner_it_stops")
@around(managed_ledger.ManagedLedger, "_list_read")
def a_fence_is_always_the_auditors(list_read: Any, self: Any, event: Any, out: list[Any]) -> None:
    """After a fence the owner does not ask who owns the topic."""
    if self.phase is Phase.ASKING and event.request_id == self._request_id:
        self._enter(Phase.RESCUING, out)
    else:
        list_read(self, event, out)


@often(51, f"{TRIMMING}::test_rule_51_trimming_never_passes_a_mark")
def only_the_first_mark_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trimming waits for one subscription, and passes the others."""
    trimmed = trimming.trimmed
    for module in (trimming, list_orders):
        monkeypatch.setattr(
            module, "trimmed", lambda ledgers, marks, *rest: trimmed(ledgers, marks[:1], *rest)
        )


@often(51, f"{TRIMMING}::test_rule_51_trimming_never_passes_a_mark")
@instead_of(Position, "__ge__")
def a_mark_within_a_ledger_passes_it(self: Position, other: Position) -> bool:
    """A ledger goes when a mark has reached it."""
    return self.ledger_id >= other.ledger_id


@by_plan(51, f"{PLANS}::test_rule_51_a_planned_trim_drops_the_planned_ledgers_and_no_others")
@around(trim_plan, "check_plan")
def a_trim_goes_beyond_its_plan(check_plan: Any, ledger_list: Any, *rest: Any) -> Position:
    """A request drops whatever nobody needs, also what the job has not seen."""
    check_plan(ledger_list, *rest)
    return Position(ledger_list.newest, 0)


@by_plan(38, f"{PLANS}::test_rule_38_a_plan_is_outdated_only_by_a_change_of_a_ledger_that_it_names")
@around(trim_plan, "check_plan")
def every_new_ledger_outdates_a_plan(check_plan: Any, ledger_list: Any, planned: Any, *rest: Any) -> Position:
    """A plan counts only for the list that it was made on: that of a busy topic is never the same."""
    if ledger_list.newest > max(planned).ledger_id:
        raise PlanOutdatedError
    return Position(*check_plan(ledger_list, planned, *rest))


@by_plan(38, f"{PLANS}::test_rule_38_a_plan_is_outdated_only_by_a_change_of_a_ledger_that_it_names")
@instead_of(trim_plan, "check_unchanged")
def a_plan_counts_whatever_has_changed(_plan: Any, _found: Any) -> None:
    """The owner takes a plan for granted."""


@mutant(
    51,
    f"{ENDS}::test_rule_51_a_ledger_that_is_named_says_which_entry_was_the_last_before_it",
    not_simulated="no query of the simulator asks what was trimmed",
)
@around(open_ledger.OpenLedger, "__init__")
def a_ledger_says_that_nothing_was_before_it(init: Any, self: Any, listed: ListedLedger) -> None:
    """A query that missed trimmed entries continues as if there had been none."""
    init(self, listed if listed.follows is None else replace(listed, follows=NO_POSITION))


@mutant(
    51,
    f"{ENDS}::test_rule_51_a_trim_that_cannot_begin_at_once_is_dropped_because_its_marks_hold_only_now",
    not_simulated="the simulator judges a trim by the marks that its owner asked with",
)
@instead_of(list_orders.ListOrders, "drop_trim")
def a_trim_waits_with_its_marks(_self: Any) -> None:
    """A trim begins once the list is free, with the marks of when it was asked for."""
