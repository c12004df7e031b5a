"""A queue of repairs in miniature: the task of one ledger, and the small cluster that holds the ledger.

`Queue` answers what the worker's and the auditor's machines ask for, at once and in order. A test changes the world
between two steps through `before`, a function that sees each request and may answer in its place.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from random import Random

from daybook.core.audit.auditor import Auditor
from daybook.core.audit.cycle import CycleReport, CycleScope
from daybook.core.effects import RepairAbandoned, RepairFailed, RepairFinished
from daybook.core.ids import BookieId
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair import requests as rq
from daybook.core.repair.judgement import Findings, LedgerAudit, LedgerJudge
from daybook.core.repair.order import Order, TaskOrder
from daybook.core.repair.repair import LedgerRepair
from daybook.core.repair.task import BackOff, RepairTask
from daybook.core.repair.work import LedgerResult, LedgerWork
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.repair.judgement_kit import audit, listing
from tests.unit.core.repair.repair_model import Cluster

BACK_OFF = BackOff(first_ms=1_000, max_ms=8_000)


def task_for(*reasons: str) -> RepairTask:
    """A task of the one ledger."""
    bookies = {reason.split(" ")[1] for reason in reasons if " " in reason}
    return RepairTask(LEDGER, tuple(sorted(reasons)), tuple(sorted(bookies)), since_ms=5)


def order_of(task: RepairTask | None) -> Order | None:
    """By what the task says."""
    return None if task is None else TaskOrder(task)


class Queue:
    """The task at `version`; `now_ms` is both clocks. `before(request)` returns None to have it answered here."""

    def __init__(
        self,
        cluster: Cluster,
        registered: Mapping[BookieId, BookieInfo],
        task: RepairTask | None = None,
        *,
        silent: AbstractSet[BookieId] = frozenset(),
    ) -> None:
        self.cluster = cluster
        self.registered = registered
        self.task = task
        self.version = 1
        self.now_ms = 0
        self.silent = silent
        self.asked: list[object] = []
        self.before: Callable[[object], rq.WorkEvent | rq.AuditEvent | None] = lambda _: None

    # The machines.

    def work(
        self,
        order: Callable[[RepairTask | None], Order | None] = order_of,
        found: RepairTask | None = None,
    ) -> LedgerWork:
        """A turn of the ledger that has not begun, of a worker that `found` the task."""
        return LedgerWork(LEDGER, order, LedgerJudge(make_policy(), Random(1)), BACK_OFF, found)

    def turn(
        self,
        order: Callable[[RepairTask | None], Order | None] = order_of,
        found: RepairTask | None = None,
    ) -> LedgerResult:
        """Give the ledger its turn."""
        work = self.work(order, found)
        requests = work.start()
        for _ in range(200):
            if not requests:
                break
            (request,) = requests
            requests = work.step(self._answer(request))  # type: ignore[arg-type]  # the answer to a worker's request
        assert work.is_done
        assert work.result is not None
        return work.result

    def cycle(self, auditor: Auditor, *, limbo: bool = False, **scope: bool) -> CycleReport:
        """A cycle over the one ledger."""
        auditor.observe(self.now_ms, self.registered)
        with_task = frozenset({LEDGER} if self.task else ())
        marks = frozenset(name for name, bookie in self.cluster.bookies.items() if bookie.limbo)
        known = {LEDGER: marks} if limbo else {}
        auditor.begin(self.now_ms, [LEDGER], CycleScope(with_task, known, **scope))
        (examination,) = auditor.next_examinations(self.now_ms)
        requests = examination.start()
        while requests:
            (request,) = requests
            requests = examination.step(self._answer(request))  # type: ignore[arg-type]  # the answer to an auditor's
        assert examination.is_done
        return auditor.report()

    # The answers.

    def names(self) -> list[str]:
        """What was asked for, by name."""
        return [type(request).__name__ for request in self.asked]

    def _answer(self, request: object) -> rq.WorkEvent | rq.AuditEvent:
        self.asked.append(request)
        return self.before(request) or self._carry_out(request)

    def _carry_out(self, request: object) -> rq.WorkEvent | rq.AuditEvent:
        metadata, version = self.cluster.metadata, self.cluster.version
        match request:
            case rq.ReadTask():
                return rq.TaskRead(self.task, self.version)
            case rq.ReadLedger():
                return rq.LedgerGone() if metadata is None else rq.LedgerRead(metadata, version)
            case rq.ListEntries(_, bookies):
                return rq.EntriesListed(self.listed(bookies))
            case rq.Examine():
                if metadata is None:
                    return rq.LedgerGone()
                here = metadata.bookies() & self.registered.keys()
                return rq.Examined(metadata, version, self.registered, self.listed(here), self.now_ms)
            case rq.Repair(examined, plan):
                away = examined.metadata.bookies() - examined.registered.keys()
                repair = LedgerRepair(examined.metadata, examined.version, plan, unavailable=away)
                ended = self.cluster.run(repair)
                assert isinstance(ended, RepairFinished | RepairFailed | RepairAbandoned)
                return rq.RepairEnded(ended, repair.copied_entries, repair.copied_bytes)
            case rq.Wait():
                return rq.Waited()
            case rq.DeleteTask(_, at_version):
                is_same = self.task is not None and at_version == self.version
                self.task = None if is_same else self.task
                return rq.TaskDeleted(deleted=is_same)
            case rq.MarkTask(ledger_id, reasons, bookies):
                wanted = RepairTask(ledger_id, reasons, bookies, since_ms=self.now_ms)
                return self._marked(wanted if self.task is None else self.task.marked(wanted))
            case rq.SetTaskAside(task, _, pause_ms, why):
                self._marked(task.set_aside(until_ms=self.now_ms + pause_ms, why=why))
                return rq.TaskWritten()
            case rq.SetTaskFree(task):
                self._marked(task.set_free())
                return rq.TaskWritten()
        raise AssertionError(request)

    def _marked(self, task: RepairTask) -> rq.TaskMarked:
        self.version += task != self.task
        self.task = task
        return rq.TaskMarked(task, self.version)

    def listed(self, bookies: AbstractSet[BookieId]) -> rq.Listed:
        """What those of `bookies` hold that answer; the LAC is what they hold without a hole."""
        listed = rq.Listed(silent=dict.fromkeys(sorted(bookies & self.silent), "down"))
        held = listing(self.cluster)
        for name in sorted(bookies - self.silent):
            bookie = self.cluster.bookies[name]
            lac = max(bookie.entries, default=-1)
            listed.add(name, held[name], lac, limbo=bookie.limbo is not None)
        return listed


def heal(
    cluster: Cluster,
    registered: Mapping[BookieId, BookieInfo],
    *,
    lost: AbstractSet[BookieId] = frozenset(),
    leaving: AbstractSet[BookieId] = frozenset(),
) -> LedgerAudit:
    """Give the ledger one turn in the queue; what is still wrong with it after that."""
    reasons = [f"lost {name}" for name in lost] + [f"leaving {name}" for name in leaving]
    result = Queue(cluster, registered, task_for(*reasons or ["gap a"])).turn()
    assert result.is_done, result
    assert cluster.metadata is not None
    limbo = frozenset(name for name, bookie in cluster.bookies.items() if bookie.limbo)
    findings = Findings(registered, frozenset(lost), frozenset(leaving), limbo, listing(cluster))
    return audit(cluster.metadata, findings)
