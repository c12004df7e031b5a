"""Mutants of rule 57: two processes of one bookie id, of which one is no bookie any more.

Those of the processes themselves are here, and in `simulator.py` those of the simulator's models of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from daybook_bookie.service.admission import Admission

from daybook.client.driver import driver
from daybook.client.transport.channels import ChannelPool
from daybook.client.transport.frame_sender import FrameSender
from daybook.metadata import bookies, claim
from daybook.wire import service
from tests.model.mutants.registry import mutant

_PROCESSES = "the simulator has models of its own of boot, registration and addresses; their mutants are in simulator.py"
by_test = partial(mutant, not_simulated=_PROCESSES)
_BOOT = "tests/unit/bookie/identity/test_server_incarnations.py"
_CLAIM = "tests/unit/metadata/test_claim.py"
_CLIENT = "tests/unit/client/test_incarnations.py"


@by_test(57, f"{_CLAIM}::test_rule_57_a_process_whose_cookie_was_replaced_registers_no_more")
def incarnations_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process registers whatever cookie ZooKeeper has."""

    async def version(self: claim.Claim) -> int:
        node = await self._directory.cookie(self.bookie)
        assert node is not None
        return node.version

    monkeypatch.setattr(claim.Claim, "check_cookie", version)


@by_test(57, f"{_BOOT}::test_rule_57_an_old_process_takes_no_first_frame_while_another_boots")
def first_frames_do_not_look_at_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 20's read is of the ledger alone."""

    async def agree(self: claim.Claim) -> None:
        return None

    monkeypatch.setattr(claim.Claim, "check", agree)


@by_test(57, f"{_BOOT}::test_rule_57_a_cookie_is_stamped_only_under_the_claim_that_limbo_was_listed_under")
def cookies_are_stamped_without_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that was lost since limbo was listed is not missed."""

    async def commit(self: claim.Claim, operations: Any) -> None:
        await self._store.multi(operations)

    monkeypatch.setattr(claim.Claim, "commit", commit)


@by_test(57, f"{_CLAIM}::test_rule_57_a_claim_keeps_every_other_process_from_registering")
def registering_takes_no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process registers beside another one that has the claim."""

    async def register(self: claim.Claim, _watch: Any, operations: Any) -> bool:
        await self._store.multi(operations)
        return True

    monkeypatch.setattr(claim.Claim, "register", register)


@by_test(57, f"{_CLAIM}::test_rule_57_an_authorised_replacement_ends_by_the_clock_of_the_servers")
def leaves_last_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """An authorised replacement that nobody used stays."""

    async def any_age(self: bookies.BookieDirectory, bookie: str, *, at_ms: int | None) -> Any:
        return await self.replacement(bookie)

    monkeypatch.setattr(bookies.BookieDirectory, "valid_replacement", any_age)


@by_test(57, f"{_CLIENT}::test_rule_57_a_stream_to_a_process_that_is_not_registered_carries_nothing")
def streams_take_any_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client sends to whichever process of the bookie answers at its address."""

    async def agree(self: ChannelPool, _bookie: str, _boot_id: str) -> bool:
        return True

    monkeypatch.setattr(ChannelPool, "_is_registered", agree)


@by_test(57, f"{_CLIENT}::test_rule_57_a_stream_ends_when_another_process_registers")
def streams_outlive_the_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream to an old process goes on beside its replacement."""
    monkeypatch.setattr(FrameSender, "registered_as", lambda self, boot_id: None)


@by_test(57, f"{_CLIENT}::test_rule_57_only_a_registered_process_testifies")
def recoveries_ask_whom_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence goes to the process that the last list of bookies named."""

    async def as_known(self: driver.MachineDriver, bookie: str) -> Any:
        return self._channels.calls(bookie)

    monkeypatch.setattr(driver.MachineDriver, "_witness", as_known)


@by_test(57, f"{_CLIENT}::test_rule_57_nothing_is_sent_to_a_bookie_named_anew_before_it_was_found_registered")
def bookies_named_anew_are_sent_frames_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer trusts the list that it chose the bookie from."""

    async def trust(self: driver.MachineDriver, _bookies: Any) -> None:
        return None

    monkeypatch.setattr(driver.MachineDriver, "_confirm_named", trust)


@mutant(
    57,
    "tests/unit/client/test_wrong_address.py::test_rule_57_a_process_does_not_answer_for_another_of_its_bookie",
    slow=True,
    not_simulated=_PROCESSES,
)
def any_process_of_a_bookie_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie does not look for which process of it a call is meant."""
    serve: Callable[..., Any] = Admission.service

    def let_in(self: Admission, details: Any) -> Any:
        meant = [(key, value) for key, value in details.invocation_metadata if key != service.BOOT_METADATA]
        return serve(self, details._replace(invocation_metadata=meant))

    monkeypatch.setattr(Admission, "service", let_in)
