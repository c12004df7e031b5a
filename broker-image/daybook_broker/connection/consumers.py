"""SUBSCRIBE, FLOW, ACK and whatever else clients say about consumers.

A command about a consumer that is not there any more is ignored where it needs no answer: the client did not know yet.
"""

from collections.abc import Mapping
from typing import Final

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.topics.dispatch.active import NO_PARTITION
from daybook.core.topics.dispatch.events import Acked
from daybook.core.topics.name import TopicName, check_subscription
from daybook.core.topics.permissions import Operation
from daybook.metadata.partitions import partition_of
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandAckResponse,
    CommandCloseConsumer,
    CommandSeek,
    CommandSubscribe,
    CommandSuccess,
    CommandUnsubscribe,
    ServerError,
)
from daybook_broker.connection.connection import NO_REQUEST, Connection, Handler
from daybook_broker.connection.consumer_reports import consumer_of
from daybook_broker.connection.message_ids import position_of
from daybook_broker.connection.properties import properties_of
from daybook_broker.errors import (
    NotAllowedError,
    NotReadyError,
    TooManyError,
    server_error,
)
from daybook_broker.topics.consumer import Consumer, ConsumerWish, SubscriptionKind
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.subscription import Subscription
from daybook_broker.topics.subscriptions import SubscriptionWish
from daybook_broker.topics.topic import Topic

log = get_logger(__name__)

NAME_BYTES_MAX: Final = 1024
_KINDS: Final = {
    CommandSubscribe.Exclusive: SubscriptionKind.EXCLUSIVE,
    CommandSubscribe.Shared: SubscriptionKind.SHARED,
    CommandSubscribe.Failover: SubscriptionKind.FAILOVER,
}
_RETRIED: Final = frozenset(
    {
        ServerError.ServiceNotReady,
        ServerError.MetadataError,
        ServerError.PersistenceError,
        ServerError.TooManyRequests,
        ServerError.UnknownError,
        ServerError.ConsumerBusy,
    }
)
"""Errors of SUBSCRIBE after which a client tries again, ConsumerBusy when its consumer was connected before.

pulsar-client-cpp 3.x considers a consumer connected as soon as it has sent SUBSCRIBE, and ignores its own next attempt; CLOSE_CONSUMER
behind the error ends that (fixed after 3.13 by pulsar-client-cpp#577). Other clients ignore it, since they do not know such a consumer.
"""


# SUBSCRIBE


def subscribe(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """SUBSCRIBE: held while the topic is taken over."""
    wish = command.subscribe
    connection.requests.begin(wish.request_id, _subscribe(connection, wish), _key(wish.consumer_id))


async def _subscribe(connection: Connection, command: CommandSubscribe) -> None:
    try:
        await _add_consumer(connection, command)
    except DaybookError as error:
        connection.refuse(command.request_id, error)
        if server_error(error) in _RETRIED:
            _send_away(connection, command.consumer_id, None)


async def _add_consumer(connection: Connection, command: CommandSubscribe) -> None:
    name = TopicName.parse(command.topic)
    await connection.broker.access.check(connection.role, Operation.CONSUME, name.tenant, name.namespace)
    check_subscription(command.subscription)
    wish = _consumer_wish(connection, command, name)
    of_subscription = _subscription_wish(command)
    existing = connection.consumers.get(command.consumer_id)
    if existing is not None:
        if existing.subscription.topic != str(name) or existing.subscription.name != command.subscription:
            msg = f"consumer {command.consumer_id} of this connection has another subscription: use another id for {command.subscription!r}"
            raise NotAllowedError(msg)
        _succeed(connection, command.request_id)
        return
    handles_max = connection.broker.settings.handles_max
    if len(connection.producers) + len(connection.consumers) >= handles_max:
        msg = f"this connection has {handles_max} producers and consumers: open another one, or raise handles_max"
        raise TooManyError(msg)
    topic = await connection.broker.registry.load(name, create=command.force_topic_creation)
    topic.check_open()
    subscription = await topic.subscriptions.subscribe(of_subscription)
    try:
        await _join(connection, command, wish, topic, subscription)
    finally:
        subscription.check_empty()  # nobody else ends the subscription of a reader that did not get so far


async def _join(
    connection: Connection,
    command: CommandSubscribe,
    wish: ConsumerWish,
    topic: Topic,
    subscription: Subscription,
) -> None:
    """Add a consumer to its subscription, unless its connection is lost meanwhile."""
    await subscription.admit(wish)
    if command.start_message_rollback_duration_sec and not command.durable:
        before_ms = unix_ms() - 1000 * command.start_message_rollback_duration_sec
        await subscription.seek_time(before_ms, reads_compacted=wish.reads_compacted)
    topic.check_open()

    def on_closed(consumer: Consumer, urls: BrokerUrls | None) -> None:
        _closed_by_topic(connection, consumer, urls)

    totals = connection.broker.metrics.totals
    consumer = Consumer(wish, subscription, connection, totals, on_closed=on_closed)
    if not connection.is_lost:
        subscription.check(wish)
        connection.consumers[wish.consumer_id] = consumer
        _succeed(connection, command.request_id)
        subscription.add(consumer)


def _consumer_wish(connection: Connection, command: CommandSubscribe, name: TopicName) -> ConsumerWish:
    kind = _KINDS.get(command.subType)
    if kind is None:
        msg = "this broker has no Key_Shared subscriptions yet: use Shared, or Failover where the order of a key matters"
        raise NotAllowedError(msg)
    if command.read_compacted and kind is SubscriptionKind.SHARED:
        msg = "a shared subscription does not read what is compacted: use a reader, or Exclusive or Failover"
        raise NotAllowedError(msg)
    if len(command.consumer_name.encode()) > NAME_BYTES_MAX:
        msg = f"a consumer's name may have {NAME_BYTES_MAX} bytes: choose a shorter one"
        raise NotAllowedError(msg)
    if command.priority_level < 0:
        msg = f"priority {command.priority_level}: the highest is 0, and a lower one is a larger number"
        raise NotAllowedError(msg)
    part = partition_of(name)
    return ConsumerWish(
        command.consumer_id,
        command.consumer_name,
        kind,
        command.priority_level,
        command.consumer_epoch if command.HasField("consumer_epoch") else None,
        NO_PARTITION if part is None else part[1],
        command.read_compacted,
        connection.protocol_version,
        properties_of("a consumer", command.metadata),
    )


def _subscription_wish(command: CommandSubscribe) -> SubscriptionWish:
    start = None
    if command.HasField("start_message_id"):
        start = position_of(command.start_message_id)
        if min(start) >= 0:
            # the client may begin within a batch, and drops what it does not want
            start = start.before
    return SubscriptionWish(
        command.subscription,
        is_durable=command.durable,
        begins_early=command.initialPosition == CommandSubscribe.Earliest,
        start=start,
        reads_compacted=command.read_compacted,
        properties=properties_of("a subscription", command.subscription_properties),
    )


def _closed_by_topic(connection: Connection, consumer: Consumer, urls: BrokerUrls | None) -> None:
    if connection.consumers.get(consumer.id) is consumer:
        del connection.consumers[consumer.id]
    _send_away(connection, consumer.id, urls)


def _send_away(connection: Connection, consumer_id: int, urls: BrokerUrls | None) -> None:
    fields = connection.assigned(urls)
    close = CommandCloseConsumer(consumer_id=consumer_id, request_id=NO_REQUEST, **fields)
    connection.send_command(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close))


# What has no answer, or an answer at once


def flow(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """FLOW: the consumer takes more messages."""
    consumer = connection.consumers.get(command.flow.consumer_id)
    if consumer is not None and command.flow.messagePermits:
        consumer.subscription.flow(consumer, command.flow.messagePermits)


def ack(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """ACK, of messages or of all up to one; answered if the client asks for that."""
    body = command.ack
    error: DaybookError | None = None
    try:
        _ack(connection, body)
    except DaybookError as refused:
        error = refused
    if body.HasField("request_id"):
        answer = CommandAckResponse(consumer_id=body.consumer_id, request_id=body.request_id)
        if error is not None:
            answer.error = server_error(error)
            answer.message = str(error)
        connection.send_command(BaseCommand(type=BaseCommand.ACK_RESPONSE, ackResponse=answer))
    elif error is not None and not isinstance(error, NotReadyError):  # of a hand-over each has one
        log.info("an acknowledgement is ignored", client=connection.address, why=str(error))


def _ack(connection: Connection, body: CommandAck) -> None:
    if body.txnid_least_bits or body.txnid_most_bits:
        msg = "this broker has no transactions: acknowledge without one"
        raise NotAllowedError(msg)
    consumer = consumer_of(connection, body.consumer_id)
    acked = [Acked(position_of(each), each.ack_set, each.batch_size) for each in body.message_id]
    if body.ack_type == CommandAck.Individual:
        consumer.subscription.ack(consumer, acked)
    elif len(acked) == 1:
        consumer.subscription.ack_through(consumer, acked[0])
    else:
        msg = f"a cumulative acknowledgement of {len(acked)} messages: name one, the last"
        raise NotAllowedError(msg)


def redeliver(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES: all of them, or those that the client names (negative acknowledgements, time-outs)."""
    body = command.redeliverUnacknowledgedMessages
    consumer = connection.consumers.get(body.consumer_id)
    if consumer is not None:
        positions = [position_of(each) for each in body.message_ids] or None
        epoch = body.consumer_epoch if body.HasField("consumer_epoch") else None
        consumer.subscription.redeliver(consumer, positions, epoch)


# What takes time


def unsubscribe(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """UNSUBSCRIBE: delete the subscription."""
    body = command.unsubscribe
    connection.requests.begin(body.request_id, _unsubscribe(connection, body), _key(body.consumer_id))


async def _unsubscribe(connection: Connection, body: CommandUnsubscribe) -> None:
    consumer = consumer_of(connection, body.consumer_id)
    topic = connection.broker.registry.get(TopicName.parse(consumer.subscription.topic))
    if topic is None:
        msg = f"topic {consumer.subscription.topic} moves to another broker: look it up again"
        raise NotReadyError(msg)
    try:
        await topic.subscriptions.unsubscribe(consumer, force=body.force)
    except DaybookError as error:
        connection.refuse(body.request_id, error)
        if consumer.is_closed:  # the subscription may be there still, and its consumer is not
            _closed_by_topic(connection, consumer, None)
    else:
        connection.consumers.pop(body.consumer_id, None)
        _succeed(connection, body.request_id)


def close_consumer(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """CLOSE_CONSUMER: after a SUBSCRIBE that is under way."""
    body = command.close_consumer
    connection.requests.begin(body.request_id, _close_consumer(connection, body), _key(body.consumer_id))


async def _close_consumer(connection: Connection, body: CommandCloseConsumer) -> None:
    consumer = connection.consumers.pop(body.consumer_id, None)
    if consumer is not None:
        consumer.detach()
    _succeed(connection, body.request_id)


def seek(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """SEEK: to a message, or to a time."""
    body = command.seek
    connection.requests.begin(body.request_id, _seek(connection, body), _key(body.consumer_id))


async def _seek(connection: Connection, body: CommandSeek) -> None:
    subscription = consumer_of(connection, body.consumer_id).subscription
    if body.HasField("message_publish_time"):
        await subscription.seek_time(body.message_publish_time)
    elif body.HasField("message_id"):
        wanted = position_of(body.message_id)
        batch = Acked(wanted, body.message_id.ack_set, body.message_id.batch_size)
        await subscription.seek(wanted, batch=batch if batch.words else None)
    else:
        msg = "SEEK names neither a message nor a time: name one of them"
        raise NotAllowedError(msg)
    _succeed(connection, body.request_id)


# Parts


def _key(consumer_id: int) -> tuple[str, int]:
    """What orders the requests about one consumer."""
    return ("consumer", consumer_id)


def _succeed(connection: Connection, request_id: int) -> None:
    success = CommandSuccess(request_id=request_id)
    connection.send_command(BaseCommand(type=BaseCommand.SUCCESS, success=success))


HANDLERS: Final[Mapping[int, Handler]] = {
    BaseCommand.SUBSCRIBE: subscribe,
    BaseCommand.FLOW: flow,
    BaseCommand.ACK: ack,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: redeliver,
    BaseCommand.UNSUBSCRIBE: unsubscribe,
    BaseCommand.CLOSE_CONSUMER: close_consumer,
    BaseCommand.SEEK: seek,
}
