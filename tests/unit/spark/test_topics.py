"""Topics as tables: what producers of an unmodified client have sent, one row for each message."""

import uuid

import pulsar
import pytest
from daybook_spark.plan.existing import TopicPart, extent_of

import daybook
from daybook.core.topics.name import TopicName
from daybook.metadata.partitions import PartitionManager
from tests.fixtures.spark import Load
from tests.unit.spark.kit import new_topic, readable, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


async def test_every_compression_and_every_field_is_read(
    client: daybook.Client, pulsar_client: pulsar.Client, load: Load
) -> None:
    topic = new_topic()
    kinds = [getattr(pulsar.CompressionType, name) for name in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")]
    for kind in kinds:
        producer = pulsar_client.create_producer(
            topic, producer_name=f"p-{kind.name}", compression_type=kind, batching_enabled=True
        )
        for number in range(10):
            producer.send_async(
                f"{kind.name} {number}".encode() * 20,
                lambda *_: None,
                partition_key=f"k{number}",
                properties={"n": str(number)},
                event_timestamp=1_000 * (number + 1),
                ordering_key="o",
            )
        producer.flush()
        producer.close()
    await readable(client, topic, send(pulsar_client, topic, [b"the last one"]))

    rows = [row for row in load(topic=topic).collect() if row.key]

    assert {(row.producer, row.key, bytes(row.value)) for row in rows} == {
        (f"p-{kind.name}", f"k{number}", f"{kind.name} {number}".encode() * 20)
        for kind in kinds
        for number in range(10)
    }
    assert len(rows) == 50
    for row in rows:
        number = int(row.key[1:])
        assert row.properties == {"n": str(number)}
        assert row.event_time.timestamp() == number + 1
        assert bytes(row.ordering_key) == b"o"
        assert (row.topic, row.partition, row.encrypted, row.chunk) == (topic, None, False, None)
    assert any(row.batch_index for row in rows)


async def test_partitions_and_namespaces_are_read_as_a_whole(
    client: daybook.Client, pulsar_client: pulsar.Client, load: Load
) -> None:
    tenant = uuid.uuid4().hex
    topic = f"persistent://{tenant}/space/many"
    await PartitionManager(client.store, client.layout).create(TopicName.parse(topic), 2)
    for index in range(2):
        name = f"{topic}-partition-{index}"
        await readable(client, name, send(pulsar_client, name, [b"%d-%d" % (index, n) for n in range(20)]))
    alone = f"persistent://{tenant}/space/alone"
    await readable(client, alone, send(pulsar_client, alone, [b"alone"]))

    frame = load(namespace=f"{tenant}/space")

    assert {
        (row.topic, row.partition, row["count"])
        for row in frame.groupBy("topic", "partition").count().collect()
    } == {
        (topic, 0, 20),
        (topic, 1, 20),
        (alone, None, 1),
    }


async def test_large_messages_come_whole_or_in_their_chunks(
    client: daybook.Client, pulsar_client: pulsar.Client, load: Load
) -> None:
    topic = new_topic()
    large, huge = b"x" * (5 * 1024 * 1024 - 200), b"y" * (12 * 1024 * 1024)
    send(pulsar_client, topic, [large])
    await readable(client, topic, send(pulsar_client, topic, [huge], chunking_enabled=True))

    rows = load(topic=topic).orderBy("ledger_id", "entry_id").collect()

    assert bytes(rows[0].value) == large
    assert rows[0].chunk is None
    parts = rows[1:]
    assert [row.chunk.id for row in parts] == list(range(parts[0].chunk["count"]))
    assert {row.chunk.total_bytes for row in parts} == {len(huge)}
    assert b"".join(bytes(row.value) for row in parts) == huge


async def test_a_time_and_a_position_bound_what_is_read(
    client: daybook.Client, pulsar_client: pulsar.Client, load: Load
) -> None:
    topic = new_topic()
    await readable(client, topic, send(pulsar_client, topic, [b"%d" % number for number in range(60)]))
    extent = await extent_of(client, TopicPart(TopicName.parse(topic), topic))
    ledger = extent.first.ledger_id
    everything = load(topic=topic).orderBy("entry_id").collect()
    middle_ms = round(everything[30].publish_time.timestamp() * 1000)

    bounded = load(topic=topic, start=f"{ledger}:10", end=f"{ledger}:20").collect()
    later = load(topic=topic, startTime=str(middle_ms)).collect()
    earlier = load(topic=topic, endTime=str(middle_ms)).collect()

    assert sorted(row.entry_id for row in bounded) == list(range(10, 20))
    assert {row.entry_id for row in later} == {
        r.entry_id for r in everything if r.publish_time >= everything[30].publish_time
    }
    assert len(later) + len(earlier) == 60


async def test_filters_are_pushed_where_the_session_allows(
    client: daybook.Client, pulsar_client: pulsar.Client, load: Load
) -> None:
    topic = new_topic()
    await readable(client, topic, send(pulsar_client, topic, [b"%d" % number for number in range(100)]))
    spark = load(topic=topic).sparkSession
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(topic=topic, pushdown="true", partitionBytes="1").where(
            "entry_id >= 40 and entry_id < 43"
        )
        assert frame.rdd.getNumPartitions() == 3
        assert sorted(bytes(row.value) for row in frame.collect()) == [b"40", b"41", b"42"]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


async def test_empty_and_deleted_topics(
    client: daybook.Client, pulsar_client: pulsar.Client, load: Load
) -> None:
    topic = new_topic()
    pulsar_client.create_producer(topic).close()
    assert load(topic=topic).collect() == []
    with pytest.raises(Exception, match="does not exist: it was never created, or it was deleted"):
        load(topic=new_topic()).collect()
