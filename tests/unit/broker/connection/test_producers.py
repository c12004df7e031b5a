"""Producers through Pulsar's own client, unmodified: what it publishes is in the ledgers of the topic, in its order."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pulsar
import pytest
from daybook_broker.broker import Broker

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.partitions import partition
from daybook.wire.pulsar.pulsar_pb2 import ServerError
from tests.unit.broker.kit import (
    contents,
    first_difference,
    frame_client,
    new_topic,
    running_broker,
    with_pulsar,
)

pytestmark = pytest.mark.integration


@pytest.fixture
async def broker(cluster: LocalCluster) -> AsyncIterator[Broker]:
    """A broker of the test's own."""
    async with running_broker(cluster) as started:
        yield started


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
