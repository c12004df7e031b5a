"""One ledger in one cycle of the auditor: read it, list its entries where that is due, judge it, see to its task.

    task ──► metadata ──► entries ──► (wait, entries again) ──► judged ──► remove ──► mark ──► free ──► done

The task is read before the metadata, so that a task is removed only for what was read after it. A bookie of an open
fragment that lacks what is confirmed is listed twice, because a live writer may be about to send it (rule 45). A task
that names a reason which no longer holds is deleted whole, and what is left is marked anew: a worker must not act on
what is over (rule 33). A task is deleted only at the version that was read here, so nothing is lost that another process
added (rule 56).
"""

from collections.abc import Callable
from enum import Enum, auto

from daybook.core.audit.cycle_judge import CycleJudge
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.repair.judgement import Findings, LedgerAudit
from daybook.core.repair.requests import (
    AuditEvent,
    AuditRequest,
    DeleteTask,
    EntriesListed,
    LedgerGone,
    LedgerRead,
    LedgerUnreadable,
    Listed,
    ListEntries,
    MarkTask,
    ReadLedger,
    ReadTask,
    SetTaskFree,
    TaskDeleted,
    TaskMarked,
    TaskRead,
    TaskWritten,
    Wait,
    Waited,
)
from daybook.core.repair.task import bookies_of, reasons_of


class _State(Enum):
    """What the machine waits for."""

    TASK = auto()
    METADATA = auto()
    ENTRIES = auto()
    TIME = auto()
    REMOVAL = auto()
    MARK = auto()
    FREEING = auto()
    DONE = auto()


class LedgerExamination:
    """`start()`, then `step(event)` with the answer to each request, until it `is_done`."""

    def __init__(self, ledger_id: LedgerId, judge: CycleJudge, *, on_judged: Callable[[], None]) -> None:
        """`judge` gathers what this finds. `on_judged` is called once the ledger was judged or skipped: its task may come later."""
        self.ledger_id = ledger_id
        self.metadata: LedgerMetadata | None = None
        self.findings: Findings | None = None
        self.audit: LedgerAudit | None = None
        """The verdict, once there is one."""
        self.unreadable = ""
        """Why the ledger could not be judged, if it could not."""
        self._judge = judge
        self._on_judged = on_judged
        self._state = _State.METADATA
        self._task = TaskRead(None)
        self._version = -1
        self._first: Findings | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing more is asked for."""
        return self._state is _State.DONE

    def start(self) -> list[AuditRequest]:
        """Begin."""
        if self.ledger_id in self._judge.scope.with_task:
            return self._ask(_State.TASK, ReadTask(self.ledger_id))
        return self._ask(_State.METADATA, ReadLedger(self.ledger_id))

    def step(self, event: AuditEvent) -> list[AuditRequest]:
        """Take the answer to the request under way; an event that is not that one is ignored (rule 18)."""
        match self._state, event:
            case _State.TASK, TaskRead() as answer:
                self._task = answer
                return self._ask(_State.METADATA, ReadLedger(self.ledger_id))
            case _State.METADATA, LedgerRead(metadata, version):
                return self._ledger_read(metadata, version)
            case _State.METADATA, LedgerGone():
                self._skip(deleted=True)
                return self._remove_task() if self._task.task is not None else self._end()
            case _State.METADATA, LedgerUnreadable(why):
                self.unreadable = why
                self._skip(deleted=False)
                return self._end()
            case _State.ENTRIES, EntriesListed(listed):
                return self._listed(listed)
            case _State.TIME, Waited():
                return self._list_entries()
            case _State.REMOVAL, TaskDeleted(deleted):
                self._judge.found.removed += deleted
                return self._mark()
            case _State.MARK, TaskMarked() as answer:
                return self._marked(answer)
            case _State.FREEING, TaskWritten():
                return self._end()
            case _:
                assert isinstance(event, AuditEvent), f"{event} is no answer to an auditor's machine"
                return []

    def _ask(self, state: _State, request: AuditRequest) -> list[AuditRequest]:
        """Ask for one step, whose answer `state` waits for."""
        self._state = state
        return [request]

    def _end(self) -> list[AuditRequest]:
        self._state = _State.DONE
        return []

    # What is known of the ledger.

    def _skip(self, *, deleted: bool) -> None:
        self._on_judged()
        self._judge.skip(self.ledger_id, deleted=deleted)

    def _ledger_read(self, metadata: LedgerMetadata, version: int) -> list[AuditRequest]:
        self.metadata, self._version = metadata, version
        scope = self._judge.scope
        is_new = scope.compares_new and self._judge.is_new(metadata, version)
        if scope.full or is_new or self._task.task is not None:
            return self._list_entries()
        return self._judged(self._findings(metadata, None))

    def _list_entries(self) -> list[AuditRequest]:
        assert self.metadata is not None
        asked = self.metadata.bookies() & self._judge.registered.keys()
        return self._ask(_State.ENTRIES, ListEntries(self.ledger_id, asked))

    def _listed(self, listed: Listed) -> list[AuditRequest]:
        metadata = self.metadata
        assert metadata is not None
        findings = self._findings(metadata, listed)
        if self._first is not None:
            return self._judged(self._first.seen_again(findings))
        if self._judge.needs_second_listing(metadata, findings):
            self._first = findings
            return self._ask(_State.TIME, Wait())
        return self._judged(findings)

    def _findings(self, metadata: LedgerMetadata, listed: Listed | None) -> Findings:
        judge, task = self._judge, self._task.task
        in_limbo = judge.scope.limbo.get(self.ledger_id, frozenset()) & metadata.bookies()
        return Findings(
            judge.registered,
            lost=judge.bookies.lost(),
            leaving=task.leaving if task else frozenset(),
            limbo=in_limbo if listed is None else in_limbo | listed.limbo,
            listed=None if listed is None else listed.entries,
            last_add_confirmed=None if listed is None else listed.last_add_confirmed,
        )

    # What becomes of its task.

    def _judged(self, findings: Findings) -> list[AuditRequest]:
        assert self.metadata is not None
        self.findings = findings
        self._on_judged()
        self.audit = self._judge.judge(self.metadata, self._version, findings)
        task = self._task.task
        if not self._judge.scope.enabled:
            return self._end()
        if task is not None and task.is_unrecoverable:
            self._judge.found.unrecoverable.add(self.ledger_id)
        if task is not None and task.is_outdated(self.audit):
            return self._remove_task()
        return self._mark()

    def _remove_task(self) -> list[AuditRequest]:
        version, self._task = self._task.version, TaskRead(None)
        return self._ask(_State.REMOVAL, DeleteTask(self.ledger_id, version))

    def _mark(self) -> list[AuditRequest]:
        if self.audit is None or not self.audit.needs_task:
            return self._end()
        request = MarkTask(self.ledger_id, reasons_of(self.audit), bookies_of(self.audit))
        return self._ask(_State.MARK, request)

    def _marked(self, answer: TaskMarked) -> list[AuditRequest]:
        """A bookie that registered anew may be what a task that was set aside waited for."""
        self._judge.found.marked += self._task.task is None or answer.version != self._task.version
        if self._judge.has_newcomers and answer.task.not_before_ms:
            return self._ask(_State.FREEING, SetTaskFree(answer.task, answer.version))
        return self._end()
