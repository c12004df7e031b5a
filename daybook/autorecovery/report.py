"""What a cycle of the auditor found, as counts and lists for people, JSON and metrics."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from daybook.autorecovery.metrics import AuditorMetrics
from daybook.core.audit.cycle import CycleReport
from daybook.core.ids import BookieId
from daybook.core.repair.judgement import Reason


@dataclass(frozen=True, slots=True)
class AuditReport:
    """One cycle over all ledgers. Ids rise in every list."""

    full: bool
    """Every ledger was compared with what its bookies list, entry by entry."""
    found: CycleReport
    lost_bookies: tuple[BookieId, ...]
    missing_bookies: tuple[BookieId, ...]
    """Away, but not yet for as long as the delay says."""
    silent_bookies: Mapping[BookieId, str]
    """Registered, but they do not list what they hold."""
    disabled: bool
    """Repair is switched off for the cluster: nothing was marked."""
    duration_ms: int
    began_at_ms: int
    """Wall-clock time, in milliseconds. What happened later, this cycle may not have seen."""

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every confirmed entry of every ledger has all its replicas: only a full cycle can show it."""
        return self.full and self.found.is_fully_replicated

    def record(self) -> dict[str, Any]:
        """For JSON."""
        own = asdict(self)
        found: dict[str, Any] = own.pop("found")
        return found | own | {"is_fully_replicated": self.is_fully_replicated}


def publish(metrics: AuditorMetrics, report: AuditReport) -> None:
    """Set the gauges to what a cycle found."""
    metrics.under_replicated.set(len(report.found.under_replicated))
    for reason in Reason:
        ledgers = report.found.by_reason.get(reason.value, ())
        metrics.by_reason.labels(reason.value).set(len(ledgers))
    metrics.misplaced.set(len(report.found.by_reason.get(Reason.MISPLACED.value, ())))
    metrics.no_replica.set(len(report.found.without_replica))
    metrics.below_ack_quorum.set(len(report.found.below_ack_quorum))
    metrics.below_write_quorum.set(len(report.found.below_write_quorum))
    metrics.blocked.set(len(report.found.blocked))
    metrics.unrecoverable.set(len(report.found.unrecoverable))
    metrics.lost_bookies.set(len(report.lost_bookies))
    metrics.audits_delayed.set(len(report.missing_bookies))
    if report.full:
        metrics.fully_replicated.set(report.is_fully_replicated)
    metrics.audit_seconds.labels("full" if report.full else "quick").observe(report.duration_ms / 1000)
    metrics.tasks_marked.inc(report.found.tasks_marked)
    metrics.tasks_removed.inc(report.found.tasks_removed)
