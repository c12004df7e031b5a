"""Mutants of cursors: what is persisted, what trimming relies on, and whose the cursor is."""

from dataclasses import replace
from functools import partial
from typing import Any

from daybook.core.topics import acks, cursor, cursor_node, cursor_pace
from daybook.core.topics.cursor_events import CursorRead, HolesDropped
from daybook.core.topics.cursor_phases import CursorPhase
from tests.model.mutants.registry import around, instead_of, mutant
from tests.model.sim.topics.swarm import TopicSwarm

_RACING = TopicSwarm(
    topics=2,
    publishes=16,
    rivals=3,
    crash=0.02,
    trim=0.2,
    subscriptions=2,
    seek=0.05,
    entries_max=2,
    recover=3,
    persist_ms=400,
    cursor_entries_max=2,
    cursor_idle_ms=4_000,
)
often = partial(mutant, swarm={"topics": _RACING})
often_unreadable = partial(
    mutant,
    swarm={
        "topics": replace(_RACING, seek=0.2, cursor_entries_max=1000),
        "faults": 12,
        "fault_weights": {"crash all bookies": 1.0, "crash bookie": 1.0},
        "absences_ms": (600, 900),
    },
)
by_test = partial(mutant, not_simulated="no subscription of the simulator has more holes than a record takes")

SURVIVES = "tests/unit/core/topics/test_cursor_survives.py"
RACE = "tests/unit/core/topics/test_cursors_race.py"
HOLES = f"{SURVIVES}::test_rule_40_of_10001_holes_all_but_the_last_survive_a_restart_with_a_warning"
NEVER_WAS = "tests/unit/core/topics/test_acks.py::test_rule_40_a_position_that_the_topic_never_had_acknowledges_nothing"
TRIMMED = f"{SURVIVES}::test_rule_40_what_is_acknowledged_and_not_persisted_is_not_trimmed"
DRAWN = f"{RACE}::test_rule_40_whatever_fails_what_is_persisted_is_found_and_nothing_else_is_passed"


@often(40, HOLES)
@around(acks.AckState, "record")
def holes_are_dropped(record: Any, self: Any, ranges_max: int, **named: Any) -> Any:
    """A cursor's record has the mark-delete position alone."""
    return replace(record(self, ranges_max, **named), ranges=(), batches=())


@mutant(40, NEVER_WAS, not_simulated="no client of the simulator names an entry that the topic never had")
@instead_of(acks.AckState, "_never_was")
def whatever_a_client_names_is_acknowledged_up_to(_self: Any, _position: Any) -> bool:
    """A cumulative acknowledgement of an entry that the topic never had acknowledges all that is before it."""
    return False


@by_test(40, HOLES)
@around(cursor.Cursor, "step")
def nobody_is_warned(step: Any, self: Any, event: Any) -> list[Any]:
    """Holes that do not fit are dropped without a warning."""
    return [each for each in step(self, event) if not isinstance(each, HolesDropped)]


@often(40, TRIMMED)
@around(cursor_pace.CursorPace, "take")
def what_is_sent_counts_as_persisted(take: Any, self: Any, state: Any) -> None:
    """A record counts as durable when it leaves."""
    take(self, state)
    self.persisted()


@often(40, TRIMMED)
@instead_of(cursor_pace.CursorPace, "safe_mark")
def what_is_acknowledged_is_trimmed(_self: Any, state: Any) -> Any:
    """Trimming relies on what is acknowledged in memory."""
    return state.mark_delete


@often(40, DRAWN)
@instead_of(cursor_pace.CursorPace, "safe_mark")
def records_without_an_answer_never_count(self: Any, state: Any) -> Any:
    """Trimming relies on the last record that was answered, also where an older seek may be what the next owner finds."""
    return min(self.stored.mark_delete, state.mark_delete)


@often_unreadable(40, f"{SURVIVES}::test_rule_40_after_a_seek_no_older_record_counts")
@around(cursor_pace.CursorPace, "next_phase")
def a_seek_is_in_the_ledger_alone(next_phase: Any, self: Any, state: Any, *, is_named: bool) -> Any:
    """After a seek the node keeps its older record, which passes what the seek went back to."""
    self.node_resets = state.resets
    return next_phase(self, state, is_named=is_named)


@often(40, DRAWN)
@around(cursor.Cursor, "_append")
def a_ledger_is_named_before_it_has_a_record(append: Any, self: Any, ledger_id: int, out: Any) -> None:
    """The node names the new ledger first."""
    append(self, ledger_id, out)
    if self._phase is CursorPhase.FILLING:
        out.pop()
        self._go_to(CursorPhase.NAMING)
        self._node.propose(self._target, out)


@often(38, f"{SURVIVES}::test_rule_38_a_ledger_that_was_named_after_all_is_the_next_owners")
@around(cursor.Cursor, "step")
def a_cursors_ledger_is_deleted_that_the_next_owner_finds(step: Any, self: Any, event: Any) -> list[Any]:
    """An owner that lost deletes its last ledger, whatever the node names."""
    is_lost = isinstance(event, CursorRead) and not event.is_owner
    effects: list[Any] = step(self, replace(event, record=None) if is_lost else event)
    return effects


@often(38, f"{SURVIVES}::test_rule_38_a_superseded_owner_stops_and_deletes_what_it_did_not_name")
@around(cursor_node.CursorNode, "judge")
def whoever_asks_owns_the_topic(judge: Any, self: Any, event: Any, out: Any) -> Any:
    """An owner that was superseded writes its cursor over the next owner's list."""
    return judge(self, replace(event, is_owner=True), out)
