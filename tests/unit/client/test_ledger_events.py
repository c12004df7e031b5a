"""What a writer's handle reports by itself, and how it closes after its end, with bookies that a test plays by hand."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from daybook.client.events import (
    LedgerClosed,
    LedgerDegraded,
    LedgerEnded,
    LedgerEvent,
    LedgerFenced,
    LedgerWhole,
)
from daybook.client.ledger import Ledger
from daybook.core.errors import Code, LedgerClosedError, LedgerFencedError, NotEnoughBookiesError
from daybook.core.ledger.metadata import LedgerState
from daybook.core.writer.policy import WriterPolicy
from daybook.runtime.clock import monotonic_ms
from tests.unit.client.handle_kit import SilentBookies, open_handle, turns


async def append_without(ledger: Ledger, bookies: SilentBookies, code: Code) -> str:
    """Append an entry that the last bookie answers with `code` and the others acknowledge; the last bookie."""
    appended = asyncio.ensure_future(ledger.append(b"x"))
    await turns()
    last, sink, send_id = bookies.sent.pop()
    sink.frame_failed(last, send_id, code)
    bookies.acknowledge()
    await asyncio.gather(appended, return_exceptions=True)
    return last


async def recovered_by_another(ledger: Ledger, *, closed: bool) -> Any:
    """Another client marks the ledger IN_RECOVERY, and closes it unless it is not `closed`."""
    found = await ledger._surroundings.ledgers.read(ledger.id)
    found = await ledger._surroundings.ledgers.cas(found, replace(found.value, state=LedgerState.IN_RECOVERY))
    return (
        (await ledger._surroundings.ledgers.cas(found, found.value.closed(0, 1))).value
        if closed
        else found.value
    )


async def test_a_close_is_the_only_event_of_a_healthy_handle() -> None:
    events: list[LedgerEvent] = []
    async with open_handle(on_event=events.append) as (ledger, bookies):
        appended = asyncio.ensure_future(ledger.append(b"x"))
        await turns()
        bookies.acknowledge()
        await appended
        metadata = await ledger.close()
        await turns()
    assert events == [LedgerClosed(metadata)]


async def test_a_bookie_that_is_missing_and_returns_is_reported() -> None:
    events: list[LedgerEvent] = []
    async with open_handle(on_event=events.append) as (ledger, bookies):
        lost = await append_without(ledger, bookies, Code.CONNECTION_LOST)
        await turns()
        assert events == [LedgerDegraded((lost,))]
        bookies.timers.tick(monotonic_ms() + 10_000)
        bookies.acknowledge()
        while len(events) < 2:
            await turns()
            bookies.acknowledge()
        assert events[1:] == [LedgerWhole()]


async def test_a_fence_is_the_last_event_of_a_ledger_that_another_client_closes() -> None:
    events: list[LedgerEvent] = []
    async with open_handle(on_event=events.append) as (ledger, bookies):
        await append_without(ledger, bookies, Code.FENCED)
        await turns()
        (event,) = events
        assert isinstance(event, LedgerFenced)
        assert event.error is ledger.error
        await recovered_by_another(ledger, closed=False)
        with pytest.raises(LedgerFencedError):
            await ledger.close()
    assert events == [event]


async def test_rule_11_close_after_a_fence_returns_the_end_that_the_other_client_wrote() -> None:
    async with open_handle() as (ledger, bookies):
        await append_without(ledger, bookies, Code.FENCED)
        final = await recovered_by_another(ledger, closed=True)
        assert await ledger.close() == final
        assert await ledger.close() == final


async def test_close_after_a_fence_and_a_deletion_raises_why_the_handle_ended() -> None:
    async with open_handle() as (ledger, bookies):
        await append_without(ledger, bookies, Code.FENCED)
        await ledger._surroundings.ledgers.delete(
            ledger.id, (await ledger._surroundings.ledgers.read(ledger.id)).version
        )
        with pytest.raises(LedgerFencedError):
            await ledger.close()


async def test_close_after_the_end_waits_for_the_automatic_close() -> None:
    """The changes of the ensemble are spent: the handle ends, and closes its ledger behind what is under way."""
    events: list[LedgerEvent] = []
    policy = WriterPolicy(ensemble_changes_max=0)
    async with open_handle(policy=policy, on_event=events.append) as (ledger, bookies):
        lost = await append_without(ledger, bookies, Code.CONNECTION_LOST)
        under_way = asyncio.ensure_future(ledger.append(b"y"))
        await turns()
        held, bookies.sent = bookies.sent, []
        bookies.timers.tick(monotonic_ms() + 10_000)
        (asked,) = [each for each in bookies.sent if each[0] == lost]
        asked[1].frame_acked(lost, asked[2], "boot")
        await turns()
        assert [type(event) for event in events] == [LedgerDegraded, LedgerEnded]
        closing = asyncio.ensure_future(ledger.close())
        await turns()
        assert not closing.done()
        for bookie, sink, number in held:
            sink.frame_acked(bookie, number, "boot")
        metadata = await closing
        assert (await under_way, metadata.last_entry) == (1, 1)
        await turns()
        assert events[2:] == [LedgerClosed(metadata)]
        assert isinstance(ledger.error, NotEnoughBookiesError)


async def test_an_abandoned_handle_reports_its_end_and_cannot_close() -> None:
    events: list[LedgerEvent] = []
    async with open_handle(on_event=events.append) as (ledger, _):
        await ledger.abandon()
        with pytest.raises(LedgerClosedError, match="abandoned"):
            await ledger.close()
    assert [type(event) for event in events] == [LedgerEnded]


async def test_a_listener_may_use_the_handle_and_its_errors_do_not_end_it() -> None:
    """It is called outside the machine's step."""
    appended: list[asyncio.Future[int]] = []
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

    def listen(_event: LedgerEvent) -> None:
        appended.append(asyncio.ensure_future(ledger.append(b"from the listener")))
        msg = "a listener's own error"
        raise RuntimeError(msg)

    async with open_handle(on_event=listen) as (ledger, bookies):
        await append_without(ledger, bookies, Code.CONNECTION_LOST)
        await turns()
        bookies.acknowledge()
        assert await appended[0] == 1
        assert [str(error) for error in errors] == ["a listener's own error"]
        assert ledger.error is None
