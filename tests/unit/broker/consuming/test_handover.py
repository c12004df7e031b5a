"""A topic moves to another broker, or its broker restarts: subscriptions continue where they were, and a terminated topic has an end."""

from collections.abc import Iterator

import pulsar
import pytest
from daybook_broker.errors import ConsumerBusyError, NotReadyError
from daybook_broker.topics.topic import Topic
from pulsar import ConsumerType

from daybook.core.errors import DaybookError
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from tests.unit.bookie.server_kit import eventually
from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.consuming.kit import gets_nothing, numbers, publish, receive
from tests.unit.broker.kit import new_topic

pytestmark = pytest.mark.integration


@pytest.fixture
def second(cluster: LocalCluster) -> Iterator[ServedBroker]:
    """Another broker."""
    broker = ServedBroker(cluster).start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover])
def test_after_an_unload_consumers_continue_at_the_next_owner(
    served: ServedBroker, second: ServedBroker, client: pulsar.Client, kind: ConsumerType
) -> None:
    topic = f"persistent://public/moves-{kind.name.lower()}/{new_topic().rpartition('/')[2]}"
    consumer = client.subscribe(topic, "s", kind)
    publish(client, topic, range(10))
    for message in receive(consumer, 10):
        if int(message.data()) not in (4, 7):
            consumer.acknowledge(message)
    owner, other = (served, second) if served.serves(topic) else (second, served)
    acks = owner.subscription(topic, "s").acks
    assert eventually(lambda: acks.unacked_entries() == 2)  # the client sends acknowledgements now and then
    owner.call(owner.broker.ownership.unload(TopicName.parse(topic), other.broker.settings.broker_id))
    publish(client, topic, [10, 11])
    assert other.serves(topic)
    assert numbers(receive(consumer, 4)) == [4, 7, 10, 11]
    assert gets_nothing(consumer)
    consumer.close()


def refuse_once(served: ServedBroker, patch: pytest.MonkeyPatch, error: DaybookError) -> list[TopicName]:
    """The next client that comes is refused; the names that it asked for."""
    load, refused = served.broker.registry.load, list[TopicName]()

    async def refuse(name: TopicName, *, create: bool) -> Topic:
        if refused:
            return await load(name, create=create)
        refused.append(name)
        raise error

    patch.setattr(served.broker.registry, "load", refuse)
    return refused


def test_a_consumer_that_is_refused_while_its_topic_moves_subscribes_again(
    served: ServedBroker, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless CLOSE_CONSUMER follows the error, pulsar-client-cpp 3.13 waits until its operation times out."""
    topic = new_topic()
    refused = refuse_once(served, monkeypatch, NotReadyError("it moves"))
    consumer = client.subscribe(topic, "s")
    assert refused == [TopicName.parse(topic)]
    publish(client, topic, range(3))
    assert numbers(receive(consumer, 3)) == [0, 1, 2]
    consumer.close()


def test_a_consumer_that_is_refused_when_it_comes_back_tries_again(
    served: ServedBroker, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(3))
    assert numbers(receive(consumer, 3)) == [0, 1, 2]
    refused = refuse_once(served, monkeypatch, ConsumerBusyError("its former connection is still there"))

    async def send_away() -> None:
        served.subscription(topic, "s").disconnect()

    served.call(send_away())
    assert numbers(receive(consumer, 3)) == [0, 1, 2]
    assert refused == [TopicName.parse(topic)]
    consumer.close()


def test_a_consumer_continues_after_all_brokers_were_gone(cluster: LocalCluster) -> None:
    namespace = f"persistent://public/{new_topic().rpartition('/')[2]}"
    first = ServedBroker(cluster, address="127.0.0.1:0").start()
    client = first.client()
    consumer = client.subscribe(f"{namespace}/t", "s", ConsumerType.Shared)
    publish(client, f"{namespace}/t", range(6))
    for message in receive(consumer, 6)[::2]:
        consumer.acknowledge(message)
    client.close()
    first.stop()
    again = ServedBroker(cluster).start()
    client = again.client()
    consumer = client.subscribe(f"{namespace}/t", "s")
    assert numbers(receive(consumer, 3)) == [1, 3, 5]
    client.close()
    again.stop()


def test_the_end_of_a_terminated_topic_is_announced(served: ServedBroker, client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(3))
    served.call(served.topic(topic).terminate())
    with pytest.raises(pulsar.TopicTerminated):
        publish(client, topic, [3])
    assert numbers(receive(consumer, 3)) == [0, 1, 2]
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [int(reader.read_next(30_000).data()) for _ in range(3)] == [0, 1, 2]
    assert not reader.has_message_available()
    reader.close()
    consumer.close()
