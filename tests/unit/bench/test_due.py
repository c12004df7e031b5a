"""Latency counts from when an entry was due: a client that stalls hides nothing of what it makes late."""

import asyncio
import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pulsar
import pytest

import daybook
from bench import worker
from bench.broker import load
from daybook.client.driver.callbacks import OnDone
from tests.unit.bench.clock import Clock

RATE_PER_S = 10
STALL = {1: 0.25}
"""The entry due at 0.1 s holds its sender up until 0.35 s, when those of 0.2 s and 0.3 s are late as well."""
STALLED_S = [0.0, 0.25, 0.15, 0.05, 0.0]


class StallingLedger:
    """Acknowledges an entry once its turn is over; its `append_soon` takes the time of `stalls` by number."""

    def __init__(self, clock: Clock, stalls: Mapping[int, float]) -> None:
        self._clock, self._stalls, self._number = clock, stalls, 0

    def append_soon(self, data: bytes, on_done: OnDone) -> int:
        del data
        self._clock.advance(self._stalls.get(self._number, 0.0))
        self._number += 1
        asyncio.get_running_loop().call_soon(on_done, 0, None)
        return 0


class SlowLedger:
    """Acknowledges an entry `seconds` after it was sent, when its client waits for that."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def append_soon(self, data: bytes, on_done: OnDone) -> int:
        del data

        def acknowledge() -> None:
            self._clock.advance(self._seconds)
            on_done(0, None)

        asyncio.get_running_loop().call_soon(acknowledge)
        return 0

    async def submit(self, entries: Sequence[bytes]) -> asyncio.Future[tuple[int, int]]:
        future: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self.append_soon(entries[0], lambda *_: future.set_result((0, 0)))
        return future


async def latencies(
    monkeypatch: pytest.MonkeyPatch,
    ledger: Callable[[Clock], StallingLedger | SlowLedger],
    *,
    window: int,
    rate: int,
) -> Sequence[float]:
    clock = Clock()
    monkeypatch.setattr(worker, "time", clock)
    monkeypatch.setattr(worker, "until", clock.until)
    handles = [cast("daybook.Ledger", ledger(clock))]
    run = worker.run_soon if rate else worker.run_each
    return await run(handles, 8, len(STALLED_S), window, rate)


async def test_a_client_that_stalls_makes_the_entries_late_that_were_due_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = await latencies(
        monkeypatch, lambda clock: StallingLedger(clock, STALL), window=5, rate=RATE_PER_S
    )
    assert found == pytest.approx(STALLED_S)


async def test_an_entry_waits_for_room_in_its_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await latencies(monkeypatch, lambda clock: SlowLedger(clock, 0.15), window=1, rate=RATE_PER_S)
    assert found == pytest.approx([0.15, 0.2, 0.25, 0.3, 0.35])


async def test_without_a_rate_an_entry_counts_from_its_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await latencies(monkeypatch, lambda clock: SlowLedger(clock, 0.15), window=1, rate=0)
    assert found == pytest.approx([0.15] * len(STALLED_S))


class Message:
    """One that arrived."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def data(self) -> bytes:
        return self._data


class StallingClient:
    """A client of Pulsar whose producers answer at once, after a stall in `send_async`; its consumer receives what they sent."""

    def __init__(self, clock: Clock, stalls: Mapping[int, float]) -> None:
        self.sent: list[bytes] = []
        self._clock, self._stalls = clock, stalls
        self._arrived: queue.Queue[bytes] = queue.Queue()

    def create_producer(self, topic: str, **_settings: Any) -> "StallingClient":
        return self

    def subscribe(self, topic: str, name: str, **_settings: Any) -> "StallingClient":
        return self

    def send_async(self, data: bytes, answered: Callable[[Any, Any], None]) -> None:
        self._clock.advance(self._stalls.get(len(self.sent), 0.0))
        self.sent.append(data)
        self._arrived.put(data)
        answered(pulsar.Result.Ok, None)

    def receive(self, timeout_ms: int) -> Message:
        return Message(self._arrived.get(timeout=timeout_ms / 1000))

    def acknowledge(self, message: Message) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> dict[str, Sequence[float]]:
    """The latencies that a load has counted, by what they are of."""
    counted: dict[str, Sequence[float]] = {}

    def quantiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
        counted[name] = list(seconds)
        return {}

    monkeypatch.setattr(load, "quantiles", quantiles)
    return counted


def test_a_client_of_many_topics_that_stalls_makes_the_messages_late_that_were_due_meanwhile(
    monkeypatch: pytest.MonkeyPatch, published: dict[str, Sequence[float]]
) -> None:
    clock, topics = Clock(), 2
    monkeypatch.setattr(load, "time", clock)
    client = StallingClient(clock, {topics + number: stall for number, stall in STALL.items()})
    load.many(client, "topic", topics, RATE_PER_S, len(STALLED_S))
    assert published["publish"] == pytest.approx(STALLED_S)


def test_a_producer_that_stalls_makes_its_messages_late_for_the_consumer_as_well(
    monkeypatch: pytest.MonkeyPatch, published: dict[str, Sequence[float]]
) -> None:
    clock = Clock()
    monkeypatch.setattr(load, "time", clock)
    client = StallingClient(clock, STALL)
    load.latency(client, "topic", RATE_PER_S, len(STALLED_S))
    assert published["publish"] == pytest.approx(STALLED_S)
    assert [float(data[: load.STAMP_BYTES]) for data in client.sent] == pytest.approx(
        [0.0, 0.1, 0.2, 0.3, 0.4]
    )
