"""Appends that wait for room keep the order of their calls, whoever makes them and whatever happens meanwhile."""

import asyncio
import gc
from collections.abc import Awaitable
from typing import Any

import pytest

from daybook.core.errors import Code, EntryIdError, LedgerClosedError, LedgerFencedError
from tests.unit.client.handle_kit import SilentBookies, open_handle, turns


async def answer_until_done(bookies: SilentBookies, *waits: "asyncio.Future[Any]") -> None:
    """Acknowledge whatever is sent until all of `waits` are done."""
    while not all(wait.done() for wait in waits):
        bookies.acknowledge()
        await turns()


async def test_rule_60_a_new_append_does_not_overtake_one_that_was_just_let_in() -> None:
    """Room comes, the first who waits may go on; before its task runs, another append is called."""
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        tasks = [asyncio.ensure_future(ledger.append(b"x" * 10)) for _ in range(2)]
        await turns()
        tasks.append(asyncio.ensure_future(ledger.append(b"x" * 10)))  # runs before whoever is woken now
        bookies.acknowledge()
        await answer_until_done(bookies, *tasks)
        assert [task.result() for task in tasks] == [0, 1, 2]


async def test_rule_60_many_tasks_get_their_ids_in_the_order_of_their_calls() -> None:
    async with open_handle(pending_bytes_max=100) as (ledger, bookies):
        calls: list[asyncio.Future[Any]] = []

        def call(append: Awaitable[Any]) -> None:
            calls.append(asyncio.ensure_future(append))

        for turn in range(60):
            call(ledger.append(b"x" * (turn % 70 + 1)))
            call(ledger.append_many([b"y" * 30, b"z" * (turn % 50)]))
            if turn % 3 == 0:
                await turns(turn % 5)
            if turn % 4 == 0:
                bookies.acknowledge()
        await answer_until_done(bookies, *calls)
        ids: list[int] = []
        for outcome in (call.result() for call in calls):
            ids.extend([outcome] if isinstance(outcome, int) else range(outcome[0], outcome[1] + 1))
        assert ids == list(range(180))


async def test_rule_60_a_waiting_append_that_is_cancelled_writes_nothing_and_keeps_nobody_up() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        tasks = [asyncio.ensure_future(ledger.append(b"x" * 10)) for _ in range(4)]
        await turns()
        tasks[1].cancel()
        bookies.acknowledge()
        tasks.append(asyncio.ensure_future(ledger.append(b"x" * 10)))
        await answer_until_done(bookies, *tasks)
        assert tasks.pop(1).cancelled()
        assert [task.result() for task in tasks] == [0, 1, 2, 3]
        assert ledger.last_add_confirmed == 3


async def test_an_append_that_is_cancelled_in_the_turn_in_which_it_was_let_in_leaves_no_error_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is written, as any append that is cancelled too late; that its error is never read is nobody's fault."""

    async def work() -> None:
        async with open_handle(pending_bytes_max=10) as (ledger, bookies):
            tasks = [asyncio.ensure_future(ledger.append(b"x" * 10)) for _ in range(2)]
            await turns()
            bookies.acknowledge()
            tasks[1].cancel()
            await turns()
            bookie, sink, send_id = bookies.sent[0]
            sink.frame_failed(bookie, send_id, Code.FENCED)
            await turns()
            assert (tasks[0].result(), tasks[1].cancelled()) == (0, True)

    await work()
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_rule_60_a_close_lets_in_those_who_called_before_it_and_nobody_after() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        before = [asyncio.ensure_future(ledger.append(b"x" * 10)) for _ in range(4)]
        await turns()
        close = asyncio.ensure_future(ledger.close())
        await turns()
        after = asyncio.ensure_future(ledger.append(b"late"))
        await answer_until_done(bookies, close, after, *before)
        assert [task.result() for task in before] == [0, 1, 2, 3]
        assert close.result().last_entry == 3
        assert isinstance(after.exception(), LedgerClosedError)


async def test_rule_60_a_force_covers_the_appends_that_wait() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        before = [asyncio.ensure_future(ledger.append(b"x" * 10)) for _ in range(3)]
        await turns()
        force = asyncio.ensure_future(ledger.force())
        await answer_until_done(bookies, force, *before)
        assert force.result() == 2


async def test_those_who_wait_when_the_handle_ends_all_fail_and_nothing_of_theirs_is_sent() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        tasks = [asyncio.ensure_future(ledger.append(b"x" * 10)) for _ in range(4)]
        await turns()
        bookie, sink, send_id = bookies.sent[0]
        bookies.sent.clear()
        sink.frame_failed(bookie, send_id, Code.FENCED)
        await turns()
        assert all(isinstance(task.exception(), LedgerFencedError) for task in tasks)
        assert bookies.sent == []


async def test_a_thousand_who_wait_are_let_in_at_once() -> None:
    async with open_handle(pending_bytes_max=2000) as (ledger, bookies):
        large = asyncio.ensure_future(ledger.append(b"x" * 2000))
        small = [asyncio.ensure_future(ledger.append(b"")) for _ in range(2000)]
        await turns()
        bookies.acknowledge()
        await answer_until_done(bookies, large, *small)
        assert [task.result() for task in small] == list(range(1, 2001))


async def test_rule_55_the_entry_that_fills_a_gap_never_waits_for_those_behind_it() -> None:
    """They could not complete without it, and there would be no room for ever."""
    async with open_handle(pending_bytes_max=10, explicit_ids=True) as (ledger, bookies):
        behind = asyncio.ensure_future(ledger.append(b"x" * 10, entry_id=2))
        await turns()
        waiting = [asyncio.ensure_future(ledger.append(b"y", entry_id=number)) for number in (3, 1)]
        await turns()
        filler = asyncio.ensure_future(ledger.append(b"z" * 10, entry_id=0))
        await answer_until_done(bookies, behind, filler, *waiting)
        assert [behind.result(), filler.result(), *(task.result() for task in waiting)] == [2, 0, 3, 1]


async def test_rule_60_of_two_appends_with_one_id_the_first_call_wins() -> None:
    async with open_handle(pending_bytes_max=10, explicit_ids=True) as (ledger, bookies):
        tasks = [asyncio.ensure_future(ledger.append(b"x" * 10, entry_id=number)) for number in (0, 1, 1)]
        await answer_until_done(bookies, *tasks)
        assert [tasks[0].result(), tasks[1].result()] == [0, 1]
        assert isinstance(tasks[2].exception(), EntryIdError)
