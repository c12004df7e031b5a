"""Rule 29 as the operator keeps it: who is replaced by policy, and when a bookie may be forgotten."""

from functools import partial

import pytest
from daybook_operator.plan.pool import drain as pool_drain
from daybook_operator.plan.pool import lost_disk as pool_lost_disk

from tests.model.mutants.registry import mutant

_BOOKIES = "tests/unit/operator/test_pool_bookies.py::"
_NO_OPERATOR = "there is no operator in the simulated cluster"
by_test = partial(mutant, not_simulated=_NO_OPERATOR)


@by_test(29, f"{_BOOKIES}test_rule_29_as_many_lost_disks_as_an_ack_quorum_are_for_a_person")
def any_number_of_lost_disks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes that are not mounted anywhere are taken for lost disks, all of them."""
    monkeypatch.setattr(pool_lost_disk, "why_too_many", lambda _world, _bookie, _command: "")


@by_test(
    29, f"{_BOOKIES}test_rule_29_a_bookie_is_forgotten_only_after_an_audit_that_began_when_no_ledger_named_it"
)
def any_clean_audit_lets_a_bookie_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit from before the copies were made counts."""
    monkeypatch.setattr(pool_drain, "clean_audit_began_ms", lambda _world: 10**15)
