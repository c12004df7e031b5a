"""The clients that recover and delete ledgers, each a driver around its machine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerState
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.policy import RecoveryPolicy
from daybook.core.recovery.recovery import LedgerRecovery
from tests.model.sim.client_process import Activity
from tests.model.sim.clients import Driver
from tests.model.sim.metadata_model import LOST, Steps, Versioned
from tests.model.sim.recovery_checks import RecoveryChecks
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster


def make_recovery(driver: Driver) -> LedgerRecovery:
    """A recovery for `driver` to run."""
    cluster = driver.cluster
    rng = driver.world.rng(f"{driver.name}/recovery")
    return LedgerRecovery(
        driver.ledger_id,
        placement=cluster.placement,
        rng=rng,
        bookies=cluster.store.bookies(),
        policy=RecoveryPolicy(window_entries=rng.choice((1, 3, 16)), speculate_ms=20, metadata_retry_ms=20),
        now_ms=driver.world.now_ms,
    )


class RecoveryClient(Driver):
    """Recovers one ledger once."""

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId) -> None:
        super().__init__(cluster, name, ledger_id)
        self._carry_out |= {fx.Recovered: self._recovered, fx.RecoveryFailed: self._recovery_failed}
        self.start_ticking()
        self.activity = Activity.RECOVERY
        machine = make_recovery(self)
        self._checks = RecoveryChecks(cluster.checkers, machine)
        self.adopt(machine)
        self.perform(machine.start())

    def bookies_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """Placement chooses among these."""
        self.feed(ev.BookiesChanged(registered))

    def stepped(self, event: ev.Event, effects: list[fx.Effect]) -> None:
        """Check what the recovery asks for."""
        self._checks.stepped(event, effects)

    def _recovered(self, effect: fx.Recovered) -> None:
        self.cluster.checkers.ended(self.ledger_id, effect.metadata)
        self.finish()

    def _recovery_failed(self, effect: fx.RecoveryFailed) -> None:
        self.finish()


class DeletionClient(RecoveryClient):
    """Deletes a ledger: one that is not CLOSED is recovered first (rule 20)."""

    def _recovered(self, effect: fx.Recovered) -> None:
        self.cluster.checkers.ended(self.ledger_id, effect.metadata)
        self._delete()

    def _delete(self) -> None:
        self.cluster.store.converse(self._deletion())

    def _deletion(self) -> Steps:
        store = self.cluster.store
        answer = yield self.session, store.read, self.ledger_id
        if isinstance(answer, Versioned):
            assert answer.metadata.state is LedgerState.CLOSED
            answer = yield self.session, self._delete_carried_out, answer.version
            if answer is ev.CasOutcome.DONE:
                self.note(f"deleted ledger {self.ledger_id}")
                self.finish()
                return
        elif answer is not LOST:
            self.finish()
            return
        self.later(20 * MS, self._delete)

    def _delete_carried_out(self, version: int) -> ev.CasOutcome:
        outcome = self.cluster.store.delete(self.ledger_id, version)
        if outcome is ev.CasOutcome.DONE:
            self._note_company()
        return outcome

    def _note_company(self) -> None:
        tally = self.world.tally
        others = self.company()
        recovering = Activity.RECOVERY in others
        repairing = Activity.REPAIR in others
        if recovering:
            tally.state("deletion against recovery")
        if repairing:
            tally.state("deletion against repair")
        if recovering and repairing:
            tally.state("deletion, recovery and repair")
