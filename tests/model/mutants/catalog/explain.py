"""Mutants of `topic explain`, which judges whether a broker may be the owner that it reports to be."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from daybook.cli.topic.explain import explain
from daybook.cli.topic.explain.topic_steps import fencing, session
from tests.model.mutants.registry import mutant

_TESTS = "tests/unit/cli/topic/test_explain.py::"
by_test = partial(mutant, not_simulated="nobody asks for explanations in the simulated cluster")


def _order(judge: Any, other: Any) -> tuple[Any, ...]:
    return tuple(other if each is judge else each for each in explain.ORDER)


def _fencing_by_report(snapshot: Any, dialect: Any) -> Any:
    return fencing(replace(snapshot, stored=None), dialect)


def _session_by_registration(snapshot: Any, dialect: Any) -> Any:
    return session(replace(snapshot, broker=None), dialect)


@by_test(38, f"{_TESTS}test_rule_38_a_list_that_another_broker_wrote_is_wrong_whatever_the_owner_reports")
def what_an_owner_reports_of_itself_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody compares what a broker reports with the list of the topic."""
    monkeypatch.setattr(explain, "ORDER", _order(fencing, _fencing_by_report))


@by_test(46, f"{_TESTS}test_rule_46_an_owner_that_is_not_certain_of_its_session_is_wrong")
def a_registered_owner_is_believed_to_have_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registration of a broker counts as its session."""
    monkeypatch.setattr(explain, "ORDER", _order(session, _session_by_registration))
