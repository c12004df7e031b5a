"""Rule 36 taken out of placement, both halves of it: keep the racks, or say that they are not kept."""

import pytest

from daybook.core.placement.policies import SpreadPolicy
from daybook.core.placement.search import EnsembleSearch
from tests.model.mutants.catalog.swarms import UNEVEN_RACKS
from tests.model.mutants.registry import mutant

_CAUGHT_BY = "tests/unit/core/placement/test_placement.py::test_rule_36_recovery_keeps_the_racks_or_says_so"


@mutant(36, _CAUGHT_BY)
def placement_ignores_racks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any bookie will do, so a replacement may put every replica of an entry into one rack."""
    monkeypatch.setattr(SpreadPolicy, "_applicable", lambda self, bookies: [])


@mutant(36, _CAUGHT_BY, swarm=UNEVEN_RACKS)
def misplaced_ensembles_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """What best effort missed is never marked, so it stays once the rack is back."""
    monkeypatch.setattr(SpreadPolicy, "problems", lambda self, quorum, ensemble, bookies: [])


@mutant(
    36,
    "tests/unit/core/placement/test_placement.py::test_the_first_bookie_is_given_up_where_it_spoils_the_rest",
    swarm=UNEVEN_RACKS,
)
def placement_takes_the_first_seating(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search picks greedily: with overlapping write sets it misses seatings that keep the constraint."""
    monkeypatch.setattr(EnsembleSearch, "_cheapest_thinkable", lambda self: (10**9,))
