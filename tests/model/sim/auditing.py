"""The auditor and its workers as processes: the machines that ship, and what their owners do around them.

What is repaired, in which order and when, is decided by the core's machines (`Auditor`, `LedgerExamination`,
`LedgerWork`); they copy and close with `LedgerRepair` and `LedgerRecovery`. Here they are given simulated answers: metadata
is read, bookies are asked what they hold, tasks are stored and ephemeral locks taken; all ends when the session is gone
(rule 34).
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.audit.auditor import Auditor, AuditorPolicy
from daybook.core.audit.cycle import CycleScope
from daybook.core.audit.examination import LedgerExamination
from daybook.core.bookie.ledger import LacAnswer
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.repair import requests as rq
from daybook.core.repair.copy import RepairPolicy
from daybook.core.repair.judgement import LedgerJudge
from daybook.core.repair.order import Order, TaskOrder
from daybook.core.repair.repair import LedgerRepair
from daybook.core.repair.task import BackOff, RepairTask
from daybook.core.repair.work import LedgerWork
from tests.model.sim.actors import make_recovery
from tests.model.sim.audit_checks import (
    LOST_DELAY_MS,
    OPEN_GRACE_MS,
    RETRY_FIRST_MS,
    RETRY_MAX_MS,
    ReadPace,
)
from tests.model.sim.client_process import Activity
from tests.model.sim.clients import Driver
from tests.model.sim.metadata_model import LOST, Session, Steps, Versioned
from tests.model.sim.queues import over_limit
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
_ASK_AGAIN_US: Final = 10 * MS


@dataclass(slots=True)
class _Listing:
    """Bookies that are asked for their entries of one ledger."""

    asked: AbstractSet[BookieId]
    then: Callable[[rq.Listed], None]
    listed: rq.Listed = field(default_factory=rq.Listed)
    over: bool = False


class Inspector(Driver):
    """A client that can ask bookies which entries of a ledger they hold."""

    def list_entries(
        self, ledger_id: LedgerId, bookies: AbstractSet[BookieId], then: Callable[[rq.Listed], None]
    ) -> None:
        """Call `then` with what those hold that answer in time."""
        listing = _Listing(bookies, then)
        for name in sorted(bookies):
            bookie = self.cluster.bookies[name]
            reply = partial(self.cluster.network.call, bookie, self, self._bookie_listed, listing)
            self.cluster.network.call(self, bookie, bookie.listing, ledger_id, reply)
        self.later(_LISTING_TIMEOUT_US if bookies else 0, self._all_listed, listing)

    def _bookie_listed(
        self, listing: _Listing, bookie: BookieId, entries: frozenset[EntryId], lac: LacAnswer
    ) -> None:
        held = IntervalSet()
        held.add_ids(sorted(entries))
        listing.listed.add(bookie, held, lac.last_add_confirmed, limbo=lac.limbo)
        if len(listing.listed.entries) == len(listing.asked):
            self._all_listed(listing)

    def _all_listed(self, listing: _Listing) -> None:
        if not listing.over and not self.done:
            listing.over = True
            listing.then(listing.listed)

    def session_expired(self) -> None:
        """Stop: someone else may hold our locks by now (rule 34)."""
        self.note("stops, its session has expired")
        self.finish()


class AuditorClient(Inspector):
    """The elected auditor: cycles over all ledgers and writes tasks."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name, -1)
        rng = self.world.rng(name)
        policy = AuditorPolicy(
            lost_delay_ms=LOST_DELAY_MS,
            open_grace_ms=OPEN_GRACE_MS,
            reads_per_second=rng.choice((20, 1_000_000)),
        )
        self._auditor = Auditor(cluster.placement, rng, policy)
        self._second_look_us = rng.choice((0, 5)) * MS
        self._pace = ReadPace(cluster.checkers.fail, policy.reads_per_second, self.world.now_ms)
        self._all_was_settled = self._is_elected = False
        self._examining = 0
        self._began_us = 0
        store = cluster.store
        store.request(self.session, self._elected, store.lock, self.session, AUDITOR_LOCK)

    def _elected(self, answer: object) -> None:
        if answer is True:
            self.note("is elected")
            self._is_elected = True
            self._auditor.begin_term()
            self._begin()
        else:
            self.finish()

    def _begin(self) -> None:
        if not self.done:
            self.cluster.store.converse(self._cycle())

    def _cycle(self) -> Steps:
        """Read what a cycle begins with; without an answer begin again later."""
        store = self.cluster.store
        registered = yield self.session, store.bookies
        if registered is LOST:
            self.later(_CYCLE_PAUSE_US, self._begin)
            return
        is_off = store.repair_off_until_us > self.world.now_us
        self._auditor.bookies.set_enabled(enabled=not is_off)
        self._auditor.observe(self.world.now_ms, registered)
        if is_off:
            self.cluster.checkers.audits.switched_off(self._auditor.bookies.lost())
        tasks = yield self.session, store.task_ids
        ledgers = LOST if tasks is LOST else (yield self.session, store.list_ledgers)
        if ledgers is LOST:
            self.later(_CYCLE_PAUSE_US, self._begin)
            return
        scope = CycleScope(with_task=tasks, enabled=not is_off)
        self._began_us = self.world.now_us
        self._all_was_settled = not self.cluster.is_faulty and all(
            found.metadata.is_closed for found in ledgers.values()
        )
        self._auditor.begin(self.world.now_ms, sorted(ledgers.keys() | scope.with_task), scope)
        self._read_on()

    def bookies_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """Who returns between two cycles was not unregistered all the time (rule 33)."""
        if self._is_elected and not self.done:
            self._auditor.observe(self.world.now_ms, dict(registered))

    def _read_on(self) -> None:
        for examination in self._auditor.next_examinations(self.world.now_ms):
            self._pace.read(self.world.now_ms)
            self._examining += 1
            self._ask(examination, examination.start())
        if self._examining:
            return
        if self._auditor.cycle_is_over:
            self._report()
        else:
            self.later(_PACE_US, self._read_on)

    # One ledger

    def _ask(self, examination: LedgerExamination, requests: list[rq.AuditRequest]) -> None:
        """Carry out what the examination asks for next; the store is asked again until it answers."""
        if self.done:
            return
        if not requests:
            self._examining -= 1
            self._read_on()
            return
        (request,) = requests
        store, reply = self.cluster.store, partial(self._answered, examination, requests)
        match request:
            case rq.ReadTask(ledger_id):
                store.request(self.session, reply, store.read_task, ledger_id)
            case rq.ReadLedger(ledger_id):
                store.request(self.session, partial(self._found, examination), store.read, ledger_id)
            case rq.ListEntries(ledger_id, bookies):
                then = partial(self._entries_listed, examination)
                self.list_entries(ledger_id, bookies, then)
            case rq.Wait():
                self.later(self._second_look_us, self._give, examination, rq.Waited())
            case rq.MarkTask(ledger_id, reasons, bookies):
                task = RepairTask(ledger_id, reasons, bookies, since_ms=self.world.now_ms)
                store.request(self.session, reply, store.mark_task, task)
            case rq.DeleteTask(ledger_id, version):
                store.request(self.session, reply, store.delete_task, ledger_id, version)
            case rq.SetTaskFree():
                store.request(self.session, reply, store.set_task_free, request)

    def _answered(
        self, examination: LedgerExamination, requests: list[rq.AuditRequest], answer: object
    ) -> None:
        if answer is LOST:
            self.later(_ASK_AGAIN_US, self._ask, examination, requests)
            return
        assert isinstance(answer, rq.TaskRead | rq.TaskMarked | rq.TaskDeleted | rq.TaskWritten)
        self._give(examination, answer)

    def _found(self, examination: LedgerExamination, answer: object) -> None:
        if isinstance(answer, Versioned):
            self._give(examination, rq.LedgerRead(answer.metadata, answer.version))
        else:
            gone = rq.LedgerGone() if answer is None else rq.LedgerUnreadable("no answer")
            self._give(examination, gone)

    def _entries_listed(self, examination: LedgerExamination, listed: rq.Listed) -> None:
        self._give(examination, rq.EntriesListed(listed))

    def _give(self, examination: LedgerExamination, event: rq.AuditEvent) -> None:
        was_judged = examination.audit is not None
        requests = examination.step(event)
        metadata, findings, audit = examination.metadata, examination.findings, examination.audit
        if not was_judged and metadata is not None and findings is not None and audit is not None:
            self.cluster.checkers.audits.judged(metadata, findings, audit, self.world.now_ms)
        self._ask(examination, requests)

    def _report(self) -> None:
        report = self._auditor.report()
        if self.world.tracing:
            self.note(f"finds {dict(report.by_reason)}, blocked {report.blocked}")
        store = self.cluster.store
        self.cluster.fully_replicated = report.is_fully_replicated and report.ledgers == len(store.ledgers)
        if self.cluster.fully_replicated and self._all_was_settled:
            self.cluster.checkers.nothing_is_under_replicated(self._began_us)
        self.later(_CYCLE_PAUSE_US, self._begin)


class WorkerClient(Inspector):
    """Takes one ledger's lock and gives the ledger its turn in the queue of repairs.

    `found` is the task as it was found; before the lock is taken another worker may have failed to repair the ledger
    (rule 35). `by_hand`: someone repairs at the same time without the lock; then the machine alone has to be careful
    (rule 56).
    """

    def __init__(
        self,
        cluster: "Cluster",
        name: str,
        ledger_id: LedgerId,
        *,
        found: RepairTask | None = None,
        by_hand: bool = False,
    ) -> None:
        super().__init__(cluster, name, ledger_id)
        self.by_hand = by_hand
        self.clears_limbo_of: BookieId | None = None
        self.successors: list[BookieId] = []
        self._locked_by: Session | None = None
        self._checks = cluster.checkers.audits
        self._recovery_checks: RecoveryChecks | None = None
        self._repair_checks: RepairChecks | None = None
        judge = LedgerJudge(cluster.placement, self.world.rng(name))
        back_off = BackOff(RETRY_FIRST_MS, RETRY_MAX_MS)
        self._work = LedgerWork(ledger_id, _order_of, judge, back_off, found)
        self._failed_ms_ago: int | None = None
        self._repairs = 0
        self._carry_out |= {
            fx.RepairFinished: self._ended,
            fx.RepairAbandoned: self._ended,
            fx.RepairFailed: self._ended,
            fx.Recovered: self._ended,
            fx.RecoveryFailed: self._ended,
        }
        self.start_ticking()
        if by_hand:
            self.later(0, self._locked, by_hand)
        else:
            store = cluster.store
            store.request(self.session, self._locked, store.lock, self.session, f"ledger-{ledger_id}")

    def session_expired(self) -> None:
        """The lock is gone, and no machine may continue as if it held it (rule 34)."""
        if isinstance(self.machine, LedgerRepair) and not self.done:
            self.feed(ev.LockLost())
        self._work.step(ev.LockLost())
        super().session_expired()

    def _locked(self, answer: object) -> None:
        if answer is not True:
            self.finish()
            return
        self._locked_by = self.session
        self._ask(self._work.start())

    # The ledger's turn

    def _ask(self, requests: list[rq.WorkRequest]) -> None:
        """Carry out what the machine asks for next. A store that does not answer ends the turn; another one follows."""
        if self.done:
            return
        if not requests:
            self.finish()
            return
        (request,) = requests
        store = self.cluster.store
        match request:
            case rq.ReadTask(ledger_id):
                store.request(self.session, self._answered, self._read_task, ledger_id)
            case rq.Examine():
                if not self.by_hand:
                    self._checks.began(self.ledger_id, self._failed_ms_ago)
                    self._failed_ms_ago = None
                self.activity = Activity.NONE
                self.clears_limbo_of, self.successors = None, []
                store.converse(self._examine())
            case rq.Recover():
                self._recover()
            case rq.Repair():
                self._repair(request)
            case rq.DeleteTask(ledger_id, version):
                store.request(self.session, self._answered, store.delete_task, ledger_id, version)
            case rq.SetTaskAside():
                now_ms = self.world.now_ms
                store.request(self.session, self._answered, store.set_task_aside, request, now_ms)

    def _read_task(self, ledger_id: LedgerId) -> rq.TaskRead:
        self._failed_ms_ago = self._checks.failed_ms_ago(ledger_id, self.world.now_ms)
        return self.cluster.store.read_task(ledger_id)

    def _answered(self, answer: object) -> None:
        if answer is LOST:
            self.finish()
            return
        assert isinstance(answer, rq.TaskRead | rq.TaskDeleted | rq.TaskWritten)
        self._give(answer)

    def _give(self, event: rq.WorkEvent) -> None:
        if self.done:
            return
        requests = self._work.step(event)
        crowded = over_limit(self._work)
        if crowded:
            self.cluster.checkers.fail("bounded queues", f"{self.name}: {crowded}")
        self._ask(requests)

    def _examine(self) -> Steps:
        store = self.cluster.store
        found = yield self.session, store.read, self.ledger_id
        if found is None:
            self._give(rq.LedgerGone())
            return
        registered = LOST if found is LOST else (yield self.session, store.bookies)
        if registered is LOST:
            self.finish()
            return
        asked = found.metadata.bookies() & registered.keys()
        self.list_entries(self.ledger_id, asked, partial(self._examined, found, registered))

    def _examined(
        self, found: Versioned, registered: Mapping[BookieId, BookieInfo], listed: rq.Listed
    ) -> None:
        now_ms = self.world.now_ms
        self._give(rq.Examined(found.metadata, found.version, registered, listed, now_ms))

    def _repair(self, request: rq.Repair) -> None:
        examined, plan = request.examined, request.plan
        self.note(f"repairs ledger {self.ledger_id}: {plan}")
        self._checks.planned(examined.metadata, plan, examined.registered, self.world.now_ms)
        self.party = Party.REPAIR
        self.clears_limbo_of = plan.clear_limbo
        self.successors = [job.target for part in plan.fragments for job in part.jobs if job.replaces]
        self.activity = Activity.REPAIR
        self._repairs += 1
        rng = self.world.rng(f"{self.name}/{self._repairs}")
        machine = LedgerRepair(
            examined.metadata,
            examined.version,
            plan,
            policy=RepairPolicy(read_bytes_max=rng.choice((1, 20, 1000)), metadata_retry_ms=20),
            unavailable=frozenset(self.cluster.bookies) - examined.registered.keys(),
            now_ms=self.world.now_ms,
        )
        self._repair_checks = RepairChecks(self.cluster.checkers, self.name, examined.metadata, plan, machine)
        self.cluster.repair_started(self)
        self.adopt(machine)
        self.perform(machine.start())

    def _recover(self) -> None:
        self.party = Party.RECOVERY
        self.activity = Activity.RECOVERY
        machine = make_recovery(self)
        self._recovery_checks = RecoveryChecks(self.cluster.checkers, machine)
        self.adopt(machine)
        self.perform(machine.start())

    def _ended(
        self,
        effect: fx.RepairFinished | fx.RepairAbandoned | fx.RepairFailed | fx.Recovered | fx.RecoveryFailed,
    ) -> None:
        if isinstance(effect, fx.Recovered):
            self.cluster.checkers.ended(self.ledger_id, effect.metadata)
        self.later(0, self._give, rq.RepairEnded(effect))

    def stepped(self, event: ev.Event, effects: list[fx.Effect]) -> None:
        """Without its lock it does nothing; what it does with it is its machine's, each with checks of its own."""
        if effects and self.session is not self._locked_by:
            self.cluster.checkers.fail("a worker without its lock stops", f"{self.name} continues (rule 34)")
        if isinstance(self.machine, LedgerRecovery) and self._recovery_checks is not None:
            self._recovery_checks.stepped(event, effects)
        if self.activity is Activity.REPAIR and self._repair_checks is not None:
            self._repair_checks.stepped(event, effects)
            if any(isinstance(effect, fx.CasMetadata) for effect in effects):
                self.cluster.naming_successors(self)

    def bookies_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """Only a recovery replaces bookies on its own; a repair has its plan."""
        if self.activity is Activity.RECOVERY:
            self.feed(ev.BookiesChanged(registered))


def _order_of(task: RepairTask | None) -> Order | None:
    return None if task is None else TaskOrder(task)
