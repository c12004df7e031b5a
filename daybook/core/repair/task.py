"""A ledger's task in the queue of repairs: why the ledger is to be repaired, and from when on. The one stored format.

The auditor writes tasks, workers take them. A task names the ledger and the reasons, one for each bookie and what is
wrong with it, as "lost bookie-2"; it never says how to repair the ledger, because a worker plans anew from what is true
when it begins (rule 33). Two reasons carry the auditor's authority. "lost": a bookie that restarts while a worker
examines the ledger must not count as lost because another bookie is. "recover": the grace period of the open fragment is
over, which only the auditor has observed for so long (rule 31).

A repair that failed sets the task aside for a time that doubles with each failure, so that it blocks no other (rule 35).
The time is stored by the wall clock of the worker that failed; `DueTimes` limits how long it is believed.
"""

import json
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from daybook.core.errors import MetadataError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.repair.judgement import HARMLESS, LedgerAudit, OpenAction, Reason

TASK_FORMAT_VERSION: Final = 1
RECOVER: Final = "recover"
"""A reason: the grace period of the open fragment is over, fence and recover the ledger."""
UNRECOVERABLE: Final = "unrecoverable: "
"""Begins `RepairTask.why_not` where no registered bookie has an entry, and each that should have it answered so."""
BACK_OFF_MS_MAX: Final = 3_600_000
"""The longest pause after a failed repair, unless a worker has another setting."""

_NOT_REPAIRABLE: Final = frozenset({Reason.MISSING, Reason.UNLISTED, Reason.OPEN_GAP})
"""What a worker can do nothing about."""


@dataclass(frozen=True, slots=True)
class RepairTask:
    """Why a ledger is to be repaired. Times are wall-clock milliseconds, for people and for the back-off.

    `reasons` are as the module's opening says; `bookies` are those that something is wrong with. `attempts` counts the
    failed ones; before `not_before_ms` no worker takes the task again, and `why_not` says why.
    """

    ledger_id: LedgerId
    reasons: tuple[str, ...]
    bookies: tuple[BookieId, ...]
    since_ms: int
    attempts: int = 0
    not_before_ms: int = 0
    why_not: str = ""

    # What the reasons say.

    @property
    def leaving(self) -> frozenset[BookieId]:
        """The bookies that the ledger is to be taken from, because they are to be decommissioned."""
        return bookies_with(Reason.LEAVING, self.reasons)

    @property
    def may_recover(self) -> bool:
        """Whether the auditor found that the grace period of the open fragment is over (rule 31)."""
        return RECOVER in self.reasons

    @property
    def is_unrecoverable(self) -> bool:
        """Whether the last attempt found an entry that no registered bookie has (rule 35)."""
        return self.why_not.startswith(UNRECOVERABLE)

    def was_set_aside_since(self, found: "RepairTask") -> bool:
        """Whether a repair has failed since this task was as `found`, and nothing made the task due since (rule 35).

        No clock decides this: the stored time is of another machine's clock, but it changes with every failure.
        """
        return self.not_before_ms not in {0, found.not_before_ms}

    def still_lost(self, registered: AbstractSet[BookieId]) -> frozenset[BookieId]:
        """The bookies that the auditor found lost, unless they are back (rule 33).

        A bookie that is merely missing now, and was not lost when the auditor wrote the task, is not among them.
        """
        return bookies_with(Reason.LOST, self.reasons) - registered

    def is_outdated(self, audit: LedgerAudit) -> bool:
        """Whether `audit` no longer finds one of the reasons; a bookie that lists nothing leaves that open."""
        if any(problem.reason in {Reason.MISSING, Reason.UNLISTED} for problem in audit.problems):
            return False
        is_sound = not (audit.problems or audit.plans)
        return is_sound or bool(set(self.reasons) - set(reasons_of(audit)))

    # What changes it.

    def marked(self, wanted: "RepairTask") -> "RepairTask":
        """Both together. A new reason makes the task due at once: what kept it from repair may be over."""
        reasons = tuple(sorted({*self.reasons, *wanted.reasons}))
        bookies = tuple(sorted({*self.bookies, *wanted.bookies}))
        if (reasons, bookies) == (self.reasons, self.bookies):
            return self
        return replace(self, reasons=reasons, bookies=bookies, not_before_ms=0, why_not="")

    def set_aside(self, *, until_ms: int, why: str) -> "RepairTask":
        """After a failed repair: no worker takes it before `until_ms` (rule 35)."""
        return replace(self, attempts=self.attempts + 1, not_before_ms=until_ms, why_not=why)

    def set_free(self) -> "RepairTask":
        """Due again: what kept it from repair may be over."""
        return replace(self, not_before_ms=0)

    # How it is stored.

    def to_json(self) -> bytes:
        """As it is stored."""
        record = {
            "formatVersion": TASK_FORMAT_VERSION,
            "reasons": self.reasons,
            "bookies": self.bookies,
            "sinceMs": self.since_ms,
            "attempts": self.attempts,
            "notBeforeMs": self.not_before_ms,
            "whyNot": self.why_not,
        }
        return json.dumps(record).encode()

    @classmethod
    def from_json(cls, ledger_id: LedgerId, data: bytes) -> "RepairTask":
        """Raises MetadataError for what `to_json` cannot make."""
        try:
            record = json.loads(data)
            if record["formatVersion"] != TASK_FORMAT_VERSION:
                raise ValueError("format")
            return cls(
                ledger_id,
                tuple(record["reasons"]),
                tuple(record["bookies"]),
                int(record["sinceMs"]),
                int(record["attempts"]),
                int(record["notBeforeMs"]),
                str(record["whyNot"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            msg = f"the task of ledger {ledger_id} has no known format: {data[:200]!r}"
            raise MetadataError(msg) from error


# Reasons, as they are stored.


def reasons_of(audit: LedgerAudit) -> tuple[str, ...]:
    """The reasons for what `audit` found, as far as a worker can do something about it."""
    reasons = {
        f"{problem.reason.value} {problem.bookie}".strip()
        for problem in audit.problems
        if problem.reason not in _NOT_REPAIRABLE
    }
    if audit.open_action is OpenAction.RECOVER:
        reasons.add(RECOVER)
    return tuple(sorted(reasons))


def bookies_of(audit: LedgerAudit) -> tuple[BookieId, ...]:
    """The bookies that something is wrong with."""
    return tuple(sorted({p.bookie for p in audit.problems if p.bookie and p.reason not in _NOT_REPAIRABLE}))


def leaving_reason(bookie: BookieId) -> str:
    """`bookie` is to be decommissioned."""
    return f"{Reason.LEAVING.value} {bookie}"


def bookies_with(reason: Reason, reasons: Iterable[str]) -> frozenset[BookieId]:
    """The bookies named with `reason`."""
    parts = (text.partition(" ") for text in reasons)
    return frozenset(bookie for value, _, bookie in parts if value == reason.value and bookie)


def is_harmless(reasons: Iterable[str]) -> bool:
    """Whether every entry has all its replicas for all that these say: bookies leave, or a better place is free.

    Reasons of a later release are left out.
    """
    values = {text.partition(" ")[0] for text in reasons}
    known = frozenset(reason for reason in Reason if reason.value in values)
    return bool(known) and known <= HARMLESS


# The back-off (rule 35).


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long a task is set aside after failed repairs: the pause doubles from `first_ms` to `max_ms`."""

    first_ms: int = 5_000
    max_ms: int = BACK_OFF_MS_MAX

    def pause_ms(self, failures: int) -> int:
        """The pause after so many failed repairs, at least one."""
        assert failures >= 1
        return min(self.max_ms, self.first_ms << min(failures - 1, 32))


class DueTimes:
    """When tasks that were set aside are due, however wrong the clock was of the worker that set them aside.

    The stored time is another machine's wall clock. No worker sets a task aside for longer than the longest back-off, so
    where more than that seems to be left, one of the two clocks is wrong: the task then waits for the longest back-off
    from when this process first saw it, by the monotonic clock (rule 35).
    """

    def __init__(self, longest_ms: int = BACK_OFF_MS_MAX) -> None:
        """`longest_ms` is the longest back-off that this process would set."""
        self._longest_ms = longest_ms
        self._bounds: dict[LedgerId, tuple[int, int]] = {}

    def not_before_ms(self, task: RepairTask, *, unix_ms: int, monotonic_ms: int) -> int:
        """When the task is due, by this process's wall clock, on which it is `unix_ms` now."""
        if task.not_before_ms - unix_ms <= self._longest_ms:
            self._bounds.pop(task.ledger_id, None)
            return task.not_before_ms
        stored_ms, until_ms = self._bounds.get(task.ledger_id, (0, 0))
        if stored_ms != task.not_before_ms:
            until_ms = monotonic_ms + self._longest_ms
            self._bounds[task.ledger_id] = (task.not_before_ms, until_ms)
        return unix_ms + until_ms - monotonic_ms

    def keep_only(self, ledger_ids: Collection[LedgerId]) -> None:
        """Forget all but these, which are the ones that have a task."""
        self._bounds = {i: bound for i, bound in self._bounds.items() if i in ledger_ids}
