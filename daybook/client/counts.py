"""What a client counts. It is apart from `metrics` because most clients show it to nobody, and then Prometheus need not be imported.

A reader of the counts adds up what the handles know anyway, so that counting costs nothing for an entry; what a handle knew when it
ended stays in the totals.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar

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


class Totals(NamedTuple):
    """Of all ledgers that a client ever wrote, and of those that are open now."""

    entries: int
    size_bytes: int
    ensemble_changes: int
    open_ledgers: int
    degraded: int


class ClientCounts(Generic[L]):
    """The counts of one client."""

    def __init__(self, recoveries: CountedQueue, round_trips: RoundTrips) -> None:
        """Nothing was done yet."""
        self.open_ledgers: dict[L, None] = {}
        """Those that are open for writing now, in the order of their opening."""
        self.created = 0
        self.recovered = 0
        self.recoveries_failed = 0
        self.recoveries = recoveries
        self.round_trips = round_trips
        self.hide: Callable[[], None] = lambda: None
        """Called when the client is closed: takes them out of where they are shown."""
        self._lock = threading.Lock()
        """Between the end of a ledger and a scrape: one that counts twice, or not at all, would look like a restart."""
        self._entries = 0
        self._bytes = 0
        self._ensemble_changes = 0

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

    def totals(self) -> Totals:
        """What there is to count now; any thread may ask."""
        with self._lock:
            entries, size_bytes, changes = self._entries, self._bytes, self._ensemble_changes
            ledgers = list(self.open_ledgers)
        degraded = 0
        for ledger in ledgers:
            entries += ledger.last_add_confirmed + 1
            size_bytes += ledger.length
            changes += ledger.ensemble_changes
            degraded += ledger.is_degraded
        return Totals(entries, size_bytes, changes, len(ledgers), degraded)
