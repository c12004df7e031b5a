"""Consumers of partitioned topics, of several topics and of all topics with a pattern; and listeners."""

import re
import threading
from functools import partial

import pulsar
import pytest
from pulsar import ConsumerType

from daybook.core.topics.dispatch.single import SingleDispatch
from daybook.core.topics.name import TopicName
from tests.unit.bookie.server_kit import eventually
from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.consuming.kit import numbers, publish, receive
from tests.unit.broker.kit import LIMIT_S, new_topic

pytestmark = pytest.mark.integration


def is_active(served: ServedBroker, topic: str, name: str) -> bool:
    """Whether the consumer with this name receives the messages of the topic."""
    machine = served.subscription(topic, "s").machine
    assert isinstance(machine, SingleDispatch)
    return machine.active is not None and machine.active.name == name


@pytest.fixture
def partitioned(served: ServedBroker) -> str:
    """A topic of three partitions."""
    topic = new_topic()
    served.call(served.broker.partitions.create(TopicName.parse(topic), 3))
    return topic


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover])
def test_a_consumer_of_a_partitioned_topic_receives_all_partitions(
    client: pulsar.Client, partitioned: str, kind: ConsumerType
) -> None:
    consumer = client.subscribe(partitioned, "s", kind)
    publish(client, partitioned, range(30))
    messages = receive(consumer, 30)
    assert sorted(numbers(messages)) == list(range(30))
    assert {message.message_id().partition() for message in messages} == {0, 1, 2}
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()


def test_the_consumers_of_a_failover_subscription_share_the_partitions(
    client: pulsar.Client, served: ServedBroker, partitioned: str
) -> None:
    lock = threading.Lock()
    found: dict[str, set[int]] = {name: set() for name in "abc"}
    count = threading.Semaphore(0)

    def listener(name: str) -> object:
        def take(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
            consumer.acknowledge(message)
            with lock:
                found[name].add(message.message_id().partition())
            count.release()

        return take

    consumers = [
        client.subscribe(
            partitioned, "s", ConsumerType.Failover, consumer_name=name, message_listener=listener(name)
        )
        for name in found
    ]
    for number, name in enumerate("abc"):
        partition = f"{partitioned}-partition-{number}"
        assert eventually(partial(is_active, served, partition, name))
    publish(client, partitioned, range(60))
    for _ in range(60):
        assert count.acquire(timeout=LIMIT_S)
    assert found == {"a": {0}, "b": {1}, "c": {2}}
    for consumer in consumers:
        consumer.close()


def test_a_consumer_of_several_topics_and_one_of_a_pattern(client: pulsar.Client) -> None:
    name = new_topic().rpartition("/")[2]
    topics = [f"persistent://public/default/{name}-{number}" for number in range(3)]
    several = client.subscribe(topics, "several")
    for number, topic in enumerate(topics):
        publish(client, topic, [number])
    assert sorted(numbers(receive(several, 3))) == [0, 1, 2]
    several.close()
    pattern = re.compile(f"persistent://public/default/{name}-[01]")
    consumer = client.subscribe(pattern, "pattern", initial_position=pulsar.InitialPosition.Earliest)
    assert sorted(numbers(receive(consumer, 2))) == [0, 1]
    consumer.close()
