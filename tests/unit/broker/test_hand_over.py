"""Topics move between brokers while Pulsar's own client publishes: nothing acknowledged is lost, order is kept, and clients follow at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from daybook_broker.broker import Broker

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from tests.unit.broker.kit import (
    Publisher,
    contents,
    frame_client,
    in_order_once,
    new_topic,
    running_broker,
    stored_contents,
)

pytestmark = pytest.mark.integration


@pytest.fixture
async def pair(cluster: LocalCluster) -> AsyncIterator[tuple[Broker, Broker]]:
    """Two brokers in this event loop."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running_broker(cluster))
        second = await stack.enter_async_context(running_broker(cluster))
        yield first, second


async def move(pair: tuple[Broker, Broker], topic: str, act: Callable[[Broker, Broker], object]) -> Publisher:
    publisher = Publisher(pair[0].service_url, topic)
    publisher.start()
    await publisher.more(200)
    owner, other = sorted(pair, key=lambda broker: not broker.ownership.owns(TopicName.parse(topic)))
    done = act(owner, other)
    if asyncio.iscoroutine(done):
        await done
    await publisher.more(200)
    await publisher.stop()
    assert not publisher.failed
    return publisher


async def test_a_graceful_unload_loses_nothing_and_doubles_nothing(pair: tuple[Broker, Broker]) -> None:
    topic = new_topic()
    name = TopicName.parse(topic)

    async def unload(owner: Broker, other: Broker) -> None:
        await owner.ownership.unload(name, other.settings.broker_id)
        assert not owner.ownership.owns(name)

    publisher = await move(pair, topic, unload)
    owner = next(broker for broker in pair if broker.ownership.owns(name))
    found = await contents(owner, topic)
    assert found == publisher.acked
    assert found == [b"%d" % number for number in range(len(found))]


async def test_a_broker_that_stops_hands_its_topics_over(cluster: LocalCluster) -> None:
    topic = new_topic()
    name = TopicName.parse(topic)
    async with running_broker(cluster) as stays, AsyncExitStack() as stack:
        stops = await stack.enter_async_context(running_broker(cluster))
        publisher = Publisher(stays.service_url, topic)
        publisher.start()
        await publisher.more(100)
        if not stops.ownership.owns(name):
            await stays.ownership.unload(name, stops.settings.broker_id)
            await publisher.more(100)
        assert stops.ownership.owns(name)
        await stack.aclose()
        await publisher.more(100)
        await publisher.stop()
        assert not publisher.failed
        assert await stored_contents(stays.client, name) == publisher.acked


async def test_rule_38_a_broker_whose_list_was_taken_closes_its_clients_and_acknowledges_nothing_more(
    pair: tuple[Broker, Broker],
) -> None:
    first, second = pair
    topic = new_topic()
    name = TopicName.parse(topic)
    async with frame_client(first) as client:
        await first.ownership.lookup(name, authoritative=True)
        await client.produce(topic)
        client.publish(b"a", 0)
        assert (await client.receive()).send_receipt.sequence_id == 0
        second.registry._own = _anybody  # a broker that is wrong about who owns what
        async with frame_client(second) as other:
            await other.produce(topic)
            client.publish(b"b", 1)
            assert (await client.receive()).close_producer.producer_id == 1
            other.publish(b"c", 0)
            assert (await other.receive()).send_receipt.sequence_id == 0
        assert await contents(second, topic) == [b"a", b"c"]


async def _anybody(name: TopicName) -> None:
    """Everybody owns every topic."""


async def test_bundles_that_are_lost_end_at_once_and_clients_come_back(pair: tuple[Broker, Broker]) -> None:
    topic = new_topic()

    async def lose(owner: Broker, _: Broker) -> None:
        owner.registry.lose([TopicName.parse(topic)], None)

    publisher = await move(pair, topic, lose)
    owner = next(broker for broker in pair if broker.ownership.owns(TopicName.parse(topic)))
    found = in_order_once(await contents(owner, topic))
    assert set(publisher.acked) <= set(found)
    assert publisher.acked == sorted(publisher.acked, key=int)
