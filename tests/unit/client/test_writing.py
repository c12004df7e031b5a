"""Writing ledgers through the client, against real bookies."""

import asyncio
from functools import partial
from typing import Any

import pytest

import daybook
from daybook.client.events import LedgerEvent, LedgerFenced
from daybook.client.pending import PENDING_BYTES_MAX
from daybook.core.format.entries import Entry
from daybook.core.ids import ENTRY_BYTES_MAX
from daybook.core.writer.policy import WriterPolicy
from tests.fixtures.cluster import Connect, abandon

pytestmark = pytest.mark.integration


async def contents(client: daybook.Client, ledger_id: int, *, password: bytes = b"") -> list[bytes]:
    reader = await client.open_ledger(ledger_id, password=password)
    return [entry.data async for entry in reader.read()]


async def test_what_is_appended_is_read_back(client: daybook.Client) -> None:
    async with await client.create_ledger(custom_metadata={"k": b"v"}) as ledger:
        assert await ledger.append(b"one") == 0
        assert await ledger.append_many([b"two", b"", b"four"]) == (1, 3)
        assert ledger.last_add_confirmed == 3
        assert ledger.length == len(b"onetwofour")
    reader = await client.open_ledger(ledger.id)
    assert reader.metadata.is_closed
    assert reader.metadata.custom_metadata == {"k": b"v"}
    assert reader.metadata.length == len(b"onetwofour")
    assert [entry async for entry in reader.read(1, 2)] == [Entry(1, b"two"), Entry(2, b"")]
    assert await contents(client, ledger.id) == [b"one", b"two", b"", b"four"]


async def test_an_empty_ledger_closes_at_minus_one(client: daybook.Client) -> None:
    ledger = await client.create_ledger()
    metadata = await ledger.close()
    assert (metadata.last_entry, metadata.length) == (-1, 0)
    assert await ledger.close() == metadata
    assert await contents(client, ledger.id) == []


async def test_concurrent_appends_keep_their_order(client: daybook.Client) -> None:
    async with await client.create_ledger() as ledger:
        appends = [asyncio.ensure_future(ledger.append(b"%d" % n)) for n in range(2000)]
        assert await asyncio.gather(*appends) == list(range(2000))
    assert await contents(client, ledger.id) == [b"%d" % n for n in range(2000)]


@pytest.mark.parametrize(("quorum", "entry_bytes"), [((4, 2, 2), 50), ((4, 3, 2), 2000), ((1, 1, 1), 10)])
async def test_striped_and_single_ledgers(
    connect: Connect, quorum: tuple[int, int, int], entry_bytes: int
) -> None:
    wanted = [n.to_bytes(4, "big").ljust(entry_bytes, b".") for n in range(1500)]
    async with connect() as client:
        e, qw, qa = quorum
        async with await client.create_ledger(ensemble_size=e, write_quorum=qw, ack_quorum=qa) as ledger:
            await ledger.append_many(wanted[:700])
            for entry in wanted[700:720]:
                await ledger.append(entry)
            await ledger.append_many(wanted[720:])
        assert await contents(client, ledger.id) == wanted
        reader = await client.open_ledger(ledger.id)
        assert [entry.entry_id async for entry in reader.read(333, 777)] == list(range(333, 778))


async def test_large_entries_and_one_that_is_too_large(client: daybook.Client) -> None:
    """Rule 21: an oversized entry burns no bookie and costs nothing but itself."""
    async with await client.create_ledger() as ledger:
        await ledger.append(b"x" * ENTRY_BYTES_MAX)
        with pytest.raises(daybook.EntryTooLargeError, match="split it"):
            await ledger.append(b"x" * (ENTRY_BYTES_MAX + 1))
        assert await ledger.append(b"after") == 1
        assert ledger.ensemble_changes == 0
    assert [len(data) for data in await contents(client, ledger.id)] == [ENTRY_BYTES_MAX, 5]


async def test_rule_53_a_ledger_is_attached_once(connect: Connect) -> None:
    async with connect() as creator, connect() as writer:
        created = (await creator.create_unattached(password=b"secret")).value
        with pytest.raises(daybook.UnauthorizedError):
            await writer.attach_ledger(created.ledger_id, password=b"guess")
        async with await writer.attach_ledger(created.ledger_id, password=b"secret") as ledger:
            await ledger.append(b"x")
            with pytest.raises(daybook.AlreadyAttachedError, match="recover it"):
                await creator.attach_ledger(created.ledger_id, password=b"secret")
        assert await contents(creator, created.ledger_id, password=b"secret") == [b"x"]


async def test_rule_55_entry_ids_that_the_caller_assigns(client: daybook.Client) -> None:
    ledger = await client.create_ledger(explicit_ids=True)
    second = asyncio.ensure_future(ledger.append(b"b", entry_id=1))
    await asyncio.sleep(0)
    assert await ledger.append(b"a", entry_id=0) == 0
    assert await second == 1
    with pytest.raises(daybook.EntryIdError):
        await ledger.append(b"again", entry_id=1)
    beyond = asyncio.ensure_future(ledger.append(b"d", entry_id=3))
    await asyncio.sleep(0)
    assert (await ledger.close()).last_entry == 1
    with pytest.raises(daybook.EntryIdError, match="entry 2 was never appended"):
        await beyond
    assert await contents(client, ledger.id) == [b"a", b"b"]


async def test_rule_22_deferred_sync_confirms_by_force_alone(client: daybook.Client) -> None:
    async with await client.create_ledger(deferred_sync=True) as ledger:
        assert await ledger.append_many([b"a", b"b"]) == (0, 1)
        assert ledger.last_add_confirmed == -1
        assert await ledger.force() == 1
        assert ledger.last_add_confirmed == 1
    assert await contents(client, ledger.id) == [b"a", b"b"]


async def test_back_pressure_bounds_what_is_pending(connect: Connect) -> None:
    async with connect() as client, await client.create_ledger() as ledger:
        entry = b"x" * 1_000_000
        most = 0
        futures = []
        for _ in range(200):
            futures.append(await ledger.submit([entry]))
            most = max(most, ledger.pending_bytes)
        await asyncio.gather(*futures)
        assert most <= PENDING_BYTES_MAX + len(entry)


async def test_entries_of_append_soon_are_read_back_under_the_ids_that_were_promised(
    client: daybook.Client,
) -> None:
    ledgers = [await client.create_ledger() for _ in range(5)]
    done = asyncio.Event()
    acknowledged: dict[int, list[int]] = {ledger.id: [] for ledger in ledgers}

    def on_done(ledger_id: int, entry_id: int, error: daybook.DaybookError | None) -> None:
        assert error is None
        acknowledged[ledger_id].append(entry_id)
        if sum(map(len, acknowledged.values())) == 500:
            done.set()

    for number in range(100):
        for ledger in ledgers:
            assert ledger.append_soon(b"%d" % number, partial(on_done, ledger.id)) == number
    await done.wait()
    for ledger in ledgers:
        await ledger.close()
        assert acknowledged[ledger.id] == list(range(100)), "in order"
        assert await contents(client, ledger.id) == [b"%d" % number for number in range(100)]


async def test_a_fenced_writer_is_told_so_and_loses_nothing_acknowledged(connect: Connect) -> None:
    async with connect() as old, connect() as new:
        events: list[LedgerEvent] = []
        ledger = await old.create_ledger(on_event=events.append)
        await ledger.append_many([b"a", b"b"])
        reader = await new.open_ledger(ledger.id, recover=True)
        assert reader.metadata.is_closed
        assert [entry.data async for entry in reader.read()] == [b"a", b"b"]
        with pytest.raises(daybook.LedgerFencedError):
            await ledger.append(b"late")
        with pytest.raises(daybook.LedgerFencedError):
            await ledger.append(b"later")
        assert await ledger.close() == reader.metadata
        assert [type(event) for event in events] == [LedgerFenced]
        assert await contents(new, ledger.id) == [b"a", b"b"]


async def test_recovery_of_an_abandoned_ledger(connect: Connect) -> None:
    wanted = [b"%d" % n for n in range(5000)]
    async with connect() as client:
        assert await contents(client, await abandon(client, wanted)) == wanted
        assert await contents(client, await abandon(client, [])) == []


async def test_rule_11_recoverers_that_race_agree(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        ledger_id = await abandon(one, [b"x"] * 100)
        readers = await asyncio.gather(*(each.open_ledger(ledger_id) for each in (one, two, one, two)))
        assert {reader.metadata.last_entry for reader in readers} == {99}


async def test_rule_20_a_deleted_ledger_is_never_written_again(connect: Connect) -> None:
    async with connect() as writer, connect() as other:
        ledger = await writer.create_ledger()
        await ledger.append(b"x")
        await other.delete_ledger(ledger.id)
        with pytest.raises((daybook.LedgerFencedError, daybook.NoSuchLedgerError)):
            await ledger.append(b"y")
        with pytest.raises(daybook.NoSuchLedgerError):
            await other.open_ledger(ledger.id)
        assert ledger.id not in [found.value.ledger_id async for found in other.list_ledgers()]


async def test_a_ledger_has_a_policy_and_bookies_of_its_own(connect: Connect) -> None:
    async with connect() as client:
        names = sorted(client.bookies())
        among = names[:2]
        sizes: dict[str, Any] = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 1}
        for _ in range(5):
            created = (await client.create_unattached(**sizes, allowed_bookies=among)).value
            assert sorted(created.fragments[0].bookies) == names[:2]
        policy = WriterPolicy(lac_publish_ms=700, go_on_without_spare=False)
        async with await client.create_ledger(**sizes, policy=policy, allowed_bookies=among) as ledger:
            await ledger.append(b"x")
            assert sorted(ledger.metadata.fragments[0].bookies) == names[:2]
        async with await client.attach_ledger(
            created.ledger_id, policy=policy, allowed_bookies=among
        ) as attached:
            await attached.append(b"x")
        with pytest.raises(daybook.NotEnoughBookiesError, match="only 2 named bookies"):
            await client.create_ledger(allowed_bookies=among)
