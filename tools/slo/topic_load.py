"""Many topics under load by Pulsar's own client: a producer and a subscription each, what has a receipt, what has arrived, and when."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import pulsar

OPENED_AT_ONCE: Final = 32
BURST: Final = 50
"""Messages that are sent without a pause, each to another topic."""
PATIENCE_S: Final = 240.0
OPERATION_S: Final = 120


class TopicLoad:
    """`with` begins it, once every topic has its first receipt, and ends it. Every message is acknowledged as soon as it arrives."""

    def __init__(self, url: str, topics: list[str], pause_s: float) -> None:
        """`pause_s`: between bursts."""
        self.topics = topics
        self._pause_s = pause_s
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        self._client = pulsar.Client(url, operation_timeout_seconds=OPERATION_S, logger=logger)
        self._stop = threading.Event()
        self._sender = threading.Thread(target=self._send, name="load", daemon=True)
        self._producers: list[Any] = []
        self._changed = threading.Condition()
        self._cycle = 0
        self._marked = 0
        self._first: dict[int, float] = {}
        """By topic: when it had a receipt for a message that was sent after `mark`."""
        self._last = [0.0] * len(topics)
        self._longest_gap_s = 0.0
        self._acknowledged: list[set[int]] = [set() for _ in topics]
        self._received: list[set[int]] = [set() for _ in topics]
        self.failed = 0

    def __enter__(self) -> Self:
        """Open everything."""
        with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
            self._producers = list(pool.map(self._open, range(len(self.topics))))
        self._sender.start()
        self.resumed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sending, and close the client."""
        self._stop.set()
        self._sender.join()
        self._client.close()

    def mark(self, *, keep_gap: bool = False) -> float:
        """From now on receipts count for messages that are sent from now on; the time of that."""
        with self._changed:
            self._marked = self._cycle + 1
            self._first.clear()
            if not keep_gap:
                self._longest_gap_s = 0.0
            return time.monotonic()

    def resumed(self) -> list[float]:
        """Wait until each topic has a receipt since `mark`; when each had its first, in order."""
        with self._changed:
            is_so = self._changed.wait_for(lambda: len(self._first) == len(self.topics), PATIENCE_S)
            assert is_so, f"{len(self._first)} of {len(self.topics)} topics have a receipt"
            return sorted(self._first.values())

    @property
    def longest_gap_s(self) -> float:
        """The longest time since `mark` in which a topic had no receipt, or since an earlier one if that kept it."""
        return self._longest_gap_s

    def judge(self) -> tuple[int, int]:
        """Send nothing more, wait until what has a receipt has arrived, and return how many that are, and how many are lost."""
        self._stop.set()
        self._sender.join()
        for producer in self._producers:
            producer.flush()
        with self._changed:
            self._changed.wait_for(lambda: not self._missing(), PATIENCE_S)
        return sum(map(len, self._acknowledged)), self._missing()

    def _missing(self) -> int:
        pairs = zip(self._acknowledged, self._received, strict=True)
        return sum(len(acknowledged - received) for acknowledged, received in pairs)

    def _open(self, index: int) -> Any:
        topic = self.topics[index]
        self._client.subscribe(topic, "s", message_listener=partial(self._arrived, index))
        return self._client.create_producer(
            topic, batching_enabled=False, block_if_queue_full=True, send_timeout_millis=0
        )

    def _send(self) -> None:
        while True:
            for index, producer in enumerate(self._producers):
                if index % BURST == 0 and self._stop.wait(self._pause_s):
                    return
                cycle = self._cycle
                producer.send_async(b"%d" % cycle, partial(self._answered, index, cycle))
            self._cycle += 1

    def _answered(self, index: int, cycle: int, result: pulsar.Result, _: Any) -> None:
        now = time.monotonic()
        with self._changed:
            if result != pulsar.Result.Ok:
                self.failed += 1
                return
            self._acknowledged[index].add(cycle)
            if self._last[index]:
                self._longest_gap_s = max(self._longest_gap_s, now - self._last[index])
            self._last[index] = now
            if cycle >= self._marked and index not in self._first:
                self._first[index] = now
                self._changed.notify_all()

    def _arrived(self, index: int, consumer: Any, message: Any) -> None:
        with self._changed:
            self._received[index].add(int(message.data()))
            if self._stop.is_set():
                self._changed.notify_all()
        consumer.acknowledge(message)
