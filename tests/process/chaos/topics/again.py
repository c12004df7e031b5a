"""What a subscription has acknowledged for good, it never receives again.

While brokers fail, a message may come twice: it was not acknowledged, or the acknowledgement was lost with a connection, or with an owner that
had not persisted it (rule 40). No client can see which of them it was. So this is judged when the faults are over and nobody publishes:
each subscription acknowledges what its owner says is left, an unload hands the topic over, which persists that, and the next owner dies.
What a consumer receives after that must be new.
"""

import json
import time
import urllib.request
from typing import Any, Final

import pulsar

from tests.process.chaos.topics.judge import Received, TopicHistory
from tests.process.chaos.topics.load import ANSWER_S, RECEIVE_MS, message_of

NEW: Final = b"new"
ADMIN_S: Final = 30.0


def stats_of(admin: str, topic: str) -> dict[str, Any]:
    """What the owner says of a topic, by any broker's admin address."""
    path = topic.replace("://", "/")
    with urllib.request.urlopen(f"{admin}/admin/v2/{path}/stats", timeout=ADMIN_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def acknowledge_all(
    client: pulsar.Client, history: TopicHistory, received: Received, kind: pulsar.ConsumerType, admin: str
) -> None:
    """Receive and acknowledge until nothing is left. Raises AssertionError if that does not end."""
    consumer = client.subscribe(history.topic, received.name, consumer_type=kind)
    ends_at = time.monotonic() + ANSWER_S
    while left := stats_of(admin, history.topic)["subscriptions"][received.name]["msgBacklog"]:
        assert time.monotonic() < ends_at, f"{received.name} of {history.topic} still has {left} entries"
        try:
            found = consumer.receive(RECEIVE_MS)
        except pulsar.Timeout:
            continue
        received.messages.append(message_of(found, history))
        consumer.acknowledge(found)
    consumer.close()


def publish_new(client: pulsar.Client, topic: str) -> None:
    """Publish one message that nobody has received."""
    producer = client.create_producer(topic)
    producer.send(NEW)
    producer.close()


def receive_new(
    client: pulsar.Client, history: TopicHistory, received: Received, kind: pulsar.ConsumerType
) -> None:
    """Receive until the new message comes; what comes before it is noted for the judge."""
    consumer = client.subscribe(history.topic, received.name, consumer_type=kind)
    while (found := consumer.receive(int(1000 * ANSWER_S))).data() != NEW:
        received.again.append(message_of(found, history))
    consumer.close()
