"""Rule 36 taken out of placement, both halves of it: keep the racks, or say that they are not kept; and rule 69."""

from typing import Any

import pytest

from daybook.core.placement.among import PoolBookies
from daybook.core.placement.policies import SpreadPolicy
from daybook.core.placement.search import EnsembleSearch, Tier
from daybook.core.recovery import recovery
from daybook.core.repair import judgement
from daybook.core.topics import policy
from daybook.core.writer import replacement
from tests.model.mutants.catalog.swarms import UNEVEN_RACKS
from tests.model.mutants.registry import instead_of, mutant

_CAUGHT_BY = "tests/unit/core/placement/test_placement.py::test_rule_36_recovery_keeps_the_racks_or_says_so"


@mutant(36, _CAUGHT_BY)
def placement_ignores_racks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any bookie will do, so a replacement may put every replica of an entry into one rack."""
    monkeypatch.setattr(Tier, "is_named", lambda self, info: False)


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


_NO_POOLS = "The simulator's ledgers name no pool."
_AMONG = "tests/unit/core/placement/test_among.py::"


@mutant(
    69,
    f"{_AMONG}test_rule_69_an_ensemble_is_of_the_pool_or_there_is_none",
    not_simulated=_NO_POOLS,
    slow=True,
)
def any_bookie_is_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of a pool is created on whichever bookies there are."""
    monkeypatch.setattr(PoolBookies, "allows", lambda self, bookie: True)


@mutant(
    69,
    "tests/unit/core/writer/test_writer_no_spare.py::test_rule_69_a_writer_without_a_spare_in_its_pool_takes_none_of_another_pool",
    not_simulated=_NO_POOLS,
)
@instead_of(replacement, "in_pool")
def writers_replace_outside_the_pool(pool: str, placement: Any) -> Any:
    """The pool bounds the first ensemble alone: a writer takes any spare."""
    return placement


@mutant(
    69,
    "tests/unit/core/recovery/test_write_back.py::test_rule_69_a_recovery_writes_back_within_the_ledgers_pool_or_not_at_all",
    not_simulated=_NO_POOLS,
)
@instead_of(recovery, "in_pool")
def recoveries_replace_outside_the_pool(pool: str, placement: Any) -> Any:
    """A recovery writes back to any spare."""
    return placement


@mutant(
    69,
    "tests/unit/core/repair/test_judgement.py::test_rule_69_who_is_lost_or_leaves_is_replaced_within_the_pool",
    not_simulated=_NO_POOLS,
)
@instead_of(judgement, "rated_in_pool")
def repairs_replace_outside_the_pool(pool: str, placement: Any) -> Any:
    """The auditor and the workers know nothing of pools: a repair copies to any spare."""
    return placement


@mutant(
    69,
    "tests/unit/core/topics/test_policy.py::test_rule_69_a_ledger_of_a_pool_shrinks_to_the_bookies_of_that_pool",
    not_simulated=_NO_POOLS,
)
def the_bookies_of_other_pools_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of a small pool asks for an ensemble that the pool cannot have, and takes no writes."""
    monkeypatch.setattr(policy, "pool_of", lambda bookie: "data.bk")
