"""Clients that name a listener: lookups send them to its addresses, and to no other."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pulsar
import pytest
from daybook_broker.topics.peer import BrokerUrls

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.brokers import Urls
from daybook.runtime.ports import HeldPort
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandLookupTopic, CommandSubscribe, ServerError
from tests.unit.broker.kit import LIMIT_S, FrameClient, frame_client, new_topic, running_broker

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


async def look_up(client: FrameClient, topic: str, listener: str) -> None:
    wish = CommandLookupTopic(topic=topic, request_id=1, advertised_listener_name=listener)
    await client.ask(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=wish))


async def test_clients_whose_topic_moves_are_sent_to_the_listener_that_they_ask_for(
    cluster: LocalCluster,
) -> None:
    topic = new_topic()
    inner, secure = "pulsar://10.0.0.2:6650", "pulsar+ssl://10.0.0.2:6651"
    changes: dict[str, Any] = {"listeners": (f"inner:{inner}", f"inner:{secure}")}
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(running_broker(cluster, **changes))
        owner = await stack.enter_async_context(running_broker(cluster))
        expected: dict[str | None, tuple[str, str]] = {
            "inner": (inner, secure),
            "outer": ("", ""),
            "": (target.service_url, ""),
            None: ("", ""),
        }
        clients = {each: await stack.enter_async_context(frame_client(owner)) for each in expected}
        for listener, client in clients.items():
            if listener is not None:
                await look_up(client, topic, listener)
            assert (await client.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS
            wish = CommandSubscribe(
                topic=topic, subscription="s", subType=CommandSubscribe.Shared, consumer_id=1, request_id=2
            )
            answer = await client.ask(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=wish))
            assert answer.type == BaseCommand.SUCCESS
        await owner.ownership.unload(TopicName.parse(topic), target.settings.broker_id)
        for listener, client in clients.items():
            producer = (await client.receive()).close_producer
            consumer = (await client.receive()).close_consumer
            found = {
                (producer.assignedBrokerServiceUrl, producer.assignedBrokerServiceUrlTls),
                (consumer.assignedBrokerServiceUrl, consumer.assignedBrokerServiceUrlTls),
            }
            assert found == {expected[listener]}, listener


def test_a_client_that_sent_no_lookup_is_sent_to_a_broker_without_listeners() -> None:
    urls = BrokerUrls("pulsar://here:6650", "")
    assert urls.of(None) == urls.of("") == Urls("pulsar://here:6650")
    assert urls.of("inner") is None
