"""Prometheus metrics: a registry for each process (and for each test), and the HTTP endpoint that serves it.

The endpoint has its own port and threads, so that a scrape never waits behind data.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from daybook.runtime.ports import Address, check_port_free

_STATUS: Final = Path("/proc/self/status")
_ANONYMOUS: Final = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class _AnonymousMemory(Collector):
    """Resident memory without mapped files, because a memory-mapped store makes the usual figure meaningless."""

    def collect(self) -> Iterable[Metric]:
        """Read it from /proc, if the system has one."""
        if _STATUS.exists() and (
            found := _ANONYMOUS.search(_STATUS.read_text(encoding="ascii", errors="replace"))
        ):
            yield GaugeMetricFamily(
                "process_resident_anonymous_bytes",
                "Resident memory without mapped files, in bytes.",
                value=int(found[1]) * 1024,
            )


def new_registry() -> CollectorRegistry:
    """A registry that already has the metrics of the process, the interpreter and its garbage collector."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_AnonymousMemory())
    return registry


class MetricsServer:
    """Serves a registry over HTTP; every path answers with the metrics."""

    def __init__(self, registry: CollectorRegistry, address: Address) -> None:
        """Listen on `address` (port 0: a free one) and serve. Raises PortInUseError."""
        check_port_free(address, "metrics address")
        self._server, self._thread = start_http_server(address.port, address.host, registry)
        self.address = Address(address.host, self._server.server_port)

    def close(self) -> None:
        """Stop serving and wait until the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
