"""Unloads that do not finish before somebody else may own the bundle: clients are sent away all the same, and may come back."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from daybook_broker.broker import Broker
from daybook_broker.ownership.api import OwnershipOptions
from daybook_broker.topics import registry
from daybook_broker.topics.topic import Topic

from daybook.core.errors import NotOwnerError
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.fixtures.zookeeper import expire_session
from tests.unit.broker.kit import FrameClient, contents, frame_client, new_topic, running_broker

pytestmark = pytest.mark.integration


class Stuck:
    """Topics whose unload never ends."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def unload(self, topic: Topic) -> None:
        topic.is_closing = True
        self.began.set()
        await asyncio.Event().wait()


@pytest.fixture
async def broker(cluster: LocalCluster) -> AsyncIterator[Broker]:
    async with running_broker(cluster) as broker:
        yield broker


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Stuck:
    found = Stuck()
    monkeypatch.setattr(Topic, "unload", lambda topic: found.unload(topic))
    return found


async def test_topics_that_are_not_unloaded_when_their_bundle_is_handed_over_are_stopped(
    broker: Broker, stuck: Stuck
) -> None:
    topic = new_topic()
    broker.ownership._held._leave_s = 0.05
    async with frame_client(broker) as client:
        await publish(client, topic, b"a")
        await broker.ownership.unload(TopicName.parse(topic))
        assert stuck.began.is_set()
        assert (await client.receive()).type == BaseCommand.CLOSE_PRODUCER
        await publish(client, topic, b"b")
        assert await contents(broker, topic) == [b"a", b"b"]


async def test_topics_whose_session_ends_while_they_are_unloaded_are_stopped(
    cluster: LocalCluster, broker: Broker, stuck: Stuck
) -> None:
    topic = new_topic()
    async with frame_client(broker) as client:
        await publish(client, topic, b"a")
        unloading = asyncio.create_task(broker.ownership.unload(TopicName.parse(topic)))
        await stuck.began.wait()
        await asyncio.to_thread(expire_session, cluster.zookeeper.connect_string, broker.client.store)
        assert (await client.receive()).type == BaseCommand.CLOSE_PRODUCER
        with pytest.raises(NotOwnerError):
            await unloading
        await publish(client, topic, b"b")
        assert await contents(broker, topic) == [b"a", b"b"]


async def publish(client: FrameClient, topic: str, payload: bytes) -> None:
    """Open a producer and publish a message."""
    assert (await client.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS
    client.publish(payload, 0)
    assert (await client.receive()).type == BaseCommand.SEND_RECEIPT


def test_a_bundle_waits_longer_than_each_of_its_topics_may_take() -> None:
    assert OwnershipOptions().leave_s > registry.UNLOAD_S
