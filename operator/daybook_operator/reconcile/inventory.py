"""The objects that the operator manages, as far as they are known: which belongs to which cluster, and to what in it.

It only turns changes into keys; nothing is decided by it. A resync brings it up to date.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from daybook.core.ids import LedgerId
from daybook_operator.kube.queue import BOOKIE_POOL, LEDGER, RECOVERY, TOPIC, Key
from daybook_operator.plan.effects import ClusterRef, Manifest
from daybook_operator.plan.names import CLUSTER_ANNOTATION
from daybook_operator.plan.recovery.jobs import ObservedJob
from daybook_operator.plan.spark_jobs import JobsReport
from daybook_operator.reconcile.listing import Listed

Bound: TypeAlias = tuple[ClusterRef, Any]
"""A cluster, and what a resource has there, under the id that its kind uses: for a Ledger, the LedgerId, for a Topic its TopicName."""


def keys_of_pool(namespace: str, pool: str) -> tuple[Key, Key]:
    """The pool itself, and the repair of its cluster; changes of the cluster's metadata do not concern its jobs."""
    return Key(BOOKIE_POOL, namespace, pool), Key(RECOVERY, namespace, pool)


class Inventory:
    """Filled by reconciles, events and resyncs; asked by whatever receives a change."""

    def __init__(self) -> None:
        """Empty."""
        self._pools: dict[Key, ClusterRef | None] = {}
        self._stored: dict[Key, str] = {}
        self._needed: dict[Key, ClusterRef] = {}
        self._bound: dict[Key, Bound] = {}
        self._keys_of: dict[tuple[str, Bound], Key] = {}
        self._refusals: dict[ClusterRef, str] = {}
        self._jobs: dict[ClusterRef, dict[LedgerId, str]] = {}
        self._reports: dict[Key, JobsReport] = {}
        self._manifests: dict[Key, Manifest] = {}
        self._listed: dict[Key, Manifest] = {}

    def note(self, kind: str, namespace: str, name: str, pool: str, *, is_there: bool) -> None:
        """An object was seen, or its deletion. `pool` is the one that it is stored in; what is stored is forgotten later."""
        if kind == BOOKIE_POOL:
            if is_there:
                self.add_pool(namespace, name)
            else:
                self.remove_pool(namespace, name)
        elif pool and is_there:
            self._stored[Key(kind, namespace, name)] = pool

    # Pools, by their BookiePool key.

    def add_pool(self, namespace: str, name: str, cluster: ClusterRef | None = None) -> None:
        """The pool is there; `cluster` once it is known."""
        key = Key(BOOKIE_POOL, namespace, name)
        if cluster is not None or key not in self._pools:
            self._pools[key] = cluster

    def remove_pool(self, namespace: str, name: str) -> None:
        """The pool is gone."""
        key = Key(BOOKIE_POOL, namespace, name)
        self._pools.pop(key, None)
        self._reports.pop(key, None)
        self._manifests.pop(key, None)

    def note_pool(self, key: Key, manifest: Manifest | None) -> None:
        """The pool as the last event or resync had it, None once it is gone. What is stored in it is reconciled when that changes."""
        if manifest is None:
            self._manifests.pop(key, None)
        else:
            self._manifests[key] = manifest

    def pool(self, namespace: str, name: str) -> Manifest | None:
        """The pool as `note_pool` had it; None: nobody has seen it."""
        return self._manifests.get(Key(BOOKIE_POOL, namespace, name))

    def pools(self) -> list[Key]:
        """All pools."""
        return sorted(self._pools)

    def pools_of(self, cluster: ClusterRef) -> list[Key]:
        """The pools that make up a cluster."""
        return sorted(key for key, ref in self._pools.items() if ref == cluster)

    # What is stored in pools.

    def stored_in(self, kind: str, namespace: str, pool: str) -> list[Key]:
        """The resources of a kind that name the pool."""
        return sorted(
            key
            for key, name in self._stored.items()
            if (key.kind, key.namespace, name) == (kind, namespace, pool)
        )

    def need(self, key: Key, cluster: ClusterRef) -> None:
        """The resource is in the cluster, whose link it needs; what it has there may not be known yet."""
        self._needed[key] = cluster

    def bind(self, key: Key, *bound: *Bound) -> None:
        """The resource has this in its cluster. Of two that have the same the first is the one that `key_of` returns."""
        if self._bound.get(key) != bound:
            self.unbind(key)
        self._bound[key] = bound
        self._keys_of.setdefault((key.kind, bound), key)

    def unbind(self, key: Key) -> Bound | None:
        """The resource has nothing in its cluster; what it was bound to."""
        bound = self._bound.pop(key, None)
        if bound is not None and self._keys_of.get((key.kind, bound)) == key:
            del self._keys_of[key.kind, bound]
        return bound

    def note_ledger(self, manifest: Manifest) -> None:
        """Bind a Ledger as its status says, until it is reconciled: after a restart another one must not adopt the same ledger."""
        meta, status = manifest["metadata"], manifest.get("status") or {}
        key = Key(LEDGER, meta["namespace"], meta["name"])
        ref = ClusterRef.from_text((meta.get("annotations") or {}).get(CLUSTER_ANNOTATION, ""))
        ledger_id = status.get("ledgerId")
        if ref is not None and ledger_id is not None and key not in self._bound:
            self.bind(key, ref, ledger_id)

    def claimed_for(self, key: Key) -> str:
        """The cluster that the last reconcile of the resource saw it in, as its annotation says it; "" for none."""
        bound = self._bound.get(key)
        return bound[0].text if bound is not None else ""

    def note_listed(self, key: Key, manifest: Manifest) -> None:
        """The resource as a resync has just listed it."""
        self._listed[key] = manifest

    def take_listed(self, key: Key) -> Manifest | None:
        """The resource as a resync listed it, once, and only if no event has reported news of it since."""
        return self._listed.pop(key, None)

    def remove(self, key: Key) -> Bound | None:
        """The resource is gone; what it was bound to."""
        self._stored.pop(key, None)
        self._needed.pop(key, None)
        self._listed.pop(key, None)
        return self.unbind(key)

    def key_of(self, kind: str, *bound: *Bound) -> Key | None:
        """The resource of this kind that has this in its cluster, if one has."""
        return self._keys_of.get((kind, bound))

    def vanished(self, found: Listed) -> list[Key]:
        """The objects that are known and not among those that were `found`, where the listing was whole."""
        there = {
            Key(kind, each["metadata"]["namespace"], each["metadata"]["name"])
            for kind, objects in found.objects.items()
            for each in objects
        }
        known = sorted({*self._pools, *self._stored})
        return [key for key in known if key not in there and key.namespace not in found.refused]

    # Recovery Jobs.

    def note_jobs(self, cluster: ClusterRef, jobs: Iterable[ObservedJob]) -> list[Key]:
        """Record the Jobs of the cluster; return the Ledger resources for which something changed."""
        before = self._jobs.get(cluster, {})
        after = {ledger: job.name for job in jobs if job.is_active for ledger in job.ledgers}
        self._jobs[cluster] = after
        changed = {ledger for ledger, _ in before.items() ^ after.items()}
        keys = (self.key_of(LEDGER, cluster, ledger) for ledger in sorted(changed))
        return [key for key in keys if key is not None]

    def note_refusal(self, cluster: ClusterRef, why: str) -> bool:
        """Why the cluster's Jobs cannot be made or cancelled; "" if they can. True: that is new."""
        before = self._refusals.get(cluster, "")
        self._refusals[cluster] = why
        return why != before

    def refusal_of(self, cluster: ClusterRef) -> str:
        """Why the cluster's Jobs cannot be made or cancelled; "" if no refusal is known."""
        return self._refusals.get(cluster, "")

    def job_of(self, cluster: ClusterRef, ledger_id: LedgerId) -> str:
        """The Job that repairs the ledger now; "" if none does."""
        return self._jobs.get(cluster, {}).get(ledger_id, "")

    # Jobs on Spark.

    def note_jobs_report(self, namespace: str, pool: str, report: JobsReport) -> list[Key]:
        """What is known of the pool's jobs; return whom that is news for: the pool, and the Topics that it stores."""
        key = Key(BOOKIE_POOL, namespace, pool)
        if self._reports.get(key) == report:
            return []
        self._reports[key] = report
        return [key, *self.stored_in(TOPIC, namespace, pool)]

    def jobs_report(self, namespace: str, pool: str) -> JobsReport | None:
        """What is known of the pool's jobs; None: nothing yet."""
        return self._reports.get(Key(BOOKIE_POOL, namespace, pool))

    def clusters(self) -> set[ClusterRef]:
        """The clusters that something needs."""
        of_pools: Iterable[ClusterRef] = (ref for ref in self._pools.values() if ref is not None)
        return {*of_pools, *self._needed.values(), *(ref for ref, _ in self._bound.values())}
