"""The metrics of auto-recovery. Names follow Apache BookKeeper's, so that its users find their way: docs/metrics.md."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from daybook.runtime.metrics import new_registry

_AUDIT_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


class AuditorMetrics:
    """What an auditor finds; the gauges are of its last cycle."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register them; in a registry of their own, if none is given."""
        self.registry = new_registry() if registry is None else registry
        self.elected = self._gauge("elected", "1 while this process is the auditor.")
        self.under_replicated = self._gauge("num_under_replicated_ledgers", "Ledgers that need a repair.")
        self.by_reason = self._gauge(
            "num_ledgers_by_reason", "Ledgers that something is wrong with, by reason.", "reason"
        )
        self.no_replica = self._gauge(
            "num_ledgers_having_no_replica_of_an_entry", "Ledgers with an entry on no registered bookie."
        )
        self.below_ack_quorum = self._gauge(
            "num_ledgers_having_less_than_aq_replicas_of_an_entry", "The same, with fewer than Qa replicas."
        )
        self.below_write_quorum = self._gauge(
            "num_ledgers_having_less_than_wq_replicas_of_an_entry", "The same, with fewer than Qw replicas."
        )
        self.misplaced = self._gauge(
            "num_ledgers_not_adhering_to_placement_policy", "Ledgers with a better place."
        )
        self.blocked = self._gauge(
            "num_blocked_repairs", "Fragments that lack a replica which no bookie can take."
        )
        self.unrecoverable = self._gauge(
            "num_unrecoverable_ledgers",
            "Ledgers with an entry that no registered bookie has, and each of them answered.",
        )
        self.lost_bookies = self._gauge("num_lost_bookies", "Bookies away for longer than the delay.")
        self.audits_delayed = self._gauge(
            "num_bookie_audits_delayed", "Bookies away, but not yet for the delay."
        )
        self.fully_replicated = self._gauge("fully_replicated", "1 if the last full audit found nothing.")
        self.audit_seconds = Histogram(
            "daybook_auditor_audit_bookies_time_seconds",
            "A round over all ledgers.",
            ["kind"],
            buckets=_AUDIT_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.tasks_marked = self._counter("underreplicated_ledgers_marked", "Tasks made or added to.")
        self.tasks_removed = self._counter(
            "underreplicated_ledgers_removed", "Tasks that were no longer needed."
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"daybook_auditor_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"daybook_auditor_{name}", text, registry=self.registry)


class WorkerMetrics:
    """What a worker does."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register them; in a registry of their own, if none is given."""
        self.registry = new_registry() if registry is None else registry
        self.ledgers = self._counter("rereplicate_ledgers", "Ledgers worked on, by outcome.", "outcome")
        self.entries = self._counter("num_entries_written", "Entries copied.")
        self.bytes = self._counter("num_bytes_written", "Bytes of frames that targets acknowledged.")
        self.under_way = Gauge(
            "daybook_replication_worker_ledgers_under_way", "Ledgers under repair.", registry=self.registry
        )
        self.seconds = Histogram(
            "daybook_replication_worker_rereplicate_seconds",
            "One ledger, from lock to release.",
            buckets=_AUDIT_BUCKETS_SECONDS,
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"daybook_replication_worker_{name}", text, labels, registry=self.registry)
