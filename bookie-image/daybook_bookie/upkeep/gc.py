"""Deletion of ledgers that are no longer in the metadata, and of replicas that are no longer due here.

The most dangerous thing a bookie does, so absence is proved twice: the ledger is in no complete listing that began
after the bookie knew it, and a direct read after a sync finds nothing. An error proves nothing: the round, or the
ledger, is skipped (rule 28). The deletion is journalled before it is carried out, and whoever is attached must attach
again, which needs metadata that is gone (rule 20).

All of it trusts that the metadata never goes back. So each round first holds what is here against the counter of ids,
and collects nothing once ZooKeeper was found to have gone back in time (rule 62). A ledger that only a fence made known
and whose id was never given out is not deleted, since it may come to be: its fence is dropped (rule 3).
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from daybook.core.errors import Code, DaybookError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook_bookie.identity.rollback import RollBackGuard
from daybook_bookie.journal.format import Record, deletion_record, fence_dropped_record
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.ledgers import Known, LedgerTable
from daybook_bookie.upkeep.over_replicated import SurplusCollector

_LOG: Final = get_logger(__name__)
_JOURNAL_TIMEOUT_S: Final = 30.0
_DELETIONS_AT_ONCE: Final = 200
"""So many share a sync of the journal; everyone who appends waits while they are decided."""


class LedgerSource(Protocol):
    """What the metadata says. All raise DaybookError when the store does not answer."""

    def next_ledger_id(self) -> LedgerId:
        """The id that the next ledger gets, after a sync."""

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
        guard: RollBackGuard,
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
        self._guard = guard
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
            if surplus and self._surplus is not None and not self._guard.reason:
                self._collect_surplus(self._surplus, result)
        self._metrics.gc_rounds.labels("complete" if result.complete else "incomplete").inc()
        return result

    def _run(self) -> None:
        try:
            self._guard.judge(self._table.known().highest_proved, self._source.next_ledger_id())
        except DaybookError as error:
            _LOG.warning("the counter of ledger ids cannot be read; the first round does", reason=str(error))
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
        known = self._table.known()  # before the listing: what comes later is not judged
        with self._watched(known.bare):
            try:
                next_id = self._source.next_ledger_id()
                self._guard.judge(known.highest_proved, next_id)
                if self._guard.reason:
                    return Collected(complete=False, detail=self._guard.reason)
                existing = self._source.ledger_ids()
            except DaybookError as error:
                _LOG.warning("garbage collection skips a round: no listing", reason=str(error))
                return Collected(complete=False, detail=f"the ledgers could not be listed: {error}")
            return self._collect_all(known, existing, next_id)

    @contextmanager
    def _watched(self, ledger_ids: Collection[LedgerId]) -> Iterator[None]:
        """Count what happens to these ledgers meanwhile."""
        with self._table.lock:
            for ledger_id in ledger_ids:
                self._table.count_adds(ledger_id)
        try:
            yield
        finally:
            with self._table.lock:
                for ledger_id in ledger_ids:
                    self._table.stop_counting_adds(ledger_id)

    def _collect_all(self, known: Known, existing: Collection[LedgerId], next_id: LedgerId) -> Collected:
        result = Collected()
        certain: list[LedgerId] = []
        dropped = 0
        for ledger_id in known.ledger_ids:
            if ledger_id in existing or self._closing.is_set():
                continue
            if ledger_id >= next_id:
                dropped += self._drop_fence(ledger_id)
                continue
            try:
                gone = self._is_certainly_gone(ledger_id)
            except DaybookError as error:
                result.skipped(f"ledger {ledger_id} could not be read: {error}")
                continue
            if not gone:
                _LOG.error("a listing left out a ledger that exists; it is kept", ledger_id=ledger_id)
                continue
            certain.append(ledger_id)
            if len(certain) == _DELETIONS_AT_ONCE:
                self._delete(certain, result)
                certain = []
        self._delete(certain, result)
        if dropped:
            _LOG.warning("fences of ledgers that never existed were dropped", ledgers=dropped)
        if result.deleted or dropped:
            self._table.flush_wanted.set()
        return result

    def _is_certainly_gone(self, ledger_id: LedgerId) -> bool:
        """A listing alone proves nothing: one that misses a directory deleted live ledgers elsewhere (rule 28)."""
        return self._source.read_ledger(ledger_id) is None

    def _drop_fence(self, ledger_id: LedgerId) -> bool:
        """No ledger has had this id when the counter was read, so a fence from before that is nobody's (rule 3).

        A ledger that was created and fenced, or written to, since then was touched, and keeps what it has.
        """
        with self._table.lock:
            if self._table.adds_counted(ledger_id) or not self._table.is_bare(ledger_id):
                return False
            ledger = self._table.obtain(ledger_id)
            dropped = False
            if not ledger.introduced:
                ledger.never_existed()
                dropped = ledger.fence_dropped
            if dropped:
                ledger.record_is_journalled()
                self._put(fence_dropped_record(ledger_id))
            self._table.release(ledger_id)
            return dropped

    def _put(self, *records: Record) -> Barrier:
        """Decide and journal, with the table's lock held."""
        barrier = Barrier([self._table.storage.decide(record) for record in records])
        self._journal.put(barrier)
        return barrier

    def _delete(self, ledger_ids: Sequence[LedgerId], result: Collected) -> None:
        """Delete these ledgers, with one sync of the journal for all of them."""
        if not ledger_ids:
            return
        with self._table.lock:
            for ledger_id in ledger_ids:
                self._table.forget(ledger_id)
            barrier = self._put(*map(deletion_record, ledger_ids))
        is_durable = barrier.wait(_JOURNAL_TIMEOUT_S) is Code.OK
        for ledger_id in ledger_ids:
            if not is_durable:
                result.skipped(f"the deletion of ledger {ledger_id} could not be journalled")
                continue
            _LOG.info("ledger deleted", ledger_id=ledger_id)
            self._metrics.gc_ledgers.inc()
            self._on_deleted(ledger_id)
            result.deleted.append(ledger_id)
