"""How long bookies take to answer messages of frames, counted as cheaply as the streams need it.

A message carries what many ledgers wrote at a time, so the hot path pays two reads of the clock for a message and nothing for an
entry. A scrape reads the counts as they are.
"""

import asyncio
from bisect import bisect_left
from collections import deque

from daybook.runtime.buckets import LATENCY_BUCKETS_SECONDS


class RoundTrips:
    """A histogram of the time from sending a message to its answer, over all bookies of a client."""

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self.counts = [0] * (len(LATENCY_BUCKETS_SECONDS) + 1)
        """By bucket; the last one is for what took longer than any bucket."""
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """One message was answered."""
        self.counts[bisect_left(LATENCY_BUCKETS_SECONDS, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """The cumulative counts with their upper bounds, as Prometheus has them."""
        total, found = 0, []
        bounds = [*(str(bound) for bound in LATENCY_BUCKETS_SECONDS), "+Inf"]
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class TimedMessages:
    """The messages of one stream that are under way, which are answered in their order."""

    def __init__(self, round_trips: RoundTrips) -> None:
        """Count what is answered in `round_trips`."""
        self._round_trips = round_trips
        self._sent_s: deque[float] = deque()

    def sent(self) -> None:
        """A message leaves now."""
        self._sent_s.append(asyncio.get_running_loop().time())

    def answered_but(self, in_flight: int) -> None:
        """All but the last `in_flight` messages are answered now."""
        if len(self._sent_s) > in_flight:
            now_s = asyncio.get_running_loop().time()
            while len(self._sent_s) > in_flight:
                self._round_trips.observe(now_s - self._sent_s.popleft())

    def forget(self) -> None:
        """The stream ended: nothing that is under way will be answered."""
        self._sent_s.clear()
