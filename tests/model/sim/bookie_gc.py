"""What a simulated bookie removes: deleted ledgers (rule 28), and over-replicated entries (rule 47).

The core decides both (`daybook.core.bookie.deletion`, `daybook.core.bookie.over_replicated`); this carries it out.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.core.bookie.deletion import DeletionCycle
from daybook.core.bookie.over_replicated import OverReplicatedRemoval, over_replicated
from daybook.core.events import CasOutcome
from daybook.core.ids import EntryId, LedgerId
from tests.model.sim.metadata_model import LOST, Versioned
from tests.model.sim.transitions import Party
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.bookie_calls import BookieCalls

_EVERY_US: Final = 120 * MS


class Collector:
    """Runs beside one bookie's ledgers; a new one with each start."""

    def __init__(self, bookie: "BookieCalls") -> None:
        self._bookie = bookie

    def start(self) -> None:
        """Begin a cycle now and then, from a while after the start on."""
        self._bookie.later(_EVERY_US, self._list)

    def _list(self) -> None:
        bookie = self._bookie
        bookie.later(_EVERY_US, self._list)
        known = bookie.known_ids()
        if bookie.serving and known and not (bookie.session.expired or bookie.was_replaced):
            store = bookie.cluster.store
            store.request(
                bookie.session, partial(self._listed, known, store.next_ledger_id), store.list_ledgers
            )

    def _listed(self, known: list[LedgerId], next_id: LedgerId, answer: object) -> None:
        """What is missing in the listing may be deleted, or the listing may be short; it may also be old."""
        if answer is LOST or not isinstance(answer, dict):
            return
        bookie, store = self._bookie, self._bookie.cluster.store
        cycle = DeletionCycle(known, next_id, answer)
        for ledger_id in known:
            if ledger_id in cycle.missing:
                store.request(
                    bookie.session, partial(self._confirmed, cycle, ledger_id), store.read, ledger_id
                )
            elif ledger_id in answer:
                metadata = answer[ledger_id].metadata
                if over_replicated(metadata, bookie.name, bookie.removable(ledger_id)):
                    self._begin_removal(ledger_id)

    # Deleted ledgers

    def _confirmed(self, cycle: DeletionCycle, ledger_id: LedgerId, answer: object) -> None:
        if answer is LOST:
            return
        cycle.metadata_read(ledger_id, answer.metadata if isinstance(answer, Versioned) else None)
        for batch in cycle.take_certain():
            self._delete(batch)

    def _delete(self, ledger_ids: list[LedgerId]) -> None:
        bookie = self._bookie
        for ledger_id in ledger_ids:
            bookie.note(f"deletes ledger {ledger_id}")
            bookie.has_read.discard(ledger_id)
            bookie.cluster.checkers.collected(bookie.name, ledger_id)
        bookie.queue(bookie.machine.delete(ledger_ids))

    # Over-replicated entries

    def _begin_removal(self, ledger_id: LedgerId) -> None:
        bookie = self._bookie
        (watch,) = bookie.machine.watches.begin([ledger_id])
        removal = OverReplicatedRemoval(bookie.name, watch)
        bookie.cluster.store.request(
            bookie.session, partial(self.read_for_removal, removal), bookie.cluster.store.read, ledger_id
        )

    def _end(self, removal: OverReplicatedRemoval) -> None:
        self._bookie.machine.watches.end([removal.watch])

    def read_for_removal(self, removal: OverReplicatedRemoval, answer: object) -> None:
        """The metadata that says whom a removal leaves: raise its version, as a repair would notice (rule 47)."""
        bookie, store = self._bookie, self._bookie.cluster.store
        ledger_id = removal.watch.ledger_id
        if isinstance(answer, Versioned) and removal.metadata_read(
            answer.metadata, answer.version, bookie.removable(ledger_id)
        ):
            raised = partial(self.raised, removal)
            store.request(bookie.session, raised, store.cas, answer.metadata, answer.version, Party.COLLECTOR)
        else:
            self._end(removal)

    def raised(self, removal: OverReplicatedRemoval, answer: object) -> None:
        """The outcome of that."""
        if isinstance(answer, tuple) and answer[0] is CasOutcome.DONE:
            removal.version_raised(answer[1])
            if removal.may_remove():
                self._remove(removal, answer[1] - 1)
        self._end(removal)

    def _remove(self, removal: OverReplicatedRemoval, read_version: int) -> None:
        bookie, entries, ledger_id = self._bookie, removal.entries, removal.watch.ledger_id
        cache = bookie.storage.caches.get(ledger_id, {})
        gone: list[EntryId] = [entry for entry in cache if entries.contains(entry)]
        bookie.note(f"removes {gone} of ledger {ledger_id}, which others hold now")
        now = bookie.cluster.store.ledgers.get(ledger_id)
        bookie.cluster.checkers.removed(
            bookie.name,
            ledger_id,
            gone,
            raised=now is None or now.version > read_version,
            added_to=removal.watch.changes > 0,
        )
        bookie.remove(ledger_id, gone)
        bookie.world.tally.state("over-replicated removed")
