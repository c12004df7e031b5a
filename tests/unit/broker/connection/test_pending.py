"""What the connections of a broker have pending together, lost ones too."""

import pytest

from daybook.core.errors import DaybookError
from daybook.core.topics.events import PublishFailed
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandPing
from tests.unit.broker.kit import frame_client, new_topic, running_broker, until

pytestmark = pytest.mark.integration


class Unanswering:
    """Ledgers that take everything and answer nothing."""

    refusal = None
    has_room = True

    def publish(self, payloads: object) -> None: ...


@pytest.mark.parametrize("ends", ["receipts", "the topic", "a failure"])
async def test_what_a_lost_connection_sent_is_pending_until_it_is_answered(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    ping = BaseCommand(type=BaseCommand.PING, ping=CommandPing())
    name = TopicName.parse(new_topic())
    async with (
        running_broker(cluster) as broker,
        frame_client(broker) as client,
        frame_client(broker) as other,
    ):
        budget = broker.connections.budget
        assert (await client.produce(str(name))).type == BaseCommand.PRODUCER_SUCCESS
        topic = broker.registry.get(name)
        assert topic is not None
        with monkeypatch.context() as patch:
            if ends == "a failure":
                patch.setattr(topic.publishing, "_ledgers", Unanswering())
            else:
                patch.setattr(type(broker.ownership), "is_certain", property(lambda _: False))  # no receipts
            client.publish(bytes(2**20), 0)
            await until(lambda: budget.size_bytes > 0)
            client.close()
            await until(lambda: len(broker.connections) == 1)
            assert budget.size_bytes > 2**20
            assert (await other.ask(ping)).type == BaseCommand.PONG
            assert budget.size_bytes > 2**20, "what others do changes nothing"
            if ends == "the topic":
                await topic.stop(DaybookError("the test ends it"))
            elif ends == "a failure":
                topic.publishing.failed(PublishFailed(1, DaybookError("the bookies refuse it")))
        await until(lambda: not budget.size_bytes)
