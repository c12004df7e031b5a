"""A broker is killed while Pulsar's own client publishes: the other one takes its topics over, and nothing acknowledged is lost."""

import pytest

import daybook
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.metadata.bundles import BundleDirectory
from tests.fixtures.brokers import Brokers
from tests.unit.broker.kit import Publisher, in_order_once, new_topic, stored_contents

pytestmark = pytest.mark.integration


async def owner_of(client: daybook.Client, name: TopicName) -> str:
    owners = await BundleDirectory(client.store, client.layout).owners(name.tenant, name.namespace)
    return owners[Bundle.of(name)].broker


async def test_a_killed_brokers_topic_is_published_to_again(brokers: Brokers, client: daybook.Client) -> None:
    """How long that takes depends on the machine: tests/process/integration/test_slo_brokers.py measures it."""
    topic = new_topic()
    name = TopicName.parse(topic)
    publisher = Publisher(brokers.service_url, topic)
    publisher.start()
    await publisher.more(200)
    owner = await owner_of(client, name)
    brokers.kill(owner)
    await publisher.more(200)
    await publisher.stop()
    assert not publisher.failed
    assert await owner_of(client, name) != owner
    brokers.restart(owner)
    found = await stored_contents(client, name)
    assert in_order_once(found)[: len(publisher.acked)] == publisher.acked
