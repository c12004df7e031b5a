"""What the leader does: watches, a queue of keys to reconcile, a resync, links to clusters.

It ends, and with it the process, when the Lease is lost or a part of it fails: a process that starts anew knows nothing
that may be wrong.
"""

import asyncio
import random
import secrets
from collections.abc import Mapping
from typing import Final

from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.errors import DaybookError
from daybook.core.ids import LedgerId
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger
from daybook_operator.clusters.clusters import Clusters
from daybook_operator.clusters.context import LinkContext
from daybook_operator.kinds import KINDS, OWNED, RESOURCES, WATCHED, Router
from daybook_operator.kube.api import Kube, KubeError
from daybook_operator.kube.part import must_not_end
from daybook_operator.kube.queue import BOOKIE_POOL, LEDGER, Key, Reconcile, WorkQueue
from daybook_operator.kube.watches import Watched, Watches, WatchEvent, event_from
from daybook_operator.metrics import LabelledRegistries, OperatorMetrics
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.pool.spec import cluster_of
from daybook_operator.reconcile.brokers import BrokerAccess
from daybook_operator.reconcile.inventory import Inventory, keys_of_pool
from daybook_operator.reconcile.listing import Listed, list_all, missing_kinds
from daybook_operator.reconcile.performer import Performer
from daybook_operator.reconcile.services import Services
from daybook_operator.settings import OperatorSettings

_LOG: Final = get_logger(__name__)
_CRD_PAUSE_S: Final = 2.0


class WatchesEndedError(DaybookError):
    """The watches ended by themselves."""


class Leading:
    """Everything that one term of leadership needs. `last_received_ms`: when the API server last answered or sent an event."""

    def __init__(
        self,
        kube: Kube,
        settings: OperatorSettings,
        auditing: AutoRecoverySettings,
        metrics: OperatorMetrics,
        registries: LabelledRegistries,
    ) -> None:
        """Nothing runs yet."""
        self.last_received_ms = monotonic_ms()
        self.waits_for = ""
        """What the leader cannot begin without; "" once it works."""
        self._kube = kube
        self._settings = settings
        self._metrics = metrics
        self._inventory = Inventory()
        self._router = Router(self._inventory)
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._clusters = Clusters(
            LinkContext(
                settings,
                auditing,
                settings.lease_identity,
                registries,
                self._cluster_changed,
                self._ledger_changed,
            )
        )
        self._queue = WorkQueue(
            self._reconcile,
            workers=settings.workers,
            timeout_s=settings.reconcile_timeout_ms / 1000,
            rng=random.Random(secrets.randbits(64)),
            metrics=metrics,
        )
        performer = Performer(
            kube,
            self._clusters,
            metrics,
            settings.lease_identity,
            namespaces=lambda: {key.namespace for key in self._inventory.pools()},
            brokers=BrokerAccess(settings.broker_token_file, settings.broker_tls_ca),
        )
        self._services = Services(
            kube, self._clusters, performer, settings, metrics, self._inventory, self._queue.add
        )
        self._reconcilers: Mapping[str, Reconcile] = {
            kind.name: kind.reconciler(self._services) for kind in KINDS
        }
        watched = Watched(WATCHED, by_label=OWNED)
        self._watches = Watches(kube, settings, metrics, watched, self._on_event, self._on_watches_end)

    async def run(self) -> None:
        """Work until cancelled. Raises WatchesEndedError, PartEndedError."""
        try:
            await self._wait_for_crds()
            await self._resync()
            self._watches.start()
            async with asyncio.TaskGroup() as group:
                group.create_task(must_not_end("the queue", self._queue.run()))
                group.create_task(must_not_end("the resync", self._resync_for_ever()))
                group.create_task(self._fail_when_watches_end())
        finally:
            await self._watches.stop()
            await self._clusters.close()

    async def _reconcile(self, key: Key) -> float | None:
        return await self._reconcilers[key.kind](key)

    # Events.

    def _on_event(self, event: WatchEvent) -> None:
        self.last_received_ms = monotonic_ms()
        self._queue.add_all(self._router.keys(event))

    def _cluster_changed(self, ref: ClusterRef) -> None:
        for pool in self._inventory.pools_of(ref):
            self._queue.add_all(keys_of_pool(pool.namespace, pool.name))

    def _ledger_changed(self, ref: ClusterRef, ledger_id: LedgerId) -> None:
        key = self._inventory.key_of(LEDGER, ref, ledger_id)
        if key is not None:
            self._queue.add(key)

    def _on_watches_end(self, why: str) -> None:
        if not self._ended.done():
            self._ended.set_result(why)

    async def _fail_when_watches_end(self) -> None:
        raise WatchesEndedError(await self._ended)

    # Everything, at intervals.

    async def _wait_for_crds(self) -> None:
        """kopf watches only what is served when it starts."""
        while True:
            try:
                missing = await missing_kinds(self._kube, self._settings.namespace_list, RESOURCES)
                self.waits_for = (
                    f"the API server does not know {' and '.join(missing)}: apply crds/" if missing else ""
                )
            except KubeError as error:
                self.waits_for = str(error)
            if not self.waits_for:
                return
            _LOG.warning("cannot begin", why=self.waits_for)
            await asyncio.sleep(_CRD_PAUSE_S)

    async def _resync_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.resync_ms / 1000)
            await self._resync()

    async def _resync(self) -> None:
        """List everything and reconcile it, whatever events said. A listing that fails is left to the next time."""
        self._router.listing_begins()
        try:
            found = await list_all(self._kube, self._settings.namespace_list, RESOURCES)
        except KubeError as error:
            _LOG.warning("nothing could be listed", why=str(error))
            return
        self.last_received_ms = monotonic_ms()
        self._metrics.last_resync.set(unix_ms() / 1000)
        self._take_in(found)
        clusters = self._inventory.clusters()
        await self._clusters.keep_only(clusters)
        self._metrics.keep_only(map(str, clusters))

    def _take_in(self, found: Listed) -> None:
        """Bring the inventory up to date with what was listed, and have all of it reconciled."""
        for kind, objects in found.objects.items():
            self._metrics.objects.labels(kind).set(len(objects))
            for each in objects:
                self._queue.add_all(self._router.keys_at_resync(event_from(kind, None, each)))
        for ledger in found.objects[LEDGER]:
            self._inventory.note_ledger(ledger)
        for pool in found.objects[BOOKIE_POOL]:
            meta = pool["metadata"]
            ref = cluster_of(pool, self._services.pool_defaults)
            self._inventory.add_pool(meta["namespace"], meta["name"], ref)
        gone = self._inventory.vanished(found)
        for key in gone:
            if key.kind == BOOKIE_POOL:
                self._inventory.remove_pool(key.namespace, key.name)
        self._queue.add_all(gone)  # the reconcile of what is gone forgets it
