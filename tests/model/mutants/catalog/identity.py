"""Mutants of who answers: a bookie at an address that was another's."""

import grpc
import pytest
from daybook_bookie.service.admission import Admission

from tests.model.mutants.registry import mutant

_SERVER = "it is about network addresses"


@mutant(
    6,
    "tests/unit/client/test_wrong_address.py::test_rule_06_a_bookie_does_not_answer_for_another",
    slow=True,
    not_simulated=_SERVER,
)
def any_bookie_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a bookie's old address testifies in its place."""

    def let_in(self: Admission, details: grpc.HandlerCallDetails) -> object:
        handler = self._handlers.service(details)
        return None if handler is None else self._bounded(handler)

    monkeypatch.setattr(Admission, "service", let_in)
