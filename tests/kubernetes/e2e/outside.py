"""A client of topics on a machine outside the cluster: `outside SERVICE_URL LISTENER POD_ADDRESS …`.

It makes sure that it reaches no pod, then publishes to several topics, so that several brokers own them, and consumes what it
published. It prints one line of JSON; an error is its exit code and standard error.
"""

import json
import socket
import sys
import time
import uuid
from typing import Final

import pulsar

TOPICS: Final = 6
MESSAGES: Final = 25
"""To each topic."""
ANSWER_S: Final = 60
CONNECT_S: Final = 2.0
BROKER_PORT: Final = 6650


def main() -> None:
    """Publish and consume."""
    service_url, listener, *pods = sys.argv[1:]
    for pod in pods:
        if reaches(pod):
            sys.exit(f"the pod {pod} is reached from here: this is not outside the cluster")
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, "/dev/stderr")
    client = pulsar.Client(
        service_url, listener_name=listener, operation_timeout_seconds=ANSWER_S, logger=logger
    )
    run, first_s = uuid.uuid4().hex[:8], 0.0
    began = time.monotonic()
    for number in range(TOPICS):
        topic = f"persistent://public/default/outside-{run}-{number}"
        consumer = client.subscribe(topic, "outside")
        producer = client.create_producer(topic)
        sent = [f"{topic} {index}".encode() for index in range(MESSAGES)]
        for data in sent:
            producer.send(data)
            first_s = first_s or time.monotonic() - began
        received = [consumer.receive(1000 * ANSWER_S) for _ in sent]
        if [each.data() for each in received] != sent:
            sys.exit(f"{topic} has not what was published to it")
        for each in received:
            consumer.acknowledge(each)
    client.close()
    print(json.dumps({"topics": TOPICS, "messages": TOPICS * MESSAGES, "first_s": first_s}))


def reaches(address: str) -> bool:
    """Whether the broker's port of a pod is reached."""
    try:
        socket.create_connection((address, BROKER_PORT), CONNECT_S).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
