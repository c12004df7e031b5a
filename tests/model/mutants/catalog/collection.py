"""Mutants of the collection of ledgers that a crash left behind."""

from functools import partial
from typing import Any

from daybook.core.topics import unnamed
from tests.model.mutants.registry import instead_of, mutant

by_test = partial(mutant, not_simulated="the simulator has no collection of ledgers that nothing names")

JUDGED = "tests/unit/core/topics/test_unnamed.py"
PROVED = f"{JUDGED}::test_rule_28_a_ledger_goes_only_if_nothing_can_ever_name_it"


@by_test(28, PROVED)
@instead_of(unnamed.NamedLedgers, "never_names")
def what_is_not_named_now_goes(self: Any, ledger: Any, _token: str) -> bool:
    """A ledger that its owner has just made, and is about to name, is deleted."""
    return not self.names(ledger.ledger_id)


@by_test(28, PROVED)
@instead_of(unnamed.NamedLedgers, "names")
def cursors_name_nothing(self: Any, ledger_id: int) -> bool:
    """The list alone is read, so a cursor's ledger is deleted once its maker is not the owner any more."""
    return any(each.ledger_id == ledger_id for each in self.ledger_list.ledgers)


@by_test(28, f"{JUDGED}::test_rule_28_who_is_not_the_owner_knows_only_that_the_ids_of_a_list_rise")
@instead_of(unnamed.NamedLedgers, "never_names")
def anybody_decides(self: Any, ledger: Any, token: str) -> bool:
    """A broker that is not the owner takes a ledger that the owner made for one of a former owner."""
    return not self.names(ledger.ledger_id) and ledger.owner_token != token
