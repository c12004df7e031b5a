"""Jobs lose a bookie while they work: compaction while its tasks read and write, offload of ledgers that name the lost one."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar
import pytest
from daybook_spark.compact.job import compact_topic
from daybook_spark.options import Where

import daybook
from daybook.client.broker_admin import Admin
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from tests.fixtures.brokers import Brokers, write_settings
from tests.fixtures.cluster import connect_to, make_cluster
from tests.fixtures.spark import RunJob
from tests.unit.spark.test_compaction import SMALL, Topic, last_of, messages
from tests.unit.spark.test_offload import close_ledger, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

BROKER = "broker-0"
LIMIT_S = 60
COUNT = 100


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Four bookies, of which a test may kill one, and a broker."""
    with make_cluster(tmp_path / "cluster") as started:
        write_settings(started, (BROKER,))
        brokers = Brokers(started, (BROKER,))
        brokers.whole()
        yield started
        brokers.none()


async def bookies_of(client: daybook.Client, ledger_id: int) -> set[str]:
    """All bookies that a ledger names."""
    metadata = (await client.ledgers.read(ledger_id)).value
    return {bookie for fragment in metadata.fragments for bookie in fragment.bookies}


async def written(topic: Topic) -> int:
    """The first ledger that a job writes for the topic, once there is one."""
    async with asyncio.timeout(LIMIT_S):
        while not (found := await topic.ledgers_of_jobs()):
            pass
    return min(found)


async def test_a_bookie_that_is_lost_on_the_way_costs_compaction_and_offload_no_message(
    own_cluster: LocalCluster, spark: "SparkSession", run_job: RunJob, tmp_path: Path
) -> None:
    cluster, brokers = own_cluster, Brokers(own_cluster, (BROKER,))
    where = Where(cluster.zookeeper.connect_string, CLUSTER_NAME)
    admin = Admin([brokers.entry(BROKER).admin_url])
    pulsar_client = pulsar.Client(brokers.service_url)
    async with connect_to(cluster) as client:
        topic = Topic(client, pulsar_client)
        pulsar_client.subscribe(topic.name, "holds every message").close()
        await topic.publish(messages(COUNT, 31), batch=4)
        before = list(topic.sent)
        compaction = asyncio.create_task(
            asyncio.to_thread(compact_topic, spark, where, admin, TopicName.parse(topic.name), SMALL)
        )
        lost = min(await bookies_of(client, await written(topic)))
        cluster.kill_bookie(lost)
        assert not compaction.done(), "the bookie is lost while tasks write"
        await compaction
        assert await topic.read() == last_of(before)

        await asyncio.to_thread(close_ledger, brokers, topic.name)
        options = ("--topic", topic.name, "--to", f"file://{tmp_path}/cold", "--lag", "0")
        code, shown, errors = await asyncio.to_thread(run_job, cluster, "offload", *options)
        assert code == 0, (shown, errors)
        assert shown["figures"]["ledgersOffloaded"] == len(await rows(client, topic.name))
        assert await topic.read(is_compacted=False) == before
    pulsar_client.close()
