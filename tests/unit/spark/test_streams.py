"""Streaming queries over topics."""

import uuid
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pulsar
import pytest
from pyspark.errors import StreamingQueryException

import daybook
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.topics import TopicManager
from tests.fixtures.spark import where
from tests.unit.spark.kit import new_topic, readable, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

STARTS_MAX = 8
"""Spark gives the Python process of a stream 10 s to start, which a busy machine may need longer for; the query begins again then."""

Follow: TypeAlias = Callable[..., list[list[bytes]]]


@pytest.fixture
def follow(spark: "SparkSession", cluster: LocalCluster, tmp_path: Path) -> Follow:
    """`follow(topic=…)` runs a query to the end of what is there, from its checkpoint on; the values of each batch."""

    def run(checkpoint: str = "checkpoint", **options: Any) -> list[list[bytes]]:
        batches: list[list[bytes]] = []

        def take(frame: "DataFrame", _number: int) -> None:
            batches.append([bytes(row.value) for row in frame.collect()])

        frame = spark.readStream.format("daybook").options(**where(cluster), **options).load()
        writer = frame.writeStream.foreachBatch(take).trigger(availableNow=True)
        for attempt in range(STARTS_MAX):
            query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if "failed to connect back" not in str(error) or attempt + 1 == STARTS_MAX:
                    raise
            else:
                break
        return batches

    return run


async def test_a_query_reads_each_message_once_over_restarts_and_rolls(
    client: daybook.Client, pulsar_client: pulsar.Client, follow: Follow
) -> None:
    topic = new_topic()
    first, second = [b"a%d" % n for n in range(25)], [b"b%d" % n for n in range(5)]
    await readable(client, topic, send(pulsar_client, topic, first))

    batches = follow(topic=topic, maxEntriesPerTrigger="10")
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert sorted(chain(*batches)) == sorted(first)

    assert follow(topic=topic, maxEntriesPerTrigger="10") == []
    await readable(client, topic, send(pulsar_client, topic, second))
    assert sorted(chain(*follow(topic=topic))) == sorted(second)


async def test_a_subscription_follows_what_was_committed(
    client: daybook.Client, pulsar_client: pulsar.Client, follow: Follow
) -> None:
    topic, subscription = new_topic(), uuid.uuid4().hex
    last = send(pulsar_client, topic, [b"%d" % n for n in range(30)])
    await readable(client, topic, last)

    batches = follow(topic=topic, subscription=subscription, maxEntriesPerTrigger="10")

    assert [len(batch) for batch in batches] == [10, 10, 10]
    consumer = pulsar_client.subscribe(topic, subscription)
    first = consumer.receive()
    consumer.close()
    # the last batch is committed with the next one, so at least the first two are acknowledged
    assert first.message_id().entry_id() == 20
    names = await TopicManager(client.store, client.layout).cursors(TopicName.parse(topic))
    assert subscription in names
