"""Mutants of deletion without recovery."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from daybook.client import deletion
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.recovery.deletion import DeletionFence, DeletionPolicy
from daybook.core.recovery.fencing import Fencing
from tests.model.mutants.registry import around, instead_of, mutant

_CORE = "tests/unit/core/recovery/test_deletion.py::"
_CLIENT = "tests/unit/client/test_deletion.py::"
_NOT_DRAWN = "its bookies come back after any time, which a person must rule out before giving a ledger up"
by_test = partial(mutant, not_simulated=_NOT_DRAWN)


@by_test(61, _CORE + "test_rule_61_after_it_no_bookie_that_may_live_can_help_the_writer_to_a_quorum")
def one_fence_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers is fenced, and the others are not asked after."""
    monkeypatch.setattr(Fencing, "is_complete", lambda self: bool(self.fenced))


@by_test(61, _CORE + "test_rule_61_a_registered_bookie_that_does_not_fence_stops_it")
@around(DeletionFence, "__init__")
def a_bookie_that_does_not_answer_is_lost(
    init: Any, self: DeletionFence, ledger_id: int, *, policy: DeletionPolicy, **named: Any
) -> None:
    """Silence counts as loss, although the bookie is registered and may serve the writer."""
    init(self, ledger_id, policy=replace(policy, lost_delay_ms=0), **(named | {"bookies": {}}))


@by_test(
    61, (_CORE + "test_rule_61_a_bookie_that_is_away_is_waited_for_as_long_as_one_may_be_before_it_is_lost")
)
@around(DeletionFence, "__init__")
def a_bookie_that_restarts_is_lost(init: Any, self: DeletionFence, *terms: Any, **named: Any) -> None:
    """A bookie that is not registered at this moment counts as lost; its restart ends a second later."""
    init(self, *terms, **named)
    self.policy = replace(self.policy, lost_delay_ms=0)


@by_test(61, _CORE + "test_rule_61_a_close_without_recovery_is_told_the_highest_lac_of_all_who_answer")
@around(DeletionFence, "__init__")
def a_close_hears_only_as_many_as_a_deletion(
    init: Any, self: DeletionFence, *terms: Any, hears_all: bool = False, **named: Any
) -> None:
    """The ledger ends where the first fenced bookies say, and the next one knew more to be acknowledged."""
    init(self, *terms, **named)


@by_test(61, _CLIENT + "test_rule_61_a_ledger_that_a_topic_names_is_kept_unless_it_is_forced")
@instead_of(deletion, "refuse_if_named")
def topics_are_not_asked_after(_metadata: LedgerMetadata) -> None:
    """The deletion tears a hole into the topic that has the ledger in its list."""
    return
