"""Clients that name a listener: lookups send them to its addresses, and to no other."""

import asyncio
from typing import Any

import pulsar
import pytest

from daybook.local.cluster import LocalCluster
from daybook.runtime.ports import HeldPort
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandLookupTopic, ServerError
from tests.unit.broker.kit import LIMIT_S, frame_client, new_topic, running_broker

pytestmark = pytest.mark.integration


async def test_a_client_that_names_a_listener_connects_to_its_address(cluster: LocalCluster) -> None:
    topic = new_topic()
    with HeldPort() as held:
        inner, secure = f"pulsar://localhost:{held.port}", f"pulsar+ssl://localhost:{held.port}"
        changes: dict[str, Any] = {
            "address": f"127.0.0.1:{held.port}",
            "advertised_address": "127.0.0.1:9",  # nobody answers there
            "listeners": (f"inner:{inner}", f"inner:{secure}"),
        }

        def publish(listener: str) -> str:
            client = pulsar.Client(
                f"pulsar://127.0.0.1:{held.port}",
                listener_name=listener,
                operation_timeout_seconds=int(LIMIT_S),
            )
            try:
                client.create_producer(topic).send(b"message")
            except pulsar.PulsarException as error:
                return type(error).__name__
            finally:
                client.close()
            return "ok"

        async with running_broker(cluster, **changes) as broker:
            assert broker.service_url == "pulsar://127.0.0.1:9"
            assert await asyncio.to_thread(publish, "inner") == "ok"
            broker.service_url = f"pulsar://127.0.0.1:{held.port}"  # for the client by hand
            async with frame_client(broker) as client:
                for listener, urls in (("inner", (inner, secure)), ("", ("pulsar://127.0.0.1:9", ""))):
                    wish = CommandLookupTopic(topic=topic, request_id=1, advertised_listener_name=listener)
                    answer = await client.ask(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=wish))
                    found = answer.lookupTopicResponse
                    assert (found.brokerServiceUrl, found.brokerServiceUrlTls) == urls
                wish = CommandLookupTopic(topic=topic, request_id=2, advertised_listener_name="outer")
                answer = await client.ask(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=wish))
                refused = answer.lookupTopicResponse
                assert refused.error == ServerError.NotAllowedError
                assert "has no listener 'outer': use one of inner" in refused.message
