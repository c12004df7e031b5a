"""The offload job on a real cluster with real Spark: a file for each closed ledger, files of a killed run, consumers, and no broker."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pulsar
import pytest
from pyspark.sql import SparkSession

import daybook
from daybook.client.broker_admin import Admin
from daybook.core.topics.ledger_list import ListedLedger
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.job_results import JobResults
from daybook.metadata.partitions import PartitionManager
from daybook.metadata.topics import TopicManager
from tests.fixtures.brokers import Brokers
from tests.fixtures.spark import RunJob, where
from tests.unit.spark.kit import new_topic, readable, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LIMIT_MS = 40_000
VALUES = [b"%d" % number * 500 for number in range(7)]


@pytest.mark.usefixtures("no_brokers")
def test_without_a_broker_nothing_happens(run_job: RunJob, cluster: LocalCluster, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    there = ("--namespace", "public/default", "--termination-log", str(log))
    code, _, errors = run_job(cluster, "offload", *there, "--to", f"file://{tmp_path}/cold")
    assert code == 1
    assert "nothing was changed; start a broker" in errors
    assert "start a broker" in json.loads(log.read_text())["error"]
    code, _, errors = run_job(cluster, "offload", *there, "--to", "gopher://cold")
    assert (code, "use file:///folder" in errors) == (1, True)
    code, _, errors = run_job(cluster, "offload", "--to", f"file://{tmp_path}/cold")
    assert (code, "which topics?" in errors) == (1, True)
    assert not (tmp_path / "cold").exists()


def close_ledger(brokers: Brokers, topic: str) -> None:
    """The topic's owner closes its ledger."""
    admin = Admin([brokers.entry(each).admin_url for each in brokers.ids])
    admin.ask_any("PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")


async def closed_topic(
    brokers: Brokers,
    pulsar_client: pulsar.Client,
    client: daybook.Client,
    parts: Sequence[list[bytes]],
    subscription: str = "holds",
) -> str:
    """A topic with a closed ledger for each part, whose messages a subscription at its begin keeps."""
    topic = new_topic()
    pulsar_client.subscribe(topic, subscription, initial_position=pulsar.InitialPosition.Earliest).close()
    for part in parts:
        last = await asyncio.to_thread(send, pulsar_client, topic, part)
        await readable(client, topic, last)
        await asyncio.to_thread(close_ledger, brokers, topic)
    return topic


async def rows(client: daybook.Client, topic: str) -> tuple[ListedLedger, ...]:
    found = await TopicManager(client.store, client.layout).read(TopicName.parse(topic), sync=True)
    return tuple(each for each in found.value.ledgers if each.entries)


async def until_without_replicas(client: daybook.Client, topic: str) -> None:
    """The owner deletes the ledgers that lie in files."""
    for each in await rows(client, topic):
        async for found in client.ledgers.watch(each.ledger_id):
            if found is None:
                break


async def test_rule_70_closed_ledgers_go_into_files_and_consumers_and_queries_read_the_same(
    cluster: LocalCluster,
    brokers: Brokers,
    pulsar_client: pulsar.Client,
    client: daybook.Client,
    spark: SparkSession,
    run_job: RunJob,
    tmp_path: Path,
) -> None:
    topic = await closed_topic(brokers, pulsar_client, client, (VALUES[:4], VALUES[4:]), "s")
    there = ("--topic", topic, "--to", f"file://{tmp_path}/cold", "--lag", "0")

    code, shown, _ = await asyncio.to_thread(run_job, cluster, "offload", *there, "--dry-run")
    assert code == 0, shown
    assert (shown["figures"]["ledgersToOffload"], (tmp_path / "cold").exists()) == (2, False)
    code, shown, _ = await asyncio.to_thread(run_job, cluster, "offload", *there)
    assert code == 0, shown
    assert shown["figures"]["ledgersOffloaded"] == 2
    result = await JobResults(client.store, client.layout).read(TopicName.parse(topic), "offload")
    assert result is not None
    assert result.succeeded
    named = {each.offload.place for each in await rows(client, topic) if each.offload}
    assert {f"file://{path}" for path in tmp_path.joinpath("cold").rglob("*.parquet")} == named
    assert len(named) == 2
    left = Path(min(named).removeprefix("file://")).with_name(f"0-{'7' * 32}-0.parquet")
    left.write_bytes(b"PAR1 and no more: its run was killed")
    code, shown, _ = await asyncio.to_thread(run_job, cluster, "offload", *there)
    assert (code, shown["figures"]["filesDeleted"], left.exists()) == (0, 1, False)

    await until_without_replicas(client, topic)
    consumer = pulsar_client.subscribe(topic, "s")
    assert [(await asyncio.to_thread(consumer.receive, LIMIT_MS)).data() for _ in VALUES] == VALUES
    consumer.close()
    last = await asyncio.to_thread(send, pulsar_client, topic, [b"on bookies"])
    await readable(client, topic, last)
    query = spark.read.format("daybook").options(**where(cluster), topic=topic)
    read = await asyncio.to_thread(
        lambda: query.load().select("ledger_id", "value", "publish_time").collect()
    )
    assert [bytes(row.value) for row in read] == [*VALUES, b"on bookies"]
    assert len({row.ledger_id for row in read}) == 3
    middle = read[4].publish_time
    since = query.option("startTime", str(round(middle.timestamp() * 1000)))
    later = await asyncio.to_thread(lambda: since.load().collect())
    assert [row.value for row in later] == [row.value for row in read if row.publish_time >= middle]


async def test_plain_spark_reads_the_rows_as_the_data_source_returns_them(
    cluster: LocalCluster,
    brokers: Brokers,
    pulsar_client: pulsar.Client,
    client: daybook.Client,
    spark: SparkSession,
    run_job: RunJob,
    tmp_path: Path,
) -> None:
    whole = new_topic()
    topic = f"{whole}-partition-1"
    await PartitionManager(client.store, client.layout).create(TopicName.parse(whole), 2)

    def send_batches() -> pulsar.MessageId:
        producer = pulsar_client.create_producer(
            topic, compression_type=pulsar.CompressionType.ZLib, batching_max_messages=40
        )
        for number in range(100):
            producer.send_async(
                b"%d" % number * 50,
                lambda *_: None,
                partition_key=f"key {number % 7}",
                properties={"number": str(number)} if number % 2 else None,
                event_timestamp=number or None,
            )
        producer.flush()
        producer.close()
        return send(pulsar_client, topic, [b"", b"alone"])

    pulsar_client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest).close()
    for _ in range(2):
        last = await asyncio.to_thread(send_batches)
        await readable(client, topic, last)
        await asyncio.to_thread(close_ledger, brokers, topic)
    query = spark.read.format("daybook").options(**where(cluster), topic=topic, mode="permissive").load()
    there = ("--topic", topic, "--to", f"file://{tmp_path}/cold", "--rows")
    code, shown, _ = await asyncio.to_thread(run_job, cluster, "offload", *there)
    assert (code, shown["figures"]["rowsWritten"]) == (0, 204), shown

    places = {each.offload.place for each in await rows(client, topic) if each.offload}
    (folder,) = tmp_path.joinpath("cold").rglob("rows")
    assert {each.name for each in folder.glob("*.parquet")} == {Path(place).name for place in places}
    plain = spark.read.parquet(f"file://{folder}")
    assert plain.schema == query.schema
    expected = await asyncio.to_thread(query.collect)
    found = await asyncio.to_thread(plain.collect)
    assert sorted(found, key=lambda row: (row.ledger_id, row.entry_id, row.batch_index or 0)) == expected
    assert {(row.topic, row.partition) for row in expected} == {(whole, 1)}
    assert len(expected) == 204
