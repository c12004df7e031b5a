"""A broker's metrics: what is counted for each entry costs a plain addition, and all of them are documented."""

import pytest
from daybook_broker.metrics import PREFIX, BrokerMetrics
from daybook_broker.ownership.api import NotReady
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandGetSchema, CommandLookupTopic
from tests.paths import ROOT
from tests.unit.broker.kit import frame_client, new_topic, running_broker


def test_totals_and_gauges_are_what_a_scrape_shows() -> None:
    registry = CollectorRegistry()
    metrics = BrokerMetrics(registry)
    metrics.totals.entries_in += 3
    metrics.show("held", "Topics held.", lambda: 7)
    assert registry.get_sample_value(f"{PREFIX}entries_in_total") == 3
    assert registry.get_sample_value(f"{PREFIX}held") == 7


def test_the_documentation_names_them_all() -> None:
    registry = CollectorRegistry()
    BrokerMetrics(registry)
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [metric.name for metric in registry.collect() if f"| `{metric.name}` |" not in text] == []


def scraped(metrics: BrokerMetrics) -> dict[str, float]:
    """What a scrape shows: the samples' sums over their labels, without the buckets."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                name = sample.name.removeprefix(PREFIX)
                found[name] = found.get(name, 0) + sample.value
    return found


@pytest.mark.integration
async def test_a_scrape_shows_what_clients_do(cluster: LocalCluster) -> None:
    topic = new_topic()
    async with (
        running_broker(cluster, connection_pending_bytes=2**20) as broker,
        frame_client(broker) as client,
    ):
        lookup = CommandLookupTopic(topic=topic, request_id=1)
        await client.ask(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup))
        await client.produce(topic)
        client.publish(bytes(2**20), 0)
        assert (await client.receive()).send_receipt.sequence_id == 0
        assert (await client.produce("no/name", producer_id=2)).type == BaseCommand.ERROR
        schema = CommandGetSchema(topic=topic, request_id=2)
        await client.ask(BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=schema))
        unload = broker.registry.unload([TopicName.parse(topic)])
        await unload.finished()
        unload.announce(None)
        found = scraped(broker.metrics)
    counted = ("commands_total", "refusals_total", "paused_reads_total", "receipts_total", "entries_in_total")
    assert [found[name] for name in counted] == [5, 1, 1, 1, 1]
    assert (found["lookups_total"], found["take_overs_total"]) == (1, 1)
    for name in ("publish", "take_over", "unload"):
        assert found[f"{name}_seconds_count"] == 1
        assert 0 < found[f"{name}_seconds_sum"] < 60


@pytest.mark.integration
async def test_a_lookup_that_finds_no_owner_in_time_is_counted(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(*_: object, **__: object) -> NotReady:
        return NotReady("nobody answers")

    async with running_broker(cluster) as broker, frame_client(broker) as client:
        monkeypatch.setattr(broker.ownership, "lookup", nobody)
        lookup = CommandLookupTopic(topic=new_topic(), request_id=1)
        await client.ask(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup))
        value = broker.metrics.registry.get_sample_value
        assert value(f"{PREFIX}lookups_total", {"outcome": "not_ready"}) == 1
        assert value(f"{PREFIX}lookups_total", {"outcome": "refused"}) == 0
