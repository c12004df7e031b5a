"""Mutants of a writer's handle in the client."""

import pytest

from daybook.core.writer import LedgerWriter
from tests.mutants.registry import mutant


@mutant(
    rule=11,
    caught_by="tests/client/test_ledger_handle.py::test_rule_11_a_bookie_that_sees_the_close_first_does_not_make_it_fail",
)
def a_handle_that_ends_gives_its_close_up(monkeypatch: pytest.MonkeyPatch) -> None:
    "Why: the close may have landed, and the bookie that refuses an entry may have refused it for that very reason."
    monkeypatch.setattr(LedgerWriter, "is_closing", False)
