"""The largest message that a broker takes, read as a task reads it: it is larger than a piece of a read."""

import asyncio

import pulsar
import pytest
from daybook_spark.options import ReadOptions, Where
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import Bounds
from daybook_spark.read.rows import rows_of
from pyspark.sql.types import BinaryType, StructField, StructType

import daybook
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from tests.unit.spark.kit import new_topic, readable, send
from tests.unit.spark.test_failover import own_process_client

__all__ = ["own_process_client"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LARGE = bytes(range(256)) * (5 * 4096 - 4)
"""5 MiB but for 1 KiB, in which the message's metadata has room."""
VALUES = StructType([StructField("value", BinaryType())])


@pytest.mark.parametrize("partition_bytes", [1, 64 * 2**20])
async def test_the_largest_message_is_one_row_between_others(
    client: daybook.Client, cluster: LocalCluster, pulsar_client: pulsar.Client, partition_bytes: int
) -> None:
    topic = new_topic()
    await readable(client, topic, send(pulsar_client, topic, [b"before", LARGE, b"behind"]))
    where = Where(cluster.zookeeper.connect_string, CLUSTER_NAME)
    options = ReadOptions(where, topics=(topic,), partition_bytes=partition_bytes)

    def read() -> list[bytes]:
        batches = [batch for each in plan(options, Bounds()) for batch in rows_of(options, each, VALUES)]
        return [value for batch in batches for value in batch.column("value").to_pylist()]

    assert await asyncio.to_thread(read) == [b"before", LARGE, b"behind"]
