"""What cannot work is refused with an error that says what to do, and nothing is lost by it."""

import asyncio

import pytest

import daybook
from daybook.metadata.instance import UnknownClusterError
from daybook.metadata.store.zookeeper import ZooKeeperOptions
from tests.fixtures.cluster import abandon

pytestmark = pytest.mark.integration


async def test_impossible_quorums_and_too_few_bookies(client: daybook.Client) -> None:
    with pytest.raises(daybook.QuorumError, match="write quorum ≥ ack quorum"):
        await client.create_ledger(write_quorum=2, ack_quorum=3)
    with pytest.raises(daybook.NotEnoughBookiesError, match=r"5 .*4 "):
        await client.create_ledger(ensemble_size=5)


async def test_a_wrong_password_reads_and_recovers_and_deletes_nothing(client: daybook.Client) -> None:
    ledger = await client.create_ledger(password=b"secret")
    await ledger.append(b"x")
    for attempt in (
        client.open_ledger(ledger.id, password=b"guess"),
        client.open_ledger(ledger.id, recover=False),
        client.delete_ledger(ledger.id, password=b"guess"),
    ):
        with pytest.raises(daybook.UnauthorizedError, match=f"password of ledger {ledger.id}"):
            await attempt
    assert await ledger.append(b"still mine") == 1
    await ledger.close()


async def test_unknown_ledgers_and_ranges(client: daybook.Client) -> None:
    with pytest.raises(daybook.NoSuchLedgerError, match="never created"):
        await client.open_ledger(2**40)
    reader = await client.open_ledger(await abandon(client, [b"x"]))
    for first, last in ((-1, 0), (1, 0), (0, 1)):
        with pytest.raises(daybook.NoSuchEntryError):
            [entry async for entry in reader.read(first, last)]


async def test_a_closed_handle_and_empty_appends(client: daybook.Client) -> None:
    ledger = await client.create_ledger()
    with pytest.raises(ValueError, match="at least one entry"):
        await ledger.append_many([])
    await ledger.close()
    with pytest.raises(daybook.LedgerClosedError, match="create a new one"):
        await ledger.append(b"x")


def test_an_unknown_cluster_and_no_zookeeper(zookeeper: str) -> None:
    async def unknown() -> None:
        async with daybook.connect(zookeeper, cluster="nowhere"):
            pass

    async def absent() -> None:
        async with daybook.connect("127.0.0.1:1", zookeeper_options=ZooKeeperOptions(connect_timeout_s=0.5)):
            pass

    with pytest.raises(UnknownClusterError, match="check the cluster's name"):
        asyncio.run(unknown())
    with pytest.raises(daybook.MetadataUnavailableError):
        asyncio.run(absent())
