"""A million small messages, a thousand in each entry, are a million rows, read as tasks read them."""

import asyncio
import struct

import numpy as np
import pyarrow as pa
import pytest
from daybook_spark.options import ReadOptions
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import Bounds
from daybook_spark.read.rows import rows_of
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

import daybook
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.batches import BatchMessage, encode_batch
from daybook.wire.pulsar.entries import decode_metadata, encode_entry, split_entry
from daybook.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata
from tests.unit.spark.test_failover import own_process_client, where_is
from tests.unit.spark.test_trimming import Owner

__all__ = ["own_process_client"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ENTRIES = 1_000
OF_AN_ENTRY = 1_000
COUNT = ENTRIES * OF_AN_ENTRY
SCHEMA = StructType(
    [
        StructField("sequence_id", LongType()),
        StructField("batch_index", IntegerType()),
        StructField("value", BinaryType()),
    ]
)


def entries() -> list[bytes]:
    """Entries of messages 0, 1, 2, … by their sequence ids; each message is its place in its entry."""
    first = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    parts = [
        BatchMessage(SingleMessageMetadata(payload_size=4), struct.pack(">I", index))
        for index in range(OF_AN_ENTRY)
    ]
    split = split_entry(encode_batch(first, parts))
    metadata, found = decode_metadata(split), []
    for number in range(ENTRIES):
        metadata.sequence_id = number * OF_AN_ENTRY
        found.append(encode_entry(metadata, split.payload))
    return found


async def test_a_million_messages_are_read_each_once(client: daybook.Client, cluster: LocalCluster) -> None:
    owner = Owner(client)
    await owner.create()
    written = entries()
    for begin in range(0, ENTRIES, ENTRIES // 2):
        await owner.roll_entries(written[begin : begin + ENTRIES // 2])
    options = ReadOptions(where_is(cluster), topics=(str(owner.name),), partition_bytes=2 * 1024 * 1024)

    def read() -> pa.Table:
        return pa.Table.from_batches(
            batch for each in plan(options, Bounds()) for batch in rows_of(options, each, SCHEMA)
        )

    rows = await asyncio.to_thread(read)

    assert np.array_equal(rows["sequence_id"].to_numpy(), np.arange(COUNT))
    places = np.tile(np.arange(OF_AN_ENTRY), ENTRIES)
    assert np.array_equal(rows["batch_index"].to_numpy(), places)
    values = rows["value"].combine_chunks().cast(pa.large_binary())
    assert np.array_equal(np.frombuffer(b"".join(values.to_pylist()), ">u4"), places)
