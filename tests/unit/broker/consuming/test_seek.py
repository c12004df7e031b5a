"""Seeks, readers and the last message's id, through Pulsar's own client."""

import time

import pulsar
import pytest

from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.consuming.kit import LIMIT_MS, gets_nothing, numbers, publish, receive
from tests.unit.broker.kit import new_topic

pytestmark = pytest.mark.integration


def read(reader: pulsar.Reader, count: int) -> list[int]:
    return [int(reader.read_next(LIMIT_MS).data()) for _ in range(count)]


def test_a_seek_to_a_message_begins_with_it_or_behind_it(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    ids = publish(client, topic, range(6))
    for message in receive(consumer, 6):
        consumer.acknowledge(message)
    consumer.seek(ids[2])
    rest = numbers(receive(consumer, 3))
    assert rest in ([3, 4, 5], [2, 3, 4])
    consumer.close()


def test_a_seek_to_the_beginning_and_to_the_end(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(4))
    receive(consumer, 4)
    consumer.seek(pulsar.MessageId.earliest)
    assert numbers(receive(consumer, 4)) == [0, 1, 2, 3]
    consumer.seek(pulsar.MessageId.latest)
    assert gets_nothing(consumer)
    publish(client, topic, [4])
    assert numbers(receive(consumer, 1)) == [4]
    consumer.close()


def test_a_seek_to_a_time(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(4))
    times = [message.publish_timestamp() for message in receive(consumer, 4)]
    between = times[-1] + 1
    while time.time() * 1000 <= between + 1:
        pass
    publish(client, topic, range(4, 8))
    receive(consumer, 4)
    consumer.seek(between)
    assert numbers(receive(consumer, 4)) == [4, 5, 6, 7]
    consumer.seek(times[0])
    assert numbers(receive(consumer, 8)) == list(range(8))
    consumer.close()


def test_a_seek_within_a_batch(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    ids = publish(client, topic, range(10), batch=5)
    receive(consumer, 10)
    consumer.seek(ids[7])
    assert numbers(receive(consumer, 1))[0] in (7, 8)
    consumer.close()


def test_a_seek_moves_the_stored_cursor(client: pulsar.Client, served: ServedBroker) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    publish(client, topic, range(4))
    consumer.acknowledge_cumulative(receive(consumer, 4)[-1])
    consumer.seek(pulsar.MessageId.earliest)
    subscription = served.subscription(topic, "s")
    assert subscription.acks.unacked_entries() == 4
    consumer.close()


def test_a_reader_begins_where_it_says(client: pulsar.Client) -> None:
    topic = new_topic()
    ids = publish(client, topic, range(6))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read(reader, 6) == list(range(6))
    assert not reader.has_message_available()
    publish(client, topic, [6])
    assert reader.has_message_available()
    assert read(reader, 1) == [6]
    reader.close()
    reader = client.create_reader(topic, ids[2])
    assert read(reader, 4) == [3, 4, 5, 6]
    reader.close()
    reader = client.create_reader(topic, ids[2], start_message_id_inclusive=True)
    assert read(reader, 5) == [2, 3, 4, 5, 6]
    reader.close()
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    assert not reader.has_message_available()
    publish(client, topic, [7])
    assert read(reader, 1) == [7]
    reader.close()


def test_a_reader_begins_within_a_batch(client: pulsar.Client) -> None:
    topic = new_topic()
    ids = publish(client, topic, range(10), batch=5)
    reader = client.create_reader(topic, ids[6])
    assert read(reader, 3) == [7, 8, 9]
    assert not reader.has_message_available()
    reader.close()


def test_a_reader_seeks(client: pulsar.Client) -> None:
    topic = new_topic()
    ids = publish(client, topic, range(6))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    read(reader, 6)
    reader.seek(ids[1])
    assert read(reader, 4) == [2, 3, 4, 5]
    reader.seek(pulsar.MessageId.earliest)
    assert read(reader, 6) == list(range(6))
    reader.seek(0)
    assert read(reader, 2) == [0, 1]
    reader.close()


def test_the_subscription_of_a_reader_ends_with_it(client: pulsar.Client, served: ServedBroker) -> None:
    topic = new_topic()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [each.is_durable for each in served.topic(topic).subscriptions.all()] == [False]
    assert served.topic(topic).subscriptions.marks() == ()
    reader.close()
    assert served.topic(topic).subscriptions.all() == []


def test_the_last_message_has_an_id(client: pulsar.Client) -> None:
    topic = new_topic()
    consumer = client.subscribe(topic, "s")
    assert consumer.get_last_message_id().entry_id() == -1
    ids = publish(client, topic, range(3))
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id(), last.batch_index()) == (ids[2].ledger_id(), 2, -1)
    publish(client, topic, range(5), batch=5)
    last = consumer.get_last_message_id()
    assert (last.entry_id(), last.batch_index()) == (3, 4)
    consumer.close()
