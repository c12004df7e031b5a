"""What a writer's handle owes to those who wait on it, with bookies that a test plays by hand."""

import asyncio
from contextlib import nullcontext

import pytest

from daybook.client.ledger import Ledger
from daybook.core.errors import (
    Code,
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
    NotEnoughBookiesError,
)
from daybook.core.writer.policy import WriterPolicy
from daybook.runtime.clock import monotonic_ms
from tests.unit.client.handle_kit import SilentBookies, open_handle, turns


async def test_all_who_wait_for_room_are_notified_that_the_handle_ended() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        first = asyncio.create_task(ledger.append(b"x" * 10))
        await turns()
        blocked = [asyncio.create_task(ledger.append(b"y")) for _ in range(4)]
        await turns()
        bookie, sink, send_id = bookies.sent[0]
        sink.frame_failed(bookie, send_id, Code.FENCED)
        outcomes = await asyncio.gather(first, *blocked, return_exceptions=True)
        assert all(isinstance(outcome, LedgerFencedError) for outcome in outcomes)


async def test_all_who_wait_for_room_get_it_in_turn() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        appends = [asyncio.create_task(ledger.append(b"x" * 10)) for _ in range(5)]
        await turns()
        appends[2].cancel()
        while not all(append.done() for append in appends):
            await turns()
            assert ledger.pending_bytes <= 10
            bookies.acknowledge()
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        assert isinstance(outcomes.pop(2), asyncio.CancelledError)
        assert outcomes == [0, 1, 2, 3]


async def test_a_cancelled_append_keeps_its_place() -> None:
    """Its entry may be written; nobody else gets its id."""
    async with open_handle() as (ledger, bookies):
        appends = [asyncio.create_task(ledger.append(b"%d" % n)) for n in range(3)]
        await turns()
        appends[1].cancel()
        await turns()
        bookies.acknowledge()
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        assert (outcomes[0], outcomes[2]) == (0, 2)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert ledger.last_add_confirmed == 2


async def test_two_closes_at_once_both_return_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async with open_handle() as (ledger, bookies):
        append = asyncio.create_task(ledger.append(b"x"))
        await turns()
        closes = [asyncio.create_task(ledger.close()) for _ in range(3)]
        await turns()
        bookies.acknowledge()
        metadata = await closes[0]
        assert (metadata.is_closed, metadata.last_entry, await append) == (True, 0, 0)
        assert await asyncio.gather(*closes) == [metadata] * 3
        assert await ledger.close() == metadata
    assert "machine failed" not in caplog.text


async def test_a_cancelled_close_closes_and_can_be_asked_again() -> None:
    async with open_handle() as (ledger, bookies):
        append = asyncio.create_task(ledger.append(b"x"))
        await turns()
        close = asyncio.create_task(ledger.close())
        await turns()
        close.cancel()
        await turns()
        bookies.acknowledge()
        assert await append == 0
        assert (await ledger.close()).last_entry == 0
        with pytest.raises(LedgerClosedError):
            await ledger.append(b"late")


async def test_rule_11_a_bookie_that_sees_the_close_first_does_not_make_it_fail() -> None:
    """A third bookie that is slow asks the metadata about the ledger when it is closed already, and refuses the entry."""
    async with open_handle() as (ledger, bookies):
        appending = asyncio.ensure_future(ledger.append(b"x"))
        await turns()
        *two, (slow, sink, send_id) = bookies.sent
        for bookie, of, number in two:
            of.frame_acked(bookie, number, "boot")
        assert await appending == 0
        closing = asyncio.ensure_future(ledger.close())
        await asyncio.sleep(0)
        sink.frame_failed(slow, send_id, Code.NOT_OPEN)
        with pytest.raises(LedgerFencedError):
            await ledger.append(b"y")
        metadata = await closing
        assert (metadata.is_closed, metadata.last_entry) == (True, 0)
        assert await ledger.close() == metadata


async def test_a_handle_that_ended_and_closes_can_be_abandoned() -> None:
    async with open_handle() as (ledger, bookies):
        appending = asyncio.ensure_future(ledger.append(b"x"))
        await turns()
        closing = asyncio.ensure_future(ledger.close())
        await asyncio.sleep(0)
        bookie, sink, send_id = bookies.sent[0]
        sink.frame_failed(bookie, send_id, Code.FENCED)
        await ledger.abandon()
        with pytest.raises(LedgerFencedError):
            await appending
        with pytest.raises(LedgerClosedError, match="abandoned"):
            await closing


async def test_rule_21_a_handle_whose_changes_are_spent_says_so_and_closes_its_ledger() -> None:
    """The bookie that went missing is back; to take it in again would be a change too many."""
    async with open_handle(policy=WriterPolicy(ensemble_changes_max=0)) as (ledger, bookies):
        first = asyncio.ensure_future(ledger.append(b"x"))
        await turns()
        *_, (lost, sink, send_id) = bookies.sent
        sink.frame_failed(lost, send_id, Code.CONNECTION_LOST)
        bookies.sent.pop()
        bookies.acknowledge()
        assert await first == 0
        assert (ledger.missing, ledger.error) == ((lost,), None)
        last = asyncio.ensure_future(ledger.append(b"y"))
        await turns()
        under_way, bookies.sent = bookies.sent, []
        bookies.timers.tick(monotonic_ms() + 10_000)
        (asked,) = [each for each in bookies.sent if each[0] == lost]
        sink.frame_acked(lost, asked[2], "boot")
        assert isinstance(ledger.error, NotEnoughBookiesError)
        with pytest.raises(NotEnoughBookiesError, match="continue in a new ledger"):
            await ledger.append(b"z")
        closing = asyncio.ensure_future(ledger.close())
        for bookie, of, number in under_way:
            of.frame_acked(bookie, number, "boot")
        assert await last == 1, "what was under way completes"
        assert (await closing).last_entry == 1
        with pytest.raises(NotEnoughBookiesError):
            await ledger.append(b"z")


async def test_entries_without_payload_are_waited_for_until_every_bookie_has_them() -> None:
    async with open_handle() as (ledger, bookies):
        appending = asyncio.ensure_future(ledger.append(b""))
        await turns()
        replicated = asyncio.ensure_future(ledger.replicated())
        await turns()
        assert not replicated.done(), "no bookie has it"
        *two, (slow, sink, send_id) = bookies.sent
        for bookie, of, number in two:
            of.frame_acked(bookie, number, "boot")
        assert await appending == 0
        assert not replicated.done(), "one bookie does not have it"
        sink.frame_acked(slow, send_id, "boot")
        await turns()
        assert replicated.done()


async def test_who_gives_up_waiting_on_an_idle_ledger_is_forgotten() -> None:
    async with open_handle() as (ledger, _):
        waits = [asyncio.ensure_future(ledger.risen(-1)) for _ in range(3)]
        waits.append(asyncio.ensure_future(ledger.replicated()))
        await turns()
        assert waits.pop().done(), "nothing is owed"
        waits[1].cancel()
        await turns()
        assert len(ledger._conditions.waiting) == 2
        await ledger.abandon()
        await asyncio.gather(*waits, return_exceptions=True)
        assert not ledger._conditions.waiting


@pytest.mark.parametrize("is_raised", [False, True])
async def test_rule_21_who_leaves_a_ledger_waits_for_the_close_that_its_handle_still_owes(
    is_raised: bool,
) -> None:
    """The client's exit would abandon it, and the ledger would stay open."""
    async with open_handle() as (ledger, bookies):
        with pytest.raises(EntryTooLargeError) if is_raised else nullcontext():
            async with ledger:
                ledger.append_soon(b"x", lambda *_: None)
                await turns()
                for bookie, sink, send_id in bookies.sent:
                    sink.frame_failed(bookie, send_id, Code.TOO_LARGE)
                assert isinstance(ledger.error, EntryTooLargeError)
                assert not ledger.metadata.is_closed
                if is_raised:
                    raise ledger.error
        assert (ledger.metadata.is_closed, ledger.metadata.last_entry) == (True, -1)


async def test_rule_21_an_error_of_the_close_that_a_handle_owes_hides_no_other() -> None:
    """The user has the refusal of an entry already; the close finds that another client recovers the ledger."""

    async def use(ledger: Ledger, bookies: SilentBookies) -> None:
        async with ledger:
            ledger.append_soon(b"x", lambda *_: None)
            await turns()
            current = await ledger._surroundings.ledgers.read(ledger.id)
            await ledger._surroundings.ledgers.cas(current, current.value.in_recovery())
            for bookie, sink, send_id in bookies.sent:
                sink.frame_failed(bookie, send_id, Code.TOO_LARGE)
            assert ledger.error is not None
            raise ledger.error

    async with open_handle() as (ledger, bookies):
        with pytest.raises(EntryTooLargeError):
            await use(ledger, bookies)
        assert ledger.is_over


async def test_rule_11_a_close_that_lost_the_race_is_asked_again_and_returns_the_winners_end() -> None:
    async with open_handle() as (ledger, _):
        ledgers = ledger._surroundings.ledgers
        current = await ledgers.read(ledger.id)
        marked = await ledgers.cas(current, current.value.in_recovery())
        for _ in range(2):
            with pytest.raises(LedgerFencedError):
                await ledger.close()
        closed = await ledgers.cas(marked, marked.value.closed(-1, 0))
        assert await ledger.close() == closed.value


async def test_a_close_after_an_abandoned_one_returns_the_end_once_there_is_one() -> None:
    async with open_handle() as (ledger, _):
        appending = asyncio.ensure_future(ledger.append(b"x"))
        await turns()
        closing = asyncio.ensure_future(ledger.close())
        await turns()
        await ledger.abandon()
        for each in (appending, closing, asyncio.ensure_future(ledger.close())):
            with pytest.raises(LedgerClosedError, match="abandoned"):
                await each
        ledgers = ledger._surroundings.ledgers
        current = await ledgers.read(ledger.id)
        closed = await ledgers.cas(current, current.value.closed(-1, 0))
        assert await ledger.close() == closed.value
