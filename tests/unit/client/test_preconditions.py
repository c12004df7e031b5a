"""What calls are meant for, how long they may take, and how many recoveries run at a time."""

import asyncio
from contextlib import AsyncExitStack

import pytest

import daybook
from daybook.client.preconditions import deadline
from daybook.client.recovery import RecoveryQueue
from tests.fixtures.cluster import Connect


async def test_a_few_recoveries_run_and_the_others_wait_in_their_order() -> None:
    queue = RecoveryQueue(2, 3)
    begun: list[int] = []
    may_end = [asyncio.Event() for _ in range(5)]

    async def recover(number: int) -> None:
        async with queue.turn():
            begun.append(number)
            await may_end[number].wait()

    tasks = [asyncio.create_task(recover(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert begun == [0, 1]
    with pytest.raises(daybook.TooManyRecoveriesError, match="3 recoveries wait"):
        async with queue.turn():
            pytest.fail("there is no room")
    tasks[2].cancel()
    may_end[1].set()
    await asyncio.wait([tasks[1]])
    async with asyncio.timeout(40):
        await asyncio.wait([tasks[2]])
        for number in (0, 3, 4):
            may_end[number].set()
        await asyncio.gather(tasks[0], tasks[3], tasks[4])
    assert begun == [0, 1, 3, 4]


async def test_one_recovery_may_run_where_none_may_wait() -> None:
    queue = RecoveryQueue(1, 0)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(queue.turn())
        with pytest.raises(daybook.TooManyRecoveriesError):
            await stack.enter_async_context(queue.turn())
    with pytest.raises(ValueError, match="at least 1"):
        RecoveryQueue(0)


async def test_a_deadline_ends_what_it_covers_and_no_other_time_out_counts_as_one() -> None:
    with pytest.raises(daybook.DeadlineExceededError, match="the wait did not end within 1 ms"):
        async with deadline(1, "the wait"):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        async with deadline(60_000, "the wait"):
            raise TimeoutError
    async with deadline(None, "nothing"):
        pass
    with pytest.raises(ValueError, match="a time-out of 0 ms"):
        async with deadline(0, "nothing"):
            pytest.fail("there is no time")


@pytest.mark.integration
async def test_rule_56_a_call_that_is_meant_for_another_version_does_nothing(connect: Connect) -> None:
    async with connect() as writer, connect() as other:
        ledger = await writer.create_ledger()
        await ledger.append(b"one")
        found = await other.ledgers.read(ledger.id)
        wrong = found.version + 1
        for call in (
            other.recover(found.value, version=wrong),
            other.open_ledger(ledger.id, version=wrong),
            other.open_ledger(ledger.id, recover=False, version=wrong),
            other.delete_ledger(ledger.id, version=wrong),
        ):
            with pytest.raises(
                daybook.LedgerChangedError, match=f"at version {found.version}.*nothing was done"
            ):
                await call
        assert await ledger.append(b"two") == 1, "nobody has fenced it"
        with pytest.raises(ValueError, match="leave `version` out"):
            await other.delete_ledger(ledger.id, version=found.version, without_recovery=True)
        reader = await other.open_ledger(ledger.id, version=found.version, timeout_ms=60_000)
        assert reader.metadata.last_entry == 1
        with pytest.raises(daybook.LedgerChangedError):
            await other.recover(found.value, version=found.version)
        closed = await other.ledgers.read(ledger.id)
        await other.delete_ledger(ledger.id, version=closed.version)


@pytest.mark.integration
async def test_a_deletion_that_is_meant_for_an_open_ledger_recovers_and_deletes_it(connect: Connect) -> None:
    async with connect() as client:
        ledger = await client.create_ledger()
        await ledger.append(b"one")
        await client.delete_ledger(ledger.id, version=(await client.ledgers.read(ledger.id)).version)
        with pytest.raises(daybook.NoSuchLedgerError):
            await client.open_ledger(ledger.id)
        with pytest.raises(daybook.LedgerFencedError):
            await ledger.append(b"two")


@pytest.mark.integration
async def test_many_ledgers_are_recovered_side_by_side(connect: Connect) -> None:
    async with connect() as writer:
        ledgers = await asyncio.gather(*(writer.create_ledger() for _ in range(100)))
        await asyncio.gather(*(ledger.append_many([b"x"] * 10) for ledger in ledgers))
    async with connect() as client:
        found = await asyncio.gather(*(client.ledgers.read(ledger.id) for ledger in ledgers))
        recover = (client.recover(each.value, version=each.version, timeout_ms=60_000) for each in found)
        assert [metadata.last_entry for metadata in await asyncio.gather(*recover)] == [9] * 100
