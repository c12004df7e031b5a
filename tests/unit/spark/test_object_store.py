"""Offload and restore against an S3 as a whole: the job, the brokers' reads, the copy, and what a job says of a bucket or of credentials."""

import asyncio
from collections.abc import Iterator

import pulsar
import pytest
from pyspark.sql import SparkSession

import daybook
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.job_results import JobResults
from tests.fixtures.brokers import Brokers
from tests.fixtures.object_store import CREDENTIALS, S3
from tests.fixtures.spark import RunJob
from tests.unit.spark.test_offload import closed_topic, rows, until_without_replicas
from tests.unit.spark.test_restore import VALUES, done, received

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def executors(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks have the credentials in their environment, as the pods of executors have them from a Secret."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)


@pytest.fixture
def with_credentials(s3: S3, shared_brokers: Brokers) -> Iterator[Brokers]:
    """Brokers that started with the credentials in their environment; later tests get others."""
    shared_brokers.none()
    shared_brokers.whole()
    yield shared_brokers
    shared_brokers.none()


@pytest.mark.usefixtures("executors")
async def test_ids_and_bytes_are_the_same_from_the_bucket_and_after_the_restore(
    run_job: RunJob,
    cluster: LocalCluster,
    with_credentials: Brokers,
    pulsar_client: pulsar.Client,
    client: daybook.Client,
    s3: S3,
) -> None:
    topic = await closed_topic(with_credentials, pulsar_client, client, (VALUES[:4], VALUES[4:]))
    before = await asyncio.to_thread(received, pulsar_client, topic, "before")
    offload = ("--topic", topic, "--to", s3.place(), "--lag", "0", "--rows")
    figures = await done(run_job, cluster, "offload", *offload)
    assert (figures["ledgersOffloaded"], figures["rowsWritten"]) == (2, len(VALUES))
    await until_without_replicas(client, topic)
    named = {each.offload.place.partition("?")[0] for each in await rows(client, topic) if each.offload}
    assert s3.files() == sorted([place.rpartition("/")[2] for place in named] * 2), (
        "the entries, and the rows"
    )
    assert await asyncio.to_thread(received, pulsar_client, topic, "offloaded") == before

    figures = await done(run_job, cluster, "restore", "--topic", topic, "--lag", "0")
    assert (figures["ledgersRestored"], figures["filesDeleted"], s3.files()) == (2, 4, [])
    assert await asyncio.to_thread(received, pulsar_client, topic, "restored") == before


@pytest.mark.usefixtures("executors")
async def test_a_missing_bucket_and_refused_credentials_are_named_with_what_to_do_and_nothing_changes(
    run_job: RunJob,
    cluster: LocalCluster,
    brokers: Brokers,
    pulsar_client: pulsar.Client,
    client: daybook.Client,
    s3: S3,
) -> None:
    topic = await closed_topic(brokers, pulsar_client, client, [VALUES])

    async def fails(place: str, advice: str) -> None:
        offload = ("--topic", topic, "--to", place)
        code, shown, _ = await asyncio.to_thread(run_job, cluster, "offload", *offload)
        assert code == 1
        assert advice in str(shown)
        result = await JobResults(client.store, client.layout).read(TopicName.parse(topic), "offload")
        assert result is not None
        assert advice in result.message
        assert all(each.offload is None for each in await rows(client, topic))

    await fails(s3.place("no-such-bucket"), "create the bucket")
    with s3.refusing():
        await fails(s3.place(), "correct the credentials in its environment")
