"""Appends without a task: the id at once and for good, callbacks in order, and room for the ledger and for the whole client."""

import asyncio
from collections.abc import Callable

import pytest

from daybook.client.driver.shared import Shared
from daybook.core.errors import (
    BacklogFullError,
    Code,
    DaybookError,
    EntryIdError,
    EntryTooLargeError,
    FrameError,
    LedgerClosedError,
    LedgerFencedError,
)
from daybook.core.ids import ENTRY_BYTES_MAX
from tests.unit.client.handle_kit import SilentBookies, open_handle, turns


class Outcomes:
    """What the callbacks were given, in the order of the calls."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.errors: list[tuple[int, DaybookError]] = []

    def __call__(self, entry_id: int, error: DaybookError | None) -> None:
        if error is None:
            self.ids.append(entry_id)
        else:
            self.errors.append((entry_id, error))


async def settle(bookies: SilentBookies, is_done: Callable[[], bool]) -> None:
    """Acknowledge whatever is sent until `is_done`."""
    while not is_done():
        bookies.acknowledge()
        await turns()


async def test_an_id_is_known_at_once_and_acknowledged_in_order() -> None:
    async with open_handle() as (ledger, bookies):
        done = Outcomes()
        assert [ledger.append_soon(b"%d" % n, done) for n in range(50)] == list(range(50))
        await turns()
        assert done.ids == []
        await settle(bookies, lambda: len(done.ids) == 50)
        assert done.ids == list(range(50))
        assert ledger.last_add_confirmed == 49


async def test_a_run_is_appended_and_acknowledged_as_one() -> None:
    async with open_handle() as (ledger, bookies):
        done = Outcomes()
        assert ledger.append_run_soon([b"a", b"b", b"c"], done) == 2
        assert ledger.append_soon(b"d", done) == 3
        assert ledger.append_run_soon([b"e", b"f"], done) == 5
        await settle(bookies, lambda: len(done.ids) == 3)
        assert done.ids == [2, 3, 5]
        await ledger.abandon()
        with pytest.raises(LedgerClosedError):
            ledger.append_run_soon([b"g"], done)


async def test_a_run_without_entries_is_refused() -> None:
    """It would acknowledge the entry before it, which is on its way."""
    async with open_handle() as (ledger, _):
        done = Outcomes()
        ledger.append_soon(b"a", done)
        with pytest.raises(ValueError, match="at least one entry"):
            ledger.append_run_soon([], done)
        await turns()
        assert done.ids == []


async def test_rule_60_the_order_of_appends_that_wait_and_of_those_that_do_not_is_that_of_the_calls() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        done = Outcomes()
        waiting = [asyncio.ensure_future(ledger.append(b"x" * 4)) for _ in range(4)]
        await turns()
        assert not ledger.has_room
        assert ledger.append_soon(b"y", done) == 4
        last = asyncio.ensure_future(ledger.append(b"z"))
        await settle(bookies, last.done)
        assert [task.result() for task in (*waiting, last)] == [0, 1, 2, 3, 5]
        assert done.ids == [4]


async def test_beyond_the_hard_bound_nothing_is_taken() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        done = Outcomes()
        ledger.append_soon(b"x" * 10, done)
        assert not ledger.has_room
        assert ledger.append_soon(b"y" * 10, done) == 1
        with pytest.raises(BacklogFullError, match="call_when_room"):
            ledger.append_soon(b"z", done)
        room = asyncio.Event()
        ledger.call_when_room(room.set)
        assert not room.is_set()
        await settle(bookies, room.is_set)
        assert (ledger.has_room, done.ids) == (True, [0, 1])
        assert ledger.append_soon(b"z", done) == 2


async def test_what_waits_counts_for_the_hard_bound_and_is_not_let_in_for_what_is_refused() -> None:
    async with open_handle(pending_bytes_max=10) as (ledger, bookies):
        waiting = [asyncio.ensure_future(ledger.append(b"x" * 10)) for _ in range(3)]
        await turns()
        with pytest.raises(BacklogFullError, match="the ledger would have"):
            ledger.append_soon(b"y", Outcomes())
        assert ledger.pending_bytes == 10
        await settle(bookies, waiting[-1].done)
        assert [task.result() for task in waiting] == [0, 1, 2]


async def test_all_ledgers_of_a_client_share_one_bound() -> None:
    shared = Shared(0, pending_bytes_max=20)
    async with (
        open_handle(shared=shared) as (one, its_bookies),
        open_handle(shared=shared) as (other, bookies),
    ):
        done = Outcomes()
        one.append_soon(b"x" * 20, done)
        assert (one.has_room, other.has_room) == (False, False)
        waiting = asyncio.ensure_future(other.append(b"y"))
        await turns()
        assert (bookies.sent, shared.pending.size_bytes) == ([], 20)
        with pytest.raises(BacklogFullError, match="all ledgers of the client"):
            other.append_soon(b"z" * 20, done)
        room = asyncio.Event()
        other.call_when_room(room.set)
        await turns()
        its_bookies.acknowledge()
        await turns()
        assert room.is_set()
        await settle(bookies, waiting.done)
        assert (waiting.result(), shared.pending.size_bytes) == (0, 0)


async def test_room_of_the_client_goes_to_those_who_waited_longest_as_far_as_it_reaches() -> None:
    shared = Shared(0, pending_bytes_max=20)
    async with (
        open_handle(shared=shared) as (one, its_bookies),
        open_handle(shared=shared) as (second, second_bookies),
        open_handle(shared=shared) as (third, third_bookies),
    ):
        one.append_soon(b"x" * 20, Outcomes())
        waiting = [asyncio.ensure_future(ledger.append(b"y" * 20)) for ledger in (second, third)]
        await turns()
        its_bookies.acknowledge()
        await turns()
        assert (len(second_bookies.sent), third_bookies.sent) == (3, [])
        await settle(second_bookies, waiting[0].done)
        await settle(third_bookies, waiting[1].done)
        assert [task.result() for task in waiting] == [0, 0]


async def test_a_handle_that_ends_gives_its_share_of_the_clients_room_back() -> None:
    shared = Shared(0, pending_bytes_max=20)
    async with open_handle(shared=shared) as (one, _), open_handle(shared=shared) as (other, bookies):
        one.append_soon(b"x" * 20, Outcomes())
        waiting = asyncio.ensure_future(other.append(b"y"))
        await turns()
        await one.abandon()
        await settle(bookies, waiting.done)
        assert (waiting.result(), shared.pending.size_bytes) == (0, 0)


async def test_rule_13_when_the_handle_ends_each_callback_is_given_the_reason_in_order() -> None:
    async with open_handle() as (ledger, bookies):
        done = Outcomes()
        for _ in range(3):
            ledger.append_soon(b"x", done)
        await turns()
        bookie, sink, send_id = bookies.sent[0]
        sink.frame_failed(bookie, send_id, Code.FENCED)
        assert done.errors == [], "not from inside the step"
        await turns()
        assert [entry_id for entry_id, _ in done.errors] == [0, 1, 2]
        assert all("unknown" in str(error) for _, error in done.errors)
        room = asyncio.Event()
        ledger.call_when_room(room.set)
        await turns()
        assert room.is_set(), "nobody waits for room that cannot come"
        with pytest.raises(LedgerFencedError):
            ledger.append_soon(b"y", done)


async def test_rule_21_an_id_that_was_promised_is_not_given_again() -> None:
    """Every bookie refuses the frame. The append of a task would fail alone; here the handle ends."""
    async with open_handle() as (ledger, bookies):
        done = Outcomes()
        assert ledger.append_soon(b"x", done) == 0
        await turns()
        for bookie, sink, send_id in bookies.sent:
            sink.frame_failed(bookie, send_id, Code.BAD_FRAME)
        await turns()
        ((entry_id, error),) = done.errors
        assert entry_id == 0
        assert isinstance(error, FrameError)
        assert ledger.error is error


async def test_what_cannot_be_appended_is_refused_by_the_call() -> None:
    async with open_handle() as (ledger, bookies):
        done = Outcomes()
        with pytest.raises(EntryTooLargeError):
            ledger.append_soon(bytes(ENTRY_BYTES_MAX + 1), done)
        with pytest.raises(EntryIdError):
            ledger.append_soon(b"x", done, entry_id=5)
        assert ledger.append_soon(b"x", done) == 0
        closing = asyncio.ensure_future(ledger.close())
        await turns(1)
        with pytest.raises(LedgerClosedError):
            ledger.append_soon(b"y", done)
        await settle(bookies, closing.done)
        assert (done.ids, done.errors, closing.result().last_entry) == ([0], [], 0)


async def test_rule_55_a_caller_may_choose_the_id() -> None:
    async with open_handle(explicit_ids=True) as (ledger, bookies):
        done = Outcomes()
        assert [ledger.append_soon(b"x", done, entry_id=number) for number in (1, 0)] == [1, 0]
        await settle(bookies, lambda: len(done.ids) == 2)
        assert ledger.last_add_confirmed == 1


@pytest.mark.parametrize(("of_ledger", "of_client"), [(20, 2000), (2000, 20)])
async def test_rule_55_the_entry_that_fills_a_gap_is_taken_although_there_is_no_room(
    of_ledger: int, of_client: int
) -> None:
    shared = Shared(0, pending_bytes_max=of_client)
    async with open_handle(explicit_ids=True, shared=shared, pending_bytes_max=of_ledger) as (
        ledger,
        bookies,
    ):
        done = Outcomes()
        ledger.append_soon(b"x" * 40, done, entry_id=1)
        ledger.append_soon(b"", done, entry_id=3)
        room = asyncio.Event()
        ledger.call_when_room(room.set)
        await turns()
        bookies.acknowledge()
        await turns()
        assert (ledger.has_room, room.is_set(), done.ids) == (False, False, [])
        with pytest.raises(BacklogFullError):
            ledger.append_soon(b"y", done, entry_id=2)
        assert ledger.append_soon(b"y", done, entry_id=0) == 0
        await settle(bookies, lambda: len(done.ids) == 2)
        assert ledger.append_soon(b"y", done, entry_id=2) == 2
        await settle(bookies, room.is_set)
        await settle(bookies, lambda: len(done.ids) == 4)
        assert done.ids == [0, 1, 2, 3]


async def test_a_callback_may_append_and_one_that_fails_keeps_nobody_from_being_called() -> None:
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with open_handle() as (ledger, bookies):
        done = Outcomes()

        def fail(entry_id: int, _: DaybookError | None) -> None:
            raise RuntimeError(f"no use for {entry_id}")

        def again(entry_id: int, error: DaybookError | None) -> None:
            done(entry_id, error)
            ledger.append_soon(b"again", done)

        ledger.append_soon(b"x", fail)
        ledger.append_soon(b"y", again)
        await settle(bookies, lambda: len(done.ids) == 2)
        assert done.ids == [1, 2]
        assert [str(problem["exception"]) for problem in problems] == ["no use for 0"]
