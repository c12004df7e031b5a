"""How fast an auditor reads ledgers: fifty thousand of them must not cost the metadata store its sessions (rule 37)."""

from collections import deque
from collections.abc import Iterable

from daybook.core.ids import LedgerId


class PacedReads:
    """Hands out ledgers to read: at most so many a second, and so many at a time (rule 37)."""

    def __init__(self, per_second: int, in_flight_max: int) -> None:
        """Nothing to read yet."""
        assert per_second > 0
        assert in_flight_max > 0
        self._per_second = per_second
        self._in_flight_max = in_flight_max
        self._burst_millis = max(1000, per_second * 250)
        self._left: deque[LedgerId] = deque()
        self._in_flight = 0
        self._saved_millis = self._burst_millis
        self._saved_at_ms = 0

    def begin(self, ledger_ids: Iterable[LedgerId], now_ms: int) -> None:
        """Go through these; what was handed out before still counts against the rate."""
        self._save(now_ms)
        self._left = deque(ledger_ids)
        self._in_flight = 0

    def next(self, now_ms: int) -> list[LedgerId]:
        """The ledgers to read now; none while the rate or the reads in flight do not allow it."""
        self._save(now_ms)
        count = min(len(self._left), self._in_flight_max - self._in_flight, self._saved_millis // 1000)
        batch = [self._left.popleft() for _ in range(count)]
        self._in_flight += count
        self._saved_millis -= count * 1000
        return batch

    def _save(self, now_ms: int) -> None:
        """Earn reads (in thousandths) for the time that passed, up to a quarter of a second's worth."""
        earned = (now_ms - self._saved_at_ms) * self._per_second
        self._saved_millis = min(self._burst_millis, self._saved_millis + earned)
        self._saved_at_ms = now_ms

    def answered(self) -> None:
        """One of them was read, or could not be."""
        assert self._in_flight > 0
        self._in_flight -= 1

    @property
    def is_over(self) -> bool:
        """Whether all were handed out and answered."""
        return not self._left and not self._in_flight
