"""A consumer or a reader: the messages of one topic, one by one, and their acknowledgement.

A message that was not acknowledged when the owner of the topic changed is delivered again.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from daybook.cli.topic.client import Attachment, TopicClient, close_on_broker
from daybook.cli.topic.connection import BrokerConnection, BrokerLostError
from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName
from daybook.wire.pulsar.batches import is_batch, unpack_batch
from daybook.wire.pulsar.compression import uncompressed
from daybook.wire.pulsar.entries import Entry, check_entry, decode_metadata
from daybook.wire.pulsar.errors import CodecMissingError, EntryError
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    CompressionType,
    MessageIdData,
    MessageMetadata,
)

PERMITS: Final = 1000
"""Messages that the broker may send ahead."""
_WORD_BITS: Final = 64
_UINT64: Final = (1 << 64) - 1
"""The protocol has no sign for a position's −1."""
_TYPES: Final = {
    "exclusive": CommandSubscribe.Exclusive,
    "shared": CommandSubscribe.Shared,
    "failover": CommandSubscribe.Failover,
}
TYPES: Final = tuple(_TYPES)


class Incoming(NamedTuple):
    """A message as it arrived. `place` is that in a batch of `batch` messages; −1 and 1 without a batch."""

    topic: TopicName
    position: Position
    place: int
    batch: int
    payload: bytes
    key: str
    properties: dict[str, str]
    published_ms: int
    producer: str
    redelivered: int
    encoding: str
    """How the payload is still encoded: a codec that is not available here, or "encrypted"; else empty."""

    @property
    def permits(self) -> int:
        """How many messages it counts as: a batch that cannot be unpacked is one here."""
        return self.batch if self.encoding else 1

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": str(self.topic),
            "ledger": self.position.ledger_id,
            "entry": self.position.entry_id,
            **({"index": self.place} if self.place >= 0 else {}),
            **({"key": self.key} if self.key else {}),
            **({"properties": self.properties} if self.properties else {}),
            "published_ms": self.published_ms,
            "producer": self.producer,
            **({"redelivered": self.redelivered} if self.redelivered else {}),
            **({"encoding": self.encoding} if self.encoding else {}),
            "data": self.payload.decode(errors="backslashreplace"),
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is subscribed. Without a `subscription` it is a reader, which acknowledges nothing and starts after `start`."""

    subscription: str = ""
    kind: str = "exclusive"
    earliest: bool = False
    start: Position | None = None


class Consumer:
    """A consumer of one topic, or one partition; use `open`, `receive` and `close`."""

    def __init__(
        self,
        client: TopicClient,
        topic: TopicName,
        wanted: Wanted,
        arrived: "asyncio.Queue[tuple[Consumer, Incoming | DaybookError]]",
    ) -> None:
        """What arrives, and an error that ends it, goes into `arrived`, which several consumers may share; see `taken`."""
        self._topic = topic
        self._wanted = wanted
        self._arrived = arrived
        self._id = client.new_id()
        self._taken = 0
        self._last: Position | None = wanted.start
        self._attachment = Attachment(client, topic, self._attach, self._fail)

    async def open(self) -> None:
        """Begin. Raises DaybookError."""
        await self._attachment.open()

    def taken(self, message: Incoming) -> None:
        """A message was taken from the queue: the broker may send another one."""
        self._credit(message.permits)

    def _credit(self, messages: int) -> None:
        """Let the broker send so many more, now and then several at once."""
        self._taken += messages
        connection = self._attachment.connection
        if self._taken >= PERMITS // 2 and connection is not None:
            connection.send(self._flow(self._taken))
            self._taken = 0

    async def acknowledge(self, messages: Iterable[Incoming]) -> None:
        """Acknowledge messages, each by itself; returns once the broker has recorded that. Raises DaybookError."""
        connection = self._attachment.connection
        if connection is None or connection.lost.is_set():
            return  # the next owner delivers them again
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id = self._id
        command.ack.ack_type = CommandAck.Individual
        for position, parts in groupby(messages, key=lambda message: message.position):
            named = command.ack.message_id.add(ledgerId=position.ledger_id, entryId=position.entry_id)
            places, batch = _places(parts)
            if len(places) < batch:
                named.batch_size = batch
                named.ack_set.extend(_all_but(places, batch))
        try:
            await connection.request(command)
        except BrokerLostError:
            return  # the same

    async def close(self) -> None:
        """End the consumer; the subscription stays."""
        await self._attachment.close()
        command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
        command.close_consumer.consumer_id = self._id
        await close_on_broker(self._attachment.connection, command)

    async def _attach(self, connection: BrokerConnection) -> None:
        connection.attach_consumer(self._id, self._received)
        wanted = self._wanted
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic = str(self._topic)
        subscribe.subscription = wanted.subscription or f"reader-{self._id}"
        subscribe.subType = _TYPES[wanted.kind]
        subscribe.consumer_id = self._id
        subscribe.durable = bool(wanted.subscription)
        subscribe.force_topic_creation = False
        subscribe.initialPosition = CommandSubscribe.Earliest if wanted.earliest else CommandSubscribe.Latest
        if not wanted.subscription and self._last is not None:
            subscribe.start_message_id.ledgerId = self._last.ledger_id & _UINT64
            subscribe.start_message_id.entryId = self._last.entry_id & _UINT64
        await connection.request(command)
        self._taken = 0
        connection.send(self._flow(PERMITS))

    def _flow(self, permits: int) -> bytes:
        command = BaseCommand(type=BaseCommand.FLOW)
        command.flow.consumer_id = self._id
        command.flow.messagePermits = permits
        return encode_frame(command)

    def _received(self, command: BaseCommand, data: Buffer) -> None:
        if command.type == BaseCommand.CLOSE_CONSUMER:
            self._attachment.moved()
        elif command.type == BaseCommand.MESSAGE:
            try:
                entry = check_entry(data)
                metadata = decode_metadata(entry)
                for message in self._messages(command, entry, metadata):
                    self._arrived.put_nowait((self, message))
            except EntryError as error:
                self._fail(error)

    def _messages(self, command: BaseCommand, entry: Entry, metadata: MessageMetadata) -> list[Incoming]:
        """The messages of an entry that are wanted; the permits of the others are given back."""
        told = command.message
        position = _position(told.message_id)
        payload, encoding = _decoded(metadata, entry)

        def one(index: int, data: bytes, key: str, properties: Any) -> Incoming:
            return Incoming(
                topic=self._topic,
                position=position,
                place=index,
                batch=metadata.num_messages_in_batch,
                payload=data,
                key=key,
                properties={each.key: each.value for each in properties},
                published_ms=metadata.publish_time,
                producer=metadata.producer_name,
                redelivered=told.redelivery_count,
                encoding=encoding,
            )

        if encoding or not is_batch(metadata):
            found = [one(-1, payload, metadata.partition_key, metadata.properties)]
        else:
            found = [
                one(index, bytes(data), single.partition_key, single.properties)
                for index, (single, data) in enumerate(unpack_batch(metadata, payload))
                if not told.ack_set or _is_set(told.ack_set, index)
            ]
        if not self._wanted.subscription:  # a broker sends the entry at which a reader begins
            if self._last is not None and position <= self._last:
                found = []
            self._last = position
        self._credit(metadata.num_messages_in_batch - sum(message.permits for message in found))
        return found

    def _fail(self, error: DaybookError) -> None:
        self._arrived.put_nowait((self, error))


def _position(named: MessageIdData) -> Position:
    """Numbers from half of the range on stand for negative ones."""
    return Position(*(n - (1 << 64) if n >> 63 else n for n in (named.ledgerId, named.entryId)))


def _decoded(metadata: MessageMetadata, entry: Entry) -> tuple[bytes, str]:
    """The payload, and how it is still encoded."""
    if metadata.encryption_keys:
        return bytes(entry.payload), "encrypted"
    try:
        return bytes(uncompressed(metadata, entry.payload)), ""
    except CodecMissingError:
        return bytes(entry.payload), CompressionType.Name(metadata.compression)


def _places(of_entry: Iterable[Incoming]) -> tuple[list[int], int]:
    """The places of an entry's messages, and the size of their batch; an entry that was not unpacked is one message, and whole."""
    messages = list(of_entry)
    places = [each.place for each in messages]
    return places, 1 if min(places) < 0 else messages[0].batch


def _all_but(indexes: Iterable[int], batch: int) -> list[int]:
    """The words of an ack set in which these messages of a batch are acknowledged."""
    bits = (1 << batch) - 1
    for index in indexes:
        bits &= ~(1 << index)
    words = [bits >> start & (1 << _WORD_BITS) - 1 for start in range(0, batch, _WORD_BITS)]
    return [word - (1 << _WORD_BITS) if word >> _WORD_BITS - 1 else word for word in words]


def _is_set(words: Any, index: int) -> bool:
    number, bit = divmod(index, _WORD_BITS)
    return number >= len(words) or bool(words[number] >> bit & 1)
