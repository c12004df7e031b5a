"""Observes everything that a pool's plan depends on: objects of the API server, ZooKeeper, all ledgers' metadata.

That ZooKeeper does not answer is a fact like any other: what needs only Kubernetes continues.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from daybook.autorecovery.listing import BookieListings
from daybook.autorecovery.report import AuditReport
from daybook.core.bookie.exits import EXIT_DISK_LOST
from daybook.core.errors import DaybookError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.repair.judgement import Reason
from daybook.core.repair.task import bookies_with, is_harmless
from daybook.metadata.hold import read_hold
from daybook.metadata.instance import read_instance
from daybook.metadata.tree import list_directory
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.kube.api import KubeError, Object
from daybook_operator.plan.decision import is_terminating
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.names import POOL_LABEL
from daybook_operator.plan.pool.cluster_settings import other_address
from daybook_operator.plan.pool.drain import victim_of
from daybook_operator.plan.pool.observed import ObservedAddress, ObservedClaim, ObservedCluster, ObservedPool
from daybook_operator.plan.pool.replication import unaudited
from daybook_operator.plan.pool.spec import VolumeSpec, cluster_of, spec_of
from daybook_operator.plan.pool.state import Drain, Recovery, Roll
from daybook_operator.plan.recovery.plan import recovery_status
from daybook_operator.reconcile.cluster_pods import pods_of
from daybook_operator.reconcile.listing import if_allowed
from daybook_operator.reconcile.open_gaps import open_gaps
from daybook_operator.reconcile.pool_objects import observed_claims, observed_pods, observed_stateful_set
from daybook_operator.reconcile.pool_survey import Asker, Surveys
from daybook_operator.reconcile.recovery import observe_recovery
from daybook_operator.reconcile.services import Services

_OLD_MS: Final = 30_000


class PoolObserver:
    """Observes pools."""

    def __init__(self, services: Services) -> None:
        """Nothing is read yet."""
        self._services = services
        self._kube = services.kube
        self._surveys = Surveys()

    async def observe(self, manifest: Object) -> ObservedPool:
        """What is true of the pool `manifest`. Raises KubeError."""
        defaults = self._services.pool_defaults
        meta = manifest["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        status: Mapping[str, Any] = manifest.get("status") or {}
        of_pool = f"{POOL_LABEL}={name}"
        stateful_set, account, service = await asyncio.gather(
            self._kube.find("StatefulSet", namespace, name),
            self._kube.find("ServiceAccount", namespace, f"{name}-bookie"),
            self._kube.find("Service", namespace, name),
        )
        budgets, pods, claims = await asyncio.gather(
            self._kube.listing("PodDisruptionBudget", namespace, labels=of_pool),
            self._kube.listing("Pod", namespace, labels=f"{of_pool},app.kubernetes.io/component=bookie"),
            self._kube.listing("PersistentVolumeClaim", namespace, labels=of_pool),
        )
        live = {(each["kind"], each["metadata"]["name"]): each for each in budgets}
        live |= {
            (kind, found["metadata"]["name"]): found
            for kind, found in (("ServiceAccount", account), ("Service", service))
            if found is not None
        }
        spec = spec_of(manifest, defaults)
        seen_pods, seen_claims = observed_pods(pods, name), observed_claims(claims, name)
        pool = ObservedPool(
            manifest=manifest,
            spec=spec,
            cluster_ref=cluster_of(manifest, defaults),
            drain=Drain.from_record(status.get("drain")),
            roll=Roll.from_record(status.get("rollout")),
            recovery=Recovery.from_record(status.get("recovery")),
            live=live,
            stateful_set=observed_stateful_set(stateful_set),
            pods=seen_pods,
            claims=seen_claims,
            nodes=await self._nodes({pod.node for pod in seen_pods.values() if pod.node}),
            expandable=await self._expandable(_classes_to_grow(seen_claims, spec.storage.volumes)),
            namespace_is_terminating=await self._namespace_is_terminating(manifest),
            others=await self._others(manifest),
            defaults=defaults,
            jobs=self._services.inventory.jobs_report(namespace, name),
        )
        return await self._with_address(await self._with_cluster(pool))

    async def _with_address(self, pool: ObservedPool) -> ObservedPool:
        """`pool` with what answers at another address of ZooKeeper that the spec names."""
        wanted = other_address(pool.manifest, pool.cluster_ref)
        if not wanted or is_terminating(pool.manifest):
            return pool
        try:
            instance_id, boots = await self._services.clusters.peek(
                ClusterRef(wanted, pool.cluster_ref.cluster)
            )
        except DaybookError as error:
            return replace(pool, address=ObservedAddress(wanted, error=str(error)))
        return replace(pool, address=ObservedAddress(wanted, instance_id, boots))

    async def _others(self, manifest: Object) -> tuple[Object, ...]:
        """The other pools of the pool's cluster, except those that are being deleted."""
        ref, meta = cluster_of(manifest, self._services.pool_defaults), manifest["metadata"]
        keys = [
            k for k in self._services.inventory.pools_of(ref) if k[1:] != (meta["namespace"], meta["name"])
        ]
        found = await asyncio.gather(*(if_allowed(self._kube.find(*key), None) for key in keys))
        return tuple(
            pool
            for pool in found
            if pool is not None
            and not is_terminating(pool)
            and cluster_of(pool, self._services.pool_defaults) == ref
        )

    async def _nodes(self, names: set[str]) -> dict[str, Mapping[str, str]]:
        found = await asyncio.gather(*(self._kube.find("Node", "", name) for name in sorted(names)))
        return {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in found if node}

    async def _expandable(self, classes: set[str]) -> dict[str, bool]:
        found = await asyncio.gather(*(self._kube.find("StorageClass", "", name) for name in sorted(classes)))
        return {each["metadata"]["name"]: bool(each.get("allowVolumeExpansion")) for each in found if each}

    async def _namespace_is_terminating(self, manifest: Object) -> bool:
        if not is_terminating(manifest):
            return False
        namespace = await self._kube.find("Namespace", "", manifest["metadata"]["namespace"])
        return namespace is None or is_terminating(namespace)

    # The cluster.

    async def _with_cluster(self, pool: ObservedPool) -> ObservedPool:
        """`pool` with what ZooKeeper says, or with why it does not answer."""
        if not pool.cluster_ref.zookeeper:
            return pool
        try:
            link = await self._services.clusters.link(pool.cluster_ref)
            seen = await self._cluster(link, pool)
        except KubeError:
            raise  # it says nothing of ZooKeeper
        except DaybookError as error:
            return replace(pool, cluster=None, cluster_error=str(error))
        foreign = {each for each in seen.bookies.keys() | seen.cookies if pool.ordinal_of(each) is None}
        namespaces = {key.namespace for key in self._services.inventory.pools()}
        return replace(pool, cluster=seen, other_pods=await pods_of(self._kube, foreign, namespaces))

    async def _cluster(self, link: ClusterLink, pool: ObservedPool) -> ObservedCluster:
        directory = link.client.directory
        await link.client.store.sync(link.client.layout.root)
        bookies, cookies, locations, tasks, delay_s = await asyncio.gather(
            directory.bookies(),
            directory.cookies(),
            directory.topology(),
            link.task_list.read(),
            link.tasks.lost_bookie_delay_s(),
        )
        replacements = await list_directory(link.client.store, link.client.layout.replacements)
        leaving: dict[BookieId, set[LedgerId]] = {}
        stuck: dict[LedgerId, str] = {}
        for task in tasks:
            for bookie in bookies_with(Reason.LEAVING, task.value.reasons):
                leaving.setdefault(bookie, set()).add(task.value.ledger_id)
                if task.value.why_not:
                    stuck[task.value.ledger_id] = task.value.why_not
        repair = await observe_recovery(self._services, link)
        refusal = self._services.inventory.refusal_of(link.ref)
        instance = await read_instance(link.client.store, link.client.layout)
        hold = await read_hold(link.client.store, link.client.layout)
        seen = ObservedCluster(
            bookies=bookies,
            instance_id=instance.instance_id,
            cookies=frozenset(cookies),
            replacements=frozenset(replacements),
            locations=locations,
            under_replicated=tuple(t.value.ledger_id for t in tasks if not is_harmless(t.value.reasons)),
            verdicts=repair.verdicts,
            leaving={bookie: frozenset(ledgers) for bookie, ledgers in leaving.items()},
            stuck=stuck,
            lost=link.audits.last_report.lost_bookies if link.audits.last_report else (),
            blocked=link.audits.last_report.found.blocked if link.audits.last_report else (),
            lost_bookie_delay_s=delay_s,
            collection_held=hold is not None and hold.is_held,
            last_audit=_found_by(link.audits.last_full_report),
            open_gaps=await open_gaps(link),
            recovery=recovery_status(repair, self._services.now_ms()),
            job_problems=(*filter(None, [refusal]), *repair.job_problems),
        )
        if any(pod.exit_code == EXIT_DISK_LOST for pod in pool.pods.values()):
            seen = await self._with_limbo(link, pool, seen)
        return await self._surveyed(link, pool, seen)

    async def _with_limbo(
        self, link: ClusterLink, pool: ObservedPool, seen: ObservedCluster
    ) -> ObservedCluster:
        """Ask the bookies that may be in limbo: a bookie that ran at the last clean audit, and still does, is not."""
        channels = link.client.channels
        channels.bookies_changed(seen.bookies)  # its own watch may report them later
        asked = unaudited(pool.recovery, seen)
        unreached = {bookie: "it cannot be reached yet" for bookie in asked if channels.calls(bookie) is None}
        listings = BookieListings(channels, calls_max=1)
        found = await listings.limbo(asked)
        in_limbo = frozenset(bookie for bookies in found.values() for bookie in bookies)
        return replace(seen, in_limbo=in_limbo, silent={**unreached, **listings.silent})

    async def _surveyed(
        self, link: ClusterLink, pool: ObservedPool, seen: ObservedCluster
    ) -> ObservedCluster:
        known = replace(pool, cluster=seen)
        ids = seen.bookies.keys() | seen.cookies | seen.locations.keys()
        mine = {bookie for bookie in ids if pool.ordinal_of(bookie) is not None}
        may_leave = {known.bookie(ordinal) for ordinal in range(pool.spec.replicas, victim_of(known) + 1)}
        if pool.drain is not None:
            may_leave.add(pool.drain.bookie)
        is_urgent = bool(may_leave) or is_terminating(pool.manifest) or bool(_ended(pool))
        age_ms, wait_ms = (0 if is_urgent else _OLD_MS), self._services.settings.zookeeper_timeout_ms
        is_fresh = await link.ledgers.fresh(age_ms=age_ms, wait_ms=wait_ms)
        survey = await self._surveys.of(
            link.ledgers,
            Asker(frozenset(mine), frozenset(may_leave), pool.spec.placement.settings, pool.in_cluster),
            registered=seen.bookies,
            locations=seen.locations,
            is_whole=is_fresh or (link.ledgers.is_whole and not is_urgent),
        )
        return replace(seen, survey=survey)


def _ended(pool: ObservedPool) -> list[int]:
    return [ordinal for ordinal, pod in pool.pods.items() if pod.exit_code is not None]


def _classes_to_grow(claims: Mapping[str, ObservedClaim], volumes: Mapping[str, VolumeSpec]) -> set[str]:
    """The storage classes of claims that are smaller than is asked for."""
    return {
        claim.storage_class
        for claim in claims.values()
        if claim.storage_class and claim.requested_bytes < volumes[claim.role].size_bytes
    }


def _found_by(report: AuditReport | None) -> str:
    """What a full audit that was not clean found, in words."""
    if report is None or report.is_fully_replicated:
        return ""
    parts = [f"{reason}: {len(ledgers)} ledgers" for reason, ledgers in report.found.by_reason.items()]
    if report.found.unread:
        parts.append(f"{len(report.found.unread)} ledgers could not be read")
    parts += [
        f"{bookie} does not report what it has ({why})" for bookie, why in report.silent_bookies.items()
    ]
    return ", ".join(parts)
