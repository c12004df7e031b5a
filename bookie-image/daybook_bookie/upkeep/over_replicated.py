"""Removal of replicas that metadata no longer places on this bookie: a repair put a successor in its place (rule 47).

The steps are the core's (`daybook.core.bookie.over_replicated`): only of a CLOSED ledger, only after a compare-and-set that
raises the version of its metadata, and not if anything happened to the ledger since the metadata was read. This carries
them out, one ledger at a time.
"""

from collections.abc import Callable
from typing import Final, Protocol

from daybook.core.bookie.over_replicated import OverReplicatedRemoval
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.store.store import BadVersionError, Versioned
from daybook.runtime.logs import get_logger
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics

_LOG: Final = get_logger(__name__)


class VersionedSource(Protocol):
    """Ledger metadata with its version. Both raise DaybookError when the store does not answer."""

    def read_version(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        """The metadata after a sync; None if the ledger does not exist."""

    def raise_version(self, current: Versioned[LedgerMetadata]) -> int:
        """Write the same metadata back at its version; the new version. Raises BadVersionError."""


class OverReplicatedCollector:
    """Removes what is over-replicated here."""

    def __init__(
        self, table: LedgerTable, source: VersionedSource, metrics: BookieMetrics, bookie: BookieId
    ) -> None:
        """For the bookie `bookie`, whose ledgers `table` holds."""
        self._table = table
        self._source = source
        self._metrics = metrics
        self._bookie = bookie

    def collect(self, ledger_id: LedgerId, *, may_remove: Callable[[], bool] = lambda: True) -> int:
        """Remove what is over-replicated of one ledger, with the next flush; how many entries. Raises DaybookError.

        `may_remove` is asked once the metadata has said so: not after a restore that began meanwhile (rule 68).
        """
        watches = self._table.machine.watches
        with self._table.lock:
            (watch,) = watches.begin([ledger_id])
        try:
            return self._collect(OverReplicatedRemoval(self._bookie, watch), may_remove)
        except BadVersionError:
            return 0  # somebody changed the ledger: the next cycle tries again
        finally:
            with self._table.lock:
                watches.end([watch])

    def _collect(self, removal: OverReplicatedRemoval, may_remove: Callable[[], bool]) -> int:
        ledger_id = removal.watch.ledger_id
        current = self._source.read_version(ledger_id)
        if current is None:
            return 0
        stored = self._table.storage.store.ledger(ledger_id)
        listed = (
            IntervalSet() if stored is None else stored.intervals
        )  # what is in the cache waits for a later cycle
        if not removal.metadata_read(current.value, current.version, listed):
            return 0
        removal.version_raised(self._source.raise_version(current))
        if not may_remove():
            return 0
        with self._table.lock:
            if not removal.may_remove():
                _LOG.info("over-replicated entries stay: the ledger was added to", ledger_id=ledger_id)
                return 0
            self._table.storage.remove(ledger_id, removal.entries)
        count = removal.entries.count
        self._metrics.gc_entries.inc(count)
        _LOG.info("over-replicated entries removed", ledger_id=ledger_id, entries=count)
        return count
