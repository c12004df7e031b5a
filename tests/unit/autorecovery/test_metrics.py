"""The list of metrics is an interface: dashboards and alerts break when a name changes."""

import asyncio

from prometheus_client import CollectorRegistry

from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.metrics import AuditorMetrics, WorkerMetrics
from tests.paths import ROOT
from tests.unit.autorecovery.kit import SETTINGS, FakeCluster

AUDITOR = """
audit_bookies_time_seconds elected fully_replicated num_blocked_repairs num_bookie_audits_delayed num_ledgers_by_reason
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
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert sorted(name for name in NAMES if f"| `{name}` |" not in text) == []


async def test_metrics_are_named_after_bookkeepers_and_say_what_the_cycle_found(cluster: FakeCluster) -> None:
    await cluster.ledger("b1", "b2", "b3")
    await cluster.ledger("b1", "b2", "b4", without={"b4": {0}})
    await cluster.unregister("b1")
    metrics = AuditorMetrics()
    auditing = AuditCycles(cluster, SETTINGS, lost_delay_s=0, metrics=metrics)
    await auditing.once(asyncio.Event(), full=True)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"daybook_auditor_{name}", labels)

    assert value("num_under_replicated_ledgers") == 2
    assert value("num_ledgers_by_reason", reason="gap") == 1
    assert value("num_lost_bookies") == 1
    assert value("num_ledgers_having_less_than_wq_replicas_of_an_entry") == 2
    assert value("num_ledgers_having_no_replica_of_an_entry") == 0
    assert value("fully_replicated") == 0
    assert value("audit_bookies_time_seconds_count", kind="full") == 1
