"""What a round of the auditor found, as counts and lists for people, JSON and metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from daybook.autorecovery.metrics import AuditorMetrics
from daybook.core.audit.auditor import CycleReport
from daybook.core.audit.judgement import LedgerAudit, Reason
from daybook.core.ids import BookieId, LedgerId


@dataclass(frozen=True, slots=True)
class AuditReport:
    """One round over all ledgers. Ids rise in every list.

    `full`: every ledger was compared with what its bookies list, entry by entry; only then can
    `is_fully_replicated` be true: every confirmed entry of every ledger has all its replicas.
    """

    full: bool
    is_fully_replicated: bool
    ledgers: int
    under_replicated: tuple[LedgerId, ...]
    """Those that a worker can do something about."""
    by_reason: Mapping[str, tuple[LedgerId, ...]]
    blocked: tuple[str, ...]
    """What cannot be mended for want of bookies, in words."""
    waiting: tuple[LedgerId, ...]
    """Open ledgers in need whose grace period is not over."""
    unread: tuple[LedgerId, ...]
    without_replica: tuple[LedgerId, ...]
    below_ack_quorum: tuple[LedgerId, ...]
    below_write_quorum: tuple[LedgerId, ...]
    unrecoverable: tuple[LedgerId, ...]
    """Those whose last repair found an entry that no reachable bookie has."""
    lost_bookies: tuple[BookieId, ...]
    missing_bookies: tuple[BookieId, ...]
    """Away, but not yet for as long as the delay says."""
    silent_bookies: Mapping[BookieId, str]
    """Registered, but they do not tell what they have."""
    tasks_marked: int
    tasks_removed: int
    disabled: bool
    """Repair is switched off for the cluster: nothing was marked."""
    duration_ms: int
    began_at_ms: int
    """Wall-clock time, in milliseconds. What happened later, this round may not have seen."""

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def ledgers_by_reason(audits: Iterable[LedgerAudit]) -> dict[str, tuple[LedgerId, ...]]:
    """The ledgers that something is wrong with, by reason."""
    found: dict[Reason, set[LedgerId]] = {}
    for audit in audits:
        for problem in audit.problems:
            found.setdefault(problem.reason, set()).add(audit.ledger_id)
    return {reason.value: tuple(sorted(found[reason])) for reason in Reason if reason in found}


def publish(metrics: AuditorMetrics, report: AuditReport, cycle: CycleReport) -> None:
    """Set the gauges to what a round found."""
    metrics.under_replicated.set(len(report.under_replicated))
    for reason in Reason:
        ledgers = report.by_reason.get(reason.value, ())
        metrics.by_reason.labels(reason.value).set(len(ledgers))
    metrics.misplaced.set(len(report.by_reason.get(Reason.MISPLACED.value, ())))
    metrics.no_replica.set(len(cycle.without_replica))
    metrics.below_ack_quorum.set(len(cycle.below_ack_quorum))
    metrics.below_write_quorum.set(len(cycle.below_write_quorum))
    metrics.unrecoverable.set(len(report.unrecoverable))
    metrics.lost_bookies.set(len(report.lost_bookies))
    metrics.audits_delayed.set(len(report.missing_bookies))
    if report.full:
        metrics.fully_replicated.set(report.is_fully_replicated)
    metrics.audit_seconds.labels("full" if report.full else "quick").observe(report.duration_ms / 1000)
    metrics.tasks_marked.inc(report.tasks_marked)
    metrics.tasks_removed.inc(report.tasks_removed)
