"""Exclusive subscriptions through Pulsar's own client."""

import pulsar
import pytest

from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.consuming.kit import gets_nothing, numbers, publish, receive
from tests.unit.broker.kit import new_topic

pytestmark = pytest.mark.integration


def test_messages_come_in_order_from_the_earliest_position(client: pulsar.Client) -> None:
    topic = new_topic()
    publish(client, topic, range(10))
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    publish(client, topic, range(10, 20))
    messages = receive(consumer, 20)
    assert numbers(messages) == list(range(20))
    assert all(message.redelivery_count() == 0 for message in messages)
    consumer.close()


def test_a_new_subscription_begins_with_what_comes(client: pulsar.Client) -> None:
    topic = new_topic()
    publish(client, topic, range(3))
    consumer = client.subscribe(topic, "s")
    publish(client, topic, [3])
    assert numbers(receive(consumer, 1)) == [3]
    consumer.close()


def test_what_is_not_acknowledged_comes_again_and_holes_are_kept(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(6))
    for message in receive(consumer, 6):
        if int(message.data()) in (0, 1, 3, 4):
            consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert numbers(receive(consumer, 2)) == [2, 5]
    assert gets_nothing(consumer)
    consumer.close()


def test_a_cumulative_acknowledgement_covers_what_is_before_it(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(6))
    consumer.acknowledge_cumulative(receive(consumer, 6)[3])
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert numbers(receive(consumer, 2)) == [4, 5]
    consumer.close()


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_a_cumulative_acknowledgement_within_the_first_batch_of_a_ledger_leaves_all_of_it(
    client: pulsar.Client, kind: pulsar.ConsumerType
) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    publish(client, topic, range(30), batch=10)
    consumer.acknowledge_cumulative(receive(consumer, 30)[4])
    consumer.close()
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    assert numbers(receive(consumer, 30)) == list(range(30))
    consumer.close()


def test_a_second_consumer_is_refused_until_the_first_one_leaves(client: pulsar.Client) -> None:
    topic = new_topic()
    first = client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    other = client.subscribe(topic, "other")
    first.close()
    second = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    publish(client, topic, range(2))
    assert numbers(receive(second, 2)) == numbers(receive(other, 2)) == [0, 1]
    second.close()
    other.close()


def test_batches_come_message_by_message(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", receiver_queue_size=7)
    publish(client, topic, range(100), batch=10)
    messages = receive(consumer, 100)
    assert numbers(messages) == list(range(100))
    assert len({(each.message_id().ledger_id(), each.message_id().entry_id()) for each in messages}) == 10
    consumer.close()


def test_with_batch_index_acknowledgements_only_the_rest_of_a_batch_comes_again(
    client: pulsar.Client,
) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    publish(client, topic, range(20), batch=10)
    for message in receive(consumer, 20):
        if int(message.data()) % 3:
            consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    rest = receive(consumer, 7)
    assert numbers(rest) == [0, 3, 6, 9, 12, 15, 18]
    consumer.acknowledge_cumulative(rest[4])
    consumer.close()
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert numbers(receive(consumer, 2)) == [15, 18]
    consumer.close()


def test_redelivery_is_asked_for_by_the_consumer(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(5))
    messages = receive(consumer, 5)
    consumer.acknowledge(messages[1])
    consumer.redeliver_unacknowledged_messages()
    assert numbers(receive(consumer, 4)) == [0, 2, 3, 4]
    consumer.close()


@pytest.mark.parametrize("queue", [0, 1, 3])
def test_a_small_queue_receives_everything(client: pulsar.Client, queue: int) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", receiver_queue_size=queue)
    publish(client, topic, range(10))
    found = []
    for _ in range(10):
        message = consumer.receive() if queue == 0 else consumer.receive(30_000)
        consumer.acknowledge(message)
        found.append(int(message.data()))
    assert found == list(range(10))
    consumer.close()


def test_compressed_messages_and_chunks_pass_as_they_are(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, compression_type=pulsar.CompressionType.ZLib)
    producer.send(b"a" * 100_000)
    producer.close()
    chunked = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    payload = bytes(range(256)) * 45_000
    chunked.send(payload, properties={"k": "v"})
    assert consumer.receive(30_000).data() == b"a" * 100_000
    message = consumer.receive(30_000)
    assert message.data() == payload
    assert message.properties() == {"k": "v"}
    consumer.acknowledge(message)
    chunked.close()
    consumer.close()


def test_a_deleted_subscription_begins_anew(client: pulsar.Client, served: ServedBroker) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(3))
    receive(consumer, 3)
    consumer.unsubscribe()
    assert served.topic(topic).subscriptions.all() == []
    assert served.call(served.broker.topics.cursors(served.topic(topic).name)) == ()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, [3])
    assert numbers(receive(consumer, 1)) == [3]
    consumer.close()


def test_a_backlog_is_read_from_the_bookies(client: pulsar.Client, served: ServedBroker) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    consumer.close()
    publish(client, topic, range(5_000), batch=50)
    consumer = client.subscribe(topic, "s")
    assert numbers(receive(consumer, 5_000)) == list(range(5_000))
    consumer.close()


def test_several_subscriptions_are_independent(client: pulsar.Client) -> None:
    topic = new_topic()
    consumers = [client.subscribe(topic, f"s{n}") for n in range(10)]
    publish(client, topic, range(20), batch=5)
    for consumer in consumers:
        assert numbers(receive(consumer, 20)) == list(range(20))
        consumer.close()
