"""LOOKUP, PARTITIONED_METADATA, and what clients ask about schemas."""

from collections.abc import Mapping
from typing import Final, assert_never

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.topics.name import TopicName
from daybook.core.topics.permissions import Operation
from daybook.metadata.brokers import BrokerInfo
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchemaResponse,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandTcClientConnectResponse,
    ServerError,
)
from daybook_broker.connection.connection import Connection, Handler
from daybook_broker.connection.schemas import NO_SCHEMA, needs_registry
from daybook_broker.errors import NotAllowedError, NotReadyError, server_error
from daybook_broker.ownership.api import Elsewhere, Mine, NotReady


def lookup(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """LOOKUP: held while nobody knows who owns the topic."""
    wish = command.lookupTopic
    connection.listener = wish.advertised_listener_name
    connection.requests.begin(wish.request_id, _lookup(connection, wish))


async def _lookup(connection: Connection, wish: CommandLookupTopic) -> None:
    try:
        outcome, answer = await _answer(connection, wish)
    except DaybookError as error:
        outcome = "not_ready" if isinstance(error, NotReadyError) else "refused"
        answer = CommandLookupTopicResponse(
            response=CommandLookupTopicResponse.Failed, error=server_error(error), message=str(error)
        )
    connection.broker.metrics.lookups.labels(outcome).inc()
    answer.request_id = wish.request_id
    connection.send_command(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))


async def _answer(connection: Connection, wish: CommandLookupTopic) -> tuple[str, CommandLookupTopicResponse]:
    """What it comes to, for the metrics, and the answer."""
    name = TopicName.parse(wish.topic)
    await connection.broker.access.check(connection.role, Operation.LOOK, name.tenant, name.namespace)
    ownership = connection.broker.ownership
    found = await ownership.lookup(name, authoritative=wish.authoritative)
    match found:
        case Mine():
            return "here", _at(
                ownership.info, wish.advertised_listener_name, is_owner=True, authoritative=True
            )
        case Elsewhere():
            return "redirect", _at(
                found.broker,
                wish.advertised_listener_name,
                is_owner=found.is_owner,
                authoritative=found.is_owner or found.authoritative,
            )
        case NotReady():
            raise NotReadyError(found.why)
        case _:
            assert_never(found)


def _at(
    broker: BrokerInfo, listener: str, *, is_owner: bool, authoritative: bool
) -> CommandLookupTopicResponse:
    urls = broker.urls_of(listener)
    if urls is None:
        msg = f"broker {broker.broker} has no listener {listener!r}: use one of {', '.join(broker.listeners) or 'none'}"
        raise NotAllowedError(msg)
    kind = CommandLookupTopicResponse.Connect if is_owner else CommandLookupTopicResponse.Redirect
    answer = CommandLookupTopicResponse(response=kind, authoritative=authoritative)
    if urls.plain:
        answer.brokerServiceUrl = urls.plain
    if urls.tls:
        answer.brokerServiceUrlTls = urls.tls
    return answer


def partitions(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """PARTITIONED_METADATA: how many partitions a topic has, 0 for none."""
    wish = command.partitionMetadata
    connection.requests.begin(wish.request_id, _partitions(connection, wish))


async def _partitions(connection: Connection, wish: CommandPartitionedTopicMetadata) -> None:
    answer = CommandPartitionedTopicMetadataResponse(request_id=wish.request_id)
    try:
        name = TopicName.parse(wish.topic)
        await connection.broker.access.check(connection.role, Operation.LOOK, name.tenant, name.namespace)
        answer.partitions = await connection.broker.partitions_of(
            name, create=wish.metadata_auto_creation_enabled
        )
        answer.response = CommandPartitionedTopicMetadataResponse.Success
    except DaybookError as error:
        answer.response = CommandPartitionedTopicMetadataResponse.Failed
        answer.error = server_error(error)
        answer.message = str(error)
    connection.send_command(
        BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer)
    )


_NO_SCHEMAS: Final = "this broker keeps no schemas yet: publish bytes, and encode them in the application"


def get_schema(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """GET_SCHEMA: no topic has one."""
    answer = CommandGetSchemaResponse(
        request_id=command.getSchema.request_id,
        error_code=ServerError.TopicNotFound,
        error_message=_NO_SCHEMAS,
    )
    connection.send_command(BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=answer))


def get_or_create_schema(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """GET_OR_CREATE_SCHEMA: no topic gets one, and bytes need none: Java's client asks for theirs before it publishes dead letters."""
    wish = command.getOrCreateSchema
    answer = CommandGetOrCreateSchemaResponse(request_id=wish.request_id)
    if needs_registry(wish.schema):
        answer.error_code = ServerError.IncompatibleSchema
        answer.error_message = _NO_SCHEMAS
    else:
        answer.schema_version = NO_SCHEMA
    connection.send_command(
        BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=answer)
    )


def connect_transactions(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """TC_CLIENT_CONNECT_REQUEST: there are no transactions."""
    answer = CommandTcClientConnectResponse(
        request_id=command.tcClientConnectRequest.request_id,
        error=ServerError.NotAllowedError,
        message="this broker has no transactions: switch them off in the client",
    )
    connection.send_command(
        BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tcClientConnectResponse=answer)
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    BaseCommand.LOOKUP: lookup,
    BaseCommand.PARTITIONED_METADATA: partitions,
    BaseCommand.GET_SCHEMA: get_schema,
    BaseCommand.GET_OR_CREATE_SCHEMA: get_or_create_schema,
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: connect_transactions,
}
