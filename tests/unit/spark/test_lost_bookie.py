"""Jobs lose a bookie while they work: compaction while its tasks read and write, offload of ledgers that name the lost one."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from daybook_spark.compact import job

import daybook
from daybook.client.broker_admin import Admin
from daybook.client.broker_topics import commit_compaction
from daybook.core.topics.compaction.commit import CompactionCommit
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from tests.fixtures.brokers import Brokers, write_settings
from tests.fixtures.cluster import make_cluster
from tests.fixtures.spark import RunJob
from tests.unit.spark.test_compaction import Compact, Topic, compact, last_of, messages, topic
from tests.unit.spark.test_offload import close_ledger, rows

__all__ = ["compact", "topic"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

BROKER = "broker-0"
LIMIT_S = 180
COUNT = 100


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Four bookies, of which a test may kill one."""
    with make_cluster(tmp_path / "cluster") as started:
        yield started


@pytest.fixture
def brokers(cluster: LocalCluster) -> Brokers:
    """One broker on them."""
    write_settings(cluster, (BROKER,))
    started = Brokers(cluster, (BROKER,))
    started.whole()
    return started


async def written(topic: Topic) -> int:
    """The first ledger that a job writes for the topic, once there is one."""
    async with asyncio.timeout(LIMIT_S):
        while not (found := await topic.ledgers_of_jobs()):
            pass
    return min(found)


async def test_a_bookie_that_is_lost_on_the_way_costs_compaction_and_offload_no_message(
    topic: Topic,
    compact: Compact,
    cluster: LocalCluster,
    brokers: Brokers,
    client: daybook.Client,
    pulsar_client: pulsar.Client,
    run_job: RunJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_lost = threading.Event()

    def after_the_loss(admin: Admin, name: TopicName, asked: CompactionCommit) -> None:
        assert is_lost.wait(LIMIT_S), "the bookie is lost before the job commits"
        commit_compaction(admin, name, asked)

    monkeypatch.setattr(job, "commit_compaction", after_the_loss)
    pulsar_client.subscribe(topic.name, "holds every message").close()
    await topic.publish(messages(COUNT, 31), batch=4)
    before = list(topic.sent)
    compaction = asyncio.create_task(asyncio.to_thread(compact, topic.name))
    lost = min((await client.ledgers.read(await written(topic))).value.bookies())
    cluster.kill_bookie(lost)
    is_lost.set()
    await compaction
    assert await topic.read() == last_of(before)

    await asyncio.to_thread(close_ledger, brokers, topic.name)
    options = ("--topic", topic.name, "--to", f"file://{tmp_path}/cold", "--lag", "0")
    code, shown, errors = await asyncio.to_thread(run_job, cluster, "offload", *options)
    assert code == 0, (shown, errors)
    assert shown["figures"]["ledgersOffloaded"] == len(await rows(client, topic.name))
    assert await topic.read(is_compacted=False) == before
