"""Producers and consumers over Pulsar's own client, each in a thread of its own, that record what they see.

Each has a client of its own, as applications in processes of their own would: a connection that is lost harms one of them.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import pulsar

from tests.process.chaos.topics.judge import Message, Place, Received, TopicHistory

PAD: Final = b"." * 200
PAUSE_S: Final = 0.004
"""Between the messages of a producer."""
KEYS: Final = 7
RECEIVE_MS: Final = 500
ANSWER_S: Final = 60.0
"""How long receipts, and what subscriptions lack, may take once the faults are over."""
OPERATION_S: Final = 60

MakeClient = Callable[[], pulsar.Client]


def place_of(message_id: pulsar.MessageId) -> Place:
    """Where a message is."""
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def key_of(message: Message) -> str:
    """The key that a producer with keys gives a message."""
    return f"{message.producer}-{message.number % KEYS}"


def message_of(found: pulsar.Message, history: TopicHistory) -> Message:
    """What the bytes of a message say; its key must be the one that it was sent with."""
    name, number, pad = found.data().split(b" ", 2)
    assert pad == PAD, f"the bytes of {name!r} #{number!r} are not what was sent"
    message = Message(name.decode(), int(number))
    key = key_of(message) if message.producer in history.keyed else ""
    assert found.partition_key() == key, f"{message} has the key {found.partition_key()!r}, not {key!r}"
    return message


class Worker:
    """A thread whose error is an error of the run."""

    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        """`work` gets the event that asks it to end."""
        self._name = name
        self._work = work
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def join(self) -> str | None:
        """Wait for the end; what went wrong, in words."""
        self._stop.set()
        self._thread.join(3 * ANSWER_S)
        if self._thread.is_alive():
            return f"{self._name} does not end"
        return None if self._error is None else f"{self._name} failed: {self._error!r}"

    def _run(self) -> None:
        try:
            self._work(self._stop)
        except BaseException as error:  # noqa: BLE001 - whatever it is, join reports it
            self._error = error


class Producing:
    """Publishes to a topic, without waiting for receipts."""

    def __init__(
        self,
        name: str,
        make_client: MakeClient,
        history: TopicHistory,
        *,
        batches: bool,
        is_keyed: bool = False,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.name = name
        if is_keyed:
            history.keyed.add(name)
        self._pause_s = pause_s
        self._make_client = make_client
        self._history = history
        self._batches = batches
        self.failed: list[str] = []

    def work(self, stop: threading.Event) -> None:
        """Send at a steady rate until `stop`; then wait for every receipt."""
        client = self._make_client()
        producer = client.create_producer(
            self._history.topic,
            batching_enabled=self._batches,
            batching_max_publish_delay_ms=5,
            block_if_queue_full=True,
            max_pending_messages=2000,
            send_timeout_millis=0,
        )
        while not stop.wait(self._pause_s):
            number = self._history.sent[self.name]
            self._history.sent[self.name] = number + 1
            message = Message(self.name, number)
            producer.send_async(
                b"%s %d %s" % (self.name.encode(), number, PAD),
                self._answer(message),
                partition_key=key_of(message) if self.name in self._history.keyed else None,
            )
        producer.flush()
        client.close()

    def _answer(self, message: Message) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
        def answered(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                self._history.receipts[message] = place_of(message_id)
            else:
                self.failed.append(f"{message}: {result}")

        return answered


class Consuming:
    """Consumes a subscription and acknowledges what it receives, until it has everything that was acknowledged to producers."""

    def __init__(
        self,
        make_client: MakeClient,
        history: TopicHistory,
        received: Received,
        kind: pulsar.ConsumerType,
        lock: threading.Lock,
    ) -> None:
        """`received` and its `lock` are shared by the consumers of a subscription."""
        self.name = f"a consumer of {received.name}"
        self._make_client = make_client
        self._history = history
        self._received = received
        self._kind = kind
        self._lock = lock

    def work(self, stop: threading.Event) -> None:
        """Receive; after `stop` until nothing is missing, or too long."""
        client = self._make_client()
        consumer = client.subscribe(
            self._history.topic,
            self._received.name,
            consumer_type=self._kind,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        ends_at = float("inf")
        while time.monotonic() < ends_at:
            try:
                found = consumer.receive(RECEIVE_MS)
            except pulsar.Timeout:
                if stop.is_set():
                    ends_at = min(ends_at, time.monotonic() + ANSWER_S)
                    if self._has_all():
                        break
                continue
            with self._lock:
                self._received.messages.append(message_of(found, self._history))
            consumer.acknowledge(found)
        client.close()

    def _has_all(self) -> bool:
        with self._lock:
            seen = set(self._received.messages)
        return all(message in seen for message in list(self._history.receipts))


def read_back(client: pulsar.Client, history: TopicHistory) -> None:
    """Read the whole topic."""
    reader = client.create_reader(history.topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        found = reader.read_next(int(1000 * ANSWER_S))
        history.stored[place_of(found.message_id())] = message_of(found, history)
    reader.close()
