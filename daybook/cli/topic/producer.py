"""A producer: messages in, receipts out, in order, and nothing forgotten when the owner of its topic changes.

What has no receipt yet is sent again to the new owner. The old one may have stored it all the same, so a message can be there twice after
a take-over; none is missing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from daybook.cli.topic.client import Attachment, TopicClient, close_on_broker
from daybook.cli.topic.connection import BrokerConnection, BrokerRefusedError
from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.topics.name import TopicName
from daybook.runtime.clock import unix_ms
from daybook.wire.pulsar.batches import BatchMessage, encode_batch
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    MessageMetadata,
    ServerError,
    SingleMessageMetadata,
)

PENDING_MAX: Final = 64
"""Batches without a receipt."""


class Outgoing(NamedTuple):
    """A message to publish; `key` decides its partition, if there are several."""

    payload: bytes
    key: str | None = None


class _Sent(NamedTuple):
    """A batch without a receipt."""

    sequence_id: int
    frame: bytes
    messages: int


class Producer:
    """A producer of one topic, or one partition; use `open` and `close`."""

    def __init__(self, client: TopicClient, topic: TopicName) -> None:
        """Prepare."""
        self.acknowledged = 0
        """Messages with a receipt."""
        self._id = client.new_id()
        self._name = ""
        self._next_sequence = 0
        self._pending: deque[_Sent] = deque()
        self._changed = asyncio.Event()
        self._failure: DaybookError | None = None
        self._attachment = Attachment(client, topic, self._attach, self._fail)

    async def open(self) -> None:
        """Begin. Raises DaybookError."""
        await self._attachment.open()

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages as one batch; waits while too much has no receipt. Raises DaybookError."""
        await self._wait_until(lambda: len(self._pending) < PENDING_MAX)
        first, last = self._next_sequence, self._next_sequence + len(messages) - 1
        self._next_sequence = last + 1
        metadata = MessageMetadata(
            producer_name=self._name, sequence_id=first, publish_time=unix_ms(), highest_sequence_id=last
        )
        entry = encode_batch(metadata, (self._single(each, first + n) for n, each in enumerate(messages)))
        command = BaseCommand(type=BaseCommand.SEND)
        command.send.producer_id = self._id
        command.send.sequence_id = first
        command.send.highest_sequence_id = last
        command.send.num_messages = len(messages)
        sent = _Sent(first, encode_frame(command, entry), len(messages))
        self._pending.append(sent)
        connection = self._attachment.connection
        if connection is not None:
            connection.send(sent.frame)
            await connection.drain()

    async def flush(self) -> None:
        """Wait until everything has a receipt. Raises DaybookError."""
        await self._wait_until(lambda: not self._pending)

    async def close(self) -> None:
        """End the producer; what has no receipt yet may be stored or not."""
        await self._attachment.close()
        command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        command.close_producer.producer_id = self._id
        await close_on_broker(self._attachment.connection, command)

    def _single(self, message: Outgoing, sequence_id: int) -> BatchMessage:
        single = SingleMessageMetadata(payload_size=len(message.payload), sequence_id=sequence_id)
        if message.key is not None:
            single.partition_key = message.key
        return BatchMessage(single, message.payload)

    async def _attach(self, connection: BrokerConnection) -> None:
        """Register with the owner, and send again what has no receipt."""
        connection.attach_producer(self._id, self._received)
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic = str(self._attachment.topic)
        command.producer.producer_id = self._id
        command.producer.user_provided_producer_name = False
        if self._name:
            command.producer.producer_name = self._name
        answer = await connection.request(command)
        self._name = answer.producer_name
        for sent in self._pending:
            connection.send(sent.frame)

    def _received(self, command: BaseCommand, _entry: Buffer) -> None:
        match command.type:
            case BaseCommand.SEND_RECEIPT:
                if self._pending and command.send_receipt.sequence_id == self._pending[0].sequence_id:
                    self.acknowledged += self._pending.popleft().messages
                    self._changed.set()
            case BaseCommand.SEND_ERROR:
                error = BrokerRefusedError(command.send_error.error, command.send_error.message)
                if error.is_retriable or command.send_error.error == ServerError.ChecksumError:
                    self._attachment.moved()
                else:
                    self._fail(error)
            case BaseCommand.CLOSE_PRODUCER:
                self._attachment.moved()

    def _fail(self, error: DaybookError) -> None:
        self._failure = error
        self._changed.set()

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while self._failure is None and not is_so():
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure
