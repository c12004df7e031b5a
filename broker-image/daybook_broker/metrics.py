"""The broker's metrics: docs/metrics.md. No label names a topic: a broker has tens of thousands of them.

What happens for every entry is added to plain numbers (totals.py), which a scrape reads. What happens now and then uses the library's own
counters.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from daybook.runtime.buckets import LATENCY_BUCKETS_SECONDS
from daybook_broker.totals import Latencies, Totals

PREFIX: Final = "daybook_broker_"
LOOKUPS: Final = ("here", "redirect", "not_ready", "refused")
"""What a lookup comes to."""
ENDS: Final = ("taken", "deleted", "failed")
"""Why a topic ends by itself."""
FILE_FAILURES: Final = ("file", "store", "library")
"""Why a file of an offloaded ledger cannot be read."""

_TEXTS: Final = {
    "entries_in": "Entries that producers sent; a batch is one entry.",
    "messages_in": "Messages in them.",
    "bytes_in": "Bytes of them.",
    "receipts": "Entries whose producers got a receipt.",
    "send_errors": "Entries whose producers got an error.",
    "entries_out": "Entries sent to consumers.",
    "messages_out": "Messages in them.",
    "bytes_out": "Bytes of them.",
    "redelivered": "Entries among them that had been sent before.",
    "acks": "Acknowledgements of consumers.",
    "cache_hits": "Entries that the tail cache had for a consumer.",
    "cache_misses": "Entries that were read from bookies for a consumer.",
    "commands": "Commands of clients other than SEND.",
    "refusals": "Commands that got an error.",
    "paused_reads": "Times that a connection was not read from because too much was pending.",
}


class BrokerMetrics(Collector):
    """All of them, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them."""
        self.registry = registry
        self.totals = Totals()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.publish_seconds = Latencies()
        self.take_over_seconds = self._seconds(
            "take_over_seconds", "From a topic's first use here to its service."
        )
        self.unload_seconds = self._seconds("unload_seconds", "From the order to unload a topic to its end.")
        self.loop_delay_seconds = self._seconds(
            "loop_delay_seconds", "How much later than due the event loop ran its heartbeat."
        )
        self.lookups = Counter(
            f"{PREFIX}lookups",
            "Lookups (outcome: here, redirect, not_ready, refused).",
            ["outcome"],
            registry=registry,
        )
        self.take_overs = Counter(
            f"{PREFIX}take_overs",
            "Topics taken over (outcome: served, failed).",
            ["outcome"],
            registry=registry,
        )
        self.topics_ended = Counter(
            f"{PREFIX}topics_ended",
            "Topics that ended by themselves (reason: taken, deleted, failed).",
            ["reason"],
            registry=registry,
        )
        self.bundle_moves = Counter(
            f"{PREFIX}bundle_moves", "Bundles (event: gained, lost, unloaded).", ["event"], registry=registry
        )
        self.collected = Counter(
            f"{PREFIX}ledgers_collected", "Ledgers deleted that nothing names.", registry=registry
        )
        self.offload_read_failures = Counter(
            f"{PREFIX}offload_read_failures",
            "Attempts to read files of offloaded ledgers that failed (reason: file, store, library).",
            ["reason"],
            registry=registry,
        )
        self.topics = Gauge(
            f"{PREFIX}topics",
            "Topics that the broker serves, by what holds for the ledger that each writes, or for its next one.",
            ["durability", "degrade"],
            registry=registry,
        )
        for counter, values in (
            (self.lookups, LOOKUPS),
            (self.topics_ended, ENDS),
            (self.offload_read_failures, FILE_FAILURES),
        ):
            for value in values:  # an alert sees a counter rise only if it was there before
                counter.labels(value)
        registry.register(self)

    def show(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge whose value a scrape asks for, in a thread of its own: `value` reads a number and changes nothing."""
        self._gauges[name] = (text, value)

    def collect(self) -> Iterable[Metric]:
        """What a scrape gets beside the library's own counters."""
        for each in fields(self.totals):
            yield CounterMetricFamily(
                PREFIX + each.name, _TEXTS[each.name], value=getattr(self.totals, each.name)
            )
        yield _histogram(
            self.publish_seconds,
            f"{PREFIX}publish_seconds",
            "From the arrival of what a topic got in one turn of the event loop to its receipts.",
        )
        for name, (text, value) in self._gauges.items():
            yield GaugeMetricFamily(PREFIX + name, text, value=value())

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(PREFIX + name, text, buckets=LATENCY_BUCKETS_SECONDS, registry=self.registry)


def _histogram(latencies: Latencies, name: str, text: str) -> Metric:
    """What a scrape gets of them."""
    bounds = (*map(floatToGoString, LATENCY_BUCKETS_SECONDS), "+Inf")
    totals = accumulate(list(latencies.counts))
    return HistogramMetricFamily(
        name, text, buckets=list(zip(bounds, totals, strict=True)), sum_value=latencies.sum_s
    )
