"""Consumers' commands frame by frame: answers, errors, and what a client library does not show."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from daybook_broker.broker import Broker
from daybook_broker.connection import keep_alive

from daybook.core.topics.name import TopicName
from daybook.wire.pulsar.batches import BatchMessage, encode_batch
from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandFlow,
    CommandGetLastMessageId,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSend,
    CommandSubscribe,
    CommandUnsubscribe,
    MessageIdData,
    MessageMetadata,
    ServerError,
    SingleMessageMetadata,
)
from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.kit import FrameClient, frame_client, new_topic

pytestmark = pytest.mark.integration


class Speaker:
    """A client by hand with a consumer or two."""

    def __init__(self, broker: Broker, frames: FrameClient, topic: str) -> None:
        self.broker = broker
        self.frames = frames
        self.topic = topic
        self.requests = 0

    def next_id(self) -> int:
        self.requests += 1
        return self.requests

    async def subscribe(
        self, consumer_id: int = 1, kind: Any = CommandSubscribe.Exclusive, name: str = "s", **fields: Any
    ) -> BaseCommand:
        wish = CommandSubscribe(
            topic=fields.pop("topic", self.topic),
            subscription=name,
            subType=kind,
            consumer_id=consumer_id,
            request_id=self.next_id(),
            **fields,
        )
        return await self.frames.ask(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=wish))

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        body = CommandFlow(consumer_id=consumer_id, messagePermits=permits)
        self.frames.send(BaseCommand(type=BaseCommand.FLOW, flow=body))

    def send_ack(
        self, *ids: MessageIdData, cumulative: bool = False, consumer_id: int = 1, **fields: Any
    ) -> None:
        kind = CommandAck.Cumulative if cumulative else CommandAck.Individual
        body = CommandAck(consumer_id=consumer_id, ack_type=kind, message_id=ids, **fields)
        self.frames.send(BaseCommand(type=BaseCommand.ACK, ack=body))

    async def ack(self, *ids: MessageIdData, **fields: Any) -> BaseCommand:
        """Acknowledge with an answer."""
        self.send_ack(*ids, request_id=self.next_id(), **fields)
        answer = await self.frames.receive()
        assert answer.type == BaseCommand.ACK_RESPONSE
        assert answer.ackResponse.request_id == self.requests
        return answer

    def redeliver(self, *ids: MessageIdData, consumer_id: int = 1, **fields: Any) -> None:
        body = CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, message_ids=ids, **fields)
        kind = BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
        self.frames.send(BaseCommand(type=kind, redeliverUnacknowledgedMessages=body))

    async def publish(self, count: int, *, batch: int = 0) -> None:
        """Publish entries, each a batch of so many messages."""
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=5)
        assert (await self.frames.produce(self.topic)).type == BaseCommand.PRODUCER_SUCCESS
        for number in range(count):
            if batch:
                messages = [BatchMessage(SingleMessageMetadata(payload_size=1), b"x")] * batch
                body = CommandSend(producer_id=1, sequence_id=number, num_messages=batch)
                self.frames.send(
                    BaseCommand(type=BaseCommand.SEND, send=body), encode_batch(metadata, messages)
                )
            else:
                self.frames.publish(b"%d" % number, number)
            assert (await self.frames.receive()).type == BaseCommand.SEND_RECEIPT

    async def messages(self, count: int) -> list[Any]:
        """The next messages."""
        found = []
        for _ in range(count):
            command = await self.frames.receive()
            assert command.type == BaseCommand.MESSAGE, command
            found.append(command.message)
        return found

    async def received(self, count: int) -> list[int]:
        """The entries of the next messages."""
        return [message.message_id.entryId for message in await self.messages(count)]


def spoken(test: Callable[[Speaker], Coroutine[Any, Any, None]]) -> Callable[[ServedBroker], None]:
    """Run a test on the broker's event loop, with a client by hand."""

    def run(served: ServedBroker) -> None:
        async def work() -> None:
            async with frame_client(served.broker) as frames:
                await test(Speaker(served.broker, frames, new_topic()))

        served.call(work())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@spoken
async def test_permits_count_messages_and_a_batch_comes_whole(client: Speaker) -> None:
    await client.subscribe()
    await client.publish(4, batch=5)
    client.flow(6)
    assert await client.received(2) == [0, 1]
    client.flow(4)
    client.flow(1)
    assert await client.received(1) == [2]


@spoken
async def test_acknowledgements_are_answered_where_the_client_asks_for_that(client: Speaker) -> None:
    await client.subscribe()
    await client.publish(3)
    client.flow(10)
    first, second, third = [message.message_id for message in await client.messages(3)]
    assert not (await client.ack(first)).ackResponse.HasField("error")
    assert not (await client.ack(first, third)).ackResponse.HasField("error")
    assert not (await client.ack(second, cumulative=True)).ackResponse.HasField("error")
    client.redeliver()
    answer = await client.ack(MessageIdData(ledgerId=2**40, entryId=2**63))
    assert not answer.ackResponse.HasField("error")


@spoken
async def test_a_cumulative_acknowledgement_of_what_is_before_entry_0_leaves_the_ledger(
    client: Speaker,
) -> None:
    await client.subscribe()
    await client.publish(3, batch=10)
    client.flow(100)
    ledger_id = (await client.messages(3))[0].message_id.ledgerId
    await client.ack(MessageIdData(ledgerId=ledger_id, entryId=2**64 - 1), cumulative=True)
    client.redeliver(MessageIdData(ledgerId=ledger_id, entryId=2**64 - 1))
    assert await client.received(3) == [0, 1, 2]


@spoken
async def test_acknowledgements_that_cannot_be_are_refused(client: Speaker) -> None:
    await client.subscribe(kind=CommandSubscribe.Shared)
    await client.publish(1)
    client.flow(10)
    (message,) = await client.messages(1)
    refused: list[tuple[dict[str, Any], ServerError]] = [
        ({"cumulative": True}, ServerError.NotAllowedError),
        ({"consumer_id": 9}, ServerError.ConsumerNotFound),
        ({"txnid_least_bits": 1}, ServerError.NotAllowedError),
    ]
    for fields, code in refused:
        answer = (await client.ack(message.message_id, **fields)).ackResponse
        assert answer.error == code
        assert answer.message
    client.send_ack(message.message_id, cumulative=True)
    other = MessageIdData(ledgerId=1, entryId=1)
    await client.subscribe(2, name="other")
    answer = (await client.ack(message.message_id, other, cumulative=True, consumer_id=2)).ackResponse
    assert answer.error == ServerError.NotAllowedError


@spoken
async def test_the_rest_of_a_batch_comes_again_with_its_words_and_its_count(client: Speaker) -> None:
    await client.subscribe(kind=CommandSubscribe.Shared)
    await client.publish(2, batch=8)
    client.flow(100)
    first, _ = await client.messages(2)
    first.message_id.ack_set.append(0b1100_1100)
    first.message_id.batch_size = 8
    await client.ack(first.message_id)
    client.redeliver(first.message_id, first.message_id)
    (again,) = await client.messages(1)
    assert again.message_id.entryId == 0
    assert (list(again.ack_set), again.redelivery_count) == ([0b1100_1100], 1)


@spoken
async def test_what_is_sent_after_a_request_for_redelivery_has_its_epoch(client: Speaker) -> None:
    await client.subscribe(consumer_epoch=0)
    await client.publish(2)
    client.flow(100)
    assert [message.consumer_epoch for message in await client.messages(2)] == [0, 0]
    client.redeliver(consumer_epoch=4)
    assert [message.consumer_epoch for message in await client.messages(2)] == [4, 4]


@spoken
async def test_consumers_of_a_failover_subscription_learn_who_is_active(client: Speaker) -> None:
    await client.broker.partitions.create(TopicName.parse(client.topic), 1)
    topic = f"{client.topic}-partition-0"
    for consumer_id, name in ((1, "b"), (2, "a")):
        answer = await client.subscribe(
            consumer_id, CommandSubscribe.Failover, topic=topic, consumer_name=name
        )
        assert answer.type == BaseCommand.SUCCESS
        change = (await client.frames.receive()).active_consumer_change
        assert (change.consumer_id, change.is_active) == (1, consumer_id == 1)
    assert (await client.frames.receive()).active_consumer_change.is_active is False
    change = (await client.frames.receive()).active_consumer_change
    assert (change.consumer_id, change.is_active) == (2, True)


@spoken
async def test_subscriptions_that_cannot_be_are_refused(client: Speaker) -> None:
    refused: list[tuple[dict[str, Any], ServerError]] = [
        ({"kind": CommandSubscribe.Key_Shared}, ServerError.NotAllowedError),
        ({"kind": CommandSubscribe.Shared, "read_compacted": True}, ServerError.NotAllowedError),
        ({"name": " "}, ServerError.InvalidTopicName),
        ({"topic": "no://topic"}, ServerError.InvalidTopicName),
        ({"consumer_name": "n" * 2_000}, ServerError.NotAllowedError),
        ({"priority_level": -1}, ServerError.NotAllowedError),
        (
            {"subscription_properties": [{"key": "k" * 8_192, "value": "é" * 4_097}]},
            ServerError.NotAllowedError,
        ),
        ({"force_topic_creation": False}, ServerError.TopicNotFound),
    ]
    for fields, code in refused:
        answer = await client.subscribe(**fields)
        assert answer.type == BaseCommand.ERROR, fields
        assert answer.error.error == code
        assert answer.error.request_id == client.requests
    largest = [{"key": "k" * 8_192, "value": "é" * 4_096}]
    assert (await client.subscribe(subscription_properties=largest)).type == BaseCommand.SUCCESS


@spoken
async def test_a_consumer_that_is_there_is_subscribed_again_with_success_and_its_id_is_its_own(
    client: Speaker,
) -> None:
    assert (await client.subscribe()).type == BaseCommand.SUCCESS
    assert (await client.subscribe()).type == BaseCommand.SUCCESS
    assert (await client.subscribe(name="other")).error.error == ServerError.NotAllowedError
    assert (await client.subscribe(2)).error.error == ServerError.ConsumerBusy
    assert (await client.frames.receive()).close_consumer.consumer_id == 2, "a client may try again"
    assert (await client.subscribe(2, durable=False)).error.error == ServerError.NotAllowedError


@spoken
async def test_commands_about_no_consumer_are_answered_or_ignored(client: Speaker) -> None:
    client.flow(5, consumer_id=7)
    client.redeliver(consumer_id=7)
    client.send_ack(MessageIdData(ledgerId=1, entryId=1), consumer_id=7)
    requests: list[tuple[BaseCommand.Type, str, Any]] = [
        (BaseCommand.SEEK, "seek", CommandSeek(consumer_id=7, request_id=1)),
        (BaseCommand.UNSUBSCRIBE, "unsubscribe", CommandUnsubscribe(consumer_id=7, request_id=1)),
        (
            BaseCommand.GET_LAST_MESSAGE_ID,
            "getLastMessageId",
            CommandGetLastMessageId(consumer_id=7, request_id=1),
        ),
    ]
    for kind, name, body in requests:
        command = BaseCommand(type=kind)
        getattr(command, name).CopyFrom(body)
        answer = await client.frames.ask(command)
        assert answer.error.error == ServerError.ConsumerNotFound
    stats = CommandConsumerStats(consumer_id=7, request_id=2)
    answer = await client.frames.ask(BaseCommand(type=BaseCommand.CONSUMER_STATS, consumerStats=stats))
    refused = answer.consumerStatsResponse
    assert (refused.request_id, refused.error_code) == (2, ServerError.ConsumerNotFound)
    assert "send SUBSCRIBE first" in refused.error_message
    close = CommandCloseConsumer(consumer_id=7, request_id=3)
    answer = await client.frames.ask(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close))
    assert answer.success.request_id == 3


@spoken
async def test_a_seek_to_nothing_is_refused_and_one_within_a_batch_begins_there(client: Speaker) -> None:
    await client.subscribe()
    await client.publish(2, batch=4)
    client.flow(100)
    _, second = await client.messages(2)
    seek = CommandSeek(consumer_id=1, request_id=50)
    answer = await client.frames.ask(BaseCommand(type=BaseCommand.SEEK, seek=seek))
    assert answer.error.error == ServerError.NotAllowedError
    seek.message_id.CopyFrom(second.message_id)
    seek.message_id.ack_set.append(0b1100)
    closed = await client.frames.ask(BaseCommand(type=BaseCommand.SEEK, seek=seek))
    assert closed.close_consumer.consumer_id == 1
    assert (await client.frames.receive()).success.request_id == 50
    await client.subscribe()
    client.flow(100)
    (again,) = await client.messages(1)
    assert (again.message_id.entryId, list(again.ack_set)) == (1, [0b1100])


@spoken
async def test_a_subscription_with_other_consumers_is_deleted_only_by_force(client: Speaker) -> None:
    await client.subscribe(1, CommandSubscribe.Shared)
    await client.subscribe(2, CommandSubscribe.Shared)
    body = CommandUnsubscribe(consumer_id=1, request_id=40)
    answer = await client.frames.ask(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=body))
    assert answer.error.error == ServerError.NotAllowedError
    body.force = True
    closed = await client.frames.ask(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=body))
    assert closed.close_consumer.consumer_id == 2
    assert (await client.frames.receive()).success.request_id == 40


@spoken
async def test_the_end_of_a_terminated_topic_is_announced_once_all_is_acknowledged(client: Speaker) -> None:
    await client.subscribe()
    await client.publish(2)
    client.flow(10)
    first, second = await client.messages(2)
    await client.ack(first.message_id)
    topic = client.broker.registry.get(TopicName.parse(client.topic))
    assert topic is not None
    await topic.terminate()
    assert (await client.frames.receive()).type == BaseCommand.CLOSE_PRODUCER
    client.send_ack(second.message_id)
    assert (await client.frames.receive()).reachedEndOfTopic.consumer_id == 1
    assert (await client.ack(second.message_id)).type == BaseCommand.ACK_RESPONSE


@spoken
async def test_a_consumer_has_statistics(client: Speaker) -> None:
    await client.subscribe(kind=CommandSubscribe.Shared, consumer_name="me")
    await client.publish(5)
    client.flow(3)
    messages = await client.messages(3)
    await client.ack(messages[0].message_id)
    body = CommandConsumerStats(consumer_id=1, request_id=60)
    answer = await client.frames.ask(BaseCommand(type=BaseCommand.CONSUMER_STATS, consumerStats=body))
    stats = answer.consumerStatsResponse
    assert (stats.request_id, stats.consumerName, stats.type) == (60, "me", "Shared")
    assert (stats.availablePermits, stats.unackedMessages, stats.msgBacklog) == (0, 2, 4)
    assert stats.msgRateOut > 0
    assert not stats.blockedConsumerOnUnackedMsgs


@spoken
async def test_statistics_of_a_consumer_that_is_being_closed_are_refused(client: Speaker) -> None:
    await client.subscribe()
    topic = client.broker.registry.get(TopicName.parse(client.topic))
    assert topic is not None
    subscription = topic.subscriptions.get("s")
    assert subscription is not None
    (consumer,) = subscription.consumers.values()
    subscription.remove(consumer)
    body = CommandConsumerStats(consumer_id=1, request_id=60)
    answer = await client.frames.ask(BaseCommand(type=BaseCommand.CONSUMER_STATS, consumerStats=body))
    refused = answer.consumerStatsResponse
    assert (refused.request_id, refused.error_code) == (60, ServerError.ConsumerNotFound)


def test_a_consumer_whose_client_is_dead_makes_room_for_another(
    served: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "ANSWER_S", 0.2)
    topic = new_topic()

    async def work() -> None:
        async with frame_client(served.broker) as dead, frame_client(served.broker) as alive:
            assert (await Speaker(served.broker, dead, topic).subscribe()).type == BaseCommand.SUCCESS
            dead.is_silent = True
            assert (await Speaker(served.broker, alive, topic).subscribe()).type == BaseCommand.SUCCESS
            await dead.ended()

    served.call(work())


def test_of_two_consumers_that_follow_a_dead_one_the_second_is_refused_until_the_first_leaves(
    served: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "ANSWER_S", 1.0)
    topic = new_topic()

    async def work() -> None:
        async with (
            frame_client(served.broker) as dead,
            frame_client(served.broker) as one,
            frame_client(served.broker) as other,
        ):
            assert (await Speaker(served.broker, dead, topic).subscribe()).type == BaseCommand.SUCCESS
            dead.is_silent = True
            speakers = [Speaker(served.broker, each, topic) for each in (one, other)]
            answers = await asyncio.gather(*(each.subscribe() for each in speakers))
            assert {each.type for each in answers} == {BaseCommand.SUCCESS, BaseCommand.ERROR}
            refused = answers[1].type == BaseCommand.ERROR
            first, second = speakers if refused else speakers[::-1]
            assert (await second.frames.receive()).type == BaseCommand.CLOSE_CONSUMER
            close = CommandCloseConsumer(consumer_id=1, request_id=9)
            await first.frames.ask(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close))
            assert (await second.subscribe()).type == BaseCommand.SUCCESS
            await first.publish(1)
            second.flow(1)
            assert await second.received(1) == [0]

    served.call(work())


async def last_message_of(client: Speaker, entry: bytes) -> MessageIdData:
    """What the broker says is the last message of a topic that has this entry."""
    await client.subscribe()
    await client.frames.produce(client.topic)
    send = CommandSend(producer_id=1, sequence_id=0)
    client.frames.send(BaseCommand(type=BaseCommand.SEND, send=send), entry)
    assert (await client.frames.receive()).type == BaseCommand.SEND_RECEIPT
    body = CommandGetLastMessageId(consumer_id=1, request_id=70)
    answer = await client.frames.ask(BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=body))
    return answer.getLastMessageIdResponse.last_message_id


@spoken
async def test_a_batch_that_claims_a_negative_size_has_a_last_message(client: Speaker) -> None:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=-(2**31)
    )
    last = await last_message_of(client, encode_entry(metadata, b"x"))
    assert (last.entryId, last.batch_index) == (0, 0)


@spoken
async def test_a_last_entry_whose_metadata_cannot_be_read_is_the_last_message(client: Speaker) -> None:
    last = await last_message_of(client, b"\0\0\0\1\xff")  # entries of very old clients have no checksum
    assert (last.entryId, last.HasField("batch_index")) == (0, False)
    body = CommandSeek(consumer_id=1, request_id=71, message_publish_time=5)
    assert (await client.frames.ask(BaseCommand(type=BaseCommand.SEEK, seek=body))).type != BaseCommand.ERROR
