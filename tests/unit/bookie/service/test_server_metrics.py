"""The list of metrics is an interface: dashboards and alerts break when a name changes."""

from daybook_bookie.metrics import BookieMetrics
from prometheus_client import CollectorRegistry

from tests.paths import ROOT

NAMES = """
add_entry_bytes add_entry_entries add_entry_frames add_entry_messages add_entry_rejected add_entry_seconds attach
calls_without_role damaged_entries disk_used_ratio disk_went_back fence flush_seconds flushed_bytes force gc_deleted_ledgers gc_overreplicated_entries
gc_rounds journal_bytes journal_group_bytes journal_groups journal_queue_bytes journal_sync_seconds lac_rows ledgers
limbo_ledgers metadata_rolled_back read_entry_bytes read_entry_damaged read_entry_entries read_entry_requests read_entry_seconds
read_lac_long_polls received_bytes registered scrub_rounds scrubbed_entries server_status streams write_cache_bytes
"""


def test_the_list_of_metrics() -> None:
    registry = CollectorRegistry()
    BookieMetrics(registry)
    names = {metric.name for metric in registry.collect()}
    assert names == {f"daybook_bookie_{name}" for name in NAMES.split()}


def test_the_documentation_names_them_all() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [name for name in NAMES.split() if f"| `{name}` |" not in text] == []
