"""Rules of repair, taken out one at a time."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from daybook.core.effects import RepairEffect, RepairRequest
from daybook.core.errors import DaybookError, NotEnoughBookiesError
from daybook.core.events import LimboCleared, LockLost, RepairEvent
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.among import rated_in_pool
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.quorum import DENSE, Quorum
from daybook.core.repair import copy as repair_copy
from daybook.core.repair import fragment as repair_fragment
from daybook.core.repair import judgement
from daybook.core.repair import plan as repair_plan
from daybook.core.repair import repair as repair_machine
from daybook.core.repair.copy import PositionCopy
from daybook.core.repair.fragment import FragmentWork
from daybook.core.repair.judgement import Findings, LedgerAudit, LedgerJudge, OpenAction
from daybook.core.repair.plan import CopyJob, FragmentRepair, RepairPlan
from daybook.core.repair.repair import LedgerRepair
from tests.model.mutants.catalog.swarms import BY_HAND, EXPIRIES, LOST_DISKS, LOST_SUCCESSORS, REPAIRS
from tests.model.mutants.registry import around, mutant

_REPAIR = "tests/unit/core/repair/test_repair.py::"
_RACES = "tests/unit/core/repair/test_repair_races.py::"
_LIMBO = "tests/unit/core/repair/test_repair_limbo.py::"


@mutant(10, f"{_REPAIR}test_rule_10_copies_pass_the_fence")
def copies_without_the_recovery_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair's frames are sent as normal adds, which a fenced bookie refuses."""
    monkeypatch.setattr(repair_copy, "FLAG_RECOVERY", 0)


@mutant(31, f"{_RACES}test_rule_31_an_open_last_fragment_is_never_copied", swarm=REPAIRS)
def open_fragments_are_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stops a repair of the fragment that a writer may still write to, and auditors plan it."""

    def copy_all(metadata: LedgerMetadata, _: Findings, found: LedgerAudit) -> RepairPlan | None:
        last = metadata.last_fragment
        jobs = tuple(CopyJob(position, name, name) for position, name in enumerate(last.bookies))
        copies = RepairPlan((FragmentRepair(last.first_entry, jobs),))
        return None if found.open_action is OpenAction.NONE else copies

    _plan_for_open_ledgers(monkeypatch, copy_all)


def _plan_for_open_ledgers(
    monkeypatch: pytest.MonkeyPatch,
    plan: Callable[[LedgerMetadata, Findings, LedgerAudit], RepairPlan | None],
) -> None:
    """Let auditors plan this for a ledger that is not closed, and nothing refuse it."""
    monkeypatch.setattr(repair_machine, "why_refused", lambda metadata, plan: None)
    audit = LedgerJudge.audit

    def plan_more(
        self: LedgerJudge, metadata: LedgerMetadata, findings: Findings, *, grace_is_over: bool
    ) -> LedgerAudit:
        found = audit(self, metadata, findings, grace_is_over=grace_is_over)
        planned = None if metadata.is_closed else plan(metadata, findings, found)
        return found if planned is None else replace(found, plans=(planned,))

    monkeypatch.setattr(LedgerJudge, "audit", plan_more)


@mutant(32, f"{_REPAIR}test_rule_32_metadata_changes_only_after_the_copies")
def metadata_before_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor is named without waiting for its copies."""
    monkeypatch.setattr(PositionCopy, "is_done", property(lambda self: True))


@mutant(32, f"{_REPAIR}test_rule_32_every_striped_position_gets_the_very_bytes_of_its_stripe")
def copies_ignore_the_stripe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor gets every entry of the fragment rather than its position's share."""
    monkeypatch.setattr(repair_plan, "stripe_of", lambda quorum, position: DENSE)


@mutant(32, f"{_REPAIR}test_rule_32_no_bookie_is_named_twice_in_a_fragment", swarm=REPAIRS)
def successor_may_be_in_the_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan names whoever is there as the successor, and a repair does not look whether the fragment names him already."""
    monkeypatch.setattr(repair_fragment, "why_obsolete", lambda metadata, repair: None)

    class Anyone:
        """The policy, which replaces a bookie by any other one that is there."""

        def __init__(self, policy: PlacementPolicy) -> None:
            self._policy = policy

        def __getattr__(self, name: str) -> Any:
            return getattr(self._policy, name)

        def replace(
            self,
            _quorum: Quorum,
            ensemble: tuple[BookieId, ...],
            positions: set[int],
            registered: Mapping[BookieId, BookieInfo],
            rng: RandomSource,
            *,
            exclude: Collection[BookieId],
        ) -> tuple[BookieId, ...]:
            """See PlacementPolicy."""
            there = sorted(registered.keys() - exclude - {ensemble[p] for p in positions})
            if not there:
                raise NotEnoughBookiesError
            changed = list(ensemble)
            for position in positions:
                changed[position] = there[int(rng.random() * len(there))]
            return tuple(changed)

    monkeypatch.setattr(judgement, "rated_in_pool", lambda *terms: Anyone(rated_in_pool(*terms)))


@mutant(34, f"{_RACES}test_rule_34_a_worker_whose_lock_is_lost_stops_at_once", swarm=EXPIRIES)
@around(LedgerRepair, "step")
def workers_go_on_without_their_lock(
    step: Callable[..., list[RepairEffect]], self: LedgerRepair, event: RepairEvent
) -> list[RepairEffect]:
    """A repair does not stop when its worker's session is over."""
    return [] if isinstance(event, LockLost) else step(self, event)


@mutant(
    56, f"{_RACES}test_rule_56_another_repair_of_the_same_fragment_wins_and_this_one_stops", swarm=BY_HAND
)
def conflicts_are_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a conflict the compare-and-set is repeated whatever the fragment has become."""
    monkeypatch.setattr(repair_fragment, "why_changed", lambda *_: None)


@mutant(56, f"{_RACES}test_rule_56_a_deletion_during_a_copy_without_a_change_of_its_own_is_noticed")
def refills_end_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair that changes no metadata does not look at it in the end either."""
    monkeypatch.setattr(LedgerRepair, "_confirm", LedgerRepair._finish)


@mutant(
    47, f"{_RACES}test_rule_47_a_removal_by_the_successor_itself_makes_the_copy_begin_again", swarm=REPAIRS
)
def copies_outlive_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a conflict on a closed ledger the successor is named without a new copy."""
    monkeypatch.setattr(FragmentWork, "_after_conflict", FragmentWork._cas_again)


@mutant(
    29, f"{_LIMBO}test_rule_29_a_successor_wiped_before_it_is_named_is_copied_again", swarm=LOST_SUCCESSORS
)
def successors_may_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor's boot id is not compared, so a disk lost before it is named goes unnoticed."""
    monkeypatch.setattr(repair_fragment, "has_restarted", lambda boot_ids: False)


@mutant(29, f"{_LIMBO}test_rule_29_a_disk_lost_again_during_the_repair_keeps_its_limbo")
def nonce_is_read_after_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark's nonce is read when the copies are done, so it may be that of a later loss."""
    confirm = LedgerRepair._confirm

    def late(self: LedgerRepair) -> list[RepairRequest]:
        if self._nonce is not None or self.plan.clear_limbo is None:
            return confirm(self)
        return self._read_nonce(self.plan.clear_limbo)

    monkeypatch.setattr(LedgerRepair, "_begin", LedgerRepair._next_fragment)
    monkeypatch.setattr(LedgerRepair, "_confirm", late)


@mutant(29, f"{_LIMBO}test_rule_29_a_disk_lost_again_during_the_repair_keeps_its_limbo", swarm=LOST_DISKS)
@around(LedgerRepair, "step")
def refused_clearing_counts(
    step: Callable[..., list[RepairEffect]], self: LedgerRepair, event: RepairEvent
) -> list[RepairEffect]:
    """A repair whose nonce no longer stands says that limbo has ended."""
    return step(self, replace(event, cleared=True) if isinstance(event, LimboCleared) else event)


@mutant(
    35,
    f"{_REPAIR}test_rule_35_an_entry_that_a_bookie_may_have_that_does_not_answer_is_not_unrecoverable",
    not_simulated="it changes only what people are told of a repair that failed",
)
@around(PositionCopy, "_unreachable")
def silence_proves_that_an_entry_is_lost(
    unreachable: Callable[..., DaybookError], self: PositionCopy, entry: EntryId
) -> DaybookError:
    """A bookie that does not answer counts as one that has not got the entry."""
    error = unreachable(self, entry)
    self.is_nowhere = True
    return error


@mutant(
    29,
    f"{_LIMBO}test_rule_29_limbo_does_not_end_while_the_bookie_is_written_to_or_the_ledger_is_recovered",
    swarm=LOST_DISKS,
)
def limbo_ends_while_the_bookie_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limbo is cleared although a writer or a recovery may still depend on what the bookie lost."""

    def clear(metadata: LedgerMetadata, findings: Findings, _: LedgerAudit) -> RepairPlan | None:
        here = sorted(findings.limbo & findings.registered.keys() & metadata.bookies())
        return RepairPlan((), clear_limbo=here[0]) if here else None

    _plan_for_open_ledgers(monkeypatch, clear)
    monkeypatch.setattr(repair_machine, "may_end_limbo", lambda metadata, bookie: True)


@mutant(
    29,
    f"{_LIMBO}test_rule_29_an_open_ledger_that_changed_during_the_repair_keeps_limbo",
    not_simulated="only a recovery of restored metadata, which no seed has, asks a bookie that its last fragment does not name",
)
def limbo_ends_though_a_recovery_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repair does not look again whether the limbo of an open ledger may end."""
    monkeypatch.setattr(repair_machine, "may_end_limbo", lambda metadata, bookie: True)
