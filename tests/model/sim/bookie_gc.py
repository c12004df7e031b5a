"""What a simulated bookie throws away: deleted ledgers (rule 28), and replicas that metadata no longer places (rule 47)."""

from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.core.bookie.ledger import BookieLedger
from daybook.core.bookie.over_replicated import SurplusRemoval, surplus
from daybook.core.events import CasOutcome
from daybook.core.ids import EntryId, LedgerId
from tests.model.sim.disk import LedgerDropped
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
        """Look now and then, from a while after the start on."""
        self._bookie.later(_EVERY_US, self._list)

    def _list(self) -> None:
        bookie = self._bookie
        bookie.later(_EVERY_US, self._list)
        if bookie.serving and bookie.ledgers and not (bookie.session.expired or bookie.was_replaced):
            store = bookie.cluster.store
            store.request(bookie.session, self._listed, store.list_ledgers)

    def _listed(self, answer: object) -> None:
        """What is missing in the listing may be deleted, or the listing may be short; it may also be old."""
        if answer is LOST or not isinstance(answer, dict):
            return
        store = self._bookie.cluster.store
        for ledger_id, ledger in sorted(self._bookie.ledgers.items()):
            found = answer.get(ledger_id)
            if found is None:
                store.request(self._bookie.session, partial(self._confirmed, ledger), store.read, ledger_id)
            elif surplus(found.metadata, self._bookie.name, self._bookie.removable(ledger_id)):
                removal = SurplusRemoval(self._bookie.name, self._bookie.adds[ledger_id])
                answered = partial(self._read, ledger, removal)
                store.request(self._bookie.session, answered, store.read, ledger_id)

    # Deleted ledgers

    def _confirmed(self, ledger: BookieLedger, answer: object) -> None:
        bookie, ledger_id = self._bookie, ledger.ledger_id
        if answer is not None or bookie.ledgers.get(ledger_id) is not ledger:
            return
        ledger.forget()
        bookie.polls.wake(ledger)
        bookie.drop(ledger_id)
        bookie.note(f"collects ledger {ledger_id}")
        bookie.cluster.checkers.collected(bookie.name, ledger_id)
        bookie.journal(LedgerDropped(ledger_id))

    # Surplus replicas

    def _read(self, ledger: BookieLedger, removal: SurplusRemoval, answer: object) -> None:
        bookie = self._bookie
        if not isinstance(answer, Versioned) or bookie.ledgers.get(ledger.ledger_id) is not ledger:
            return
        if removal.metadata_read(answer.metadata, answer.version, bookie.removable(ledger.ledger_id)):
            store = bookie.cluster.store
            raised = partial(self._raised, ledger, removal)
            store.request(bookie.session, raised, store.cas, answer.metadata, answer.version, Party.COLLECTOR)

    def _raised(self, ledger: BookieLedger, removal: SurplusRemoval, answer: object) -> None:
        bookie, ledger_id = self._bookie, ledger.ledger_id
        if not isinstance(answer, tuple) or bookie.ledgers.get(ledger_id) is not ledger:
            return
        outcome, version = answer
        if outcome is not CasOutcome.DONE:
            return
        removal.version_raised(version)
        if removal.may_remove(bookie.adds[ledger_id]):
            self._remove(ledger_id, removal, version - 1)

    def _remove(self, ledger_id: LedgerId, removal: SurplusRemoval, read_version: int) -> None:
        bookie, entries = self._bookie, removal.entries
        gone: list[EntryId] = [entry for entry in bookie.caches[ledger_id] if entries.contains(entry)]
        bookie.note(f"removes {gone} of ledger {ledger_id}, which others hold now")
        now = bookie.cluster.store.ledgers.get(ledger_id)
        bookie.cluster.checkers.removed(
            bookie.name,
            ledger_id,
            gone,
            raised=now is None or now.version > read_version,
            added_to=bookie.adds[ledger_id] != removal.adds_seen,
        )
        bookie.remove(ledger_id, gone)
        bookie.world.tally.state("surplus removed")
