"""Mutants of a writer's handle in the client."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from daybook.client import ledger
from daybook.client.admission import Admission, _Waiting
from daybook.client.ledger import Ledger
from daybook.core.errors import DaybookError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.writer.writer import LedgerWriter
from daybook.metadata.ledgers import LedgerManager
from daybook.runtime.shielded import shielded
from tests.model.mutants.catalog.swarms import SHIPPED
from tests.model.mutants.registry import around, instead_of, mutant


@mutant(
    11,
    "tests/unit/client/test_ledger_handle.py::test_rule_11_a_bookie_that_sees_the_close_first_does_not_make_it_fail",
)
def a_handle_that_ends_gives_its_close_up(monkeypatch: pytest.MonkeyPatch) -> None:
    "Why: the close may have landed, and the bookie that refuses an entry may have refused it for that very reason."
    monkeypatch.setattr(LedgerWriter, "is_done", True)


@mutant(
    60,
    "tests/unit/client/test_append_order.py::test_rule_60_a_new_append_does_not_overtake_one_that_was_just_let_in",
    swarm=SHIPPED,
)
def who_waits_appends_when_the_loop_comes_to_him(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited for room is only woken; until he runs, another append finds nobody waiting and goes first."""

    def append(self: Admission, waiting: _Waiting) -> None:
        try:
            waiting.admitted.set_result(self._enter(waiting.entries, waiting.entry_ids))
        except DaybookError as error:
            waiting.admitted.set_exception(error)

    def wake(self: Admission, *, all_at_once: bool = False) -> None:
        if self._waiting and (all_at_once or self._has_ended() or self._is_below_bounds):
            asyncio.get_running_loop().call_soon(append, self, self._waiting.popleft())

    monkeypatch.setattr(Admission, "admit", wake)


@mutant(
    55,
    "tests/unit/client/test_append_soon.py::test_rule_55_the_entry_that_fills_a_gap_is_taken_although_there_is_no_room",
    not_simulated="the simulator's users of the client's handles choose no ids",
)
@around(Admission, "make_room")
def there_is_no_room_for_the_entry_that_all_wait_for(
    make_room: Any, self: Admission, size_bytes: int, _entry_ids: object
) -> None:
    """The entry that fills a gap is refused like any other while too much is pending."""
    make_room(self, size_bytes, None)


@mutant(
    11,
    "tests/unit/client/test_ledger_events.py::test_rule_11_close_after_a_fence_returns_the_end_that_the_other_client_wrote",
    not_simulated="to raise is not wrong for the ledger: only its user does not learn an end that metadata states",
)
@instead_of(ledger, "closed_by_another")
async def who_was_fenced_does_not_learn_the_end(
    ledger_id: LedgerId, ledgers: LedgerManager, ended: DaybookError
) -> LedgerMetadata:
    """`close` raises why the handle ended, whatever metadata states by now."""
    raise ended


@mutant(
    21,
    "tests/unit/client/test_ledger_handle.py::test_rule_21_who_leaves_a_ledger_waits_for_the_close_that_its_handle_still_owes",
    not_simulated="simulated users close their ledgers",
)
@around(Ledger, "__aexit__")
async def who_leaves_waits_for_no_close_of_an_ended_handle(
    leave: Callable[..., Awaitable[None]], self: Ledger, *error: Any
) -> None:
    """A handle that ended by itself is left at once, and its ledger stays open if the client is closed then."""
    if self.error is None:
        await leave(self, *error)


@mutant(
    11,
    "tests/unit/client/test_ledger_handle.py::test_rule_11_a_close_that_lost_the_race_is_asked_again_and_returns_the_winners_end",
    not_simulated="to raise is not wrong for the ledger: only its user does not learn an end that metadata states",
)
@around(Ledger, "close")
async def a_close_keeps_its_first_error(
    close: Callable[..., Awaitable[LedgerMetadata]], self: Ledger
) -> LedgerMetadata:
    """Whoever asks again gets the outcome of the first attempt."""
    if self._closing is not None:
        await shielded(self._closing)
    return await close(self)
