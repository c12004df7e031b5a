"""Messages that jobs write, through brokers, read back by Pulsar's own client."""

from datetime import UTC, datetime
from pathlib import Path

import pulsar
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from daybook.local.cluster import LocalCluster
from tests.fixtures.brokers import Brokers
from tests.fixtures.spark import where

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PATIENCE_MS = 60_000


def messages(client: pulsar.Client, topic: str, count: int) -> list[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(PATIENCE_MS) for _ in range(count)]
    assert not reader.has_message_available()
    return found


def test_rows_become_messages_with_all_that_a_message_has(
    spark: SparkSession, cluster: LocalCluster, pulsar_client: pulsar.Client
) -> None:
    topic = "persistent://public/default/spark-written"
    columns = [
        "concat('order ', id) as value",
        "concat('key ', id % 3) as key",
        "if(id % 2 = 0, null, map('parity', 'odd')) as properties",
        "timestamp_millis(1700000000000 + id) as event_time",
    ]
    rows = spark.range(500).coalesce(1).selectExpr(*columns)
    rows.write.format("daybook").options(**where(cluster), topic=topic).mode("append").save()
    found = messages(pulsar_client, topic, 500)
    assert [message.data() for message in found] == [b"order %d" % n for n in range(500)]
    assert [message.partition_key() for message in found[:4]] == ["key 0", "key 1", "key 2", "key 0"]
    assert [message.properties() for message in found[:2]] == [{}, {"parity": "odd"}]
    moment = datetime.fromtimestamp(1_700_000_000.007, UTC)
    assert found[7].event_timestamp() == round(moment.timestamp() * 1000)
    assert len({message.producer_name() for message in found}) == 1


def test_a_stream_names_producers_by_query_and_partition(
    spark: SparkSession, cluster: LocalCluster, brokers: Brokers, pulsar_client: pulsar.Client, tmp_path: Path
) -> None:
    topic = "persistent://public/default/spark-streamed"
    source = tmp_path / "in"
    source.mkdir()
    for batch in range(2):
        (source / f"{batch}.txt").write_text(f"a{batch}\nb{batch}\n")
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
        query = (
            lines.writeStream.format("daybook")
            .options(**where(cluster), topic=topic, serviceUrl=brokers.service_url)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
    found = messages(pulsar_client, topic, 4)
    assert [message.data() for message in found] == [b"a0", b"b0", b"a1", b"b1"]
    assert {message.producer_name() for message in found} == {f"{query.id}-0"}


def test_a_topic_cannot_be_overwritten(spark: SparkSession, cluster: LocalCluster) -> None:
    rows = spark.range(1).selectExpr("'x' as value").write.format("daybook")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        rows.options(**where(cluster), topic="t").mode("overwrite").save()
