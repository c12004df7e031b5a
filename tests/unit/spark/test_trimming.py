"""What a stream does once retention has taken entries that it has not read, on a topic's list as its owner writes it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from daybook_spark.options import ReadOptions, StreamOptions, Where
from daybook_spark.rows.columns import TOPIC
from daybook_spark.stream.reader import StreamReader
from daybook_spark.stream.topics import DataLossError
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType

import daybook
from daybook.core.topics.ledger_list import ListedLedger
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.metadata.topics import TopicManager
from daybook.wire.pulsar.pulsar_pb2 import CompressionType
from tests.unit.spark.kit import new_topic
from tests.unit.spark.test_messages import Sent, encode_single

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SCHEMA = StructType([StructField(name, kind) for name, kind in TOPIC.items()])


class Owner:
    """Writes a topic's list as a broker does."""

    def __init__(self, client: daybook.Client, name: TopicName | None = None) -> None:
        self._client = client
        self._topics = TopicManager(client.store, client.layout)
        self.name = name or TopicName.parse(new_topic())

    async def create(self) -> None:
        """The topic, without ledgers."""
        await self._topics.create(self.name)

    async def roll(self, *values: bytes) -> None:
        """A ledger more, with these messages."""
        await self.roll_entries(
            [encode_single(Sent(value, None, None, {}, 0), CompressionType.NONE) for value in values]
        )

    async def roll_entries(self, entries: list[bytes]) -> None:
        """A ledger more, with these entries."""
        ledger = await self._client.create_ledger()
        await ledger.append_many(entries)
        closed = await ledger.close()
        current = await self._topics.read(self.name)
        listed = ListedLedger(
            ledger.id,
            0,
            len(entries),
            closed.length,
            closed_at_ms=1,
            follows=current.value.last_confirmed,
        )
        new = replace(
            current.value, ledgers=(*current.value.ledgers, listed), last_confirmed=listed.last_position
        )
        await self._topics.cas(self.name, current, new)

    async def trim(self) -> None:
        """The first ledger is gone."""
        current = await self._topics.read(self.name)
        await self._topics.cas(self.name, current, replace(current.value, ledgers=current.value.ledgers[1:]))

    async def delete(self) -> None:
        """The topic is gone, with its ledgers."""
        while (await self._topics.read(self.name)).value.ledgers:
            await self.trim()
        await self._topics.delete(self.name, (await self._topics.read(self.name)).version)


class Query:
    """A stream's reader, called as Spark does: each call on a thread of its own, without an event loop."""

    def __init__(self, cluster: LocalCluster, name: TopicName, **options: Any) -> None:
        where = Where(cluster.zookeeper.connect_string, CLUSTER_NAME)
        self.reader = StreamReader(StreamOptions(ReadOptions(where, topics=(str(name),)), **options), SCHEMA)

    @classmethod
    def of(cls, reader: StreamReader) -> "Query":
        """A query that has a reader already."""
        query = cls.__new__(cls)
        query.reader = reader
        return query

    async def begin(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.reader.initialOffset)

    async def end(self, start: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(self.reader.latestOffset, start, ReadAllAvailable())

    async def values(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        def read() -> list[bytes]:
            batches = [
                batch for each in self.reader.partitions(start, end) for batch in self.reader.read(each)
            ]
            return [row["value"] for batch in batches for row in batch.to_pylist()]

        return await asyncio.to_thread(read)

    async def stop(self) -> None:
        await asyncio.to_thread(self.reader.stop)


async def test_a_stream_follows_rolls_and_reports_what_trimming_took(
    client: daybook.Client, cluster: LocalCluster
) -> None:
    owner = Owner(client)
    await owner.create()
    await owner.roll(b"a", b"b")
    query = Query(cluster, owner.name)
    lenient = Query(cluster, owner.name, fails_on_data_loss=False)
    start = await query.begin()
    await owner.roll(b"c")
    middle = await query.end(start)
    assert await query.values(start, middle) == [b"a", b"b", b"c"]
    assert await query.end(middle) == middle

    await owner.trim()
    with pytest.raises(DataLossError, match=r"its retention took the entries between.*failOnDataLoss=false"):
        await query.values(start, middle)
    assert await lenient.values(start, middle) == [b"c"]

    await owner.trim()
    assert await query.end(middle) == middle, "all of it was read"
    assert await query.values(middle, middle) == []
    for each in (query, lenient):
        await each.stop()


async def test_a_stream_whose_topic_was_deleted_and_created_again_reports_what_may_be_lost(
    client: daybook.Client, cluster: LocalCluster
) -> None:
    owner = Owner(client)
    await owner.create()
    await owner.roll(b"a", b"b")
    query = Query(cluster, owner.name)
    lenient = Query(cluster, owner.name, fails_on_data_loss=False)
    start = await query.end(await query.begin())
    await owner.roll(b"not read")
    await owner.delete()
    await owner.create()
    await owner.roll(b"of another topic")
    end = await query.end(start)
    with pytest.raises(DataLossError, match=r"was deleted and created again.*failOnDataLoss=false"):
        await query.values(start, end)
    assert await lenient.values(start, end) == [b"of another topic"]
    for each in (query, lenient):
        await each.stop()
