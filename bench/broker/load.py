"""A client process of the bench of brokers: `python -m bench.broker.load URL JSON`; it prints one line of JSON.

The client is PyPI's `pulsar-client`, unmodified, with the settings of a producer that is after throughput: batches of at most 128 KiB
that wait for at most 1 ms. Where there is a rate, latency counts from the moment at which a message was due, so a client that stalls,
or whose queue is full, makes those late that it has not sent yet.
"""

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Final

import pulsar

PATIENCE_S: Final = 120
RECEIVE_MS: Final = 30_000
OPENERS: Final = 16
"""How many producers are opened at a time."""
BATCHES: Final[Mapping[str, Any]] = {
    "batching_enabled": True,
    "batching_max_messages": 1000,
    "batching_max_allowed_size_in_bytes": 128 << 10,
    "batching_max_publish_delay_ms": 1,
    "block_if_queue_full": True,
    "max_pending_messages": 20_000,
    "compression_type": pulsar.CompressionType.NONE,
}
SINGLY: Final[Mapping[str, Any]] = {"batching_enabled": False, "block_if_queue_full": True}
STAMP_BYTES: Final = 20
TICKS_PER_S: Final = 1_000
"""How often a client that sends to many topics looks at the clock. At each message, 10,000 times a second, that takes a tenth of a core, which brokers then lack."""


class LoadError(Exception):
    """A broker refused something or did not answer in time."""


@cache
def keep_thread_state(_thread: int) -> None:
    """Have the thread that calls this from a callback of the client keep its thread state in Python.

    Otherwise each callback makes one and drops it, in four system calls on CPython 3.14 (mmap and munmap among them): 10,000 callbacks a
    second then took an eighth of a core, which brokers on the same cores lack. For rows at a rate; what is after throughput has the client as it is.
    """
    ctypes.pythonapi.PyGILState_Ensure()  # and no release


class Outstanding:
    """Counts the messages that have no receipt yet."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._errors: list[Any] = []
        self._over = threading.Event()
        self.seconds: list[float] = []
        """How long each took that has a moment at which it was due."""

    def answered(self, result: Any, _id: Any) -> None:
        """The callback of `send_async`."""
        if result != pulsar.Result.Ok:
            self._errors.append(result)
        self._left -= 1
        if not self._left:
            self._over.set()

    def timed(self, due: float, result: Any, message_id: Any) -> None:
        """The same for a message that was due at this moment."""
        self.seconds.append(time.perf_counter() - due)
        keep_thread_state(threading.get_ident())
        self.answered(result, message_id)

    def wait(self) -> None:
        """Until all are answered. Raises LoadError."""
        if not self._over.wait(PATIENCE_S) or self._errors:
            msg = f"{self._left} messages without a receipt, {len(self._errors)} errors: {self._errors[:3]}"
            raise LoadError(msg)


def quantiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p99 in ms."""
    ordered = sorted(seconds)
    return {
        f"{name}_{part}_ms": 1e3 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]
        for part, share in (("p50", 0.5), ("p99", 0.99))
    }


def pace(begin: float, count: int, rate: float) -> Iterable[float]:
    """The moments at which messages are due, each once it has come."""
    for number in range(count):
        due = begin + number / rate
        while (now := time.perf_counter()) < due:
            time.sleep(due - now)
        yield due


def probe(client: pulsar.Client, topic: str) -> dict[str, float]:
    """Whether the broker serves: one message."""
    producer = client.create_producer(topic, **SINGLY)
    producer.send(b"probe")
    producer.close()
    return {}


def send_all(client: pulsar.Client, topic: str, size: int, count: int) -> float:
    """Messages a second until the last receipt."""
    producer = client.create_producer(topic, **BATCHES)
    data = os.urandom(size)
    outstanding = Outstanding(count)
    begin = time.perf_counter()
    for _ in range(count):
        producer.send_async(data, outstanding.answered)
    producer.flush()
    outstanding.wait()
    elapsed = time.perf_counter() - begin
    producer.close()
    return count / elapsed


def bulk(client: pulsar.Client, topic: str, size: int, count: int) -> dict[str, float]:
    """As fast as it goes, with batches; then all of it by a reader from the beginning."""
    in_per_s = send_all(client, topic, size, count)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
    begin = time.perf_counter()
    for _ in range(count):
        reader.read_next(RECEIVE_MS)
    elapsed = time.perf_counter() - begin
    reader.close()
    return {"in_per_s": in_per_s, "catch_up_per_s": count / elapsed}


def latency(client: pulsar.Client, topic: str, rate: int, count: int) -> dict[str, float]:
    """A paced producer without batches, and a consumer that keeps up."""
    consumer = client.subscribe(topic, "latency", consumer_type=pulsar.ConsumerType.Exclusive)
    producer = client.create_producer(topic, **SINGLY)
    pad = b"x" * (1024 - STAMP_BYTES)
    outstanding = Outstanding(count)
    end_to_end: list[float] = []

    def consume() -> None:
        for _ in range(count):
            message = consumer.receive(RECEIVE_MS)
            end_to_end.append(time.perf_counter() - float(message.data()[:STAMP_BYTES]))
            consumer.acknowledge(message)

    with ThreadPoolExecutor(1) as pool:
        consuming = pool.submit(consume)
        begin = time.perf_counter()
        for due in pace(begin, count, rate):
            producer.send_async(b"%020.9f" % due + pad, partial(outstanding.timed, due))
        outstanding.wait()
        elapsed = time.perf_counter() - begin
        consuming.result(PATIENCE_S)
    producer.close()
    consumer.close()
    reached = {"reached_per_s": count / elapsed}
    return reached | quantiles("publish", outstanding.seconds) | quantiles("end_to_end", end_to_end)


def many(client: pulsar.Client, topic: str, topics: int, rate: int, count: int) -> dict[str, float]:
    """One message after the other to each topic in turn, those together that are due at a tick; the first of each topic, which creates it, is not counted."""
    with ThreadPoolExecutor(OPENERS) as pool:
        producers = list(
            pool.map(lambda number: client.create_producer(f"{topic}-{number}", **SINGLY), range(topics))
        )
    data = os.urandom(1024)
    first = Outstanding(topics)
    for producer in producers:
        producer.send_async(data, first.answered)
    first.wait()
    outstanding = Outstanding(count)

    at_a_tick = max(1, rate // TICKS_PER_S)
    firsts = range(0, count, at_a_tick)
    begin = time.perf_counter()
    for first_due, due in zip(firsts, pace(begin, len(firsts), rate / at_a_tick), strict=True):
        sent = partial(outstanding.timed, due)
        for number in range(first_due, min(count, first_due + at_a_tick)):
            producers[number % topics].send_async(data, sent)
    outstanding.wait()
    elapsed = time.perf_counter() - begin
    return {"reached_per_s": count / elapsed} | quantiles("publish", outstanding.seconds)


def fan_out(client: pulsar.Client, topic: str, subscriptions: int, size: int, count: int) -> dict[str, float]:
    """Every subscription receives everything while it is produced."""
    outstanding = Outstanding(subscriptions * count)
    consumers = [
        client.subscribe(
            topic,
            f"fan-{number}",
            receiver_queue_size=5000,
            message_listener=lambda _, message: outstanding.answered(pulsar.Result.Ok, message),
        )
        for number in range(subscriptions)
    ]
    begin = time.perf_counter()
    send_all(client, topic, size, count)
    outstanding.wait()
    elapsed = time.perf_counter() - begin
    for consumer in consumers:
        consumer.close()
    return {"out_per_s": subscriptions * count / elapsed}


def idle(client: pulsar.Client, topic: str, topics: int) -> dict[str, float]:
    """Topics that a producer and a subscription's consumer opened and left."""

    def visit(number: int) -> None:
        client.subscribe(f"{topic}-{number}", "idle").close()
        client.create_producer(f"{topic}-{number}", **SINGLY).close()

    with ThreadPoolExecutor(OPENERS) as pool:
        list(pool.map(visit, range(topics)))
    return {"topics": topics}


WORK: Final[Mapping[str, Callable[..., dict[str, float]]]] = {
    "probe": probe,
    "bulk": bulk,
    "latency": latency,
    "many": many,
    "fan_out": fan_out,
    "idle": idle,
}


def main() -> None:
    """Run the work that the JSON describes."""
    url, job = sys.argv[1], json.loads(sys.argv[2])
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(
        url, logger=logger, io_threads=1, message_listener_threads=1, operation_timeout_seconds=PATIENCE_S
    )
    try:
        result = WORK[job.pop("work")](client, **job)
        print(json.dumps(result), flush=True)
    finally:
        client.close()


if __name__ == "__main__":
    main()
