"""Access modes through Pulsar's own client: who else may publish beside an exclusive producer, who follows it, and who fences it off."""

import asyncio
from collections.abc import AsyncIterator

import pulsar
import pytest
from daybook_broker.broker import Broker
from pulsar import ProducerAccessMode

from daybook.core.topics.name import TopicName
from tests.unit.broker.kit import LIMIT_S, contents, new_topic

pytestmark = pytest.mark.integration


@pytest.fixture
async def clients(broker: Broker) -> AsyncIterator[tuple[pulsar.Client, pulsar.Client]]:
    """Two, as of two applications."""
    first, second = (
        pulsar.Client(broker.service_url, operation_timeout_seconds=int(LIMIT_S)) for _ in range(2)
    )
    try:
        yield first, second
    finally:
        for each in (first, second):
            await asyncio.to_thread(each.close)


async def produce(client: pulsar.Client, topic: str, mode: ProducerAccessMode) -> pulsar.Producer:
    return await asyncio.to_thread(client.create_producer, topic, access_mode=mode)


async def send(producer: pulsar.Producer, data: bytes) -> None:
    await asyncio.to_thread(producer.send, data)


async def test_nobody_publishes_beside_an_exclusive_producer_until_it_closes(
    broker: Broker, clients: tuple[pulsar.Client, pulsar.Client]
) -> None:
    topic, (one, other) = new_topic(), clients
    exclusive = await produce(one, topic, ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        await produce(other, topic, ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        await produce(other, topic, ProducerAccessMode.Shared)
    await send(exclusive, b"first")
    await asyncio.to_thread(exclusive.close)
    await send(await produce(other, topic, ProducerAccessMode.Exclusive), b"second")
    assert await contents(broker, topic) == [b"first", b"second"]


async def test_a_producer_that_waits_takes_over_when_the_exclusive_one_closes(
    broker: Broker, clients: tuple[pulsar.Client, pulsar.Client]
) -> None:
    topic, (one, other) = new_topic(), clients
    exclusive = await produce(one, topic, ProducerAccessMode.Exclusive)
    waiting = asyncio.create_task(produce(other, topic, ProducerAccessMode.WaitForExclusive))
    served = broker.registry.get(TopicName.parse(topic))
    assert served is not None
    async with asyncio.timeout(LIMIT_S):
        while len(served.producers) < 2:  # noqa: ASYNC110 - a topic has no event for a producer that comes
            await asyncio.sleep(0)
    await send(exclusive, b"first")
    assert not waiting.done()
    assert len(served.producers.publishing()) == 1
    await asyncio.to_thread(exclusive.close)
    await send(await waiting, b"second")
    assert await contents(broker, topic) == [b"first", b"second"]


async def test_a_producer_that_fences_takes_over_and_the_former_one_can_send_nothing_more(
    broker: Broker, clients: tuple[pulsar.Client, pulsar.Client]
) -> None:
    topic, (one, other) = new_topic(), clients
    former = await produce(one, topic, ProducerAccessMode.Exclusive)
    await send(former, b"first")
    fencing = await produce(other, topic, ProducerAccessMode.ExclusiveWithFencing)
    with pytest.raises(pulsar.ProducerFenced):
        await send(former, b"lost")
    await send(fencing, b"second")
    with pytest.raises(pulsar.ProducerFenced):
        await send(former, b"lost")
    assert await contents(broker, topic) == [b"first", b"second"]
