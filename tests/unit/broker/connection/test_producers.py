"""Producers through Pulsar's own client, unmodified: what it publishes is in the ledgers of the topic, in its order."""

import asyncio
import threading

import pulsar
import pytest
from daybook_broker.broker import Broker

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.partitions import partition
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.unit.broker.kit import (
    LIMIT_S,
    contents,
    first_difference,
    frame_client,
    new_topic,
    running_broker,
    with_pulsar,
)

pytestmark = pytest.mark.integration


async def test_what_is_sent_is_in_the_ledger_and_has_its_id(broker: Broker) -> None:
    topic = new_topic()

    def work(client: pulsar.Client) -> list[tuple[int, int]]:
        producer = client.create_producer(topic, batching_enabled=False)
        ids = [producer.send(b"%d" % number) for number in range(20)]
        producer.close()
        return [(each.ledger_id(), each.entry_id()) for each in ids]

    ids = await with_pulsar(broker, work)
    assert [entry for _, entry in ids] == list(range(20))
    assert len({ledger for ledger, _ in ids}) == 1
    assert await contents(broker, topic) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("batching", [False, True])
async def test_thousands_of_messages_keep_their_order(broker: Broker, batching: bool) -> None:
    topic = new_topic()
    count = 5_000

    def work(client: pulsar.Client) -> list[pulsar.Result]:
        producer = client.create_producer(topic, batching_enabled=batching, block_if_queue_full=True)
        results: list[pulsar.Result] = []
        answered = threading.Semaphore(0)

        def done(result: pulsar.Result, _: object) -> None:
            results.append(result)
            answered.release()

        for number in range(count):
            producer.send_async(b"%d" % number, done)
        producer.flush()
        for _ in range(count):
            answered.acquire()
        producer.close()
        return results

    results = await with_pulsar(broker, work)
    assert set(results) == {pulsar.Result.Ok}
    stored = await contents(broker, topic)
    assert first_difference(stored, [b"%d" % number for number in range(count)]) is None


async def test_a_broker_may_allow_smaller_messages(cluster: LocalCluster) -> None:
    topic, large = new_topic(), bytes(300_000)
    async with running_broker(cluster, message_bytes_max=100_000) as broker:

        def work(client: pulsar.Client) -> None:
            whole = client.create_producer(topic, batching_enabled=False)
            with pytest.raises(pulsar.MessageTooBig):
                whole.send(large)
            consumer = client.subscribe(topic, "s")
            client.create_producer(topic, batching_enabled=False, chunking_enabled=True).send(large)
            assert consumer.receive(int(1000 * LIMIT_S)).data() == large

        await with_pulsar(broker, work)
        assert len(await contents(broker, topic)) > 2, "in chunks"
        async with frame_client(broker) as client:
            assert (await client.produce(new_topic())).type == BaseCommand.PRODUCER_SUCCESS
            client.publish(bytes(120_000), 0)
            assert "1 to 110240 are allowed" in (await client.receive()).error.message
            await client.ended()


async def test_a_producer_makes_sure_of_the_subscription_that_it_names(cluster: LocalCluster) -> None:
    topic = new_topic()
    async with running_broker(cluster) as broker, frame_client(broker) as client:
        for producer_id in (1, 2):
            opened = await client.produce(topic, producer_id, initial_subscription_name="letters")
            assert opened.type == BaseCommand.PRODUCER_SUCCESS
        (served,) = broker.registry.served()
        assert served.subscriptions.names() == ["letters"]
        client.publish(b"x", 0)
        assert (await client.receive()).type == BaseCommand.SEND_RECEIPT
        assert served.subscriptions.get("letters").acks.unacked_entries() == 1
        wrong = await client.produce(topic, 3, initial_subscription_name="x" * 2_000)
        assert wrong.type == BaseCommand.ERROR
    async with (
        running_broker(cluster, auto_create_subscriptions=False) as broker,
        frame_client(broker) as client,
    ):
        refused = (await client.produce(new_topic(), initial_subscription_name="letters")).error
        assert refused.error == ServerError.NotAllowedError
        assert "create it first" in refused.message
        assert not broker.registry.served()[0].producers.all()


async def test_a_producer_comes_again_under_its_name_and_continues(broker: Broker) -> None:
    topic = new_topic()

    def work(client: pulsar.Client) -> None:
        for part in range(3):
            producer = client.create_producer(topic, producer_name="the one")
            assert producer.producer_name() == "the one"
            producer.send(b"%d" % part)
            producer.close()

    await with_pulsar(broker, work)
    assert await contents(broker, topic) == [b"0", b"1", b"2"]


async def test_two_producers_have_names_of_their_own_and_one_name_serves_one(broker: Broker) -> None:
    topic = new_topic()

    def work(client: pulsar.Client) -> set[str]:
        first, second = client.create_producer(topic), client.create_producer(topic)
        first.send(b"a")
        second.send(b"b")
        first.send(b"c")
        client.create_producer(topic, producer_name="mine")
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer(topic, producer_name="mine")
        return {first.producer_name(), second.producer_name()}

    assert len(await with_pulsar(broker, work)) == 2
    assert await contents(broker, topic) == [b"a", b"b", b"c"]


async def test_large_compressed_and_chunked_messages_pass_through(broker: Broker) -> None:
    topic = new_topic()
    large = bytes(range(256)) * 4096 * 11  # 11 MiB

    def work(client: pulsar.Client) -> None:
        producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
        producer.send(large)
        producer.close()
        producer = client.create_producer(topic, compression_type=pulsar.CompressionType.ZLib)
        producer.send(large[: 1024 * 1024])
        producer.close()

    await with_pulsar(broker, work)
    found = await contents(broker, topic)
    assert b"".join(found[:-1]) == large
    assert len(found[-1]) < 1024 * 1024


async def test_the_partitions_of_a_topic_are_topics(broker: Broker) -> None:
    topic = new_topic()
    await broker.partitions.create(TopicName.parse(topic), 3)

    def work(client: pulsar.Client) -> list[str]:
        producer = client.create_producer(
            topic,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            batching_enabled=False,
        )
        for number in range(9):
            producer.send(b"%d" % number)
        return list(client.get_topic_partitions(topic))

    names = await with_pulsar(broker, work)
    assert names == [f"{topic}-partition-{index}" for index in range(3)]
    found = await asyncio.gather(*(contents(broker, name) for name in names))
    assert sorted(len(each) for each in found) == [3, 3, 3]


async def test_partitions_that_are_missing_are_created_where_clients_create_no_topics(
    cluster: LocalCluster,
) -> None:
    """A creation that ended half-way left the record, which counts them."""
    topic = new_topic()
    name = TopicName.parse(topic)
    async with running_broker(cluster, auto_create=False) as broker:
        await broker.partitions.create(name, 3)

        def work(client: pulsar.Client) -> None:
            client.create_producer(f"{topic}-partition-1").close()
            client.create_producer(topic).close()

        await with_pulsar(broker, work)
        parts = tuple(partition(name, index) for index in range(3))
        assert await broker.topics.topics(name.tenant, name.namespace) == parts
        async with frame_client(broker) as client:
            for number, missing in enumerate((f"{topic}-partition-3", f"{topic}s-partition-0", f"{topic}s")):
                refused = await client.produce(missing, number, number)
                assert refused.error.error == ServerError.TopicNotFound
        assert await broker.topics.topics(name.tenant, name.namespace) == parts
