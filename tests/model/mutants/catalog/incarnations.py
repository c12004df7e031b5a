"""Mutants of rule 57: two processes of one bookie id, of which one is no bookie any more.

Those of the processes themselves are here, and in `simulator.py` those of the simulator's models of them.
"""

from functools import partial
from typing import Any

import pytest
from daybook_bookie.service.admission import Admission

from daybook.client.transport.channels import ChannelPool
from daybook.client.transport.frame_sender import FrameSender
from daybook.metadata import bookies, claim
from daybook.wire import service
from tests.model.mutants.registry import around, instead_of, mutant

_PROCESSES = "the simulator has models of its own of boot, registration and addresses; their mutants are in simulator.py"
by_test = partial(mutant, not_simulated=_PROCESSES)
_BOOT = "tests/unit/bookie/identity/test_server_incarnations.py"
_CLAIM = "tests/unit/metadata/test_claim.py"
_CLIENT = "tests/unit/client/test_incarnations.py"


@by_test(57, f"{_CLAIM}::test_rule_57_a_process_whose_cookie_was_replaced_registers_no_more", slow=True)
@instead_of(claim.Claim, "check_cookie")
async def incarnations_are_not_compared(self: claim.Claim) -> int:
    """A process registers whatever cookie ZooKeeper has."""
    node = await self._directory.cookie(self.bookie)
    assert node is not None
    return node.version


@by_test(57, f"{_BOOT}::test_rule_57_an_old_process_takes_no_first_frame_while_another_boots")
@instead_of(claim.Claim, "check")
async def first_frames_do_not_look_at_the_claim(self: claim.Claim) -> None:
    """Rule 20's read is of the ledger alone."""
    return


@by_test(57, f"{_BOOT}::test_rule_57_a_cookie_is_stamped_only_under_the_claim_that_limbo_was_listed_under")
@instead_of(claim.Claim, "commit")
async def cookies_are_stamped_without_the_claim(self: claim.Claim, operations: Any, **named: Any) -> None:
    """A claim that was lost since limbo was listed is not missed."""
    await self._store.multi(operations, **named)


@by_test(
    57, f"{_CLAIM}::test_rule_57_a_change_that_waited_for_zookeeper_leaves_a_successors_registration_alone"
)
@instead_of(claim.Claim, "commit")
async def registrations_are_changed_without_the_claim(
    self: claim.Claim, operations: Any, **named: Any
) -> None:
    """A change of a registration changes whatever node is at its path."""
    await self._store.multi(operations, **named)


@by_test(57, f"{_CLAIM}::test_rule_57_an_idle_process_notices_its_successors_registration", slow=True)
@instead_of(claim.Claim, "is_own_registration")
def any_node_at_the_path_is_ones_own(_self: claim.Claim, _data: bytes) -> bool:
    """A process that finds a registration of its bookie believes that it is registered."""
    return True


@by_test(57, f"{_CLAIM}::test_rule_57_a_claim_keeps_every_other_process_from_registering")
@instead_of(claim.Claim, "register")
async def registering_takes_no_claim(self: claim.Claim, _watch: Any, operations: Any) -> bool:
    """A process registers beside another one that has the claim."""
    await self._store.multi(operations)
    return True


@by_test(57, f"{_CLAIM}::test_rule_57_an_authorised_replacement_ends_by_the_clock_of_the_servers")
@instead_of(bookies.BookieDirectory, "valid_replacement")
async def leaves_last_for_ever(self: bookies.BookieDirectory, bookie: str, *, at_ms: int | None) -> Any:
    """An authorised replacement that nobody used stays."""
    return await self.replacement(bookie)


@by_test(57, f"{_CLIENT}::test_rule_57_a_stream_to_a_process_that_is_not_registered_carries_nothing")
@around(FrameSender, "__init__")
def streams_take_any_hello(
    init: Any, self: FrameSender, bookie: str, open_link: Any, _is_registered: Any, *others: Any
) -> None:
    """A client sends to whichever process of the bookie answers at its address."""

    async def anyone(_boot_id: str) -> bool:
        return True

    init(self, bookie, open_link, anyone, *others)


@by_test(57, f"{_CLIENT}::test_rule_57_a_stream_ends_when_another_process_registers")
def streams_outlive_the_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream to an old process goes on beside its replacement."""
    monkeypatch.setattr(FrameSender, "registered_as", lambda self, boot_id: None)


@by_test(57, f"{_CLIENT}::test_rule_57_only_a_registered_process_testifies")
@instead_of(ChannelPool, "confirm")
async def recoveries_ask_whom_they_know(_self: ChannelPool, _bookie: str) -> bool:
    """A fence goes to the process that the last list of bookies named."""
    return True


@by_test(57, f"{_CLIENT}::test_rule_57_nothing_is_sent_to_a_bookie_named_anew_before_it_was_found_registered")
@instead_of(ChannelPool, "confirm")
async def bookies_named_anew_are_sent_frames_at_once(_self: ChannelPool, _bookie: str) -> bool:
    """The same of a writer: it trusts the list that it chose the bookie from."""
    return True


@mutant(
    57,
    "tests/unit/client/test_wrong_address.py::test_rule_57_a_process_does_not_answer_for_another_of_its_bookie",
    slow=True,
    not_simulated=_PROCESSES,
)
@around(Admission, "service")
def any_process_of_a_bookie_answers(serve: Any, self: Admission, details: Any) -> Any:
    """A bookie does not look for which process of it a call is meant."""
    meant = [(key, value) for key, value in details.invocation_metadata if key != service.BOOT_METADATA]
    return serve(self, details._replace(invocation_metadata=meant))
