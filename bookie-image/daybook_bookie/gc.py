"""Deletion of ledgers that are no longer in the metadata, and of replicas that are no longer due here.

The most dangerous thing a bookie does, so absence is proved twice: the ledger is in no complete listing that began
after the bookie knew it, and a direct read after a sync finds nothing. An error proves nothing: the round, or the
ledger, is skipped (rule 28). The deletion is journalled before it is carried out, and whoever is attached must attach
again, which needs metadata that is gone (rule 20).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from daybook.core.errors import Code, DaybookError
from daybook.core.ids import LedgerId
from daybook.core.metadata import LedgerMetadata
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook_bookie.journal_thread import Barrier, JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.records import deletion_record
from daybook_bookie.surplus import SurplusCollector

_LOG: Final = get_logger(__name__)
_JOURNAL_TIMEOUT_S: Final = 30.0


class LedgerSource(Protocol):
    """What the metadata says. Both raise DaybookError when the store does not answer."""

    def ledger_ids(self) -> frozenset[LedgerId]:
        """Every ledger that exists."""

    def read_ledger(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """The metadata after a sync; None if the ledger certainly does not exist."""


@dataclass(slots=True)
class Collected:
    """What a round did. `complete`: nothing was skipped; else `detail` says why."""

    deleted: list[LedgerId] = field(default_factory=list)
    surplus_entries: int = 0
    complete: bool = True
    detail: str = ""

    def skipped(self, why: str) -> None:
        """Something could not be decided; the next round tries again."""
        self.complete = False
        self.detail = why


class Collector:
    """Runs rounds now and then, in a thread of its own."""

    def __init__(
        self,
        table: LedgerTable,
        journal: JournalThread,
        source: LedgerSource,
        metrics: BookieMetrics,
        *,
        interval_ms: int,
        surplus: SurplusCollector | None = None,
        surplus_interval_ms: int = 0,
        on_deleted: Callable[[LedgerId], None] = lambda _: None,
    ) -> None:
        """`on_deleted` is told of each ledger that goes. `surplus` is looked for less often: it reads all metadata."""
        self._surplus = surplus
        self._surplus_interval_ms = surplus_interval_ms
        self._surplus_at_ms = monotonic_ms() + surplus_interval_ms
        self._table = table
        self._journal = journal
        self._source = source
        self._metrics = metrics
        self._interval_s = interval_ms / 1000
        self._on_deleted = on_deleted
        self._closing = threading.Event()
        self._one_round = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gc", daemon=True)

    def start(self) -> None:
        """Begin with the rounds."""
        self._thread.start()

    def close(self) -> None:
        """Stop; a deletion under way is finished."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def collect(self, *, surplus: bool = True) -> Collected:
        """One round now; without `surplus` only deleted ledgers are looked for."""
        with self._one_round:
            result = self._collect()
            if surplus and self._surplus is not None:
                self._collect_surplus(self._surplus, result)
        self._metrics.gc_rounds.labels("complete" if result.complete else "incomplete").inc()
        return result

    def _run(self) -> None:
        while not self._closing.wait(self._interval_s):
            try:
                self.collect(surplus=self._surplus_is_due())
            except Exception:  # noqa: BLE001 - the next round tries again
                _LOG.exception("a round of garbage collection failed")

    def _surplus_is_due(self) -> bool:
        if monotonic_ms() < self._surplus_at_ms:
            return False
        self._surplus_at_ms = monotonic_ms() + self._surplus_interval_ms
        return True

    def _collect_surplus(self, surplus: SurplusCollector, result: Collected) -> None:
        for ledger_id in self._table.known_ids():
            if self._closing.is_set():
                return
            try:
                result.surplus_entries += surplus.collect(ledger_id)
            except DaybookError as error:
                result.skipped(f"ledger {ledger_id} was not looked at for surplus replicas: {error}")
        if result.surplus_entries:
            self._table.flush_wanted.set()

    def _collect(self) -> Collected:
        known = self._table.known_ids()  # before the listing: what comes later is not judged
        result = Collected()
        try:
            existing = self._source.ledger_ids()
        except DaybookError as error:
            _LOG.warning("garbage collection skips a round: no listing", reason=str(error))
            return Collected(complete=False, detail=f"the ledgers could not be listed: {error}")
        for ledger_id in known:
            if ledger_id in existing or self._closing.is_set():
                continue
            try:
                gone = self._is_certainly_gone(ledger_id)
            except DaybookError as error:
                result.skipped(f"ledger {ledger_id} could not be read: {error}")
                continue
            if not gone:
                _LOG.error("a listing left out a ledger that exists; it is kept", ledger_id=ledger_id)
                continue
            if self._delete(ledger_id):
                result.deleted.append(ledger_id)
            else:
                result.skipped(f"the deletion of ledger {ledger_id} could not be journalled")
        return result

    def _is_certainly_gone(self, ledger_id: LedgerId) -> bool:
        """A listing alone proves nothing: one that misses a directory deleted live ledgers elsewhere (rule 28)."""
        return self._source.read_ledger(ledger_id) is None

    def _delete(self, ledger_id: LedgerId) -> bool:
        with self._table.lock:
            self._table.forget(ledger_id)
            barrier = Barrier([self._table.storage.decide(deletion_record(ledger_id))])
            self._journal.put(barrier)
        if barrier.wait(_JOURNAL_TIMEOUT_S) is not Code.OK:
            return False
        _LOG.info("ledger deleted", ledger_id=ledger_id)
        self._metrics.gc_ledgers.inc()
        self._on_deleted(ledger_id)
        self._table.flush_wanted.set()
        return True
