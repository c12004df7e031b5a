"""What was compacted of ledgers that were trimmed, and the age of messages."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import aiohttp
import pulsar
import pytest
from daybook_broker.admin.server import AdminServer
from daybook_broker.broker import Broker
from daybook_broker.topics.topic import Topic

from daybook.core.topics.policy import PolicyLayer
from daybook.runtime.ports import Address
from tests.unit.broker.admin.kit import TOPICS
from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.consuming.kit import receive
from tests.unit.broker.consuming.test_compacted import (
    BEFORE,
    LEFT,
    compact,
    drop_own_ledgers,
    keyed,
    publish,
)
from tests.unit.broker.kit import new_topic

pytestmark = pytest.mark.integration

HOUR_S = 3_600

Expire: TypeAlias = Callable[[Broker, Topic], Awaitable[None]]
"""Takes what is older than an hour as acknowledged."""


async def by_ttl(broker: Broker, topic: Topic) -> None:
    policies = broker.registry.services.policies
    await policies.set_topic(topic.name, await policies.topic(topic.name), PolicyLayer(ttl_ms=1_000 * HOUR_S))
    await topic.read_policy()
    await broker.upkeep.expire(topic)


async def by_a_request(broker: Broker, topic: Topic) -> None:
    server = AdminServer(broker)
    address = await server.start(Address("127.0.0.1", 0))
    name = topic.name
    path = f"{TOPICS}/{name.tenant}/{name.namespace}/{name.local}/subscription/s/expireMessages/{HOUR_S}"
    try:
        async with aiohttp.ClientSession() as session, session.post(f"http://{address}{path}") as answer:
            assert answer.status == 204
    finally:
        await server.stop()


def subscribe(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    return client.subscribe(
        topic, "s", is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest
    )


@pytest.mark.parametrize("expire", [by_ttl, by_a_request])
def test_what_was_compacted_is_received_while_no_message_of_the_topic_is_too_old(
    served: ServedBroker, client: pulsar.Client, expire: Expire
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE)
    compact(served, topic)
    drop_own_ledgers(served, topic)
    subscribe(client, topic).close()
    tail = ("k2", "tail")
    publish(client, topic, [tail])

    async def work() -> None:
        await expire(served.broker, served.topic(topic))

    served.call(work())
    consumer = subscribe(client, topic)
    assert keyed(receive(consumer, len(LEFT) + 1)) == [*LEFT, tail]
    consumer.close()
