"""Commands of what Daybook does not have: each is answered with its own request id, and the connection continues."""

import pytest
from daybook_broker.broker import Broker

from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandGetSchema,
    CommandOfTransaction,
    CommandTcClientConnectRequest,
    ServerError,
)
from tests.unit.broker.kit import frame_client, new_topic

pytestmark = pytest.mark.integration


async def test_every_request_of_a_transaction_is_refused_under_its_id(broker: Broker) -> None:
    requests = (
        (BaseCommand.NEW_TXN, "newTxn"),
        (BaseCommand.ADD_PARTITION_TO_TXN, "addPartitionToTxn"),
        (BaseCommand.ADD_SUBSCRIPTION_TO_TXN, "addSubscriptionToTxn"),
        (BaseCommand.END_TXN, "endTxn"),
        (BaseCommand.END_TXN_ON_PARTITION, "endTxnOnPartition"),
        (BaseCommand.END_TXN_ON_SUBSCRIPTION, "endTxnOnSubscription"),
    )
    async with frame_client(broker) as client:
        for request_id, (kind, field) in enumerate(requests, 40):
            command = BaseCommand(type=kind)
            getattr(command, field).CopyFrom(CommandOfTransaction(request_id=request_id))
            error = (await client.ask(command)).error
            assert (error.request_id, error.error) == (request_id, ServerError.NotAllowedError)
            assert BaseCommand.Type.Name(kind) in error.message
        request = CommandTcClientConnectRequest(request_id=50, tc_id=0)
        command = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=request)
        refused = (await client.ask(command)).tcClientConnectResponse
        assert (refused.request_id, refused.error) == (50, ServerError.NotAllowedError)


async def test_a_topic_has_no_schema_to_get(broker: Broker) -> None:
    async with frame_client(broker) as client:
        wish = CommandGetSchema(request_id=60, topic=new_topic())
        answer = await client.ask(BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=wish))
        found = answer.getSchemaResponse
        assert (found.request_id, found.error_code) == (60, ServerError.TopicNotFound)
        assert "schema" in found.error_message
