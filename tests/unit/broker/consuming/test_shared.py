"""Shared subscriptions through Pulsar's own client."""

import pulsar
import pytest
from pulsar import ConsumerType

from tests.unit.broker.consuming.conftest import UNACKED_MAX, ServedBroker
from tests.unit.broker.consuming.kit import LIMIT_MS, gets_nothing, numbers, publish, receive
from tests.unit.broker.kit import new_topic

pytestmark = pytest.mark.integration


def test_consumers_divide_the_messages(client: pulsar.Client) -> None:
    topic = new_topic()
    consumers = [client.subscribe(topic, "s", ConsumerType.Shared) for _ in range(2)]
    publish(client, topic, range(30))
    halves = [numbers(receive(consumer, 15)) for consumer in consumers]
    assert sorted(halves[0] + halves[1]) == list(range(30))
    assert halves == [sorted(half) for half in halves]
    for consumer in consumers:
        consumer.close()


def test_what_a_consumer_leaves_goes_to_the_other_in_order(client: pulsar.Client) -> None:
    topic = new_topic()
    first, second = (client.subscribe(topic, "s", ConsumerType.Shared) for _ in range(2))
    publish(client, topic, range(20))
    held, others = receive(first, 10), receive(second, 10)
    for message in others:
        second.acknowledge(message)
    first.acknowledge(held[4])
    first.close()
    again = receive(second, 9)
    assert numbers(again) == sorted(set(numbers(held)) - {int(held[4].data())})
    assert {message.redelivery_count() for message in again} == {0}
    second.close()


def test_negative_acknowledgements_come_again_and_are_counted(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=10)
    publish(client, topic, range(3))
    for message in receive(consumer, 3):
        if int(message.data()) == 1:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    for count in (1, 2, 3):
        message = consumer.receive(LIMIT_MS)
        assert (int(message.data()), message.redelivery_count()) == (1, count)
        consumer.negative_acknowledge(message)
    consumer.acknowledge(consumer.receive(LIMIT_MS))
    consumer.close()


def test_a_consumer_asks_for_all_that_it_has_again(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    publish(client, topic, range(5))
    consumer.acknowledge(receive(consumer, 5)[2])
    consumer.redeliver_unacknowledged_messages()
    again = receive(consumer, 4)
    assert numbers(again) == [0, 1, 3, 4]
    assert {message.redelivery_count() for message in again} == {1}
    consumer.close()


def test_a_dead_letter_topic_receives_what_comes_too_often(client: pulsar.Client) -> None:
    topic, dead = new_topic(), new_topic()
    letters = client.subscribe(dead, "s")
    policy = pulsar.ConsumerDeadLetterPolicy(2, dead, "first")
    consumer = client.subscribe(
        topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=10, dead_letter_policy=policy
    )
    publish(client, topic, [7])
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(LIMIT_MS))
    assert numbers(receive(letters, 1)) == [7]
    assert gets_nothing(consumer)
    consumer.close()
    letters.close()
    late = client.subscribe(dead, "first")
    assert numbers(receive(late, 1)) == [7], "the producer of letters made sure of this subscription"
    late.close()


def test_batches_are_divided_and_their_rest_comes_again(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", ConsumerType.Shared, batch_index_ack_enabled=True)
    publish(client, topic, range(30), batch=10)
    for message in receive(consumer, 30):
        if int(message.data()) not in (3, 14, 15):
            consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s", ConsumerType.Shared, batch_index_ack_enabled=True)
    assert numbers(receive(consumer, 3)) == [3, 14, 15]
    assert gets_nothing(consumer)
    consumer.close()


def test_a_consumer_that_acknowledges_nothing_is_blocked(client: pulsar.Client, served: ServedBroker) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    publish(client, topic, range(2 * UNACKED_MAX))
    messages = receive(consumer, UNACKED_MAX)
    assert gets_nothing(consumer)
    machine = served.subscription(topic, "s").machine
    assert machine is not None
    assert [each.is_blocked for each in machine.consumers.values()] == [True]
    for message in messages:
        consumer.acknowledge(message)
    assert numbers(receive(consumer, UNACKED_MAX)) == list(range(UNACKED_MAX, 2 * UNACKED_MAX))
    consumer.close()


def test_acknowledgements_after_a_reconnection_count(client: pulsar.Client, served: ServedBroker) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    publish(client, topic, range(2))
    messages = receive(consumer, 2)

    async def disconnect() -> None:
        served.subscription(topic, "s").disconnect()

    served.call(disconnect())
    again = receive(consumer, 2)
    assert numbers(again) == [0, 1]
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    assert gets_nothing(consumer)
    consumer.close()


def test_thousands_of_messages_reach_one_of_many_consumers_once(client: pulsar.Client) -> None:
    topic = new_topic()
    consumers = [client.subscribe(topic, "s", ConsumerType.Shared, receiver_queue_size=50) for _ in range(5)]
    publish(client, topic, range(2_000), batch=4)
    found: list[int] = []
    while len(found) < 2_000:
        for consumer in consumers:
            try:
                while True:
                    message = consumer.receive(20)
                    consumer.acknowledge(message)
                    found.append(int(message.data()))
            except pulsar.Timeout:
                pass
    assert sorted(found) == list(range(2_000))
    for consumer in consumers:
        consumer.close()


def test_all_chunks_of_a_message_go_to_one_consumer(client: pulsar.Client) -> None:
    topic = new_topic()
    consumers = [client.subscribe(topic, "s", ConsumerType.Shared) for _ in range(2)]
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    sent = [bytes([number]) * 6_000_000 for number in range(4)]
    for message in sent:
        producer.send(message)
    found = []
    for consumer in consumers:
        for message in receive(consumer, 2):
            found.append(message.data())
            consumer.acknowledge(message)
        assert gets_nothing(consumer)
    assert sorted(found) == sent
    for consumer in consumers:
        consumer.close()
