"""What clients ask about a consumer: its statistics, and the last message of its topic."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.topics.acks import bits_of
from daybook.core.topics.ledger_list import NO_POSITION
from daybook.runtime.clock import unix_ms
from daybook.wire.pulsar.batches import is_batch
from daybook.wire.pulsar.entries import decode_metadata, split_entry
from daybook.wire.pulsar.errors import EntryError
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
)
from daybook_broker.connection.connection import Connection, Handler
from daybook_broker.connection.message_ids import message_id_of
from daybook_broker.errors import NoSuchConsumerError, server_error
from daybook_broker.topics.compacted_reads import LastMessage
from daybook_broker.topics.consumer import Consumer


def consumer_of(connection: Connection, consumer_id: int) -> Consumer:
    """The consumer of a connection. Raises NoSuchConsumerError."""
    consumer = connection.consumers.get(consumer_id)
    if consumer is None:
        msg = f"there is no consumer {consumer_id} on this connection: send SUBSCRIBE first"
        raise NoSuchConsumerError(msg)
    return consumer


def consumer_stats(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """CONSUMER_STATS: rates since the consumer came. Clients await this answer alone, so it carries the refusals."""
    body = command.consumerStats
    try:
        answer = _statistics(connection, body)
    except DaybookError as error:
        answer = CommandConsumerStatsResponse(
            request_id=body.request_id, error_code=server_error(error), error_message=str(error)
        )
    connection.send_command(
        BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=answer)
    )


def _statistics(connection: Connection, body: CommandConsumerStats) -> CommandConsumerStatsResponse:
    consumer = consumer_of(connection, body.consumer_id)
    machine = consumer.subscription.machine
    state = None if machine is None else machine.consumers.get(consumer.key)
    if state is None:
        msg = f"consumer {consumer.id} is being closed, or its subscription is: SUBSCRIBE again"
        raise NoSuchConsumerError(msg)
    seconds = max(unix_ms() / 1000 - consumer.since_unix_s, 1.0)
    kind = consumer.subscription.kind
    return CommandConsumerStatsResponse(
        request_id=body.request_id,
        msgRateOut=consumer.messages_out / seconds,
        msgThroughputOut=consumer.bytes_out / seconds,
        msgRateRedeliver=consumer.redelivered / seconds,
        messageAckRate=consumer.acks / seconds,
        consumerName=consumer.name,
        availablePermits=max(state.permits, 0),
        unackedMessages=state.unacked,
        blockedConsumerOnUnackedMsgs=state.is_blocked,
        address=connection.address,
        connectedSince=datetime.fromtimestamp(consumer.since_unix_s, UTC).isoformat(),
        type="" if kind is None else kind.value,
        msgRateExpired=0.0,
        msgBacklog=consumer.subscription.acks.unacked_entries(),
    )


def get_last_message_id(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """GET_LAST_MESSAGE_ID: of the topic, and how far the subscription is."""
    body = command.getLastMessageId
    connection.requests.begin(body.request_id, _get_last_message_id(connection, body))


async def _get_last_message_id(connection: Connection, body: CommandGetLastMessageId) -> None:
    consumer = consumer_of(connection, body.consumer_id)
    last = await consumer.subscription.last_message()
    if last is None:
        last_id = message_id_of(NO_POSITION)
    else:
        last_id = message_id_of(last.entry.position)
        batch_index = _last_of_batch(last)
        if batch_index is not None:
            last_id.batch_index = batch_index
    last_id.partition = consumer.wish.partition
    answer = CommandGetLastMessageIdResponse(
        request_id=body.request_id,
        last_message_id=last_id,
        consumer_mark_delete_position=message_id_of(consumer.subscription.acks.mark_delete),
    )
    connection.send_command(
        BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)
    )


def _last_of_batch(last: LastMessage) -> int | None:
    """The index of the last message; None for an entry that is no batch, or whose metadata nobody can read."""
    if last.left:
        return bits_of(last.left).bit_length() - 1
    try:
        metadata = decode_metadata(split_entry(last.entry.data))
    except EntryError:
        return None
    return max(metadata.num_messages_in_batch, 1) - 1 if is_batch(metadata) else None  # as its producer says


HANDLERS: Final[Mapping[int, Handler]] = {
    BaseCommand.CONSUMER_STATS: consumer_stats,
    BaseCommand.GET_LAST_MESSAGE_ID: get_last_message_id,
}
