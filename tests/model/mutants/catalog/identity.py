"""Mutants of who answers: a bookie at an address that was another's."""

import grpc
from daybook_bookie.service.admission import Admission

from tests.model.mutants.registry import instead_of, mutant

_SERVER = "it is about network addresses"


@mutant(
    6,
    "tests/unit/client/test_wrong_address.py::test_rule_06_a_bookie_does_not_answer_for_another",
    slow=True,
    not_simulated=_SERVER,
)
@instead_of(Admission, "service")
def any_bookie_answers(self: Admission, details: grpc.HandlerCallDetails) -> object:
    """Whoever has a bookie's old address testifies in its place."""
    handler = self._handlers.service(details)
    return None if handler is None else self._bounded(handler)
