"""Reading while bookies fail, move and forget, and topics change hands, as tasks do it: with what a driver has found, and no session in ZooKeeper."""

import asyncio
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from daybook_spark.access import detached_client
from daybook_spark.options import ReadOptions, Where
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import Bounds
from daybook_spark.plan.entry_range import EntryRange, Range
from daybook_spark.read import process
from daybook_spark.read.entries import read_range
from daybook_spark.read.rows import rows_of
from pyspark.sql.types import BinaryType, StructField, StructType

import daybook
from daybook.client.loop_thread import LoopThread
from daybook.client.reader import Reader
from daybook.core.errors import NoSuchLedgerError, NotEnoughReplicasError, UnauthorizedError
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.metadata.store.zookeeper import ZooKeeperStore
from tests.fixtures.brokers import Brokers
from tests.fixtures.cluster import connect_to, make_cluster
from tests.unit.spark.kit import new_topic, readable, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

COUNT = 500
VALUES = StructType([StructField("value", BinaryType())])


@pytest.fixture(autouse=True)
def own_process_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The clients of this process, as of one that begins; they are closed at the end."""
    made: dict[Any, process.ProcessClient] = {}
    monkeypatch.setattr(process, "_clients", made)
    yield
    for each in made.values():
        each.loop.run(each.client.close())
        each.loop.close()


async def write(client: daybook.Client, password: bytes = b"") -> int:
    """A closed ledger with entries of 100 bytes."""
    ledger = await client.create_ledger(password=password)
    await ledger.append_many([b"%0100d" % number for number in range(COUNT)])
    await ledger.close()
    return ledger.id


def where_is(cluster: LocalCluster) -> Where:
    """The cluster as options name it."""
    return Where(cluster.zookeeper.connect_string, CLUSTER_NAME)


async def planned(cluster: LocalCluster, ledger: int, partition_bytes: int = 64 * 2**20) -> list[EntryRange]:
    """The ranges of a ledger, as a driver plans them and tasks get them."""
    options = ReadOptions(where_is(cluster), ledgers=(ledger,), partition_bytes=partition_bytes)
    ranges = await asyncio.to_thread(plan, options, Bounds())
    found: list[EntryRange] = pickle.loads(pickle.dumps(ranges))
    return found


async def entries_of(cluster: LocalCluster, ranges: list[EntryRange]) -> list[int]:
    """The ids of the entries of ranges, whose payload is what was written."""

    def read() -> list[int]:
        runs = [run for each in ranges for run in read_range(where_is(cluster), each)]
        assert all(data == b"%0100d" % entry_id for run in runs for entry_id, data in run)
        return [entry_id for run in runs for entry_id, _ in run]

    return await asyncio.to_thread(read)


@pytest.mark.parametrize("partition_bytes", [1, 700, 10_000, 64 * 2**20])
async def test_each_entry_once_at_every_cut_and_without_a_session(
    client: daybook.Client, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, partition_bytes: int
) -> None:
    ranges = await planned(cluster, await write(client), partition_bytes)
    monkeypatch.setattr(ZooKeeperStore, "open", None)
    assert await entries_of(cluster, ranges) == list(range(COUNT))
    assert len(ranges) == -(-COUNT // max(1, partition_bytes // 100))
    assert len(process._clients) == 1, "one client for all tasks of a process"


async def test_bookies_that_have_moved_are_found_again(client: daybook.Client, cluster: LocalCluster) -> None:
    (found,) = await planned(cluster, await write(client))
    moved = tuple(
        replace(info, address="127.0.0.1:1", lane_address="", boot_id="old") for info in found.bookies
    )
    assert await entries_of(cluster, [replace(found, bookies=moved)]) == list(range(COUNT))


async def test_no_text_of_a_range_has_the_key(client: daybook.Client, cluster: LocalCluster) -> None:
    (found,) = await planned(cluster, await write(client))
    key = found.metadata.password_hash
    assert key
    assert key not in repr(found) + str(found)
    assert "password" not in repr(found)


async def test_a_ledger_with_a_password(
    client: daybook.Client, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await write(client, b"open sesame")
    with pytest.raises(UnauthorizedError):
        await planned(cluster, ledger)
    monkeypatch.setenv("DAYBOOK_PASSWORD", "open sesame")
    assert await entries_of(cluster, await planned(cluster, ledger)) == list(range(COUNT))


async def test_a_ledger_that_was_deleted_says_so(client: daybook.Client, cluster: LocalCluster) -> None:
    ledger = await write(client)
    ranges = await planned(cluster, ledger)
    await client.delete_ledger(ledger)
    with pytest.raises(NoSuchLedgerError, match="does not exist: it was deleted"):
        await planned(cluster, ledger)
    gone = tuple(
        replace(info, address="127.0.0.1:1", lane_address="", boot_id="old") for info in ranges[0].bookies
    )
    with pytest.raises(NoSuchLedgerError, match=r"was deleted|does not exist"):
        await entries_of(cluster, [replace(ranges[0], bookies=gone)])


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three bookies that may be killed."""
    with make_cluster(tmp_path / "cluster", bookies=3) as started:
        yield started


async def test_lost_bookies(own_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One lost bookie of three is nothing to a reader. Of two the LAC of an open ledger is not certain, and no query pretends to know it."""
    cluster = own_cluster
    async with connect_to(cluster) as client:
        closed = await write(client)
        ranges = await planned(cluster, closed, 1_000)
        ledger = await client.create_ledger()
        await ledger.append(b"entry")
        first, second, _ = sorted(ranges[0].addresses)
        cluster.kill_bookie(first)
        assert await entries_of(cluster, ranges) == list(range(COUNT))
        cluster.kill_bookie(second)
        with pytest.raises(NotEnoughReplicasError):
            await planned(cluster, ledger.id)

        async def leniently(self: Reader, *, lenient: bool = True) -> int:
            return await refresh(self, lenient=True)

        refresh = Reader.refresh
        monkeypatch.setattr(Reader, "refresh", leniently)
        await planned(cluster, ledger.id)  # the mutant: a LAC taken leniently is some LAC
        await ledger.abandon()


async def messages_of(cluster: LocalCluster, topic: str, ranges: Sequence[Range]) -> list[bytes]:
    """The payload of the messages of ranges."""
    options = ReadOptions(where_is(cluster), topics=(topic,))

    def read() -> list[bytes]:
        batches = [batch for each in ranges for batch in rows_of(options, each, VALUES)]
        return [value for batch in batches for value in batch.column("value").to_pylist()]

    return await asyncio.to_thread(read)


async def test_a_running_query_reads_on_when_the_owner_changes_and_names_what_retention_took(
    client: daybook.Client, cluster: LocalCluster, brokers: Brokers, pulsar_client: pulsar.Client
) -> None:
    """The new owner recovers and closes the ledger that the query was planned from, and more is published behind it."""
    topic = new_topic()
    values = [b"%0100d" % number for number in range(100)]
    pulsar_client.subscribe(topic, "keeps every message").close()
    await readable(client, topic, send(pulsar_client, topic, values))
    options = ReadOptions(where_is(cluster), topics=(topic,), partition_bytes=2_000)
    first, *others = await asyncio.to_thread(plan, options, Bounds())
    assert len(others) > 2
    found = await messages_of(cluster, topic, [first])

    for broker in brokers.ids:
        brokers.kill(broker)
    brokers.whole()
    later = send(pulsar_client, topic, [b"of another owner"])
    assert later.ledger_id() != first.ledger_id
    *middle, last = others
    found += await messages_of(cluster, topic, middle)
    assert found == values[: len(found)]
    assert found + await messages_of(cluster, topic, [last]) == values

    await client.delete_ledger(first.ledger_id)
    assert isinstance(last, EntryRange)
    gone = tuple(
        replace(info, address="127.0.0.1:1", lane_address="", boot_id="old") for info in last.bookies
    )
    with pytest.raises(NoSuchLedgerError, match=r"was deleted|does not exist"):
        await messages_of(cluster, topic, [replace(last, bookies=gone)])


async def test_a_process_that_never_reads_connects_to_nobody(cluster: LocalCluster) -> None:
    loop = LoopThread()
    client = await asyncio.to_thread(loop.call, lambda: detached_client(where_is(cluster)))
    assert client.bookies() == {}
    await asyncio.to_thread(lambda: loop.run(client.close()))
    loop.close()
