"""Producers and consumers of topics that run all along, over the unmodified client of Pulsar; `judge` says in the end whether anything was lost or reordered.

A process of its own in the cluster's network. `publish` waits until each topic has acknowledged something that was sent after the
command and says how long that took; `gap` says for how long a topic was without receipts at most since it was asked last; `consumed` waits until every
subscription has received something; `topics` names the topics, and `owner` the pod that serves the first one, if a broker can say; `judge` ends everything. The names of the topics are of this process alone. Each answer is one line of JSON.
"""

import json
import sys
import threading
import time
import urllib.request
import uuid
from typing import Any, Final
from urllib.parse import urlsplit

import pulsar

from tests.process.chaos.topics.judge import Received, TopicHistory
from tests.process.chaos.topics.load import OPERATION_S, Consuming, Producing, Worker, read_back

RUN: Final = uuid.uuid4().hex[:8]
ORDERED: Final = f"persistent://public/default/ordered-{RUN}"
SPREAD: Final = f"persistent://public/default/spread-{RUN}"
TOPICS: Final = {
    ORDERED: (
        ("exclusive", pulsar.ConsumerType.Exclusive, 1),
        ("failover", pulsar.ConsumerType.Failover, 2),
    ),
    SPREAD: (("shared", pulsar.ConsumerType.Shared, 2),),
}
PAUSE_S: Final = 0.05
"""Between the messages of a producer: the machine has a cluster to run."""
SAMPLE_S: Final = 0.02
PATIENCE_S: Final = 120.0
LOOKUP_S: Final = 40.0
"""A lookup is held while a topic changes its owner."""
PRODUCERS: Final = (
    {"batches": False, "is_keyed": False},
    {"batches": True, "is_keyed": False},
    {"batches": True, "is_keyed": True},
)
"""Of each topic."""


class Receipts:
    """When each topic acknowledged something, as a thread of its own sees it."""

    def __init__(self, histories: list[TopicHistory]) -> None:
        """Watch from now on."""
        self._histories = histories
        self._gap_s = 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="receipts", daemon=True).start()

    def _watch(self) -> None:
        seen = [(0, time.monotonic()) for _ in self._histories]
        while True:
            time.sleep(SAMPLE_S)
            now = time.monotonic()
            for number, history in enumerate(self._histories):
                count, since = seen[number]
                with self._lock:
                    self._gap_s = max(self._gap_s, now - since)
                if len(history.receipts) > count:
                    seen[number] = (len(history.receipts), now)

    def take_gap_s(self) -> float:
        """The longest time that a topic was without a receipt, since this was asked last."""
        with self._lock:
            found, self._gap_s = self._gap_s, 0.0
        return found

    def wait(self) -> float | None:
        """Seconds until each topic has a receipt of a message that was sent after this call; None: too long."""
        began = time.monotonic()
        sent = [dict(history.sent) for history in self._histories]
        for history, before in zip(self._histories, sent, strict=True):
            while not any(
                message.number >= before.get(message.producer, 0) for message in list(history.receipts)[-50:]
            ):
                if time.monotonic() > began + PATIENCE_S:
                    return None
                time.sleep(SAMPLE_S)
        return time.monotonic() - began


class Load:
    """All producers and consumers, and what happened to them."""

    def __init__(self, service_url: str) -> None:
        """Begin."""
        self._service_url = service_url
        self._histories = [TopicHistory(topic) for topic in TOPICS]
        self._producing: list[Producing] = []
        consuming: list[Consuming] = []
        for number, history in enumerate(self._histories):
            self._producing += [
                Producing(f"producer-{number}-{n}", self._client, history, pause_s=PAUSE_S, **how)
                for n, how in enumerate(PRODUCERS)
            ]
            for name, kind, count in TOPICS[history.topic]:
                received, lock = Received(name, kind != pulsar.ConsumerType.Shared), threading.Lock()
                history.received.append(received)
                consuming += [Consuming(self._client, history, received, kind, lock) for _ in range(count)]
        self._producers = [Worker(each.name, each.work) for each in self._producing]
        self._consumers = [Worker(each.name, each.work) for each in consuming]
        self.receipts = Receipts(self._histories)

    def _client(self) -> pulsar.Client:
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr")
        return pulsar.Client(self._service_url, operation_timeout_seconds=OPERATION_S, logger=logger)

    def wait_until_consumed(self) -> bool:
        """Return once every subscription has received a message; False: it takes too long."""
        began = time.monotonic()
        while not all(each.messages for history in self._histories for each in history.received):
            if time.monotonic() > began + PATIENCE_S:
                return False
            time.sleep(SAMPLE_S)
        return True

    def judge(self) -> dict[str, Any]:
        """End everything; what came of it, and what is wrong with it."""
        violations: list[str] = []
        for workers in (self._producers, self._consumers):
            violations += [wrong for worker in workers if (wrong := worker.join())]
        violations += [f"not acknowledged: {each}" for one in self._producing for each in one.failed[:5]]
        client = self._client()
        for history in self._histories:
            read_back(client, history)
            violations += history.judge()
        client.close()
        return {
            "violations": violations,
            "acknowledged": sum(len(history.receipts) for history in self._histories),
            "received": sum(len(each.messages) for history in self._histories for each in history.received),
            "duplicates": sum(history.duplicates for history in self._histories),
        }


def owner(service_url: str, topic: str) -> str | None:
    """The pod that serves the topic, by the lookup that Pulsar has over HTTP; None if no broker can say it now."""
    host = urlsplit(service_url).hostname
    path = topic.replace("://", "/")
    try:
        with urllib.request.urlopen(f"http://{host}:8080/lookup/v2/topic/{path}", timeout=LOOKUP_S) as answer:
            found = urlsplit(json.load(answer)["brokerUrl"]).hostname
    except OSError as error:
        print(f"lookup: {error}", file=sys.stderr, flush=True)
        return None
    return str(found).partition(".")[0]


def main() -> None:
    """`topics SERVICE_URL`."""
    (service_url,) = sys.argv[1:]
    load = Load(service_url)
    print(json.dumps({"started": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(load, service_url, line.split())), flush=True)


def answer(load: Load, service_url: str, command: list[str]) -> Any:
    """Carry out a command."""
    match command:
        case ["publish"]:
            return load.receipts.wait()
        case ["gap"]:
            return load.receipts.take_gap_s()
        case ["consumed"]:
            return load.wait_until_consumed()
        case ["topics"]:
            return list(TOPICS)
        case ["owner"]:
            return owner(service_url, ORDERED)
        case ["judge"]:
            return load.judge()
    raise ValueError(f"no such command: {command}")


if __name__ == "__main__":
    main()
