"""Trimming, expiry, quotas, deletion and the end of topics, through Pulsar's own client and the broker's policies."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pulsar
import pytest
from daybook_broker.broker import Broker
from daybook_broker.metrics import PREFIX
from daybook_broker.topics import access, subscriptions, upkeep
from daybook_broker.topics.deletion import delete_topic, users_of
from daybook_broker.topics.topic import Topic
from daybook_broker.topics.upkeep import bytes_behind

from daybook.core.errors import (
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchTopicError,
    PolicyError,
    TopicTerminatedError,
)
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, ListState, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import BacklogAction, Degrade, Durability, PolicyLayer
from daybook.local.cluster import LocalCluster
from daybook.runtime.clock import monotonic_ms
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.unit.broker.kit import (
    LIMIT_S,
    frame_client,
    new_topic,
    running_broker,
    until,
    until_gone,
    with_pulsar,
)

pytestmark = pytest.mark.integration

FAST: dict[str, Any] = {
    "trim_interval_ms": 50,
    "ttl_interval_ms": 50,
    "quota_interval_ms": 50,
    "cursor_persist_ms": 50,
    "ledger_entries_max": 5,
    "ledger_age_ms_min": 0,
}


@pytest.fixture
async def broker(cluster: LocalCluster) -> AsyncIterator[Broker]:
    """A broker whose cycles are short, and whose ledgers are, too."""
    async with running_broker(cluster, **FAST) as started:
        yield started


async def publish(broker: Broker, topic: str, count: int, size_bytes: int = 100) -> None:
    def work(client: pulsar.Client) -> None:
        producer = client.create_producer(topic, batching_enabled=False)
        for _ in range(count):
            producer.send(bytes(size_bytes))

    await with_pulsar(broker, work)


def gauge(broker: Broker, name: str, **labels: str) -> float | None:
    return broker.metrics.registry.get_sample_value(f"{PREFIX}{name}", labels)


async def set_policy(broker: Broker, name: TopicName, **values: Any) -> None:
    policies = broker.registry.services.policies
    await policies.set_topic(name, await policies.topic(name), PolicyLayer(**values))


async def served(broker: Broker, topic: str) -> Topic:
    return await broker.registry.load(TopicName.parse(topic), create=True)


async def subscribe(broker: Broker, topic: str) -> None:
    def work(client: pulsar.Client) -> None:
        client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest).close()

    await with_pulsar(broker, work)


async def test_rule_51_ledgers_go_when_every_subscription_has_passed_them(broker: Broker) -> None:
    topic = new_topic()
    await subscribe(broker, topic)
    await publish(broker, topic, 12)
    found = await served(broker, topic)
    await until(lambda: len(found.ledger_list.ledgers) == 3)
    first = found.ledger_list.ledgers[0].ledger_id

    def consume(client: pulsar.Client) -> None:
        consumer = client.subscribe(topic, "s")
        for _ in range(7):
            consumer.acknowledge(consumer.receive(int(1000 * LIMIT_S)))
        consumer.close()

    await with_pulsar(broker, consume)
    await until(lambda: len(found.ledger_list.ledgers) == 2)
    assert found.extent.first.ledger_id > first
    await until_gone(lambda: broker.client.ledgers.read(first), NoSuchLedgerError)


async def test_a_topic_is_served_with_more_copies_where_its_policy_contradicts_the_brokers_settings(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    async with running_broker(cluster) as usual:
        name = (await served(usual, topic)).name
        await set_policy(usual, name, degrade=Degrade.TO_ACK_QUORUM, retention_ms=-1)
    strict: dict[str, Any] = {"durability": Durability.SYNC, "degrade": Degrade.NEVER}
    async with running_broker(cluster, **strict) as broker:
        await publish(broker, topic, 1)
        found = await served(broker, topic)
        await broker.upkeep.trim(found)
        assert found.durability == (Durability.SYNC, Degrade.NEVER)
        assert found.policy.retention_ms == -1, "what contradicts nothing holds"
        with pytest.raises(PolicyError, match=r"over the brokers' settings.*serves it with durability=sync"):
            await broker.registry.services.policies.of(name)
    assert len([each for each in caplog.messages if "policies contradict" in each]) == 1, "it is logged once"


async def test_a_cycle_reaches_all_topics_a_few_at_a_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "TOGETHER", 2)
    found = [await served(broker, new_topic()) for _ in range(5)]
    under_way: set[TopicName] = set()
    most = 0
    read_policy = Topic.read_policy

    async def counted(topic: Topic) -> None:
        nonlocal most
        under_way.add(topic.name)
        most = max(most, len(under_way))
        await read_policy(topic)
        under_way.discard(topic.name)

    monkeypatch.setattr(Topic, "read_policy", counted)
    for topic in found:
        await set_policy(broker, topic.name, ttl_ms=77_000)
    await until(lambda: all(topic.policy.ttl_ms == 77_000 for topic in found))
    assert most == 2


async def test_what_is_retained_stays_although_everybody_has_passed_it(broker: Broker) -> None:
    topic = new_topic()
    found = await served(broker, topic)
    await set_policy(broker, found.name, retention_ms=-1, retention_bytes=-1)
    await until(lambda: found.policy.retention_ms == -1)
    await publish(broker, topic, 12)
    cycles = broker.upkeep
    await cycles.trim(found)
    assert found.extent.count(found.extent.before(found.extent.first)) == 12


async def test_what_is_older_than_its_time_counts_as_acknowledged(broker: Broker) -> None:
    topic = new_topic()
    await subscribe(broker, topic)
    await publish(broker, topic, 3)
    found = await served(broker, topic)
    (subscription,) = found.subscriptions.all()
    assert subscription.acks.unacked_entries() == 3
    await set_policy(broker, found.name, ttl_ms=1)
    await until(lambda: subscription.acks.unacked_entries() == 0)


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (BacklogAction.HOLD, ServerError.ProducerBlockedQuotaExceededError),
        (BacklogAction.EXCEPTION, ServerError.ProducerBlockedQuotaExceededException),
    ],
)
async def test_producers_are_refused_while_the_backlog_is_over_its_quota(
    broker: Broker, action: BacklogAction, code: ServerError
) -> None:
    topic = new_topic()
    await subscribe(broker, topic)
    await publish(broker, topic, 10, 1000)
    found = await served(broker, topic)
    async with frame_client(broker) as client:
        assert (await client.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS
        await set_policy(broker, found.name, backlog_bytes=5000, backlog_action=action)
        assert (await client.receive()).type == BaseCommand.CLOSE_PRODUCER
        refused = await client.produce(topic)
        assert refused.error.error == code
        assert "raise the quota" in refused.error.message
        await until(lambda: gauge(broker, "topics_over_quota") == 1)
        assert gauge(broker, "backlog_entries") == 10
        (subscription,) = found.subscriptions.all()
        subscription.skip_through(subscription.acks.nth_unacked(8))
        await until(lambda: found.refusal is None)
        assert (await client.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS


async def test_a_producer_that_comes_is_judged_by_what_is_set_now(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "POLICY_AGE_MS", 1)
    topic = new_topic()
    hour: dict[str, Any] = {"trim_interval_ms": HOUR_MS, "quota_interval_ms": HOUR_MS}
    async with running_broker(cluster, **hour) as broker, frame_client(broker) as client:
        await subscribe(broker, topic)
        await publish(broker, topic, 10, 1000)
        found = await served(broker, topic)
        await set_policy(broker, found.name, backlog_bytes=5000, backlog_action=BacklogAction.EXCEPTION)
        refused = ServerError.ProducerBlockedQuotaExceededException
        assert (await client.produce(topic)).error.error == refused

        async def unreadable(_: Topic, **__: int) -> None:
            msg = "ZooKeeper does not answer"
            raise MetadataUnavailableError(msg)

        with monkeypatch.context() as away:
            away.setattr(Topic, "read_policy", unreadable)
            await set_policy(broker, found.name, backlog_bytes=50_000)
            assert (await client.produce(topic)).error.error == refused, "what was read last holds"
        assert (await client.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS


async def test_topics_are_counted_by_what_they_are_written_with_and_those_with_fewer_copies(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, usual = new_topic(), {"durability": "semi-sync", "degrade": "to-ack-quorum"}
    found = await served(broker, topic)
    await until(lambda: gauge(broker, "topics", **usual) == 1)
    assert gauge(broker, "topics", durability="sync", degrade="never") == 0
    assert gauge(broker, "topics_degraded") == 0
    monkeypatch.setattr(broker.client, "can_place", lambda quorum, pool="": quorum.ensemble_size <= 2)
    await publish(broker, topic, 1)
    await until(lambda: gauge(broker, "topics_degraded") == 1)
    await set_policy(broker, found.name, durability=Durability.SYNC, degrade=Degrade.NEVER)
    monkeypatch.undo()
    await until(lambda: gauge(broker, "topics", durability="sync", degrade="never") == 1)
    assert gauge(broker, "topics", **usual) == 0
    assert gauge(broker, "topics_degraded") == 0


async def test_the_oldest_messages_are_evicted_where_the_policy_says_so(broker: Broker) -> None:
    topic = new_topic()
    await subscribe(broker, topic)
    await publish(broker, topic, 20, 1000)
    found = await served(broker, topic)
    (subscription,) = found.subscriptions.all()
    await set_policy(broker, found.name, backlog_bytes=10_000, backlog_action=BacklogAction.EVICT)
    await until(lambda: subscription.acks.unacked_entries() < 10)
    assert subscription.acks.unacked_entries() >= 6, "no more than needed"


async def test_a_backlog_may_be_too_old(broker: Broker) -> None:
    topic = new_topic()
    await subscribe(broker, topic)
    await publish(broker, topic, 3)
    found = await served(broker, topic)
    await set_policy(broker, found.name, backlog_ms=1)
    await until(lambda: found.refusal is not None)
    assert "older than 1 ms" in str(found.refusal)


async def test_a_backlog_of_which_nothing_is_old_refuses_no_producer(broker: Broker) -> None:
    topic = new_topic()
    await subscribe(broker, topic)
    await publish(broker, topic, 3)
    found = await served(broker, topic)
    (subscription,) = found.subscriptions.all()
    assert subscription.acks.mark_delete < found.extent.first.before, "it began before the first ledger"
    await set_policy(broker, found.name, backlog_ms=HOUR_MS)
    await found.read_policy()
    await broker.upkeep.check_quota(found)
    assert found.refusal is None


async def test_a_topic_that_nobody_uses_is_deleted_with_its_ledgers(broker: Broker) -> None:
    topic = new_topic()
    await publish(broker, topic, 3)
    found = await served(broker, topic)
    ledgers = [ledger.ledger_id for ledger in found.ledger_list.ledgers]
    await set_policy(broker, found.name, inactive_ms=100)
    await until(lambda: broker.registry.get(found.name) is None)
    await until_gone(lambda: broker.topics.read(found.name), NoSuchTopicError)
    await until_gone(lambda: broker.client.ledgers.read(ledgers[0]), NoSuchLedgerError)


async def test_a_topic_that_nobody_uses_stays_while_its_messages_are_retained(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    found, empty = await served(broker, topic), await served(broker, new_topic())
    for each in (found, empty):
        await set_policy(broker, each.name, inactive_ms=3_600_000, retention_ms=-1, retention_bytes=-1)
        await each.read_policy()
    await publish(broker, topic, 7)
    await until(lambda: not any(users_of(found).values()))  # the broker notices later that a client left
    for each in (found, empty):
        await broker.upkeep.delete_unused(each)
    now_ms = monotonic_ms()
    monkeypatch.setattr(upkeep, "monotonic_ms", lambda: now_ms + 3_600_001)
    await until(lambda: broker.registry.get(empty.name) is None)
    await broker.upkeep.delete_unused(found)
    assert broker.registry.get(found.name) is found, "nobody uses it, and its messages are retained"
    assert found.extent.count(found.extent.before(found.extent.first)) == 7
    await set_policy(broker, found.name, inactive_ms=3_600_000)
    await until(lambda: broker.registry.get(found.name) is None)
    await until_gone(lambda: broker.topics.read(found.name), NoSuchTopicError)


HOUR_MS = 3_600_000


class Clock:
    """The time of the checks whether topics are used, and of what they rely on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ahead_ms = 0
        for module in (upkeep, access, subscriptions):
            patch.setattr(module, "monotonic_ms", lambda: monotonic_ms() + self.ahead_ms)


async def found_unused(broker: Broker, topic: str) -> Topic:
    """A topic that nobody uses from now on, in a namespace where such topics are deleted after an hour."""
    found = await served(broker, topic)
    place = found.name.tenant, found.name.namespace
    policies = broker.registry.services.policies
    await policies.set_namespace(*place, await policies.namespace(*place), PolicyLayer(inactive_ms=HOUR_MS))
    await found.read_policy()
    await broker.upkeep.delete_unused(found)
    return found


async def delete(broker: Broker, name: TopicName) -> None:
    await delete_topic(name, broker.registry, broker.client, broker.topics)


async def move_away(broker: Broker, name: TopicName) -> None:
    await broker.ownership.unload(name)


@pytest.mark.parametrize("give_up", [delete, move_away])
async def test_a_topic_that_is_taken_over_again_is_unused_only_from_then_on(
    cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    give_up: Callable[[Broker, TopicName], Awaitable[None]],
) -> None:
    topic, clock = new_topic(), Clock(monkeypatch)
    async with running_broker(cluster) as broker:
        former = await found_unused(broker, topic)
        await give_up(broker, former.name)
        clock.ahead_ms += HOUR_MS
        found = await served(broker, topic)
        assert found is not former
        await broker.upkeep.delete_unused(found)
        assert broker.registry.get(found.name) is found
        clock.ahead_ms += HOUR_MS
        await broker.upkeep.delete_unused(found)
        assert broker.registry.get(found.name) is None


def produce(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).close()


def read(client: pulsar.Client, topic: str) -> None:
    client.create_reader(topic, pulsar.MessageId.earliest).close()


def unsubscribe(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").unsubscribe()


@pytest.mark.parametrize("use", [produce, read, unsubscribe])
async def test_a_topic_whose_clients_come_and_go_between_the_checks_is_used(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, use: Callable[[pulsar.Client, str], None]
) -> None:
    topic, clock = new_topic(), Clock(monkeypatch)
    async with running_broker(cluster) as broker:
        found = await found_unused(broker, topic)
        for _ in range(2):
            clock.ahead_ms += HOUR_MS - 1000 * int(LIMIT_S)
            await with_pulsar(broker, lambda client: use(client, topic))
            clock.ahead_ms += HOUR_MS - 1000 * int(LIMIT_S)
            await broker.upkeep.delete_unused(found)
            assert broker.registry.get(found.name) is found
        clock.ahead_ms += HOUR_MS
        await broker.upkeep.delete_unused(found)
        assert broker.registry.get(found.name) is None


async def test_a_terminated_topic_takes_nothing_more_and_says_so(broker: Broker) -> None:
    topic = new_topic()
    found = await served(broker, topic)
    async with frame_client(broker) as client:
        await client.produce(topic)
        client.publish(b"a", 0)
        assert (await client.receive()).type == BaseCommand.SEND_RECEIPT
        last = await found.terminate()
        assert last == found.extent.last_confirmed
        assert found.ledger_list.state is ListState.TERMINATED
        assert (await client.receive()).type == BaseCommand.CLOSE_PRODUCER
        refused = await client.produce(topic)
        assert refused.error.error == ServerError.TopicTerminatedError
    assert await found.terminate() == last
    with pytest.raises(TopicTerminatedError):
        found.check_publishing()


def test_the_bytes_behind_a_position_are_counted_by_ledgers_and_within_one_by_entries() -> None:
    closed = ListedLedger(3, 0, entries=10, size_bytes=1000, closed_at_ms=1)
    empty = ListedLedger(4, 0, closed_at_ms=1)
    written = ListedLedger(7, 0)
    ledger_list = LedgerList(ListState.OPEN, (closed, empty, written), Position(3, 9))
    confirmed = Position(7, 3)
    for mark, expected in (
        (Position(-1, -1), 1400),
        (Position(3, -1), 1400),
        (Position(3, 4), 900),
        (Position(4, -1), 400),
        (Position(7, 0), 300),
        (Position(7, 3), 0),
    ):
        assert bytes_behind(ledger_list, 400, confirmed, mark) == expected


async def test_a_topic_that_another_owner_took_is_counted(broker: Broker) -> None:
    topic = await served(broker, new_topic())
    found = await broker.topics.read(topic.name, sync=True)
    await broker.topics.cas(topic.name, found, replace(found.value, owner_token="another"))
    async with frame_client(broker) as client:
        await client.produce(str(topic.name))
        client.publish(b"one", 0)
        await until(lambda: gauge(broker, "topics_ended_total", reason="taken") == 1)
