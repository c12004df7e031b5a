"""The auditor and its workers as processes: they look, leave tasks, take locks, plan anew, repair.

What they decide is the core's (`Auditor`, `LedgerAuditor`, `LedgerRepair`, `LedgerRecovery`); here is what their owners
do around them: read metadata, ask bookies what they hold, keep tasks and ephemeral locks, stop when the session is gone
(rule 34).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.audit.auditor import Auditor, AuditorPolicy
from daybook.core.audit.judgement import Findings, LedgerAuditor, OpenAction
from daybook.core.audit.task import RepairTask
from daybook.core.bookie.ledger import LacAnswer
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.repair.copy import RepairPolicy
from daybook.core.repair.plan import PlanKey, RepairPlan
from daybook.core.repair.repair import LedgerRepair
from tests.model.sim.actors import make_recovery
from tests.model.sim.audit_checks import LOST_DELAY_MS, OPEN_GRACE_MS, ReadPace
from tests.model.sim.client_process import Activity
from tests.model.sim.clients import Driver
from tests.model.sim.metadata_model import LOST, Session, Versioned
from tests.model.sim.recovery_checks import RecoveryChecks
from tests.model.sim.repair_checks import RepairChecks
from tests.model.sim.transitions import Party
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster

AUDITOR_LOCK: Final = "auditor"
_LISTING_TIMEOUT_US: Final = 15 * MS
_CYCLE_PAUSE_US: Final = 90 * MS
_PACE_US: Final = 10 * MS
_ROUNDS_MAX: Final = 8


@dataclass(slots=True)
class Inspection:
    """What the bookies of a ledger told of it."""

    ledger_id: LedgerId
    then: Callable[["Inspection"], None]
    found: Versioned | None = None
    deleted: bool = False
    listed: dict[BookieId, IntervalSet] = field(default_factory=dict)
    limbo: set[BookieId] = field(default_factory=set)
    lac: EntryId = -1
    over: bool = False

    def findings(self, registered: dict[BookieId, BookieInfo], lost: frozenset[BookieId]) -> Findings:
        """For the auditor's judgement."""
        return Findings(
            registered,
            lost=lost,
            limbo=frozenset(self.limbo),
            listed=self.listed,
            last_add_confirmed=self.lac,
        )


class Inspector(Driver):
    """A client that can look at a ledger: its metadata, then what each of its bookies lists."""

    def inspect(self, ledger_id: LedgerId, then: Callable[[Inspection], None]) -> None:
        """Call `then` with what was learned, in any case."""
        inspection = Inspection(ledger_id, then)
        store = self.cluster.store
        store.request(self.session, partial(self._inspect_bookies, inspection), store.read, ledger_id)

    def _inspect_bookies(self, inspection: Inspection, answer: object) -> None:
        inspection.deleted = answer is None
        if not isinstance(answer, Versioned):
            inspection.then(inspection)
            return
        inspection.found = answer
        for name in sorted(answer.metadata.bookies()):
            bookie = self.cluster.bookies[name]
            reply = partial(self.cluster.network.call, bookie, self, self._listed, inspection)
            self.cluster.network.call(self, bookie, bookie.listing, inspection.ledger_id, reply)
        self.later(_LISTING_TIMEOUT_US, self._inspected, inspection)

    def _listed(
        self,
        inspection: Inspection,
        bookie: BookieId,
        entries: frozenset[EntryId],
        lac: LacAnswer,
    ) -> None:
        assert inspection.found is not None
        held = IntervalSet()
        held.add_ids(sorted(entries))
        inspection.listed[bookie] = held
        inspection.lac = max(inspection.lac, lac.last_add_confirmed)
        if lac.limbo:
            inspection.limbo.add(bookie)
        if len(inspection.listed) == len(inspection.found.metadata.bookies()):
            self._inspected(inspection)

    def _inspected(self, inspection: Inspection) -> None:
        if not inspection.over and not self.done:
            inspection.over = True
            inspection.then(inspection)

    def session_expired(self) -> None:
        """Stop: someone else may hold our locks by now (rule 34)."""
        self.note("stops, its session has expired")
        self.finish()


class AuditorClient(Inspector):
    """The elected auditor: cycles over all ledgers and leaves tasks."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name, -1)
        rng = self.world.rng(name)
        policy = AuditorPolicy(
            lost_delay_ms=LOST_DELAY_MS,
            open_grace_ms=OPEN_GRACE_MS,
            reads_per_second=rng.choice((20, 1_000_000)),
        )
        self._auditor = Auditor(cluster.placement, rng, policy)
        self._pace = ReadPace(cluster.checkers.fail, policy.reads_per_second, self.world.now_ms)
        self._registered: dict[BookieId, BookieInfo] = {}
        self._all_was_settled = self._is_elected = False
        self._inspecting = 0
        self._began_us = 0
        store = cluster.store
        store.request(self.session, self._elected, store.lock, self.session, AUDITOR_LOCK)

    def _elected(self, answer: object) -> None:
        if answer is True:
            self.note("is elected")
            self._is_elected = True
            self._begin()
        else:
            self.finish()

    def _begin(self) -> None:
        if not self.done:
            self.cluster.store.request(self.session, self._bookies_read, self.cluster.store.bookies)

    def _bookies_read(self, answer: object) -> None:
        if not isinstance(answer, dict):
            self.later(_CYCLE_PAUSE_US, self._begin)
            return
        is_off = self.cluster.store.repair_off_until_us > self.world.now_us
        self._auditor.bookies.set_enabled(enabled=not is_off)
        self._observe(answer)
        if is_off:
            self.cluster.checkers.audits.switched_off(self._auditor.bookies.lost())
        self.cluster.store.request(self.session, self._ledgers_read, self.cluster.store.list_ledgers)

    def bookies_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """Who returns between two cycles was not away all the time (rule 33)."""
        if self._is_elected and not self.done:
            self._observe(registered)

    def _observe(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        self._registered = dict(registered)
        writable = {name for name, info in registered.items() if info.writable}
        self._auditor.bookies.observe(self.world.now_ms, writable, registered.keys() - writable)

    def _ledgers_read(self, answer: object) -> None:
        if not isinstance(answer, dict):
            self.later(_CYCLE_PAUSE_US, self._begin)
            return
        self._began_us = self.world.now_us
        self._all_was_settled = not self.cluster.is_faulty and all(
            found.metadata.is_closed for found in answer.values()
        )
        self._auditor.begin(self.world.now_ms, sorted(answer))
        self._read_on()

    def _read_on(self) -> None:
        ledgers = self._auditor.next_reads(self.world.now_ms)
        for ledger_id in ledgers:
            self._pace.read(self.world.now_ms)
            self._inspecting += 1
            self.inspect(ledger_id, self._judge)
        if self._auditor.cycle_is_over:
            self._report()
        elif not self._inspecting:
            self.later(_PACE_US, self._read_on)

    def _judge(self, inspection: Inspection) -> None:
        self._inspecting -= 1
        if inspection.found is None:
            self._auditor.skip(inspection.ledger_id, deleted=inspection.deleted)
        else:
            findings = inspection.findings(self._registered, self._auditor.bookies.lost())
            metadata, now_ms = inspection.found.metadata, self.world.now_ms
            audit = self._auditor.judge(metadata, findings, now_ms)
            self.cluster.checkers.audits.judged(metadata, findings, audit, now_ms)
        self._read_on()

    def _report(self) -> None:
        report = self._auditor.report()
        if self.world.tracing:
            self.note(f"finds tasks {report.tasks}, blocked {report.blocked}")
        store = self.cluster.store
        for task in report.tasks:
            store.request(self.session, _ignore, store.put_task, task)
        for ledger_id in report.healthy:
            if ledger_id in store.tasks:
                store.request(self.session, _ignore, store.remove_task, ledger_id)
        self.cluster.fully_replicated = report.is_fully_replicated and report.ledgers == len(store.ledgers)
        if self.cluster.fully_replicated and self._all_was_settled:
            self.cluster.checkers.nothing_is_under_replicated(self._began_us)
        self.later(_CYCLE_PAUSE_US, self._begin)


class WorkerClient(Inspector):
    """Takes one ledger's lock and repairs it, plan by plan, each after a look of its own (rule 33).

    `by_hand`: someone repairs at the same time without the lock; then the machine alone has to be careful (rule 56).
    """

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId, *, by_hand: bool = False) -> None:
        super().__init__(cluster, name, ledger_id)
        self.by_hand = by_hand
        self.clears_limbo_of: BookieId | None = None
        self.successors: list[BookieId] = []
        self._locked_by: Session | None = None
        self._checks = cluster.checkers.audits
        self._recovery_checks: RecoveryChecks | None = None
        self._repair_checks: RepairChecks | None = None
        self._judge = LedgerAuditor(cluster.placement, self.world.rng(name))
        self._task: RepairTask | None = None
        self._plan_key: PlanKey = ()
        self._setbacks: set[PlanKey] = set()
        self._registered: dict[BookieId, BookieInfo] = {}
        self._rounds = 0
        self._carry_out |= {
            fx.RepairFinished: self._look_again,
            fx.RepairAbandoned: self._look_again,
            fx.RepairFailed: self._repair_failed,
            fx.Recovered: self._recovered,
            fx.RecoveryFailed: self._recovery_failed,
        }
        self.start_ticking()
        if by_hand:
            self.later(0, self._locked, by_hand)
        else:
            store = cluster.store
            store.request(self.session, self._locked, store.lock, self.session, f"ledger-{ledger_id}")

    def session_expired(self) -> None:
        """The lock is gone, and the machine must not go on as if it held it (rule 34)."""
        if isinstance(self.machine, LedgerRepair) and not self.done:
            self.feed(ev.LockLost())
        super().session_expired()

    def _locked(self, answer: object) -> None:
        if answer is not True:
            self.finish()
            return
        self._locked_by = self.session
        store = self.cluster.store
        store.request(self.session, self._task_read, store.tasks.get, self.ledger_id)

    def _task_read(self, answer: object) -> None:
        if not isinstance(answer, RepairTask):
            self.finish()
            return
        self._task = answer
        self._look()

    def _look(self) -> None:
        self._rounds += 1
        self.activity = Activity.NONE
        self.clears_limbo_of, self.successors = None, []
        if self._rounds > _ROUNDS_MAX:
            self.finish()
            return
        self.cluster.store.request(self.session, self._bookies_read, self.cluster.store.bookies)

    def _bookies_read(self, answer: object) -> None:
        if answer is LOST or not isinstance(answer, dict):
            self.finish()
            return
        self._registered = answer
        self.inspect(self.ledger_id, self._plan)

    def _plan(self, inspection: Inspection) -> None:
        found, task = inspection.found, self._task
        assert task is not None
        if found is None:
            self._end(task_is_done=inspection.deleted)
            return
        lost = task.still_lost(self._registered.keys())
        audit = self._judge.audit(
            found.metadata, inspection.findings(self._registered, lost), grace_is_over=task.recover
        )
        plan = next((plan for plan in audit.plans if plan.key not in self._setbacks), None)
        if plan is not None:
            self._repair(found, plan)
        elif audit.plans:
            self.finish()
        elif audit.open_action is OpenAction.RECOVER:
            self._recover()
        else:
            self._end(task_is_done=not audit.problems)

    def _end(self, *, task_is_done: bool) -> None:
        """Give the lock back; before that take the task away, if there is nothing left to do."""
        store = self.cluster.store
        if task_is_done:
            store.request(self.session, self._task_removed, store.remove_task, self.ledger_id)
        else:
            self.finish()

    def _task_removed(self, _answer: object) -> None:
        self.finish()

    def _repair(self, found: Versioned, plan: RepairPlan) -> None:
        self.note(f"repairs ledger {self.ledger_id}: {plan}")
        self._plan_key = plan.key
        self._checks.planned(found.metadata, plan, self._registered, self.world.now_ms)
        self.party = Party.REPAIR
        self.clears_limbo_of = plan.clear_limbo
        self.successors = [job.target for part in plan.fragments for job in part.jobs if job.replaces]
        self.activity = Activity.REPAIR
        rng = self.world.rng(f"{self.name}/{self._rounds}")
        machine = LedgerRepair(
            found.metadata,
            found.version,
            plan,
            policy=RepairPolicy(read_bytes_max=rng.choice((1, 20, 1000)), metadata_retry_ms=20),
            unavailable=frozenset(self.cluster.bookies) - self._registered.keys(),
            now_ms=self.world.now_ms,
        )
        self._repair_checks = RepairChecks(self.cluster.checkers, self.name, found.metadata, plan, machine)
        self.cluster.repair_started(self)
        self.adopt(machine)
        self.perform(machine.start())

    def _look_again(self, _effect: object) -> None:
        self.activity = Activity.NONE
        self.later(0, self._look)

    def stepped(self, event: ev.Event, effects: list[fx.Effect]) -> None:
        """Without its lock it does nothing; what it does with it is its machine's, each with checks of its own."""
        if effects and self.session is not self._locked_by:
            self.cluster.checkers.fail("a worker without its lock stops", f"{self.name} goes on (rule 34)")
        if isinstance(self.machine, LedgerRecovery) and self._recovery_checks is not None:
            self._recovery_checks.stepped(event, effects)
        if self.activity is Activity.REPAIR and self._repair_checks is not None:
            self._repair_checks.stepped(event, effects)
            if any(isinstance(effect, fx.CasMetadata) for effect in effects):
                self.cluster.naming_successors(self)

    def _repair_failed(self, effect: fx.RepairFailed) -> None:
        """Another plan may do, and mend what this one lacked."""
        self._checks.failed(self.ledger_id, self.world.now_ms)
        self.cluster.setbacks.failed(
            self.ledger_id, str(effect.error), self.world.now_ms, unrecoverable=effect.unrecoverable
        )
        self._setbacks.add(self._plan_key)
        self._look_again(effect)

    def _recover(self) -> None:
        self.party = Party.RECOVERY
        self.activity = Activity.RECOVERY
        machine = make_recovery(self)
        self._recovery_checks = RecoveryChecks(self.cluster.checkers, machine)
        self.adopt(machine)
        self.perform(machine.start())

    def bookies_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """Only a recovery replaces bookies on its own; a repair has its plan."""
        if self.activity is Activity.RECOVERY:
            self.feed(ev.BookiesChanged(registered))

    def _recovered(self, effect: fx.Recovered) -> None:
        self.cluster.checkers.ended(self.ledger_id, effect.metadata)
        self.later(0, self._look)

    def _recovery_failed(self, effect: fx.RecoveryFailed) -> None:
        self._checks.failed(self.ledger_id, self.world.now_ms)
        self.cluster.setbacks.failed(
            self.ledger_id, str(effect.error), self.world.now_ms, unrecoverable=False
        )
        self.finish()


def _ignore(_answer: object) -> None:
    """The next cycle sees whether it was done."""
