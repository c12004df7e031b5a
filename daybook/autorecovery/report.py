"""What a cycle of the auditor found, as counts and lists for people, JSON and metrics."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from daybook.autorecovery.metrics import AuditorMetrics
from daybook.core.audit.cycle import CycleReport
from daybook.core.ids import BookieId, LedgerId
from daybook.core.repair.judgement import Reason


@dataclass(frozen=True, slots=True)
class AuditReport:
    """One cycle over all ledgers. Ids rise in every list.

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
    """What cannot be repaired for want of bookies, in words."""
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
    """Registered, but they do not list what they hold."""
    tasks_marked: int
    tasks_removed: int
    disabled: bool
    """Repair is switched off for the cluster: nothing was marked."""
    duration_ms: int
    began_at_ms: int
    """Wall-clock time, in milliseconds. What happened later, this cycle may not have seen."""

    @classmethod
    def of(cls, cycle: CycleReport, *, full: bool, **more: Any) -> "AuditReport":
        """The core's report, and `more` that only its owner knows, by field."""
        found = {item.name: getattr(cycle, item.name) for item in fields(cycle)}
        found["is_fully_replicated"] = full and cycle.is_fully_replicated
        return cls(full=full, **found, **more)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def publish(metrics: AuditorMetrics, report: AuditReport) -> None:
    """Set the gauges to what a cycle found."""
    metrics.under_replicated.set(len(report.under_replicated))
    for reason in Reason:
        ledgers = report.by_reason.get(reason.value, ())
        metrics.by_reason.labels(reason.value).set(len(ledgers))
    metrics.misplaced.set(len(report.by_reason.get(Reason.MISPLACED.value, ())))
    metrics.no_replica.set(len(report.without_replica))
    metrics.below_ack_quorum.set(len(report.below_ack_quorum))
    metrics.below_write_quorum.set(len(report.below_write_quorum))
    metrics.unrecoverable.set(len(report.unrecoverable))
    metrics.lost_bookies.set(len(report.lost_bookies))
    metrics.audits_delayed.set(len(report.missing_bookies))
    if report.full:
        metrics.fully_replicated.set(report.is_fully_replicated)
    metrics.audit_seconds.labels("full" if report.full else "quick").observe(report.duration_ms / 1000)
    metrics.tasks_marked.inc(report.tasks_marked)
    metrics.tasks_removed.inc(report.tasks_removed)
