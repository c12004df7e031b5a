"""Every world within the small bounds keeps the invariants; and a rule that is taken out is found."""

from collections import Counter
from collections.abc import Callable

import pytest

from daybook.core.repair.plan import RepairPlan
from tests.model.explore import repairing
from tests.model.explore.bounds import (
    ENSEMBLE_CHANGE,
    ENSEMBLE_CHANGE_OF_ONE,
    LIMBO_ENDS,
    LOST_DISK_OF_THREE,
    PLAIN,
    SMALL,
    STRIPED_PAIR,
    TWO_RECOVERERS,
)
from tests.model.explore.explorer import Found, explore
from tests.model.explore.parts import Bounds
from tests.model.mutants.catalog import bookie as bookie_mutants
from tests.model.mutants.catalog import recovery as recovery_mutants
from tests.model.mutants.catalog import repair as repair_mutants


@pytest.mark.parametrize("bounds", SMALL, ids=str)
def test_every_world_keeps_the_invariants(bounds: Bounds) -> None:
    report = explore(bounds)
    print(report)
    assert report.is_complete
    assert report.worlds > 500
    assert any(name.startswith("closed at") for name in report.reached), "no ledger was ever closed"


def test_the_explored_worlds_are_the_interesting_ones() -> None:
    """What must have been met somewhere, or the exploration proves little."""
    explored = [explore(bounds) for bounds in (ENSEMBLE_CHANGE_OF_ONE, TWO_RECOVERERS, LIMBO_ENDS)]
    reached = sum((report.reached for report in explored), Counter[str]())
    for condition in [
        "closed at -1",
        "closed at 0",
        "closed beyond what was acknowledged",
        "ensemble changed",
        "two recoveries returned",
        "writer ended",
        "limbo ended before the close",
    ]:
        assert reached[condition], condition


Patch = Callable[[pytest.MonkeyPatch], None]


def fences_here_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fences that do not cover, and reads that do not fence: with either alone, the other one makes up for it."""
    recovery_mutants.one_ack_quorum_of_fences_is_enough(monkeypatch)
    recovery_mutants.recovery_reads_do_not_fence(monkeypatch)


def limbo_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark goes while the writer still writes to the bookie, and nothing is copied back."""
    repair_mutants.limbo_ends_while_the_bookie_is_written_to(monkeypatch)
    monkeypatch.setattr(repairing, "limbo_plan", lambda metadata, bookie: RepairPlan((), clear_limbo=bookie))


@pytest.mark.parametrize(
    ("mutant", "bounds"),
    [
        (fences_here_and_there, STRIPED_PAIR),
        (recovery_mutants.recovery_reads_do_not_fence, PLAIN),
        (recovery_mutants.one_denial_ends_the_ledger, PLAIN),
        (recovery_mutants.an_error_is_a_denial, PLAIN),
        (recovery_mutants.recovery_starts_at_the_bookies_lac, ENSEMBLE_CHANGE),
        (recovery_mutants.ensemble_changes_never_reach_the_metadata, ENSEMBLE_CHANGE),
        (recovery_mutants.limbo_denials_are_believed, LOST_DISK_OF_THREE),
        (limbo_ends_at_once, LIMBO_ENDS),
        (bookie_mutants.the_fence_stops_nothing, PLAIN),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_rule_that_is_taken_out_is_found(
    mutant: Patch, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(Found) as found:
        explore(bounds, worlds_max=60_000)
    print(found.value)


def test_a_finding_tells_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    bookie_mutants.the_fence_stops_nothing(monkeypatch)
    with pytest.raises(Found, match=r"AllAckedEntriesAreReadable(.|\n)*append 0(.|\n)*deliver: Request"):
        explore(PLAIN)
