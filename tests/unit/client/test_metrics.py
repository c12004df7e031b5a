"""The metrics of a client: no label for a ledger, and nothing that goes back when a ledger is closed."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

import daybook
from daybook.client.transport.round_trips import RoundTrips
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime.buckets import LATENCY_BUCKETS_SECONDS
from tests.paths import ROOT

NAMES = """
appended_bytes appended_entries degraded_ledgers ensemble_changes ledgers_created message_seconds open_ledgers recoveries
recoveries_running recoveries_waiting
"""


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"daybook_client_{name}", labels)


def test_round_trips_are_counted_by_bucket_and_beyond_the_last_one() -> None:
    trips = RoundTrips()
    for seconds in (0.0001, LATENCY_BUCKETS_SECONDS[0], 0.004, 1000.0):
        trips.observe(seconds)
    buckets = dict(trips.buckets())
    assert list(buckets)[-1] == "+Inf"
    assert (buckets["0.0002"], buckets["0.003"], buckets["0.005"], buckets["10.0"], buckets["+Inf"]) == (
        2,
        2,
        3,
        3,
        4,
    )
    assert trips.sum_s == pytest.approx(1000.0043)


@pytest.mark.integration
async def test_a_client_counts_what_its_ledgers_did(cluster: LocalCluster) -> None:
    registry = CollectorRegistry()
    client = daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME, registry=registry)
    assert {metric.name for metric in registry.collect()} == {
        f"daybook_client_{name}" for name in NAMES.split()
    }
    async with client:
        ledgers = await asyncio.gather(*(client.create_ledger() for _ in range(5)))
        for ledger in ledgers:
            await ledger.append_many([b"abc"] * 4)
        assert value(registry, "open_ledgers") == 5
        assert value(registry, "degraded_ledgers") == 0
        assert value(registry, "ledgers_created_total") == 5
        assert value(registry, "appended_entries_total") == 20
        assert value(registry, "appended_bytes_total") == 60
        await ledgers[0].close()
        assert value(registry, "open_ledgers") == 4
        assert value(registry, "appended_entries_total") == 20
        await client.open_ledger(ledgers[1].id)
        found = await client.ledgers.read(ledgers[2].id)
        with pytest.raises(daybook.LedgerChangedError):
            await client.recover(found.value, version=found.version + 1)
        assert value(registry, "recoveries_total", outcome="recovered") == 1
        assert value(registry, "recoveries_total", outcome="failed") == 1
        assert (value(registry, "recoveries_running"), value(registry, "recoveries_waiting")) == (0, 0)
        answered = value(registry, "message_seconds_count")
        assert answered is not None
        assert answered >= 10, "of each append two bookies' answers were awaited"
        samples = [sample for metric in registry.collect() for sample in metric.samples]
        assert {label for sample in samples for label in sample.labels} <= {"le", "outcome"}
    assert list(registry.collect()) == []


def test_the_documentation_names_them_all() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [name for name in NAMES.split() if f"| `daybook_client_{name}` |" not in text] == []
