"""Mutants of the journal thread: what it refused for want of space counts as durable."""

from functools import partial

import pytest

from daybook.core.bookie.refusals import Refusals
from tests.model.mutants.registry import mutant

_SERVER = "it is in the bookie's server; the simulator has a bookie of its own around the core"
by_test = partial(mutant, not_simulated=_SERVER)

TESTS = "tests/unit/bookie/upkeep/test_server_unsynced.py::"


@by_test(22, TESTS + "test_rule_22_a_force_does_not_answer_for_what_the_journal_refused")
def a_force_answers_for_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A force is answered although the journal had no space for frames that were accepted before it."""
    monkeypatch.setattr(Refusals, "owes", property(lambda _: False))


@by_test(47, TESTS + "test_rule_47_what_the_journal_refused_is_not_listed_before_the_store_has_it")
def refused_frames_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing reports entries to a repair that a power cut would take away."""
    monkeypatch.setattr(Refusals, "owes", property(lambda _: False))
