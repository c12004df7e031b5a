"""Deletion of ledgers that are no longer in the metadata, and of replicas that are over-replicated here.

What may be deleted is the core's decision (`daybook.core.bookie.deletion`). An error proves nothing: the cycle, or the
ledger, is skipped (rule 28). The deletion is journalled before it is carried out, or, if the journal has no room, committed
with the next flush. Whoever is attached must attach again, which needs metadata that is gone (rule 20).

All of it trusts that the metadata never goes back. So each cycle first compares what is here with the counter of ids, and
collects nothing once ZooKeeper was found to have gone back in time (rule 62). Nor does it after a restore that no person has
confirmed (rule 68): a cycle deletes only if it found the same hold, or none, when it began and just before the deletion.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from daybook.core.bookie.deletion import DeletionCycle
from daybook.core.bookie.watch import Watch
from daybook.core.errors import Code, DaybookError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.hold import CollectionHold
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook_bookie.identity.rollback import RollBackGuard
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.poller import Poller
from daybook_bookie.upkeep.over_replicated import OverReplicatedCollector

_LOG: Final = get_logger(__name__)
_JOURNAL_TIMEOUT_S: Final = 30.0
_DELETIONS_AT_ONCE: Final = 200
"""So many share a sync of the journal; everyone who appends waits while they are decided."""


class LedgerSource(Protocol):
    """What the metadata says. All raise DaybookError when the store does not answer."""

    def collection_hold(self) -> CollectionHold | None:
        """What holds the collection, or held it last, after a sync (rule 68)."""

    def next_ledger_id(self) -> LedgerId:
        """The id that the next ledger gets, after a sync."""

    def ledger_ids(self) -> frozenset[LedgerId]:
        """Every ledger that exists."""

    def read_ledger(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """The metadata after a sync; None if the ledger certainly does not exist."""


@dataclass(slots=True)
class Collected:
    """What a cycle did. `complete`: nothing was skipped; else `detail` says why."""

    deleted: list[LedgerId] = field(default_factory=list)
    over_replicated_entries: int = 0
    complete: bool = True
    detail: str = ""
    hold: CollectionHold | None = None
    """What the cycle found when it began."""
    may_remove: bool = True
    """Whether anything may be removed at all: not after a restore, nor after ZooKeeper went back in time."""

    def skipped(self, why: str) -> None:
        """Something could not be decided; the next cycle tries again."""
        self.complete = False
        self.detail = why


class Collector:
    """Runs a cycle at intervals, in a thread of its own."""

    def __init__(
        self,
        table: LedgerTable,
        journal: JournalThread,
        source: LedgerSource,
        guard: RollBackGuard,
        metrics: BookieMetrics,
        *,
        interval_ms: int,
        over_replicated: OverReplicatedCollector | None = None,
        over_replicated_interval_ms: int = 0,
    ) -> None:
        """`over_replicated` runs less often: it reads all metadata."""
        self._over_replicated = over_replicated
        self._over_replicated_interval_ms = over_replicated_interval_ms
        self._over_replicated_at_ms = monotonic_ms() + over_replicated_interval_ms
        self._table = table
        self._journal = journal
        self._source = source
        self._guard = guard
        self._metrics = metrics
        self._one_cycle = threading.Lock()
        self._poller = Poller(
            "gc",
            interval_ms / 1000,
            self._collect_if_due,
            failed="a cycle of garbage collection failed",
            first=self._judge,
        )

    def start(self) -> None:
        """Start the thread."""
        self._poller.start()

    def close(self) -> None:
        """Stop; a deletion under way is finished."""
        self._poller.close()

    def collect(self, *, over_replicated: bool = True) -> Collected:
        """One cycle now; without `over_replicated` only deleted ledgers are collected."""
        with self._one_cycle:
            result = self._collect()
            if over_replicated and self._over_replicated is not None and result.may_remove:
                self._collect_over_replicated(self._over_replicated, result)
        self._metrics.gc_rounds.labels("complete" if result.complete else "incomplete").inc()
        return result

    def _judge(self) -> None:
        try:
            self._guard.judge(self._table.known().highest_proved, self._source.next_ledger_id())
        except DaybookError as error:
            _LOG.warning("the counter of ledger ids cannot be read; the first cycle does", reason=str(error))

    def _collect_if_due(self) -> None:
        self.collect(over_replicated=self._over_replicated_is_due())

    def _over_replicated_is_due(self) -> bool:
        if monotonic_ms() < self._over_replicated_at_ms:
            return False
        self._over_replicated_at_ms = monotonic_ms() + self._over_replicated_interval_ms
        return True

    def _collect_over_replicated(self, collector: OverReplicatedCollector, result: Collected) -> None:
        for ledger_id in self._table.known_ids():
            if self._poller.is_closing:
                return
            try:
                result.over_replicated_entries += collector.collect(
                    ledger_id, may_remove=lambda: self._is_still(result.hold)
                )
            except DaybookError as error:
                result.skipped(f"ledger {ledger_id} was not checked for over-replicated entries: {error}")
        if result.over_replicated_entries:
            self._table.flush_wanted.set()

    def _is_still(self, hold: CollectionHold | None) -> bool:
        """Whether no restore began since `hold` was read. Raises DaybookError."""
        return self._source.collection_hold() == hold

    def _collect(self) -> Collected:
        try:
            hold = self._source.collection_hold()
        except DaybookError as error:
            why = f"it could not be read whether collection is held: {error}"
            return Collected(complete=False, detail=why, may_remove=False)
        if hold is not None and hold.is_held:
            return Collected(complete=False, detail=hold.reason, may_remove=False)
        return self._collect_unless_held(hold)

    def _collect_unless_held(self, hold: CollectionHold | None) -> Collected:
        known = self._table.known()  # before the listing: what comes later is not judged
        watches = self._table.machine.watches
        with self._table.lock:
            watching = watches.begin(sorted(known.bare))
        try:
            try:
                next_id = self._source.next_ledger_id()
                self._guard.judge(known.highest_proved, next_id)
                if self._guard.reason:
                    return Collected(complete=False, detail=self._guard.reason, may_remove=False)
                existing = self._source.ledger_ids()
            except DaybookError as error:
                _LOG.warning("garbage collection skips a cycle: no listing", reason=str(error))
                why = f"the ledgers could not be listed: {error}"
                return Collected(complete=False, detail=why, hold=hold, may_remove=not self._guard.reason)
            cycle = DeletionCycle(known.ledger_ids, next_id, existing)
            result = Collected(hold=hold)
            self._collect_all(cycle, result, dropped=self._drop_fences(cycle, watching))
            return result
        finally:
            with self._table.lock:
                watches.end(watching)

    def _collect_all(self, cycle: DeletionCycle, result: Collected, *, dropped: int) -> None:
        for ledger_id in cycle.missing:
            if self._poller.is_closing:
                break
            try:
                gone = cycle.metadata_read(ledger_id, self._source.read_ledger(ledger_id))
            except DaybookError as error:
                result.skipped(f"ledger {ledger_id} could not be read: {error}")
                continue
            if not gone:
                _LOG.error("a listing left out a ledger that exists; it is kept", ledger_id=ledger_id)
            for batch in cycle.take_certain(_DELETIONS_AT_ONCE):
                self._delete(batch, result)
        for batch in cycle.take_certain():
            self._delete(batch, result)
        if result.deleted or dropped:
            self._table.flush_wanted.set()

    def _drop_fences(self, cycle: DeletionCycle, watching: Iterable[Watch]) -> int:
        """Of the ledgers that were never created; how many fences."""
        never_created = frozenset(cycle.never_created)
        dropped = 0
        for watch in watching:
            if watch.ledger_id in never_created and not self._poller.is_closing:
                with self._table.lock:
                    record = self._table.machine.drop_fence(watch)
                    if record is not None:
                        self._journal.put(Barrier([record]))
                        dropped += 1
        if dropped:
            _LOG.warning("fences of ledgers that never existed were dropped", ledgers=dropped)
        return dropped

    def _delete(self, ledger_ids: Sequence[LedgerId], result: Collected) -> None:
        """Delete these ledgers, with one sync of the journal for all of them, unless a restore began meanwhile (rule 68)."""
        try:
            if not self._is_still(result.hold):
                result.skipped("the metadata was restored during the cycle")
                return
        except DaybookError as error:
            result.skipped(f"it could not be read whether collection is held: {error}")
            return
        with self._table.lock:
            barrier = Barrier(self._table.machine.delete(ledger_ids))
            self._journal.put(barrier)
        if barrier.wait(_JOURNAL_TIMEOUT_S) is not Code.OK:
            result.skipped(
                f"{len(ledger_ids)} deletions could not be journalled: the next flush carries them out, "
                "and the next cycle does if the bookie starts again before it"
            )
        for ledger_id in ledger_ids:
            _LOG.info("ledger deleted", ledger_id=ledger_id)
        self._metrics.gc_ledgers.inc(len(ledger_ids))
        result.deleted += ledger_ids
