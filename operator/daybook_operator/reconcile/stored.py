"""What the reconciles of Ledgers and Topics share: where the resource's cluster is, and how a plan is carried out and its failure reported."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from daybook_operator.plan.decision import Decision, is_terminating
from daybook_operator.plan.effects import ClusterRef, Manifest
from daybook_operator.plan.finalizers import FinalizerRules
from daybook_operator.plan.ledger.observed import ObservedLedger
from daybook_operator.plan.names import CLUSTER_ANNOTATION
from daybook_operator.plan.pool.cluster_settings import is_where_it_was
from daybook_operator.plan.pool.spec import cluster_of
from daybook_operator.plan.stored import Failure
from daybook_operator.plan.topic.observed import ObservedTopic
from daybook_operator.reconcile.performer import EffectError
from daybook_operator.reconcile.services import Services

S = TypeVar("S", ObservedLedger, ObservedTopic)


async def carry_out(services: Services, observed: S, decide: Callable[[S, int], Decision]) -> float | None:
    """Perform what the plan says; return after how many seconds to reconcile again. Raises EffectError, which the status then says."""
    try:
        return await services.performer.carry_out(decide(observed, services.now_ms()))
    except EffectError as error:
        failure = Failure(type(error.effect).__name__, str(error.cause))
        report = decide(replace(observed, failure=failure), services.now_ms())
        await services.performer.perform_all(report.effects)
        raise


def cluster_ref_of(services: Services, manifest: Manifest, pool: Manifest | None) -> ClusterRef | None:
    """The resource's cluster: by the annotation, else by the pool; by the pool as well after that moved to another address."""
    noted = (manifest["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION, "")
    ref = ClusterRef.from_text(noted)
    if pool is not None:
        now = cluster_of(pool, services.pool_defaults)
        if ref is None or is_where_it_was(pool, ref, now):
            ref = now
    return ref if ref is not None and ref.zookeeper else None


def finalizer_rules(services: Services) -> FinalizerRules:
    """When finalizers are used, by the operator's settings."""
    return FinalizerRules(services.settings.finalizers, services.settings.finalizer_bound_ms)


def needs_cluster(manifest: Manifest, rules: FinalizerRules) -> bool:
    """Whether the plan depends on the cluster: a deletion that nothing holds does not, and the cluster may be gone."""
    return rules.used or not is_terminating(manifest)


async def namespace_terminates(services: Services, manifest: Manifest) -> bool:
    """Whether the namespace of a resource that is being deleted goes as well."""
    if not is_terminating(manifest):
        return False  # it matters for a deletion alone
    namespace = await services.kube.find("Namespace", "", manifest["metadata"]["namespace"])
    return namespace is None or is_terminating(namespace)
