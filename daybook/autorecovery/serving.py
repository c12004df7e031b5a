"""What every long-running process of auto-recovery serves beside its work: health and metrics, on ports of their own.

Liveness is that the event loop turns; ZooKeeper's absence makes a process not ready, never dead, since a restart
would not bring ZooKeeper back.
"""

import asyncio
from contextlib import ExitStack
from typing import Final, Self

from prometheus_client import CollectorRegistry

from daybook.autorecovery.cluster import is_set_within
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.metadata.store.store import MetadataStore
from daybook.runtime.health import HealthServer, Progress
from daybook.runtime.metrics import MetricsServer, new_registry
from daybook.runtime.ports import Address, parse_address

_STAMP_MS: Final = 1_000
_STUCK_AFTER_MS: Final = 30_000


class Serving:
    """Serves health and metrics while entered."""

    def __init__(self, store: MetadataStore, settings: AutoRecoverySettings) -> None:
        """Nothing listens yet."""
        self.registry: CollectorRegistry = new_registry()
        self._store = store
        self._settings = settings
        self._progress = Progress("the event loop", _STUCK_AFTER_MS)
        self._open = ExitStack()
        self.health_address = parse_address(settings.health_address)
        self.metrics_address: Address = parse_address(settings.metrics_address)

    def __enter__(self) -> Self:
        """Listen. Raises PortInUseError."""
        with ExitStack() as opening:
            health = opening.enter_context(
                HealthServer(self.health_address, liveness=[self._progress], readiness=[self._why_not_ready])
            )
            metrics = opening.enter_context(MetricsServer(self.registry, self.metrics_address))
            self.health_address, self.metrics_address = health.address, metrics.address
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._open.close()

    async def stamp(self, stop: asyncio.Event) -> None:
        """Show that the event loop turns, until `stop` is set."""
        while not stop.is_set():
            self._progress.stamp()
            await is_set_within(stop, _STAMP_MS)

    def _why_not_ready(self) -> str | None:
        return None if self._store.session.connected else "ZooKeeper does not answer"
