"""Observes a Topic resource for its plan, and has the plan carried out."""

import asyncio

from daybook.core.errors import MetadataError, MetadataUnavailableError, NoSuchTopicError
from daybook.core.topics.name import TopicName
from daybook.metadata.job_results import JobResults
from daybook.metadata.partitions import PartitionManager, partition
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.kube.queue import TOPIC, Key
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import Manifest, SetStatus
from daybook_operator.plan.spec_part import parse_spec
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster, TopicNode, name_of
from daybook_operator.plan.topic.plan import decide
from daybook_operator.plan.topic.spec import TopicSpec
from daybook_operator.reconcile.brokers import BrokerReports
from daybook_operator.reconcile.services import Services
from daybook_operator.reconcile.stored import (
    carry_out,
    cluster_ref_of,
    finalizer_rules,
    namespace_terminates,
    needs_cluster,
)


class TopicReconciler:
    """Reconciles "Topic" keys."""

    def __init__(self, services: Services) -> None:
        """Nothing is observed yet."""
        self._services = services
        self._reports = BrokerReports(services.performer.brokers, services.settings.resync_ms // 2)

    async def reconcile(self, key: Key) -> float | None:
        """Observe the resource and carry out its plan; see `queue.Reconcile`.

        As a resync listed it, it may be some minutes old: a plan that changes nothing stands, any other is made again.
        """
        listed = self._services.inventory.take_listed(key)
        if listed is not None:
            decision = self._decide(await self._observe(key, listed), self._services.now_ms())
            if not decision.effects:
                return decision.requeue_after_s
        manifest = await self._services.kube.find("Topic", key.namespace, key.name)
        if manifest is None:
            self._services.inventory.remove(key)
            self._services.metrics.topic_conditions_of(f"{key.namespace}/{key.name}", "", ())
            return None
        return await carry_out(self._services, await self._observe(key, manifest), self._decide)

    def _decide(self, observed: ObservedTopic, now_ms: int) -> Decision:
        """The plan; the metrics have its conditions, because no event about the status that it writes causes a reconcile."""
        decision = decide(observed, now_ms)
        planned = (effect.status for effect in decision.effects if isinstance(effect, SetStatus))
        status = next(planned, observed.status)
        namespace, name = observed.ref.namespace, observed.ref.name
        self._services.metrics.topic_conditions_of(
            f"{namespace}/{name}", f"{namespace}/{observed.pool_name}", status.get("conditions") or ()
        )
        return decision

    async def _observe(self, key: Key, manifest: Manifest) -> ObservedTopic:
        services = self._services
        spec = parse_spec(TopicSpec, manifest)
        services.inventory.note(TOPIC, key.namespace, key.name, spec.pool_ref.name, is_there=True)
        pool = services.inventory.pool(key.namespace, spec.pool_ref.name)
        if pool is None:
            pool = await services.kube.find("BookiePool", key.namespace, spec.pool_ref.name)
        ref = cluster_ref_of(services, manifest, pool)
        rules = finalizer_rules(services)
        seen, reports, cluster_error, unreadable = None, None, "", ""
        if ref is not None and needs_cluster(manifest, rules):
            name = name_of(manifest, spec)
            services.inventory.bind(key, ref, name)
            try:
                link = await services.clusters.link(ref)
                seen = await _in_cluster(link, name, spec.partitions)
                reports = await self._reports.of(ref, link)
            except MetadataUnavailableError as error:
                cluster_error = str(error)
            except MetadataError as error:
                unreadable = str(error)
        return ObservedTopic(
            manifest,
            pool,
            ref,
            seen,
            reports,
            services.inventory.jobs_report(key.namespace, spec.pool_ref.name),
            cluster_error=cluster_error,
            unreadable=unreadable,
            namespace_is_terminating=await namespace_terminates(services, manifest),
            finalizers=rules,
        )


async def _in_cluster(link: ClusterLink, name: TopicName, wanted: int) -> TopicInCluster:
    """What ZooKeeper has now; a plan that relies on the past is refused by versions. Raises MetadataError."""
    store, layout = link.client.store, link.client.layout
    await store.sync(layout.topic(name))
    record = await PartitionManager(store, layout).read(name)
    recorded = None if record is None else record.value.partitions
    names = [partition(name, index) for index in range(max(wanted, recorded or 0))]
    plain, *parts = await asyncio.gather(*(_node(link, each) for each in (name, *names)))
    is_being_deleted = record is not None and record.value.deletion is not None
    return TopicInCluster(recorded, plain, tuple(parts), is_being_deleted)


async def _node(link: ClusterLink, name: TopicName) -> TopicNode | None:
    store, layout = link.client.store, link.client.layout
    try:
        policy = await PolicyManager(store, layout).topic(name)
        found = await TopicManager(store, layout).read(name)
    except NoSuchTopicError:
        return None
    results = JobResults(store, layout)
    last = await asyncio.gather(*(results.read(name, job) for job in await results.jobs(name)))
    return TopicNode(found.value, policy, tuple(each for each in last if each is not None))
