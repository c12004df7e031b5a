"""What a broker counts for each entry, as plain numbers: metrics.py shows them to a scrape.

A counter of the metrics library costs as much as the rest of an entry's way through the broker.
"""

from bisect import bisect_left
from dataclasses import dataclass

from daybook.runtime.buckets import LATENCY_BUCKETS_SECONDS


@dataclass(slots=True)
class Totals:
    """What is counted for each entry or command. Only the event loop adds to it."""

    entries_in: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    receipts: int = 0
    send_errors: int = 0
    entries_out: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    redelivered: int = 0
    acks: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    commands: int = 0
    refusals: int = 0
    paused_reads: int = 0


class Latencies:
    """How long something took that happens in every turn of the event loop, as plain numbers."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self._bounds = list(LATENCY_BUCKETS_SECONDS)
        """A list, since compiled code makes a constant tuple of numbers anew at each use."""
        self.counts = [0] * (len(LATENCY_BUCKETS_SECONDS) + 1)
        """How often it was up to each bound, and above the last."""
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """It took so long once more."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_s += seconds
