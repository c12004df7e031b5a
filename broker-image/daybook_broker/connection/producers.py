"""PRODUCER, CLOSE_PRODUCER, and the rare SEND that is not read by hand."""

from collections.abc import Mapping
from typing import Final

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.topics.name import TopicName, check_subscription
from daybook.core.topics.permissions import Operation
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSuccess,
    Schema,
    ServerError,
)
from daybook_broker.connection.connection import NO_REQUEST, Connection, Handler
from daybook_broker.connection.properties import properties_of
from daybook_broker.connection.schemas import NO_SCHEMA, needs_registry
from daybook_broker.errors import (
    IncompatibleSchemaError,
    NoSuchSubscriptionError,
    NotAllowedError,
    TooManyError,
)
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.producer import Producer, ProducerWish
from daybook_broker.topics.subscriptions import Subscriptions, SubscriptionWish

NAME_BYTES_MAX: Final = 1024


def open_producer(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """PRODUCER: held while the topic is taken over."""
    wish = command.producer
    connection.requests.begin(wish.request_id, _open(connection, wish), ("producer", wish.producer_id))


async def _open(connection: Connection, command: CommandProducer) -> None:
    name = TopicName.parse(command.topic)
    await connection.broker.access.check(connection.role, Operation.PRODUCE, name.tenant, name.namespace)
    _check(command)
    existing = connection.producers.get(command.producer_id)
    if existing is not None and not existing.is_closed:
        if existing.topic.name != name:
            msg = f"producer {command.producer_id} of this connection publishes to {existing.topic.name}: use another id for {name}"
            raise NotAllowedError(msg)
        _succeed(connection, command.request_id, existing, is_ready=not existing.is_waiting)
        return
    handles_max = connection.broker.settings.handles_max
    if len(connection.producers) + len(connection.consumers) >= handles_max:
        msg = f"this connection has {handles_max} producers and consumers: open another one, or raise handles_max"
        raise TooManyError(msg)
    wish = _wish(connection, command)
    topic = await connection.broker.registry.load(name, create=True)
    await connection.broker.upkeep.judge_quota(topic)
    if command.initial_subscription_name:
        await _hold_from_the_first(topic.subscriptions, command.initial_subscription_name)
    request_id = command.request_id

    def on_closed(producer: Producer, urls: BrokerUrls | None) -> None:
        _closed_by_topic(connection, producer, urls)

    def on_ready(producer: Producer, error: DaybookError | None) -> None:
        _waited(connection, request_id, producer, error)

    producer = Producer(wish, topic, connection, on_closed=on_closed, on_ready=on_ready)
    is_ready = await topic.add_producer(producer)
    if connection.is_lost:
        topic.remove_producer(producer)
        return
    connection.producer_opened(producer)
    _succeed(connection, request_id, producer, is_ready=is_ready)


async def _hold_from_the_first(subscriptions: Subscriptions, name: str) -> None:
    """Make sure of a subscription that keeps what is published: of a dead letter topic, whose consumer comes later."""
    check_subscription(name)
    if subscriptions.has(name):
        return
    try:
        await subscriptions.subscribe(SubscriptionWish(name, begins_early=True))
    except NoSuchSubscriptionError as error:
        msg = f"subscriptions are not created by themselves here, and the producer asks for {name!r}: create it first"
        raise NotAllowedError(msg) from error


def _check(command: CommandProducer) -> None:
    if command.txn_enabled:
        msg = "this broker has no transactions: make the producer without one"
        raise NotAllowedError(msg)
    if len(command.producer_name.encode()) > NAME_BYTES_MAX:
        msg = f"a producer's name may have {NAME_BYTES_MAX} bytes: choose a shorter one"
        raise NotAllowedError(msg)
    if command.HasField("schema") and needs_registry(command.schema):
        kind = Schema.Type.Name(command.schema.type)
        msg = f"this broker keeps no schemas yet, and {kind} needs one: publish bytes, and encode them in the application"
        raise IncompatibleSchemaError(msg)


def _wish(connection: Connection, command: CommandProducer) -> ProducerWish:
    is_given = bool(command.producer_name) and command.user_provided_producer_name
    return ProducerWish(
        command.producer_id,
        command.producer_name or connection.broker.new_producer_name(),
        is_given,
        command.epoch,
        command.producer_access_mode,
        command.topic_epoch if command.HasField("topic_epoch") else None,
        properties_of("a producer", command.metadata),
    )


def _succeed(connection: Connection, request_id: int, producer: Producer, *, is_ready: bool = True) -> None:
    success = CommandProducerSuccess(
        request_id=request_id,
        producer_name=producer.name,
        last_sequence_id=-1,
        producer_ready=is_ready,
        schema_version=NO_SCHEMA,
    )
    if producer.topic_epoch is not None:
        success.topic_epoch = producer.topic_epoch
    connection.send_command(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=success))


def _waited(connection: Connection, request_id: int, producer: Producer, error: DaybookError | None) -> None:
    """A producer that waited to be the exclusive one is, or never will be."""
    if error is None:
        _succeed(connection, request_id, producer)
    else:
        _forget(connection, producer)
        connection.refuse(request_id, error)


def _closed_by_topic(connection: Connection, producer: Producer, urls: BrokerUrls | None) -> None:
    _forget(connection, producer)
    fields = connection.assigned(urls)
    close = CommandCloseProducer(producer_id=producer.id, request_id=NO_REQUEST, **fields)
    connection.send_command(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close))


def _forget(connection: Connection, producer: Producer) -> None:
    if connection.producers.get(producer.id) is producer:
        del connection.producers[producer.id]
    connection.producer_closed(producer.id)


def close_producer(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """CLOSE_PRODUCER: after a PRODUCER that is under way; its receipts still come, and the success after them."""
    close = command.close_producer
    connection.requests.begin(close.request_id, _close(connection, close), ("producer", close.producer_id))


async def _close(connection: Connection, command: CommandCloseProducer) -> None:
    producer = connection.producers.pop(command.producer_id, None)
    if producer is not None:
        try:
            await producer.topic.publishing.answered()
        finally:  # also if the connection is lost meanwhile, which does not know the producer any more
            producer.topic.remove_producer(producer)
    success = CommandSuccess(request_id=command.request_id)
    connection.send_command(BaseCommand(type=BaseCommand.SUCCESS, success=success))


def send(connection: Connection, command: BaseCommand, entry: Buffer) -> None:
    """A SEND with fields that are rare, or in another order: of chunks, of markers."""
    body = command.send
    fields = (body.producer_id, body.sequence_id, body.num_messages, body.highest_sequence_id)
    producer = connection.producers.get(body.producer_id)
    if producer is None:
        connection.send_to_nobody(fields)
    elif body.txnid_least_bits or body.txnid_most_bits:
        msg = "this broker has no transactions: publish without one"
        producer.send_error(body.sequence_id, ServerError.NotAllowedError, msg)
    else:
        producer.send(fields, entry)


HANDLERS: Final[Mapping[int, Handler]] = {
    BaseCommand.PRODUCER: open_producer,
    BaseCommand.SEND: send,
    BaseCommand.CLOSE_PRODUCER: close_producer,
}
