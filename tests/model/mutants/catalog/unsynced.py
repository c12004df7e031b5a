"""Mutants of the journal thread: what it refused for want of space counts as durable."""

import pytest

from daybook.core.bookie.refusals import Refusals
from tests.model.mutants.catalog.swarms import FULL_JOURNALS
from tests.model.mutants.registry import mutant

TESTS = "tests/unit/bookie/upkeep/test_server_unsynced.py::"


@mutant(
    22,
    TESTS + "test_rule_22_a_force_does_not_answer_for_what_the_journal_refused",
    swarm=FULL_JOURNALS,
)
def a_force_answers_for_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A force is answered although the journal had no space for frames that were accepted before it."""
    monkeypatch.setattr(Refusals, "owes", property(lambda _: False))


@mutant(
    47,
    TESTS + "test_rule_47_what_the_journal_refused_is_not_listed_before_the_store_has_it",
    swarm=FULL_JOURNALS,
)
def refused_frames_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing reports entries to a repair that a power cut would take away."""
    monkeypatch.setattr(Refusals, "owes", property(lambda _: False))
