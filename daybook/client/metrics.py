"""The metrics of a client. No label names a ledger: a broker has thousands of them, and new ones every minute.

A scrape adds up what the handles know anyway, so that metrics cost nothing for an entry; what a handle knew when it ended stays
in the totals. docs/metrics.md has the names.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from daybook.client.transport.round_trips import RoundTrips


class CountedLedger(Protocol):
    """What is counted of a ledger that is open for writing."""

    ensemble_changes: int

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is confirmed; −1: none."""

    @property
    def length(self) -> int:
        """The payload bytes up to there."""

    @property
    def is_degraded(self) -> bool:
        """Whether it is written to fewer bookies than it should be."""


class CountedQueue(Protocol):
    """What is counted of the queue of recoveries."""

    @property
    def running(self) -> int:
        """How many are under way."""

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""


L = TypeVar("L", bound=CountedLedger)


class ClientMetrics(Collector, Generic[L]):
    """Counts for one client; registered in the registry that its user passes to `connect`."""

    def __init__(self, recoveries: CountedQueue, round_trips: RoundTrips) -> None:
        """Nothing was done yet."""
        self.open_ledgers: dict[L, None] = {}
        """Those that are open for writing now, in the order of their opening."""
        self.created = 0
        self.recovered = 0
        self.recoveries_failed = 0
        self._recoveries = recoveries
        self._round_trips = round_trips
        self._registry: CollectorRegistry | None = None
        self._lock = threading.Lock()
        """Between the end of a ledger and a scrape: one that counts twice, or not at all, would look like a restart."""
        self._entries = 0
        self._bytes = 0
        self._ensemble_changes = 0

    def register(self, registry: CollectorRegistry) -> None:
        """Show the metrics in `registry`, which is to have no other client's, until `unregister`."""
        registry.register(self)
        self._registry = registry

    def unregister(self) -> None:
        """The client is closed."""
        registry, self._registry = self._registry, None
        if registry is not None:
            registry.unregister(self)

    @contextmanager
    def recovery(self) -> Iterator[None]:
        """Count the recovery in the block by its outcome."""
        try:
            yield
        except BaseException:
            self.recoveries_failed += 1
            raise
        self.recovered += 1

    def ended(self, ledger: L) -> None:
        """`ledger` is not open any more: what it wrote stays counted."""
        with self._lock:
            if ledger in self.open_ledgers:
                del self.open_ledgers[ledger]
                self._entries += ledger.last_add_confirmed + 1
                self._bytes += ledger.length
                self._ensemble_changes += ledger.ensemble_changes

    def collect(self) -> Iterable[Metric]:
        """What there is to count now. Called from the thread of the scrape."""
        with self._lock:
            entries, size_bytes, changes = self._entries, self._bytes, self._ensemble_changes
            ledgers = list(self.open_ledgers)
        degraded = 0
        for ledger in ledgers:
            entries += ledger.last_add_confirmed + 1
            size_bytes += ledger.length
            changes += ledger.ensemble_changes
            degraded += ledger.is_degraded
        yield _gauge("open_ledgers", "Ledgers that are open for writing.", len(ledgers))
        yield _gauge("degraded_ledgers", "Of these, those that a bookie of the ensemble misses.", degraded)
        yield _counter("appended_entries", "Entries that were confirmed.", entries)
        yield _counter("appended_bytes", "Their payload bytes.", size_bytes)
        yield _counter("ensemble_changes", "Ensemble changes of writers.", changes)
        yield _counter("ledgers_created", "Ledgers created.", self.created)
        yield _gauge("recoveries_running", "Recoveries under way.", self._recoveries.running)
        yield _gauge("recoveries_waiting", "Recoveries that wait for their turn.", self._recoveries.waiting)
        outcomes = _counter("recoveries", "Recoveries that ended, by outcome.", None, "outcome")
        outcomes.add_metric(["recovered"], self.recovered)
        outcomes.add_metric(["failed"], self.recoveries_failed)
        yield outcomes
        yield HistogramMetricFamily(
            "daybook_client_message_seconds",
            "From sending a message of frames to a bookie until its answer.",
            buckets=self._round_trips.buckets(),
            sum_value=self._round_trips.sum_s,
        )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"daybook_client_{name}", text, value=value)


def _counter(name: str, text: str, value: float | None, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"daybook_client_{name}", text, value=value, labels=labels or None)
