"""What brokers report."""

import pytest

from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import (
    REPORTED_BUNDLES_MAX,
    BundleLoad,
    check_broker_id,
    report_of,
)


def test_a_report_names_the_heaviest_bundles_and_counts_all() -> None:
    loads = {
        Bundle("t", f"n{space}", index): BundleLoad(1, entries_per_s=space * 32 + index)
        for space in range(4)
        for index in range(32)
    }
    report = report_of(0.5, loads)
    assert (report.busy, report.bundles) == (0.5, 128)
    assert len(report.heaviest) == REPORTED_BUNDLES_MAX
    assert report.heaviest[0][0] == Bundle("t", "n3", 31)
    assert report.cost == pytest.approx(sum(load.cost for load in loads.values()))
    assert report_of(0.0, {}).heaviest == ()


def test_entries_bytes_and_topics_cost() -> None:
    assert BundleLoad().cost == 0
    assert BundleLoad(entries_per_s=1000).cost == pytest.approx(0.01)
    assert BundleLoad(bytes_per_s=1024 * 1000).cost == pytest.approx(0.003)
    assert 0 < BundleLoad(topics=1).cost < BundleLoad(entries_per_s=1).cost


@pytest.mark.parametrize("name", ["broker-0", "a", "ns.broker_1"])
def test_a_brokers_id_is_a_name(name: str) -> None:
    assert check_broker_id(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "x" * 254])
def test_what_cannot_be_a_node_names_no_broker(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a broker"):
        check_broker_id(name)
