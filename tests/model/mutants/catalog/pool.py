"""Rules as the operator keeps them: who is replaced by policy, when a bookie may be forgotten, which repairs get Jobs."""

from functools import partial

import pytest
from daybook_operator.plan.pool import drain as pool_drain
from daybook_operator.plan.pool import lost_disk as pool_lost_disk
from daybook_operator.plan.recovery.jobs import ObservedTask

from tests.model.mutants.registry import instead_of, mutant

_BOOKIES = "tests/unit/operator/test_pool_bookies.py::"
_NO_OPERATOR = "there is no operator in the simulated cluster"
by_test = partial(mutant, not_simulated=_NO_OPERATOR)


@by_test(29, f"{_BOOKIES}test_rule_29_as_many_lost_disks_as_an_ack_quorum_are_for_a_person")
def any_number_of_lost_disks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes that are not mounted anywhere are taken for lost disks, all of them."""
    monkeypatch.setattr(pool_lost_disk, "why_too_many", lambda _world, _bookie, _command: "")


@by_test(
    29, f"{_BOOKIES}test_rule_29_a_bookie_without_a_cookie_waits_until_it_is_known_which_ledgers_name_it"
)
def ledgers_that_are_not_read_yet_name_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie without a cookie starts although a ledger that was not read yet may name it."""
    monkeypatch.setattr(pool_lost_disk, "_why_not_known", lambda _world: "")


@by_test(
    29, f"{_BOOKIES}test_rule_29_a_bookie_is_forgotten_only_after_an_audit_that_began_when_no_ledger_named_it"
)
def any_clean_audit_lets_a_bookie_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit from before the copies were made counts."""
    monkeypatch.setattr(pool_drain, "clean_audit_began_ms", lambda _world: 10**15)


@by_test(
    35,
    "tests/unit/operator/test_recovery_seen.py::test_rule_35_what_was_on_no_bookie_is_tried_again_when_its_pause_is_over",
)
@instead_of(ObservedTask, "is_due")
def what_failed_waits_for_a_bookie_to_come(self: ObservedTask, now_ms: int) -> bool:
    """A ledger whose repair failed gets no Job before the auditor sets its task free."""
    return self.not_before_ms == 0
