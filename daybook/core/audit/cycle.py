"""What one cycle of the auditor over all ledgers is about, and what it found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.repair.judgement import LedgerAudit, OpenAction, Reason


@dataclass(frozen=True, slots=True)
class CycleScope:
    """What the auditor's owner read before the cycle.

    A `full` cycle compares what bookies list with everything that they owe (rule 47). A quick one knows lost bookies,
    limbo and placement from metadata and from `limbo`, and lists the entries only of ledgers `with_task` and, if it
    `compares_new`, of those that were closed or changed since they were last compared; of open ones, of those whose ensemble
    has changed. Repair is `enabled` unless it is
    switched off for the cluster: then nothing is marked.
    """

    with_task: frozenset[LedgerId] = frozenset()
    limbo: Mapping[LedgerId, frozenset[BookieId]] = field(default_factory=dict)
    full: bool = True
    compares_new: bool = True
    enabled: bool = True


@dataclass(slots=True)
class CycleFindings:
    """What a cycle gathers, ledger by ledger."""

    audits: dict[LedgerId, tuple[LedgerMetadata, LedgerAudit]] = field(default_factory=dict)
    unread: set[LedgerId] = field(default_factory=set)
    unrecoverable: set[LedgerId] = field(default_factory=set)
    marked: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What a cycle over all ledgers found. Ids rise in every list.

    `is_fully_replicated`: every confirmed entry of every ledger has all its replicas, listings compared, open fragments
    up to their LAC (rule 45). `unread` ledgers could not be judged.
    """

    ledgers: int
    is_fully_replicated: bool
    under_replicated: tuple[LedgerId, ...]
    """Those that a worker can do something about."""
    by_reason: Mapping[str, tuple[LedgerId, ...]]
    blocked: tuple[str, ...]
    """What cannot be repaired for want of bookies, in words."""
    waiting: tuple[LedgerId, ...]
    """Open ledgers in need whose grace period is not over."""
    unread: tuple[LedgerId, ...]
    without_replica: tuple[LedgerId, ...]
    below_ack_quorum: tuple[LedgerId, ...]
    below_write_quorum: tuple[LedgerId, ...]
    unrecoverable: tuple[LedgerId, ...]
    """Those whose last repair found an entry that no registered bookie has, and each of them answered."""
    tasks_marked: int
    tasks_removed: int

    @classmethod
    def of(cls, found: CycleFindings) -> "CycleReport":
        """The report of a cycle that is over."""
        judged = [found.audits[ledger_id] for ledger_id in sorted(found.audits)]
        audits = [audit for _, audit in judged]
        return cls(
            ledgers=len(audits) + len(found.unread),
            is_fully_replicated=not found.unread and all(audit.is_fully_replicated for audit in audits),
            under_replicated=tuple(audit.ledger_id for audit in audits if audit.needs_task),
            by_reason=_ledgers_by_reason(audits),
            blocked=tuple(why for audit in audits for why in audit.blocked),
            waiting=tuple(audit.ledger_id for audit in audits if audit.open_action is OpenAction.WAIT),
            unread=tuple(sorted(found.unread)),
            without_replica=tuple(audit.ledger_id for audit in audits if audit.replicas_min == 0),
            below_ack_quorum=tuple(m.ledger_id for m, a in judged if a.replicas_min < m.quorum.ack_quorum),
            below_write_quorum=tuple(
                m.ledger_id for m, a in judged if a.replicas_min < m.quorum.write_quorum
            ),
            unrecoverable=tuple(sorted(found.unrecoverable)),
            tasks_marked=found.marked,
            tasks_removed=found.removed,
        )


def _ledgers_by_reason(audits: Iterable[LedgerAudit]) -> dict[str, tuple[LedgerId, ...]]:
    """The ledgers that something is wrong with, by reason."""
    found: dict[Reason, set[LedgerId]] = {}
    for audit in audits:
        for problem in audit.problems:
            found.setdefault(problem.reason, set()).add(audit.ledger_id)
    return {reason.value: tuple(sorted(found[reason])) for reason in Reason if reason in found}
