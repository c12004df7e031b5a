"""Consumers whose subscription goes or moves, frame by frame: what they ask for meanwhile is answered with what becomes of it."""

import pytest
from daybook_broker.topics.topic import Topic

from daybook.core.errors import NotOwnerError
from daybook.core.topics.name import TopicName
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandUnsubscribe, ServerError
from tests.unit.broker.consuming.test_commands import Speaker, spoken

pytestmark = pytest.mark.integration


def topic_of(client: Speaker) -> Topic:
    """The client's topic on its owner."""
    found = client.broker.registry.get(TopicName.parse(client.topic))
    assert found is not None
    return found


@spoken
async def test_a_consumer_whose_subscription_could_not_be_deleted_is_sent_away_behind_the_error(
    client: Speaker,
) -> None:
    await client.subscribe()
    cursor = topic_of(client).subscriptions.get("s").cursor

    async def fails() -> None:
        msg = "the topic has another owner"
        raise NotOwnerError(msg)

    vars(cursor)["delete"] = fails
    body = CommandUnsubscribe(consumer_id=1, request_id=40)
    answer = await client.frames.ask(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=body))
    assert (answer.error.request_id, answer.error.error) == (40, ServerError.ServiceNotReady)
    assert (await client.frames.receive()).close_consumer.consumer_id == 1
    assert (await client.subscribe()).type == BaseCommand.SUCCESS


@spoken
async def test_an_acknowledgement_is_refused_once_its_topic_stores_none(client: Speaker) -> None:
    await client.subscribe()
    await client.publish(2)
    client.flow(10)
    first, second = [message.message_id for message in await client.messages(2)]
    assert not (await client.ack(first)).ackResponse.HasField("error")
    topic_of(client).subscriptions.stop()
    for cumulative in (False, True):
        refused = (await client.ack(second, cumulative=cumulative)).ackResponse
        assert (refused.error, refused.consumer_id) == (ServerError.ServiceNotReady, 1)
    client.send_ack(second)
    assert (await client.ack(second)).ackResponse.HasField("error")
