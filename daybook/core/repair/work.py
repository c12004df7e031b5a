"""One ledger's turn in the queue of repairs: the order of a worker's steps, under the lock that its owner took.

    task ──► examine ──► recover ──┐
                │  ▲               │        nothing left that can be done:
                │  └───────────────┤        settle ──► done
                ├──────► repair ───┘
                └──────► settle ──► done

The first step is the task's own: it is read under the lock, and if another worker's repair has failed since this worker
found it, the task waits for its pause (rule 35).

Every examination reads metadata and bookies anew, so that a repair never outlives its reason and a bookie that returned
is left alone (rule 33). An open ledger in need is recovered before anything else is planned, if its grace period is over
and a recovery has somewhere to go (rule 31); then the plans of the judgement are carried out one by one, each after an
examination of its own. A plan that fails, or that comes up again after it was carried out, is passed over, so that a
fragment that cannot be repaired keeps no other from it (rule 35).

In the end the task is settled. If nothing is left to do it is deleted at the version that was read under the lock, so
that what was marked meanwhile stays (rule 56). If the repair failed the task is set aside for a time that doubles
(rule 35). Nothing is asked for once the lock may be lost (rule 34).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from daybook.core.effects import Recovered, RecoveryFailed, RepairFailed, RepairFinished
from daybook.core.errors import DaybookError, MetadataError
from daybook.core.events import LockLost
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.repair.judgement import (
    HARMLESS,
    Findings,
    LedgerAudit,
    LedgerJudge,
    OpenAction,
    Problem,
    Reason,
)
from daybook.core.repair.order import Order
from daybook.core.repair.plan import PlanKey
from daybook.core.repair.requests import (
    DeleteTask,
    Examine,
    Examined,
    LedgerGone,
    LedgerUnreadable,
    ReadTask,
    Recover,
    Repair,
    RepairEnded,
    SetTaskAside,
    StopRequested,
    TaskDeleted,
    TaskRead,
    TaskWritten,
    WorkEvent,
    WorkRequest,
)
from daybook.core.repair.task import UNRECOVERABLE, BackOff, RepairTask

TRIES_OF_A_PLAN: Final = 3
"""A plan that comes up again after it was carried out, or after others changed the fragment first, is tried so often."""

_RECOVERY: Final[PlanKey] = ("recovery",)


class Outcome(Enum):
    """What became of a ledger."""

    REPAIRED = "repaired"
    SOUND = "sound"  # nothing was to be done
    DELETED = "deleted"
    WAITING = "waiting"  # a grace period or the delay of a lost bookie is not over
    PAUSED = "paused"  # another worker's repair has failed meanwhile
    FAILED = "failed"
    LOCKED = "locked"  # another worker has it
    LOCK_LOST = "lock lost"  # another worker may have it by now
    STOPPED = "stopped"  # this worker was told to stop


@dataclass(frozen=True, slots=True)
class LedgerResult:
    """What a worker did for one ledger. `why` says what is left to repair; `again_ms`: when to examine it again."""

    ledger_id: LedgerId
    outcome: Outcome
    why: str = ""
    unrecoverable: bool = False
    again_ms: int | None = None
    plans: int = 0
    copied_entries: int = 0
    copied_bytes: int = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.outcome in {Outcome.REPAIRED, Outcome.SOUND, Outcome.DELETED}


class _State(Enum):
    """What the machine waits for."""

    TASK = auto()
    EXAMINATION = auto()
    REPAIR = auto()
    SETTLEMENT = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class _Setback:
    """Why a plan is passed over."""

    error: DaybookError
    unrecoverable: bool = False


class LedgerWork:
    """`start()`, then `step(event)` with the answer to each request; `result` is set when it `is_done`."""

    def __init__(
        self,
        ledger_id: LedgerId,
        order_of: Callable[[RepairTask | None], Order | None],
        judge: LedgerJudge,
        back_off: BackOff,
        found: RepairTask | None = None,
    ) -> None:
        """`order_of` the task, if there is one, is what to repair; None: nothing is to be done.

        `found` is the task as the worker found it before it took the lock; None: the ledger was asked for by its id.
        """
        self.ledger_id = ledger_id
        self.result: LedgerResult | None = None
        self.task = TaskRead(None)
        """The task as it was read under the lock."""
        self._found = found
        self._order_of = order_of
        self._order: Order | None = None
        self._judge = judge
        self._back_off = back_off
        self._state = _State.TASK
        self._key: PlanKey = ()
        self._setbacks: dict[PlanKey, _Setback] = {}
        self._tries: dict[PlanKey, int] = {}
        self._plans = 0
        self._copied_entries = 0
        self._copied_bytes = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing more is asked for."""
        return self._state is _State.DONE

    def start(self) -> list[WorkRequest]:
        """Begin, under the ledger's lock."""
        return [ReadTask(self.ledger_id)]

    def step(self, event: WorkEvent) -> list[WorkRequest]:
        """Take the answer to the request under way; an event that is not that one is ignored (rule 18)."""
        match self._state, event:
            case _State.DONE, _:
                return []
            case _, LockLost():
                return self._end(
                    self._result(Outcome.LOCK_LOST, "the lock may belong to another worker by now")
                )
            case _State.TASK, TaskRead() as answer:
                return self._task_read(answer)
            case _State.EXAMINATION, Examined() as answer:
                return self._examined(answer)
            case _State.EXAMINATION, LedgerGone():
                return self._settle(self._result(Outcome.DELETED))
            case _State.EXAMINATION, LedgerUnreadable(why):
                return self._settle(self._result(Outcome.FAILED, why))
            case _State.EXAMINATION, StopRequested():
                return self._end(self._result(Outcome.STOPPED, "the worker was told to stop"))
            case _State.REPAIR, RepairEnded() as answer:
                return self._repair_ended(answer)
            case _State.SETTLEMENT, TaskDeleted(deleted):
                return self._task_deleted(deleted=deleted)
            case _State.SETTLEMENT, TaskWritten():
                self._state = _State.DONE
                return []
            case _:
                assert isinstance(event, WorkEvent), f"{event} is no answer to a worker's machine"
                return []

    def _ask(self, state: _State, request: WorkRequest) -> list[WorkRequest]:
        """Ask for one step, whose answer `state` waits for."""
        self._state = state
        return [request]

    # Examine, recover, repair.

    def _task_read(self, event: TaskRead) -> list[WorkRequest]:
        self.task = event
        found, task = self._found, event.task
        if found is not None and task is not None and task.was_set_aside_since(found):
            return self._end(self._result(Outcome.PAUSED, task.why_not))
        self._order = self._order_of(event.task)
        if self._order is None:
            return self._end(self._result(Outcome.SOUND))
        return self._examine()

    def _examine(self) -> list[WorkRequest]:
        return self._ask(_State.EXAMINATION, Examine(self.ledger_id))

    def _examined(self, event: Examined) -> list[WorkRequest]:
        """Recover the ledger, or carry out the first plan that is not passed over, or settle."""
        order = self._order
        assert order is not None
        metadata, listed, now_ms = event.metadata, event.listed, event.now_ms
        findings = Findings(
            event.registered,
            lost=order.lost(metadata, event.registered, now_ms),
            leaving=order.leaving,
            limbo=frozenset(listed.limbo),
            listed=listed.entries,
            last_add_confirmed=listed.last_add_confirmed,
        )
        audit = self._judge.audit(metadata, findings, grace_is_over=order.grace_is_over(metadata, now_ms))
        if audit.open_action is OpenAction.RECOVER and _RECOVERY not in self._setbacks:
            self._key = _RECOVERY
            return self._ask(_State.REPAIR, Recover(event))
        plan = next((plan for plan in audit.plans if plan.key not in self._setbacks), None)
        if plan is None:
            return self._settle(self._verdict(order, audit, event))
        self._key = plan.key
        return self._ask(_State.REPAIR, Repair(event, plan))

    def _repair_ended(self, event: RepairEnded) -> list[WorkRequest]:
        """Remember how a plan ended; one that failed, or comes up again and again, is passed over."""
        self._copied_entries += event.copied_entries
        self._copied_bytes += event.copied_bytes
        match event.how:
            case RepairFailed(error, unrecoverable):
                self._setbacks[self._key] = _Setback(error, unrecoverable)
                return self._examine()
            case RecoveryFailed(error):
                self._setbacks[self._key] = _Setback(error)
                return self._examine()
            case RepairFinished() | Recovered():
                self._plans += 1
            case _:
                pass  # others changed the fragment first
        self._tries[self._key] = self._tries.get(self._key, 0) + 1
        if self._tries[self._key] >= TRIES_OF_A_PLAN:
            msg = f"ledger {self.ledger_id}: {TRIES_OF_A_PLAN} repairs of the same place did not last"
            self._setbacks[self._key] = _Setback(MetadataError(msg))
        return self._examine()

    # The verdict, and the task's settlement.

    def _verdict(self, order: Order, audit: LedgerAudit, event: Examined) -> LedgerResult:
        """Nothing more can be done now: is everything as it should be?"""
        left = [problem for problem in audit.problems if _is_left(order, event.metadata, problem)]
        again_ms = order.again_ms()
        awaited = audit.open_action is OpenAction.WAIT or any(p.reason is Reason.MISSING for p in left)
        if again_ms is not None and awaited and not self._setbacks:
            return self._result(Outcome.WAITING, _in_words(left, event), again_ms=again_ms)
        if not left and not self._setbacks:
            return self._result(Outcome.REPAIRED if self._plans else Outcome.SOUND)
        why = [str(setback.error) for setback in self._setbacks.values()]
        why += audit.blocked or ([] if why else [_in_words(left, event)])
        unrecoverable = any(setback.unrecoverable for setback in self._setbacks.values())
        return self._result(Outcome.FAILED, "; ".join(why), unrecoverable=unrecoverable)

    def _settle(self, result: LedgerResult) -> list[WorkRequest]:
        """Delete the task, or set it aside; without a task, or while a delay runs, there is nothing to settle."""
        self.result = result
        task = self.task.task
        if task is not None and result.is_done:
            return self._ask(_State.SETTLEMENT, DeleteTask(self.ledger_id, self.task.version))
        if task is not None and result.outcome is Outcome.FAILED:
            pause_ms = self._back_off.pause_ms(task.attempts + 1)
            why = f"{UNRECOVERABLE}{result.why}" if result.unrecoverable else result.why
            return self._ask(_State.SETTLEMENT, SetTaskAside(task, self.task.version, pause_ms, why))
        return self._end(result)

    def _task_deleted(self, *, deleted: bool) -> list[WorkRequest]:
        assert self.result is not None
        if deleted:
            return self._end(self.result)
        return self._end(
            replace(self.result, outcome=Outcome.WAITING, why="more was found meanwhile", again_ms=0)
        )

    def _end(self, result: LedgerResult) -> list[WorkRequest]:
        self.result = result
        self._state = _State.DONE
        return []

    def _result(
        self, outcome: Outcome, why: str = "", *, unrecoverable: bool = False, again_ms: int | None = None
    ) -> LedgerResult:
        return LedgerResult(
            self.ledger_id,
            outcome,
            why,
            unrecoverable,
            again_ms,
            self._plans,
            self._copied_entries,
            self._copied_bytes,
        )


def _is_left(order: Order, metadata: LedgerMetadata, problem: Problem) -> bool:
    """Whether the order is unfulfilled because of `problem`; what an open fragment lacks its writer is to give."""
    if problem.reason is Reason.LEAVING:
        return problem.bookie in order.leaving
    if problem.reason in HARMLESS or problem.reason is Reason.OPEN_GAP:
        return False
    is_open = not metadata.is_closed and problem.first_entry == metadata.last_fragment.first_entry
    if is_open and not order.waits:
        return False  # the auditor decides when it is time for the open fragment
    return order.concerns(problem)


def _in_words(problems: Sequence[Problem], event: Examined) -> str:
    parts = []
    for problem in problems:
        silence = event.listed.silent.get(problem.bookie)
        text = f"entry {problem.first_entry}: {problem.bookie or 'its recovery'} is {problem.reason.value}"
        parts.append(f"{text} ({silence})" if silence else text)
    return ", ".join(parts)
