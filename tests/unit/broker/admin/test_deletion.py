"""The deletion of a topic over real HTTP while clients use it, or come: without force nobody loses anything."""

import asyncio
from typing import Any

import pulsar
import pytest

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.partitions import partition
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandProducer
from tests.unit.broker.admin.kit import TOPICS, admins, new_namespace
from tests.unit.broker.kit import LIMIT_S, frame_client, until, with_pulsar

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("is_partitioned", [False, True])
async def test_a_topic_that_a_reader_reads_is_not_deleted(
    cluster: LocalCluster, *, is_partitioned: bool
) -> None:
    name = TopicName(*new_namespace(), "orders")
    async with admins(cluster, 1) as (admin,):
        path = f"{TOPICS}/{name.tenant}/{name.namespace}/orders"
        whole, used = (f"{path}/partitions", partition(name, 1)) if is_partitioned else (path, name)
        await admin.do("PUT", whole, 2 if is_partitioned else None)
        loop = asyncio.get_running_loop()

        def read(client: pulsar.Client) -> None:
            reader = client.create_reader(str(used), pulsar.MessageId.earliest)
            refused = admin.refused("DELETE", whole)
            found = asyncio.run_coroutine_threadsafe(refused, loop).result(LIMIT_S)
            expected = f"topic {used} has 1 subscriptions: close them first, or delete it by force"
            assert found == (412, expected)
            reader.close()

        await with_pulsar(admin.broker, read)
        await admin.do("DELETE", whole)


async def test_a_producer_that_comes_while_the_topic_is_deleted_publishes_to_the_next_one(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = TopicName(*new_namespace(), "orders")
    async with admins(cluster, 1) as (admin,):
        path = f"{TOPICS}/{name.tenant}/{name.namespace}/orders"
        await admin.do("PUT", path)
        broker = admin.broker
        topic = await broker.registry.load(name, create=False)
        cursors = broker.topics.cursors
        async with frame_client(broker) as client:

            async def comes(of: TopicName) -> Any:
                wish = CommandProducer(topic=str(name), producer_id=1, request_id=1)
                client.send(BaseCommand(type=BaseCommand.PRODUCER, producer=wish))
                await until(lambda: topic.is_closing or len(topic.producers) > 0)
                monkeypatch.undo()
                return await cursors(of)

            monkeypatch.setattr(broker.topics, "cursors", comes)
            await admin.do("DELETE", path)
            assert (await client.receive()).type == BaseCommand.PRODUCER_SUCCESS
            client.publish(b"kept", 0)
            assert (await client.receive()).type == BaseCommand.SEND_RECEIPT
            again = broker.registry.get(name)
            assert again is not None
            assert again is not topic
            assert again.publishing.messages_in == 1
