"""The list of metrics is an interface: dashboards and alerts break when a name changes."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from daybook.client.autorecovery.metrics import AuditorMetrics, WorkerMetrics

AUDITOR = """
audit_bookies_time_seconds elected fully_replicated num_bookie_audits_delayed num_ledgers_by_reason
num_ledgers_having_less_than_aq_replicas_of_an_entry num_ledgers_having_less_than_wq_replicas_of_an_entry
num_ledgers_having_no_replica_of_an_entry num_ledgers_not_adhering_to_placement_policy num_lost_bookies
num_under_replicated_ledgers num_unrecoverable_ledgers underreplicated_ledgers_marked underreplicated_ledgers_removed
"""
WORKER = """
ledgers_under_way num_bytes_written num_entries_written rereplicate_ledgers rereplicate_seconds
"""
NAMES = {
    *(f"daybook_auditor_{name}" for name in AUDITOR.split()),
    *(f"daybook_replication_worker_{name}" for name in WORKER.split()),
}


def test_the_list_of_metrics() -> None:
    registry = CollectorRegistry()
    AuditorMetrics(registry)
    WorkerMetrics(registry)
    assert {metric.name for metric in registry.collect()} == NAMES


def test_the_documentation_names_them_all() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert sorted(name for name in NAMES if f"| `{name}` |" not in text) == []
