"""Failover subscriptions through Pulsar's own client."""

import pulsar
import pytest
from pulsar import ConsumerType

from daybook.core.topics.dispatch.single import SingleDispatch
from tests.unit.bookie.server_kit import eventually
from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.consuming.kit import gets_nothing, numbers, publish, receive
from tests.unit.broker.kit import new_topic

pytestmark = pytest.mark.integration


def active(served: ServedBroker, topic: str) -> str:
    """The name of the active consumer; empty if there is none."""
    machine = served.subscription(topic, "s").machine
    assert isinstance(machine, SingleDispatch)
    return "" if machine.active is None else machine.active.name


def test_one_consumer_receives_and_the_next_one_continues_after_it(
    client: pulsar.Client, served: ServedBroker
) -> None:
    topic = new_topic()
    consumers = {"only": client.subscribe(topic, "s", ConsumerType.Failover, consumer_name="only")}
    publish(client, topic, range(6))
    first = receive(consumers["only"], 6)
    for message in first[:3]:
        consumers["only"].acknowledge(message)
    consumers["later"] = client.subscribe(topic, "s", ConsumerType.Failover, consumer_name="later")
    consumers["only"].close()
    assert active(served, topic) == "later"
    assert numbers(receive(consumers["later"], 3)) == [3, 4, 5]
    consumers["later"].close()


def test_whoever_is_not_active_receives_nothing(client: pulsar.Client, served: ServedBroker) -> None:
    topic = new_topic()
    names = ["a", "b", "c"]
    consumers = {
        name: client.subscribe(topic, "s", ConsumerType.Failover, consumer_name=name) for name in names
    }
    machine = served.subscription(topic, "s").machine
    assert isinstance(machine, SingleDispatch)
    assert eventually(lambda: machine.active is not None)
    best = consumers.pop(active(served, topic))
    publish(client, topic, range(5))
    assert numbers(receive(best, 5)) == list(range(5))
    assert all(gets_nothing(consumer) for consumer in consumers.values())
    best.close()
    for consumer in consumers.values():
        consumer.close()


def test_order_holds_over_many_switches(client: pulsar.Client, served: ServedBroker) -> None:
    topic = new_topic()
    publish_count, found = 60, []
    client.subscribe(topic, "s", ConsumerType.Failover, consumer_name="x").close()
    publish(client, topic, range(publish_count), batch=2)
    for turn in range(6):
        consumer = client.subscribe(topic, "s", ConsumerType.Failover, consumer_name=f"c{turn}")
        for message in receive(consumer, 10):
            consumer.acknowledge_cumulative(message)
            found.append(int(message.data()))
        consumer.close()
    assert found == list(range(publish_count))
