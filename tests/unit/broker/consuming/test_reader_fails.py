"""Readers that begin at a time which cannot be found: nothing of them stays, however often they come."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from daybook_broker.broker import Broker
from daybook_broker.topics import subscription
from daybook_broker.topics.ledger_reads import ReadDelayedError

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandSubscribe
from tests.unit.broker.kit import LIMIT_S, frame_client, new_topic, running_broker

pytestmark = pytest.mark.integration


@pytest.fixture
async def broker(cluster: LocalCluster) -> AsyncIterator[Broker]:
    async with running_broker(cluster, subscriptions_max=1) as broker:
        yield broker


def reader(topic: str, name: str) -> BaseCommand:
    """SUBSCRIBE of a reader that begins a minute ago."""
    wish = CommandSubscribe(
        topic=topic,
        subscription=name,
        subType=CommandSubscribe.Exclusive,
        consumer_id=1,
        request_id=1,
        durable=False,
        start_message_rollback_duration_sec=60,
    )
    return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=wish)


async def test_a_reader_whose_first_read_fails_leaves_no_subscription(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        msg = "not now"
        raise ReadDelayedError(msg)

    topic = new_topic()
    with monkeypatch.context() as patch:
        patch.setattr(subscription, "last_before", fails)
        async with frame_client(broker) as client:
            assert (await client.ask(reader(topic, "first"))).error.message == "not now"
    async with frame_client(broker) as client:
        assert (await client.ask(reader(topic, "second"))).type == BaseCommand.SUCCESS


async def test_a_reader_that_is_lost_during_its_first_read_leaves_no_subscription(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    check_empty = subscription.Subscription.check_empty

    def check(each: subscription.Subscription) -> None:
        check_empty(each)
        ended.set()

    async def waits(*_: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    topic = new_topic()
    monkeypatch.setattr(subscription, "last_before", waits)
    monkeypatch.setattr(subscription.Subscription, "check_empty", check)
    async with frame_client(broker) as client:
        client.send(reader(topic, "first"))
        await began.wait()
    served = broker.registry.get(TopicName.parse(topic))
    assert served is not None
    async with asyncio.timeout(LIMIT_S):
        await ended.wait()
    assert not served.subscriptions.all()
