"""The second act's producer and consumers, each as a process of its own, with an ordinary client of Pulsar.

    demo_pulsar produce SERVICE_URL TOPIC COUNT [INPUT]
    demo_pulsar consume SERVICE_URL TOPIC COUNT SUBSCRIPTION TYPE [INPUT]

A message is the number of a line and the line; its key is the file that the line is from. Both report a line of JSON now and then, and at the end.
Times are of the monotonic clock, which all processes of a machine share.
"""

import json
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import pulsar

from daybook.cli.demo_input import NUMBER_BYTES, messages
from daybook.cli.demo_reports import Consumed, Produced
from daybook.runtime.clock import monotonic_s

REPORT_S: Final = 0.1
QUIET_MS: Final = 20_000
"""Without a message for so long, a consumer has everything that it will get; a take-over takes less."""
_POLL_MS: Final = 500


class _Reports:
    """Prints a record at most every REPORT_S."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._lock = threading.Lock()

    def print(self, record: Produced | Consumed, *, now: bool = False) -> None:
        """Print it if it is time, or `now`."""
        with self._lock:
            if now or monotonic_s() >= self._next_s:
                self._next_s = monotonic_s() + REPORT_S
                print(json.dumps(asdict(record)), flush=True)


def produce(url: str, topic: str, source: Path | None, count: int) -> None:
    """Publish, without a limit on how long a message waits for its receipt."""
    client = quiet_client(url)
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=5,
        block_if_queue_full=True,
        max_pending_messages=20_000,
        send_timeout_millis=0,
    )
    produced = Produced()
    last: dict[str, float] = {}
    lock = threading.Lock()
    reports = _Reports()
    begin = monotonic_s()

    def answered(result: Any, message_id: Any) -> None:
        now = monotonic_s()
        with lock:
            if result != pulsar.Result.Ok:
                produced.failed += 1
                return
            produced.acknowledged += 1
            partition = str(message_id.partition())
            before = last.get(partition, now)
            last[partition] = now
            longest = produced.gaps.get(partition, (0.0, 0.0))
            if now - before > longest[1] - longest[0]:
                produced.gaps[partition] = (before, now)
        reports.print(produced)  # here, because most of a small input waits in the client at once

    for key, content in messages(source, count):
        producer.send_async(content, answered, partition_key=key)
    producer.flush()
    produced.seconds = monotonic_s() - begin
    client.close()
    reports.print(produced, now=True)


def consume(url: str, topic: str, source: Path | None, count: int, subscription: str, kind: str) -> None:
    """Receive until everything has come, or nothing comes any more; two consumers if the subscription is a shared one."""
    client = quiet_client(url)
    type_ = {"exclusive": pulsar.ConsumerType.Exclusive, "shared": pulsar.ConsumerType.Shared}[kind]
    consumers = [
        client.subscribe(
            topic, subscription, consumer_type=type_, initial_position=pulsar.InitialPosition.Earliest
        )
        for _ in range(2 if kind == "shared" else 1)
    ]
    check = _Check([content for _, content in messages(source, count)], ordered=kind != "shared")
    reports = _Reports()
    done = threading.Event()
    threads = [threading.Thread(target=partial(_drain, each, check, reports, done)) for each in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.close()
    reports.print(check.consumed, now=True)


def _drain(consumer: Any, check: "_Check", reports: _Reports, done: threading.Event) -> None:
    quiet_ms = 0
    while not done.is_set() and quiet_ms < QUIET_MS:
        try:
            message = consumer.receive(timeout_millis=_POLL_MS)
        except pulsar.Timeout:
            quiet_ms += _POLL_MS
            continue
        quiet_ms = 0
        if check.arrived(message.topic_name(), message.data()):
            done.set()
        consumer.acknowledge(message)
        reports.print(check.consumed)


class _Check:
    """Compares what arrives with what was published."""

    def __init__(self, expected: Sequence[bytes], *, ordered: bool) -> None:
        self.consumed = Consumed()
        self._expected = expected
        self._ordered = ordered
        self._seen = bytearray(len(expected))
        self._highest: dict[str, int] = {}
        self._lock = threading.Lock()
        self._begin_s = monotonic_s()

    def arrived(self, partition: str, content: bytes) -> bool:
        """Record a message; True once all have come."""
        number = int(content[:NUMBER_BYTES])
        with self._lock:
            consumed = self.consumed
            consumed.arrived += 1
            consumed.changed += content != self._expected[number]
            if not self._seen[number]:
                self._seen[number] = 1
                consumed.distinct += 1
                if self._ordered:
                    consumed.disordered += number < self._highest.get(partition, -1)
                    self._highest[partition] = number
            consumed.seconds = monotonic_s() - self._begin_s
            return consumed.distinct == len(self._expected)


def quiet_client(url: str) -> Any:
    """A client whose log goes nowhere: standard output has the reports, and the demo reports what it kills."""
    return pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))


def main() -> None:
    """See the module."""
    act, url, topic, count, *rest = sys.argv[1:]
    if act == "produce":
        produce(url, topic, Path(rest[0]) if rest else None, int(count))
    else:
        subscription, kind, *path = rest
        consume(url, topic, Path(path[0]) if path else None, int(count), subscription, kind)


if __name__ == "__main__":
    main()
