"""Why a ledger has a task, in the words that are stored with it: one for each bookie and reason, as "lost bookie-2".

A worker needs to know which bookie is lost and which merely lacks entries: a bookie that restarts while a worker looks
must not be taken for lost because another one is (rule 33). And it needs the auditor's word that the grace period of an
open fragment is over, because only the auditor has watched it for so long (rule 31).
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from daybook.core.audit.judgement import HARMLESS, LedgerAudit, OpenAction, Reason
from daybook.core.audit.task import RepairTask as FoundTask
from daybook.core.ids import BookieId
from daybook.metadata.tasks import RepairTask

RECOVER: Final = "recover"
"""The grace period of the open fragment is over: fence and recover the ledger."""
UNRECOVERABLE: Final = "unrecoverable: "
"""Begins `RepairTask.why_not` where no reachable bookie has an entry."""

_NOT_TO_MEND: Final = frozenset({Reason.MISSING, Reason.UNLISTED, Reason.OPEN_GAP})
"""What a worker can do nothing about."""


def words_of(audit: LedgerAudit) -> tuple[str, ...]:
    """The words for what `audit` found."""
    words = {
        f"{problem.reason.value} {problem.bookie}".strip()
        for problem in audit.problems
        if problem.reason not in _NOT_TO_MEND
    }
    if audit.open_action is OpenAction.RECOVER:
        words.add(RECOVER)
    return tuple(sorted(words))


def bookies_of(audit: LedgerAudit) -> tuple[BookieId, ...]:
    """The bookies that something is wrong with."""
    return tuple(sorted({p.bookie for p in audit.problems if p.bookie and p.reason not in _NOT_TO_MEND}))


def leaving_word(bookie: BookieId) -> str:
    """`bookie` is to be decommissioned."""
    return f"{Reason.LEAVING.value} {bookie}"


def reasons_of(words: Iterable[str]) -> frozenset[Reason]:
    """The reasons alone; words of a later release are left out."""
    values = {word.partition(" ")[0] for word in words}
    return frozenset(reason for reason in Reason if reason.value in values)


def named_with(reason: Reason, words: Iterable[str]) -> frozenset[BookieId]:
    """The bookies named with `reason`."""
    parts = (word.partition(" ") for word in words)
    return frozenset(bookie for value, _, bookie in parts if value == reason.value and bookie)


def still_lost(task: RepairTask, registered: AbstractSet[BookieId]) -> frozenset[BookieId]:
    """The bookies that the auditor found lost and that are not back (rule 33)."""
    lost = named_with(Reason.LOST, task.reasons)
    return FoundTask(task.ledger_id, (Reason.LOST,), lost=tuple(sorted(lost))).still_lost(registered)


def is_harmless(words: Iterable[str]) -> bool:
    """Whether every entry has all its replicas for all that these words say: bookies leave, or a better place is free."""
    reasons = reasons_of(words)
    return bool(reasons) and reasons <= HARMLESS


def is_unrecoverable(task: RepairTask) -> bool:
    """Whether the last attempt found an entry that no reachable bookie has (rule 35)."""
    return task.why_not.startswith(UNRECOVERABLE)
