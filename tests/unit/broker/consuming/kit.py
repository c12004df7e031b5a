"""What tests of consumers do again and again."""

from collections.abc import Iterable, Sequence

import pulsar

LIMIT_MS = 60_000
"""A limit on failure, never a wait."""
NOTHING_MS = 150
"""How long a test looks whether something comes that must not come: it passes also on a machine that is too slow to send it."""


def publish(
    client: pulsar.Client, topic: str, messages: Iterable[object], *, batch: int = 0
) -> list[pulsar.MessageId]:
    """Publish messages, `batch` of them as one entry where it is given; their ids."""
    texts = [str(message).encode() for message in messages]
    if not batch:
        producer = client.create_producer(topic, batching_enabled=False)
        ids = [producer.send(text) for text in texts]
    else:
        producer = client.create_producer(
            topic, batching_enabled=True, batching_max_messages=batch, batching_max_publish_delay_ms=10_000
        )
        found: list[pulsar.MessageId] = []
        for start in range(0, len(texts), batch):
            for text in texts[start : start + batch]:
                producer.send_async(text, lambda _, message_id: found.append(message_id))
            producer.flush()
        ids = found
    producer.close()
    return ids


def receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    """The next messages."""
    return [consumer.receive(LIMIT_MS) for _ in range(count)]


def texts(messages: Sequence[pulsar.Message]) -> list[str]:
    """What is in them."""
    return [message.data().decode() for message in messages]


def numbers(messages: Sequence[pulsar.Message]) -> list[int]:
    """The numbers in them."""
    return [int(text) for text in texts(messages)]


def gets_nothing(consumer: pulsar.Consumer) -> bool:
    """Whether no message comes."""
    try:
        consumer.receive(NOTHING_MS)
    except pulsar.Timeout:
        return True
    return False
