"""Mutants of recovery: each takes out one thing that keeps a ledger from closing short or differently."""

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from daybook.core.effects import Recovered, RecoveryEffect, RecoveryFailed
from daybook.core.errors import Code, RecoveryFailedError
from daybook.core.events import BookieFailed, FenceAnswered, MetadataRead, ReadAnswered, RecoveryEvent, Tick
from daybook.core.ids import MAX_ID, NO_ENTRY, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.core.recovery import recovery, replay, write_back
from daybook.core.recovery.evidence import EvidenceWindow, _Testimony
from daybook.core.recovery.fencing import Fencing
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.recovery.write_back import WriteBack
from tests.model.mutants.catalog.swarms import CLOSES, LOST_DISKS, STRIPED
from tests.model.mutants.registry import around, instead_of, mutant

_EVIDENCE = "tests/unit/core/recovery/test_recovery_evidence.py::"
_WRITE_BACK = "tests/unit/core/recovery/test_write_back.py::"
_CLOSE = "tests/unit/core/recovery/test_recovery_close.py::"


@mutant(
    1,
    f"{_EVIDENCE}test_rule_01_the_fenced_writer_can_complete_nothing_whatever_subset_answered",
    swarm=STRIPED,
)
@instead_of(Fencing, "is_complete")
def one_ack_quorum_of_fences_is_enough(self: Fencing) -> bool:
    """Qf bookies of the whole ensemble count as coverage, instead of Qf of every write set."""
    return self.fenced.bit_count() >= self._quorum.coverage


@mutant(1, f"{_EVIDENCE}test_rule_01_recovery_goes_on_only_when_no_ack_quorum_is_left")
@instead_of(Fencing, "is_complete")
def every_bookie_must_be_fenced(self: Fencing) -> bool:
    """Coverage asks for the whole ensemble, so that one dead bookie blocks recovery."""
    return self.fenced == (1 << len(self._fragment.bookies)) - 1


@mutant(2, f"{_EVIDENCE}test_rule_02_recovery_reads_fence")
def recovery_reads_do_not_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery reads leave the bookie as it is."""
    monkeypatch.setattr(replay, "READS_FENCE", False)


@mutant(5, f"{_EVIDENCE}test_rule_05_recovery_starts_at_the_last_fragment")
@instead_of(Fencing, "starting_point")
def recovery_starts_at_the_bookies_lac(self: Fencing) -> tuple[EntryId, int]:
    """The start of the last fragment is ignored."""
    return max([(NO_ENTRY, 0), *self._lac_answers])


@mutant(6, f"{_EVIDENCE}test_rule_06_only_explicit_not_found_of_a_quorum_ends_the_ledger")
@around(EvidenceWindow, "__init__")
def one_denial_ends_the_ledger(
    init: Callable[..., None], self: EvidenceWindow, quorum: Quorum, first: EntryId, last: EntryId
) -> None:
    """A single "not found" is believed, as if every entry had to be on its whole write set."""
    init(self, quorum._replace(ack_quorum=quorum.write_quorum), first, last)


@mutant(6, f"{_EVIDENCE}test_rule_06_only_explicit_not_found_of_a_quorum_ends_the_ledger")
@around(EvidenceWindow, "answer")
def an_error_is_a_denial(
    answer: Any, self: EvidenceWindow, position: int, first: EntryId, answered: ReadAnswered
) -> None:
    """A bookie that failed to answer counts like one that said "not found"."""
    if answered.code is not Code.OK:
        answered = ReadAnswered(answered.bookie, answered.request_id, Code.OK, through=MAX_ID)
    answer(self, position, first, answered)


@mutant(7, f"{_EVIDENCE}test_rule_07_a_hanging_bookie_does_not_hold_recovery_up")
@around(LedgerRecovery, "step")
def only_the_first_replica_is_asked_in_time(
    step: Callable[..., list[RecoveryEffect]], self: LedgerRecovery, event: RecoveryEvent
) -> list[RecoveryEffect]:
    """A read waits for the bookie that was asked first, however long."""
    return [] if isinstance(event, Tick) else step(self, event)


@mutant(7, f"{_EVIDENCE}test_rule_07_a_hanging_bookie_does_not_hold_recovery_up")
@around(write_back, "is_ack_quorum")
def write_back_waits_for_all(
    is_ack_quorum: Callable[..., bool], quorum: Quorum, acked: int, first: EntryId, last: EntryId
) -> bool:
    """An entry counts only when every bookie of its write set has it."""
    return is_ack_quorum(quorum._replace(ack_quorum=quorum.write_quorum), acked, first, last)


@mutant(8, f"{_EVIDENCE}test_rule_08_with_an_ack_quorum_of_one_a_dead_bookie_refuses_recovery")
def a_majority_is_enough_for_any_ack_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fence and absence are decided by a majority of the write set, whatever Qa is."""
    monkeypatch.setattr(Quorum, "coverage", property(lambda quorum: quorum.write_quorum // 2 + 1))


@mutant(9, f"{_WRITE_BACK}test_rule_09_ensemble_changes_of_recovery_reach_metadata_only_with_the_close")
@instead_of(LedgerRecovery, "_closed_from")
def ensemble_changes_never_reach_the_metadata(
    self: LedgerRecovery, metadata: LedgerMetadata
) -> LedgerMetadata:
    """The close leaves the spares out, so that no one would look for entries there."""
    assert self._replay is not None
    return metadata.closed(self._replay.write_back.recovered_to, self._replay.write_back.length)


@mutant(9, f"{_WRITE_BACK}test_rule_09_ensemble_changes_of_recovery_reach_metadata_only_with_the_close")
@around(LedgerRecovery, "step")
def a_spare_is_named_at_once(
    step: Callable[..., list[RecoveryEffect]], self: LedgerRecovery, event: RecoveryEvent
) -> list[RecoveryEffect]:
    """An ensemble change of recovery is written to the metadata before the close."""
    before = len(self._replay.write_back.changes) if self._replay else 0
    effects = step(self, event)
    changes = self._replay.write_back.changes if self._replay else []
    if len(changes) > before and self.started_with:
        change = changes[-1]
        named = self.started_with.with_ensemble(change.first_entry, change.length_before, change.bookies)
        self._metadata.propose(named, self.version, effects)
    return effects


@mutant(10, f"{_WRITE_BACK}test_rule_10_write_back_passes_the_fence")
def write_back_without_the_recovery_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery's frames look like the writer's."""
    monkeypatch.setattr(write_back, "WRITE_BACK_FLAGS", 0)


@mutant(11, f"{_CLOSE}test_rule_11_the_loser_of_a_close_race_returns_the_winners_close")
@around(LedgerRecovery, "step")
def the_loser_of_a_close_race_fails(
    step: Callable[..., list[RecoveryEffect]], self: LedgerRecovery, event: RecoveryEvent
) -> list[RecoveryEffect]:
    """A recovery whose own end differs from the close that won reports an error."""
    own = self._replay.write_back if self._replay and self.phase is recovery.Phase.CLOSING else None
    return [
        RecoveryFailed(RecoveryFailedError("another end"))
        if own is not None and isinstance(each, Recovered) and each.metadata.last_entry != own.recovered_to
        else each
        for each in step(self, event)
    ]


@mutant(12, f"{_WRITE_BACK}test_rule_12_write_back_keeps_the_lac_that_recovery_started_from")
def the_lac_rises_during_write_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of recovery carry what it has recovered so far as the LAC."""
    for name, now in (("start_lac", "recovered_to"), ("start_length", "length")):
        risen = property(attrgetter(now), lambda _self, _start: None)
        monkeypatch.setattr(WriteBack, name, risen, raising=False)


@mutant(12, f"{_WRITE_BACK}test_rule_12_a_tail_reader_sees_no_entry_beyond_the_final_close")
def the_lac_rises_for_readers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, seen by a tailing reader."""
    the_lac_rises_during_write_back(monkeypatch)


@mutant(
    29,
    f"{_EVIDENCE}test_rule_29_a_limbo_bookie_counts_for_the_fence_but_not_for_the_lac_or_for_absence",
    swarm=LOST_DISKS,
)
@instead_of(_Testimony, "reports_absent")
def limbo_denials_are_believed(self: _Testimony, entry_id: EntryId) -> bool:
    """A bookie that lost its disk proves that an entry was never written."""
    return self.speaks_for(entry_id) and entry_id not in self.present


@mutant(29, f"{_EVIDENCE}test_rule_29_the_lac_of_a_limbo_bookie_is_not_believed", swarm=LOST_DISKS)
@around(Fencing, "step")
def limbo_lacs_are_believed(
    step: Callable[..., bool], self: Fencing, event: FenceAnswered | BookieFailed
) -> bool:
    """The LAC that a bookie in limbo tells counts."""
    return step(self, replace(event, limbo=False) if isinstance(event, FenceAnswered) else event)


@mutant(44, f"{_EVIDENCE}test_rule_44_the_length_is_right_where_a_fragment_has_just_begun")
@around(Fencing, "starting_point")
def the_length_before_a_fragment_is_ignored(starting_point: Any, self: Fencing) -> tuple[EntryId, int]:
    """The length comes from the bookies alone, which know none where a fragment has just begun."""
    lac, _ = starting_point(self)
    return lac, max([(NO_ENTRY, 0), *self._lac_answers])[1]


@mutant(56, f"{_CLOSE}test_a_change_of_the_fragment_under_recovery_is_never_overwritten", swarm=CLOSES)
@around(LedgerRecovery, "step")
def a_close_overwrites_what_changed_meanwhile(
    step: Callable[..., list[RecoveryEffect]], self: LedgerRecovery, event: RecoveryEvent
) -> list[RecoveryEffect]:
    """A close that met a conflict is repeated against the new version, whatever changed."""
    if isinstance(event, MetadataRead) and self.phase is recovery.Phase.CLOSING:
        found = event.metadata
        if found is not None and not found.is_closed:
            event = replace(event, metadata=self.started_with)
    return step(self, event)


@mutant(
    56,
    "tests/model/explore/test_metadata_races.py::test_rule_56_deletion_recovery_and_repair_notice_each_other",
    swarm=CLOSES,
    slow=True,
)
def a_close_undoes_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, in a race with a repair of an older fragment."""
    a_close_overwrites_what_changed_meanwhile(monkeypatch)


@mutant(
    56,
    f"{_CLOSE}test_rule_56_a_recovery_that_is_meant_for_another_version_does_nothing",
    not_simulated="nobody in the simulator recovers a ledger at a version that it read long before",
)
@around(LedgerRecovery, "__init__")
def a_recovery_is_meant_for_any_version(init: Any, self: LedgerRecovery, *terms: Any, **named: Any) -> None:
    """Metadata that changed since the caller decided to recover the ledger is recovered all the same."""
    init(self, *terms, **(named | {"expected_version": None}))
