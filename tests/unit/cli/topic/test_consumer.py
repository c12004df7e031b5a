"""What a consumer of the command acknowledges: parts of a batch that it unpacked, and whole entries that it could not unpack."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from daybook.cli.topic.client import TopicClient
from daybook.cli.topic.connection import BrokerConnection
from daybook.cli.topic.consumer import Consumer, Incoming, Wanted, _is_set
from daybook.core.errors import DaybookError
from daybook.core.topics.name import TopicName
from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, EncryptionKeys, MessageMetadata, SingleMessageMetadata


class Broker:
    """The broker at the other end; `acks` is what it was asked to record."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.acks: list[BaseCommand] = []

    async def request(self, command: BaseCommand) -> None:
        self.acks.append(command)

    def send(self, _frame: bytes) -> None:
        """Permits."""


async def received_from(
    broker: Broker, entries: Sequence[bytes]
) -> tuple[Consumer, list[Incoming | DaybookError]]:
    """A consumer that is attached to `broker`, and what it made of `entries`."""
    arrived: asyncio.Queue[tuple[Consumer, Incoming | DaybookError]] = asyncio.Queue()
    client = cast("TopicClient", SimpleNamespace(new_id=lambda: 1))
    consumer = Consumer(client, TopicName.parse("t"), Wanted("s"), arrived)
    consumer._attachment.connection = cast("BrokerConnection", broker)
    for entry_id, entry in enumerate(entries):
        command = BaseCommand(type=BaseCommand.MESSAGE)
        command.message.consumer_id = 1
        command.message.message_id.ledgerId, command.message.message_id.entryId = 7, entry_id
        consumer._received(command, memoryview(entry))
    return consumer, [arrived.get_nowait()[1] for _ in range(arrived.qsize())]


def batch_of(count: int, **fields: Any) -> bytes:
    """An entry with a batch."""
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=count, **fields
    )
    head = SingleMessageMetadata(payload_size=1).SerializeToString()
    return encode_entry(metadata, count * (len(head).to_bytes(4) + head + b"x"))


async def test_a_batch_that_cannot_be_unpacked_is_acknowledged_whole() -> None:
    broker = Broker()
    encrypted = batch_of(5, encryption_keys=[EncryptionKeys(key="k", value=b"v")])
    consumer, messages = await received_from(broker, [encrypted])
    (message,) = messages
    assert isinstance(message, Incoming)
    assert (message.encoding, message.batch) == ("encrypted", 5)
    await consumer.acknowledge([message])
    (named,) = broker.acks[0].ack.message_id
    assert (named.ledgerId, named.entryId, list(named.ack_set)) == (7, 0, [])


async def test_of_a_batch_that_is_unpacked_only_the_named_messages_are_acknowledged() -> None:
    broker = Broker()
    consumer, messages = await received_from(broker, [batch_of(3), batch_of(2)])
    assert [each.place for each in messages if isinstance(each, Incoming)] == [0, 1, 2, 0, 1]
    await consumer.acknowledge([each for each in messages if isinstance(each, Incoming)][1:])
    first, second = broker.acks[0].ack.message_id
    assert (first.batch_size, [_is_set(first.ack_set, index) for index in range(3)]) == (
        3,
        [True, False, False],
    )
    assert list(second.ack_set) == [], "all of it"
