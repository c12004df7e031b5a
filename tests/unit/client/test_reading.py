"""Reading ledgers through the client: what is confirmed, what is not, and what comes next."""

import asyncio

import pytest

import daybook
from daybook.client.verify import verify_ledger
from tests.fixtures.cluster import Connect, abandon

pytestmark = pytest.mark.integration


async def test_a_reader_without_recovery_sees_what_is_confirmed(connect: Connect) -> None:
    async with connect() as writer, connect() as other, await writer.create_ledger() as ledger:
        await ledger.append_many([b"a", b"b"])
        reader = await other.open_ledger(ledger.id, recover=False)
        assert reader.last_add_confirmed in {-1, 1}
        async with asyncio.timeout(40):
            async for entry in reader.tail():
                if entry.entry_id == 1:
                    break
        assert await reader.refresh(lenient=False) == 1
        assert [entry.data async for entry in reader.read()] == [b"a", b"b"]
        with pytest.raises(daybook.NoSuchEntryError, match="up to entry 1"):
            [entry async for entry in reader.read(0, 2)]
        assert await ledger.append(b"c") == 2


async def test_unconfirmed_entries_only_for_those_who_ask(client: daybook.Client) -> None:
    ledger = await client.create_ledger(deferred_sync=True)
    await ledger.append_many([b"a", b"b"])
    reader = await client.open_ledger(ledger.id, recover=False)
    assert reader.last_add_confirmed == -1
    assert [entry.data async for entry in reader.read()] == []
    assert [entry.data async for entry in reader.read_unconfirmed(0, 1)] == [b"a", b"b"]
    with pytest.raises(daybook.NoSuchEntryError):
        [entry async for entry in reader.read_unconfirmed(0, 2)]
    await ledger.close()


async def test_rule_59_the_own_handle_is_read_up_to_its_lac(client: daybook.Client) -> None:
    async with await client.create_ledger() as ledger:
        reader = ledger.reader()

        async def followed() -> list[bytes]:
            return [entry.data async for entry in reader.tail()]

        following = asyncio.create_task(followed())
        for n in range(100):
            await ledger.append(b"%d" % n)
            assert await reader.refresh() == n
            (entry,) = [entry async for entry in reader.read(n)]
            assert entry == (n, b"%d" % n)
            with pytest.raises(daybook.NoSuchEntryError, match=f"up to entry {n}"):
                [entry async for entry in reader.read(n, n + 1)]
        final = await ledger.close()
        async with asyncio.timeout(40):
            assert await following == [b"%d" % n for n in range(100)]
        assert reader.metadata == final


async def test_rule_22_what_no_force_confirmed_is_not_read_through_the_own_handle(
    client: daybook.Client,
) -> None:
    async with await client.create_ledger(deferred_sync=True) as ledger:
        reader = ledger.reader()
        await ledger.append_many([b"a", b"b"])
        with pytest.raises(daybook.NoSuchEntryError, match="up to entry -1"):
            [entry async for entry in reader.read(0, 1)]
        await ledger.force()
        assert [entry.data async for entry in reader.read(0, 1)] == [b"a", b"b"]


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 1)])
async def test_batches_read_a_ledger_through_its_own_handle(
    client: daybook.Client, quorum: tuple[int, int, int]
) -> None:
    e, qw, qa = quorum
    wanted = [b"%d" % n * (n % 50) for n in range(500)]
    async with await client.create_ledger(ensemble_size=e, write_quorum=qw, ack_quorum=qa) as ledger:
        await ledger.append_many(wanted)
        reader = ledger.reader()
        read: list[bytes] = []
        while len(read) < len(wanted):
            batch = await reader.read_batch(len(read), entries_max=7 + len(read), bytes_max=1000)
            assert len(batch) == 1 or sum(len(entry.data) for entry in batch) <= 1000
            read += [entry.data for entry in batch]
        assert read == wanted


async def test_rule_48_a_tail_sees_the_last_entry_of_an_idle_writer(connect: Connect) -> None:
    async with connect() as writer, connect() as other:
        ledger = await writer.create_ledger()
        reader = await other.open_ledger(ledger.id, recover=False)
        seen: list[bytes] = []
        three = asyncio.Event()

        async def follow() -> None:
            async for entry in reader.tail(0):
                seen.append(entry.data)
                if len(seen) == 3:
                    three.set()

        following = asyncio.create_task(follow())
        for data in (b"a", b"b", b"c"):
            await ledger.append(data)
        async with asyncio.timeout(40):
            await three.wait()
            assert seen == [b"a", b"b", b"c"]
            await ledger.append(b"d")
            await ledger.close()
            await following
        assert seen == [b"a", b"b", b"c", b"d"]
        assert reader.metadata.is_closed


async def test_a_large_read_stays_bounded_and_complete(client: daybook.Client) -> None:
    async with await client.create_ledger() as ledger:
        for first in range(0, 40_000, 4000):
            await ledger.append_many([b"%d" % n for n in range(first, first + 4000)])
    reader = await client.open_ledger(ledger.id)
    expected = 0
    async for batch in reader.read_batches():
        for entry in batch:
            assert (entry.entry_id, entry.data) == (expected, b"%d" % expected)
            expected += 1
    assert expected == 40_000


async def test_verify_reads_every_copy(client: daybook.Client) -> None:
    async with await client.create_ledger(ensemble_size=4, write_quorum=2) as ledger:
        await ledger.append_many([b"%d" % n for n in range(1000)])
    report = await verify_ledger(client, ledger.id)
    assert report.is_whole, report.record()
    assert sum(copy.owed for copy in report.copies) == 2000
    assert {copy.bookie for copy in report.copies} == set(client.bookies())


async def test_listing_and_deleting(client: daybook.Client) -> None:
    kept = await abandon(client, [b"x"])
    gone = await abandon(client, [b"y"])
    await client.delete_ledger(gone)
    listed = [found.value.ledger_id async for found in client.list_ledgers()]
    assert kept in listed
    assert gone not in listed
    with pytest.raises(daybook.NoSuchLedgerError):
        await client.delete_ledger(gone)


async def test_rule_61_a_writer_is_not_acknowledged_after_a_deletion_without_recovery(
    connect: Connect,
) -> None:
    async with connect() as writer, connect() as other:
        ledger = await writer.create_ledger()
        await ledger.append(b"x")
        assert await other.delete_ledger(ledger.id, without_recovery=True) == ()
        with pytest.raises(daybook.LedgerFencedError):
            await ledger.append(b"y")
        with pytest.raises(daybook.NoSuchLedgerError):
            await other.open_ledger(ledger.id)
