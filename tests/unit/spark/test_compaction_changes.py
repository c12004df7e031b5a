"""Compactions on real Spark of topics that change or vanish meanwhile, that are empty, and whose messages are as large as any."""

import asyncio
from collections.abc import Awaitable, Callable

import pulsar
import pytest
from daybook_spark.compact import job
from daybook_spark.options import ReadOptions
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import Bounds

import daybook
from daybook.client.broker_admin import Admin, AdminError
from daybook.client.broker_topics import commit_compaction
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.compaction.commit import CompactionCommit
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from tests.fixtures.brokers import Brokers
from tests.fixtures.spark import RunJob
from tests.unit.spark.gate import Gate, gated_entries
from tests.unit.spark.test_compaction import (
    LIMIT_MS,
    Compact,
    Message,
    Topic,
    compact,
    last_of,
    messages,
    topic,
)
from tests.unit.spark.test_failover import own_process_client, where_is
from tests.unit.spark.test_large_messages import LARGE
from tests.unit.spark.test_vanishing import admin, ledgers_of, read_until_gone, until_trimmed

__all__ = ["compact", "own_process_client", "topic"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SUBSCRIPTION = "holds every message"
SLOTS = 2


class Changing:
    """A topic of two ledgers, which a test changes while a job compacts it."""

    def __init__(
        self,
        topic: Topic,
        client: daybook.Client,
        pulsar_client: pulsar.Client,
        cluster: LocalCluster,
        brokers: Brokers,
    ) -> None:
        self.topic = topic
        self.left: list[tuple[str, Message]] = []
        """What trimming leaves."""
        self._client = client
        self._pulsar = pulsar_client
        self._cluster = cluster
        self._brokers = brokers

    async def publish(self) -> None:
        """Two ledgers, which a subscription holds."""
        self._pulsar.subscribe(self.topic.name, SUBSCRIPTION).close()
        await self.topic.publish(messages(30, 7), batch=4)
        await admin(self._brokers, "PUT", self.topic.name, "/unload")
        await self.topic.publish(messages(20, 5), batch=4)
        self.left = self.topic.sent[30:]

    async def trim(self) -> None:
        """Have the owner trim the first ledger."""
        first, *_ = await ledgers_of(self._client, self.topic.name)
        await asyncio.to_thread(self._acknowledge_the_first)
        await until_trimmed(self._client, self.topic.name, first)

    def _acknowledge_the_first(self) -> None:
        consumer = self._pulsar.subscribe(self.topic.name, SUBSCRIPTION)
        for _ in range(30):
            received = consumer.receive(LIMIT_MS)
        consumer.acknowledge_cumulative(received)
        consumer.close()

    async def delete(self) -> None:
        """Have the owner delete the topic."""
        await admin(self._brokers, "DELETE", self.topic.name, force="true")

    async def and_collected(self, change: Callable[[], Awaitable[None]]) -> None:
        """Change it, and wait until bookies have what is gone no more."""
        options = ReadOptions(where_is(self._cluster), topics=(self.topic.name,))
        ranges = await asyncio.to_thread(plan, options, Bounds())
        values = [value for _, (_, value) in self.topic.sent]
        await change()
        await read_until_gone(self._cluster, self.topic.name, ranges, values)


@pytest.fixture
async def changing(
    topic: Topic,
    client: daybook.Client,
    pulsar_client: pulsar.Client,
    cluster: LocalCluster,
    brokers: Brokers,
) -> Changing:
    """One with messages."""
    made = Changing(topic, client, pulsar_client, cluster, brokers)
    await made.publish()
    return made


async def left_nothing(topic: Topic) -> None:
    """A job that failed has left no ledger."""
    assert await topic.ledgers_of_jobs() == set()


@pytest.mark.parametrize("change", ["trim", "delete"])
async def test_rule_41_a_topic_whose_entries_are_gone_while_tasks_read_them_is_an_error_and_no_ledger(
    client: daybook.Client, changing: Changing, compact: Compact, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    topic = changing.topic
    with Gate() as gate, monkeypatch.context() as patch:
        patch.setattr(job, "stored_entries", gated_entries(gate.port))
        compaction = asyncio.create_task(asyncio.to_thread(compact, topic.name))
        await asyncio.to_thread(gate.wait_for, SLOTS)
        await changing.and_collected(getattr(changing, change))
    with pytest.raises(Exception, match=r"NoSuchLedgerError: ledger \d+ (was deleted|does not exist)"):
        await compaction
    await left_nothing(topic)
    await goes_on(client, changing, compact, change)


@pytest.mark.parametrize("change", ["trim", "delete"])
async def test_rule_41_a_topic_that_is_trimmed_or_deleted_before_the_commit_is_refused_and_no_ledger_stays(
    client: daybook.Client, changing: Changing, compact: Compact, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    topic, loop = changing.topic, asyncio.get_running_loop()

    def later(admin: Admin, name: TopicName, asked: CompactionCommit) -> None:
        monkeypatch.setattr(job, "commit_compaction", commit_compaction)
        asyncio.run_coroutine_threadsafe(getattr(changing, change)(), loop).result()
        commit_compaction(admin, name, asked)

    monkeypatch.setattr(job, "commit_compaction", later)
    with pytest.raises(AdminError) as refusal:
        await asyncio.to_thread(compact, topic.name)
    assert refusal.value.status == {"trim": 409, "delete": 404}[change], str(refusal.value)
    await left_nothing(topic)
    await goes_on(client, changing, compact, change)


async def goes_on(client: daybook.Client, changing: Changing, compact: Compact, change: str) -> None:
    """What is left is compacted by the next run; a topic that was deleted is not there again."""
    topic = changing.topic
    if change == "delete":
        with pytest.raises(NoSuchTopicError):
            await ledgers_of(client, topic.name)
        return
    await asyncio.to_thread(compact, topic.name)
    assert await topic.named() == await topic.ledgers_of_jobs() != set()
    assert await topic.read() == last_of(changing.left)


async def test_of_a_topic_without_messages_nothing_is_compacted_and_of_deleted_keys_nothing_is_left(
    pulsar_client: pulsar.Client,
    topic: Topic,
    compact: Compact,
    cluster: LocalCluster,
    run_job: RunJob,
) -> None:
    pulsar_client.create_producer(topic.name).close()
    assert await asyncio.to_thread(compact, topic.name) is None
    code, shown, _ = await asyncio.to_thread(run_job, cluster, "compaction", "--topic", topic.name)
    assert (code, shown["results"][0]["message"]) == (0, "nothing came since the last compaction")
    assert (await topic.ledgers_of_jobs(), await topic.read()) == (set(), [])

    await topic.publish([("a", b"1"), ("b", b"2"), ("a", b""), ("b", b"")], batch=2)
    done = await asyncio.to_thread(compact, topic.name)
    assert done is not None
    assert (done.keyed_read, done.keyed_kept, done.ledgers) == (4, 0, 0)
    assert (await topic.ledgers_of_jobs(), await topic.read()) == (set(), [])
    assert await topic.read(is_compacted=False) == topic.sent


async def test_a_message_as_large_as_any_stays_whole_until_its_key_is_deleted(
    topic: Topic, compact: Compact
) -> None:
    large = [("large", LARGE), ("small", b"1"), ("large", LARGE[::-1])]
    await topic.publish(large)
    done = await asyncio.to_thread(compact, topic.name)
    assert done is not None
    assert (done.keyed_read, done.keyed_kept) == (3, 2)
    assert await topic.read() == topic.sent[1:]

    await topic.publish([("large", b"")])
    await asyncio.to_thread(compact, topic.name)
    assert await topic.read() == topic.sent[1:2]
    await topic.until_no_others()
