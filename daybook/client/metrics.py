"""The metrics of a client, from what it counts. No label names a ledger: a broker has thousands of them, and new ones every minute.

docs/metrics.md has the names.
"""

from collections.abc import Iterable
from typing import Any

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from daybook.client.counts import ClientCounts


class ClientMetrics(Collector):
    """Shows the counts of one client in a registry."""

    def __init__(self, counts: ClientCounts[Any]) -> None:
        """`counts` are read at each scrape."""
        self._counts = counts

    def register(self, registry: CollectorRegistry) -> None:
        """Show the metrics in `registry`, which is to have no other client's, until the client is closed."""
        registry.register(self)
        self._counts.hide = lambda: registry.unregister(self)

    def collect(self) -> Iterable[Metric]:
        """What there is to count now. Called from the thread of the scrape."""
        counts, totals = self._counts, self._counts.totals()
        yield _gauge("open_ledgers", "Ledgers that are open for writing.", totals.open_ledgers)
        yield _gauge(
            "degraded_ledgers", "Of these, those that a bookie of the ensemble misses.", totals.degraded
        )
        yield _counter("appended_entries", "Entries that were confirmed.", totals.entries)
        yield _counter("appended_bytes", "Their payload bytes.", totals.size_bytes)
        yield _counter("ensemble_changes", "Ensemble changes of writers.", totals.ensemble_changes)
        yield _counter("ledgers_created", "Ledgers created.", counts.created)
        yield _gauge("recoveries_running", "Recoveries under way.", counts.recoveries.running)
        yield _gauge("recoveries_waiting", "Recoveries that wait for their turn.", counts.recoveries.waiting)
        outcomes = _counter("recoveries", "Recoveries that ended, by outcome.", None, "outcome")
        outcomes.add_metric(["recovered"], counts.recovered)
        outcomes.add_metric(["failed"], counts.recoveries_failed)
        yield outcomes
        yield HistogramMetricFamily(
            "daybook_client_message_seconds",
            "From sending a message of frames to a bookie until its answer.",
            buckets=counts.round_trips.buckets(),
            sum_value=counts.round_trips.sum_s,
        )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"daybook_client_{name}", text, value=value)


def _counter(name: str, text: str, value: float | None, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"daybook_client_{name}", text, value=value, labels=labels or None)
