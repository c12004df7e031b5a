"""The endpoint serves the registry, and leaves nothing behind."""

import urllib.request

import pytest
from prometheus_client import Histogram

from daybook.runtime.buckets import LATENCY_BUCKETS_SECONDS, SIZE_BUCKETS_BYTES
from daybook.runtime.metrics import MetricsServer, new_registry
from daybook.runtime.ports import Address, PortInUseError

ANYWHERE = Address("127.0.0.1", 0)


def scrape(address: Address) -> str:
    """The response of the endpoint."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_scrape_has_our_metrics_and_the_process() -> None:
    registry = new_registry()
    latency = Histogram("sample_seconds", "A sample.", registry=registry, buckets=LATENCY_BUCKETS_SECONDS)
    latency.observe(0.0021)
    with MetricsServer(registry, ANYWHERE) as server:
        text = scrape(server.address)
    assert 'sample_seconds_bucket{le="0.002"} 0.0' in text
    assert 'sample_seconds_bucket{le="0.003"} 1.0' in text
    anonymous = next(
        line for line in text.splitlines() if line.startswith("process_resident_anonymous_bytes ")
    )
    assert 1e6 < float(anonymous.split()[1]) < 1e10


def test_buckets_rise() -> None:
    for buckets in (LATENCY_BUCKETS_SECONDS, SIZE_BUCKETS_BYTES):
        assert sorted(set(buckets)) == list(buckets)


def test_the_port_is_free_after_close_and_refused_before() -> None:
    server = MetricsServer(new_registry(), ANYWHERE)
    with pytest.raises(PortInUseError, match="set another metrics address"):
        MetricsServer(new_registry(), server.address)
    server.close()
    MetricsServer(new_registry(), server.address).close()
