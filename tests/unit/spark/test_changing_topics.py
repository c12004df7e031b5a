"""Jobs on real Spark that read while the world changes: they have each row once, or the error that says what is gone.

The first two tasks wait behind what they have read; the others begin once a bookie is lost, an owner has changed or the entries are gone.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pulsar
import pytest

import daybook
from daybook.local.cluster import LocalCluster
from tests.fixtures.brokers import Brokers
from tests.fixtures.cluster import connect_to
from tests.fixtures.spark import where
from tests.unit.spark.gate import Gate, gated_source
from tests.unit.spark.kit import new_topic, readable, send
from tests.unit.spark.test_failover import own_cluster, own_process_client
from tests.unit.spark.test_trimming import Owner
from tests.unit.spark.test_vanishing import admin, planned, read_until_gone, until_trimmed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["own_cluster", "own_process_client"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

VALUES = [b"%0100d" % number for number in range(100)]
PART_BYTES = 2000
"""Five tasks and more for these."""
SLOTS = 2

Job = asyncio.Task[list[bytes]]


def frame_of(
    spark: "SparkSession", cluster: LocalCluster, topic: str, source: str = "daybook"
) -> "DataFrame":
    options = {**where(cluster), "topic": topic, "partitionBytes": str(PART_BYTES)}
    return spark.read.format(source).options(**options).schema("value binary").load()


def values_of(frame: "DataFrame") -> list[bytes]:
    """What Spark collects, in the order of the partitions."""
    return [bytes(row.value) for row in frame.collect()]


@asynccontextmanager
async def while_read(spark: "SparkSession", cluster: LocalCluster, topic: str) -> AsyncIterator[Job]:
    """A job that reads the topic: within the block its first tasks have read something and wait, and no other has begun."""
    with Gate() as gate:
        spark.dataSource.register(gated_source(gate.port))
        frame = frame_of(spark, cluster, topic, f"daybook_gated_{gate.port}")
        job = asyncio.create_task(asyncio.to_thread(values_of, frame))
        await asyncio.to_thread(gate.wait_for, SLOTS)
        try:
            yield job
        finally:
            gate.open()
            await asyncio.wait([job])


async def test_a_job_that_loses_a_bookie_between_its_tasks_has_each_row_once(
    spark: "SparkSession", own_cluster: LocalCluster
) -> None:
    async with connect_to(own_cluster) as client:
        owner = Owner(client)
        await owner.create()
        await owner.roll(*VALUES[:60])
        await owner.roll(*VALUES[60:])
        async with while_read(spark, own_cluster, str(owner.name)) as job:
            own_cluster.kill_bookie("bookie-0")
        assert await job == VALUES


async def test_a_job_whose_topic_changes_its_owner_has_each_row_once(
    client: daybook.Client,
    spark: "SparkSession",
    cluster: LocalCluster,
    brokers: Brokers,
    pulsar_client: pulsar.Client,
) -> None:
    topic = new_topic()
    pulsar_client.subscribe(topic, "keeps every message").close()
    last = send(pulsar_client, topic, VALUES)
    await readable(client, topic, last)
    async with while_read(spark, cluster, topic) as job:
        for broker in brokers.ids:
            brokers.kill(broker)
        brokers.whole()
        later = await asyncio.to_thread(send, pulsar_client, topic, [b"of another owner"])
        assert later.ledger_id() != last.ledger_id(), "the new owner has closed the ledger that the job reads"
    assert await job == VALUES
    await readable(client, topic, later)
    assert await asyncio.to_thread(values_of, frame_of(spark, cluster, topic)) == [
        *VALUES,
        b"of another owner",
    ]


async def trim(
    client: daybook.Client,
    pulsar_client: pulsar.Client,
    brokers: Brokers,
    consumer: pulsar.Consumer,
    last: pulsar.MessageId,
) -> None:
    """Have the owner trim all that was sent."""
    topic = consumer.topic()
    await asyncio.to_thread(consumer.acknowledge_cumulative, last)
    await asyncio.to_thread(consumer.close)
    await admin(brokers, "PUT", topic, "/unload")
    await asyncio.to_thread(send, pulsar_client, topic, [b"later"])
    await until_trimmed(client, topic, last.ledger_id())


async def delete(
    client: daybook.Client,
    pulsar_client: pulsar.Client,
    brokers: Brokers,
    consumer: pulsar.Consumer,
    last: pulsar.MessageId,
) -> None:
    """Have the owner delete the topic."""
    del client, pulsar_client, last
    topic = consumer.topic()
    await asyncio.to_thread(consumer.close)
    await admin(brokers, "DELETE", topic, force="true")


Change = Callable[
    [daybook.Client, pulsar.Client, Brokers, pulsar.Consumer, pulsar.MessageId], Awaitable[None]
]


@pytest.mark.parametrize("change", [trim, delete])
async def test_a_job_whose_entries_are_gone_before_its_last_tasks_ends_with_an_error_and_no_rows(
    client: daybook.Client,
    spark: "SparkSession",
    cluster: LocalCluster,
    brokers: Brokers,
    pulsar_client: pulsar.Client,
    change: Change,
) -> None:
    topic = new_topic()
    consumer = pulsar_client.subscribe(topic, "holds the ledger")
    last = send(pulsar_client, topic, VALUES)
    await readable(client, topic, last)
    ranges = await planned(cluster, topic)
    async with while_read(spark, cluster, topic) as job:
        await change(client, pulsar_client, brokers, consumer, last)
        await read_until_gone(cluster, topic, ranges, VALUES)
    with pytest.raises(
        Exception, match=rf"NoSuchLedgerError: ledger {last.ledger_id()} (was deleted|does not exist)"
    ):
        await job
    frame = frame_of(spark, cluster, topic)
    if change is trim:
        assert set(await asyncio.to_thread(values_of, frame)) <= {b"later"}
    else:
        with pytest.raises(Exception, match="does not exist: it was never created, or it was deleted"):
            await asyncio.to_thread(values_of, frame)
