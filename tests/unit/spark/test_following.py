"""What a stream takes next: from where it begins, up to ends that are pinned, and of partitions that come later."""

import asyncio
import uuid
from typing import Any

import pytest
from daybook_spark.options import ReadOptions, StreamOptions
from daybook_spark.stream import reader
from daybook_spark.stream.reader import StreamReader
from daybook_spark.stream.topics import DataLossError
from pyspark.sql.types import BinaryType, StructField, StructType

import daybook
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.partitions import PartitionManager, partition
from tests.unit.spark.test_failover import own_process_client, where_is
from tests.unit.spark.test_trimming import Owner, Query

__all__ = ["own_process_client"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SCHEMA = StructType([StructField("value", BinaryType())])


async def test_a_query_of_what_is_available_ends_where_it_was_pinned(
    client: daybook.Client, cluster: LocalCluster
) -> None:
    owner = Owner(client)
    await owner.create()
    await owner.roll(b"a", b"b")
    query = Query(cluster, owner.name)
    start = await query.begin()
    await asyncio.to_thread(query.reader.prepareForTriggerAvailableNow)
    await owner.roll(b"c")
    end = await query.end(start)
    assert await query.values(start, end) == [b"a", b"b"]
    assert await query.end(end) == end
    await query.stop()


async def test_a_query_from_the_latest_position_reads_what_comes_after_its_beginning(
    client: daybook.Client, cluster: LocalCluster
) -> None:
    owner = Owner(client)
    await owner.create()
    await owner.roll(b"before")
    query = Query(cluster, owner.name, is_from_latest=True)
    start = await query.begin()
    assert await query.end(start) == start
    await owner.roll(b"after")
    assert await query.values(start, await query.end(start)) == [b"after"]
    await query.stop()


def query_of(cluster: LocalCluster, owners: list[Owner], **options: Any) -> Query:
    """A query of these topics."""
    read = ReadOptions(where_is(cluster), topics=tuple(str(owner.name) for owner in owners))
    return Query.of(StreamReader(StreamOptions(read, **options), SCHEMA))


async def test_partitions_that_are_added_are_followed_and_those_that_are_deleted_are_a_loss(
    client: daybook.Client, cluster: LocalCluster
) -> None:
    whole = TopicName.parse(f"persistent://{uuid.uuid4().hex}/space/many")
    partitions = PartitionManager(client.store, client.layout)
    await partitions.create(whole, 1)
    owners = [Owner(client, partition(whole, index)) for index in range(2)]
    await owners[0].create()
    await owners[0].roll(b"a")
    read = ReadOptions(where_is(cluster), namespaces=(f"{whole.tenant}/space",))
    query = Query.of(StreamReader(StreamOptions(read), SCHEMA))
    start = await query.begin()
    await owners[1].create()
    await owners[1].roll(b"b")
    end = await query.end(start)
    assert sorted(await query.values(start, end)) == [b"a", b"b"]

    await owners[0].roll(b"c")
    more = await query.end(end)
    await owners[0].delete()
    with pytest.raises(DataLossError, match="was deleted, or is no longer among the query's options"):
        await query.values(end, more)
    await query.stop()


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_batch_that_was_planned_with_a_topic_that_is_gone_is_a_loss_and_the_others_are_read(
    client: daybook.Client, cluster: LocalCluster, *, is_deleted: bool
) -> None:
    owners = [Owner(client) for _ in range(2)]
    for owner, value in zip(owners, (b"a", b"b"), strict=True):
        await owner.create()
        await owner.roll(value)
    query = query_of(cluster, owners)
    start = await query.begin()
    end = await query.end(start)
    if is_deleted:
        await owners[1].delete()
    left = owners if is_deleted else owners[:1]
    strict, lenient = [query_of(cluster, left, fails_on_data_loss=fails) for fails in (True, False)]
    with pytest.raises(
        DataLossError,
        match=rf"{owners[1].name} was deleted, or is no longer among.*failOnDataLoss=false",
    ):
        await strict.values(start, end)
    assert await lenient.values(start, end) == [b"a"]
    assert await strict.values(end, end) == []
    for each in (query, strict, lenient):
        await each.stop()


class Cursors:
    """The subscriptions of a query, without a broker."""

    def __init__(self, *_: object) -> None:
        self.held: list[str] = []
        self.moved: list[tuple[str, Position]] = []

    def hold(self, topic: str) -> None:
        if topic not in self.held:
            self.held.append(topic)

    def move(self, topic: str, last: Position) -> None:
        self.moved.append((topic, last))

    def close(self) -> None:
        pass


@pytest.fixture
def cursors(monkeypatch: pytest.MonkeyPatch) -> Cursors:
    """What queries have in place of subscriptions."""
    cursors = Cursors()
    monkeypatch.setattr(reader, "DurableCursor", lambda *_: cursors)
    monkeypatch.setattr(reader, "service_url", no_url)
    return cursors


async def test_a_subscription_that_comes_after_the_query_began_is_on_all_partitions_and_moves_those_that_are_used(
    client: daybook.Client, cluster: LocalCluster, cursors: Cursors
) -> None:
    whole = TopicName.parse(f"persistent://{uuid.uuid4().hex}/space/many")
    await PartitionManager(client.store, client.layout).create(whole, 2)
    owners = [Owner(client, partition(whole, index)) for index in range(2)]
    await owners[0].create()
    await owners[0].roll(b"a", b"b")
    before = Query(cluster, whole)
    end = await before.end(await before.begin())
    after = Query(cluster, whole, subscription="s")
    assert await after.end(end) == end
    assert cursors.held == [str(owner.name) for owner in owners]
    await asyncio.to_thread(after.reader.commit, end)
    ((name, last),) = cursors.moved
    assert (name, last.behind) == (str(owners[0].name), Position.parse(end["next"][name]))
    for each in (before, after):
        await each.stop()


async def test_what_retention_took_of_a_partition_that_came_later_is_lost_and_its_cursor_is_made_before_it_is_read(
    client: daybook.Client, cluster: LocalCluster, cursors: Cursors
) -> None:
    whole = TopicName.parse(f"persistent://{uuid.uuid4().hex}/space/many")
    partitions = PartitionManager(client.store, client.layout)
    await partitions.create(whole, 1)
    owners = [Owner(client, partition(whole, index)) for index in range(2)]
    await owners[0].create()
    query = Query(cluster, whole, subscription="s")
    lenient = Query(cluster, whole, fails_on_data_loss=False)
    start = await query.begin()
    assert cursors.held == [str(owners[0].name)]
    await partitions.grow(whole, 2)
    await owners[1].create()
    await owners[1].roll(b"a")
    await owners[1].roll(b"b")
    await owners[1].trim()
    end = await query.end(start)
    assert cursors.held == [str(owner.name) for owner in owners]
    with pytest.raises(
        DataLossError, match=r"many-partition-1 came after the query began, and its retention"
    ):
        await query.values(start, end)
    assert await lenient.values(start, end) == [b"b"]
    await query.end(end)
    assert len(cursors.held) == 2
    for each in (query, lenient):
        await each.stop()


async def no_url(*_: object) -> str:
    return ""
