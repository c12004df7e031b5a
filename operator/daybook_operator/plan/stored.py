"""What the plans for a Ledger and for a Topic share: both stand for something in the metadata of a pool's cluster.

A claim comes before anything is made: the finalizer, and the annotation that names the cluster, for when the pool that said so is gone.
While there is no pool, or ZooKeeper does not answer, what is known stays in the status.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from daybook_operator.plan.conditions import Condition, unknown, wrong
from daybook_operator.plan.decision import Decision, finish, is_paused, paused
from daybook_operator.plan.effects import ClusterRef, Effect, EventType, Manifest, PatchMeta, Ref, Report
from daybook_operator.plan.finalizers import (
    FinalizerRules,
    has_finalizer,
    must_release,
    must_release_after_s,
)
from daybook_operator.plan.names import CLUSTER_ANNOTATION, FINALIZER
from daybook_operator.plan.spec_part import SpecPart

READY: Final = "Ready"
CONFLICT: Final = "ResourceConflict"
"""Another resource has what this one asks for."""
SOON_S: Final = 0.0
UNAVAILABLE_S: Final = 5.0
WAITING_S: Final = 30.0


class PoolRef(SpecPart):
    """The BookiePool of the same namespace that stores what the resource stands for."""

    name: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An effect of the last plan that could not be carried out, by its kind, and why."""

    effect: str
    message: str


class Stored(Protocol):
    """What is observed of such a resource, whatever its kind.

    `pool` None: there is no such BookiePool. `cluster` None: ZooKeeper does not answer, `cluster_error` says more; or
    `cluster_ref` is None, since no pool names a cluster.
    """

    @property
    def manifest(self) -> Manifest:
        """The resource as the API server has it."""

    @property
    def ref(self) -> Ref:
        """The resource."""

    @property
    def status(self) -> Mapping[str, Any]:
        """What its status says now."""

    @property
    def pool_name(self) -> str:
        """The pool that stores it."""

    @property
    def pool(self) -> Manifest | None:
        """That pool."""

    @property
    def cluster_ref(self) -> ClusterRef | None:
        """Where it is."""

    @property
    def cluster(self) -> object | None:
        """What ZooKeeper says of it."""

    @property
    def cluster_error(self) -> str:
        """Why ZooKeeper says nothing."""

    @property
    def namespace_is_terminating(self) -> bool:
        """Whether the whole namespace goes."""

    @property
    def finalizers(self) -> FinalizerRules:
        """When the finalizer must go."""

    @property
    def failure(self) -> Failure | None:
        """What of the last plan failed."""


def claim(observed: Stored) -> tuple[Effect, ...]:
    """The finalizer, where finalizers are used, and the annotation that names the cluster; before anything is created."""
    meta = observed.manifest["metadata"]
    assert observed.cluster_ref is not None
    there = observed.cluster_ref.text
    noted = (meta.get("annotations") or {}).get(CLUSTER_ANNOTATION)
    patch = PatchMeta(observed.ref)
    if noted != there:
        patch = replace(patch, annotations={CLUSTER_ANNOTATION: there})
    if observed.finalizers.used and not has_finalizer(observed.manifest):
        patch = replace(patch, add_finalizer=FINALIZER)
    return () if patch == PatchMeta(observed.ref) else (patch,)


def unhold(observed: Stored) -> Decision | None:
    """The plan where no finalizers are used and the resource has one: it goes first, whether or not ZooKeeper answers."""
    if observed.finalizers.used or not has_finalizer(observed.manifest):
        return None
    return Decision((PatchMeta(observed.ref, remove_finalizer=FINALIZER),), SOON_S)


def why_no_cluster(observed: Stored, meanwhile: str) -> Condition:
    """The condition while there is no pool, or ZooKeeper does not answer; `meanwhile` says what continues then."""
    if observed.cluster_ref is not None:
        return unknown(
            READY,
            "MetadataUnavailable",
            observed.cluster_error or f"ZooKeeper at {observed.cluster_ref.zookeeper} does not answer",
            next_step=f"{meanwhile}; check that ZooKeeper runs.",
        )
    if observed.pool is None:
        return pool_not_found(observed)
    return wrong(
        READY,
        "PoolWithoutCluster",
        f"BookiePool {observed.pool_name} does not say which ZooKeeper it uses",
        next_step="Set its spec.metadata.zookeeper, or the operator's own default.",
    )


def pool_not_found(observed: Stored) -> Condition:
    """The condition while there is no pool of that name."""
    return wrong(
        READY,
        "PoolNotFound",
        f"There is no BookiePool {observed.pool_name} in this namespace",
        next_step=f"Create it, or delete this {observed.ref.kind} and name another pool.",
    )


def effect_failed(failure: Failure) -> Condition:
    """The condition after an effect of the plan failed; the operator tries again after a pause."""
    return wrong(READY, f"{failure.effect}Failed", failure.message, next_step="The operator tries again.")


def kept(observed: Stored) -> dict[str, Any]:
    """The former status, where nothing newer is known."""
    return {
        name: value
        for name, value in observed.status.items()
        if name not in {"conditions", "observedGeneration", "message"}
    }


def finish_stored(
    observed: Stored,
    effects: Iterable[Effect],
    status: Mapping[str, Any],
    conditions: list[Condition],
    now_ms: int,
    requeue_after_s: float | None = None,
    *,
    order: tuple[str, ...] = (READY,),
) -> Decision:
    """The end of a plan. The message is that of the first condition, in this `order`, that is wrong."""
    by_type = {condition.type: condition for condition in conditions}
    said = (by_type[each] for each in order if each in by_type)
    message = next((condition.message for condition in said if condition.is_wrong), "")
    return finish(
        observed.ref,
        observed.manifest,
        effects=effects,
        status={**status, "message": message},
        conditions=conditions,
        now_ms=now_ms,
        requeue_after_s=requeue_after_s,
        keep_others=True,
    )


def release(
    observed: Stored,
    now_ms: int,
    *,
    reclaim: Callable[[], tuple[Effect, ...]],
    pending: Callable[[float | None], Decision],
    left_behind: Callable[[], str],
) -> Decision:
    """Carry out the deletion in the cluster, then remove the finalizer; see `finalizers` for when that cannot wait.

    `reclaim`: what the reclaim policy asks for. `pending`: the plan while that is impossible, given when to try again at the latest.
    `left_behind`: what stays if the deletion does not wait.
    """
    if not has_finalizer(observed.manifest):
        return Decision()
    off = PatchMeta(observed.ref, remove_finalizer=FINALIZER)
    forced = must_release(
        observed.manifest,
        namespace_is_terminating=observed.namespace_is_terminating,
        rules=observed.finalizers,
        now_ms=now_ms,
    )
    if forced:
        return Decision((Report(observed.ref, EventType.WARNING, "LeftBehind", left_behind()), off))
    again_s = (
        must_release_after_s(observed.manifest, observed.finalizers, now_ms)
        if observed.namespace_is_terminating
        else None
    )
    if is_paused(observed.manifest):
        return replace(paused(observed.ref, observed.manifest, now_ms), requeue_after_s=again_s)
    if observed.cluster_ref is None:
        return Decision((off,))  # nothing was ever made for it: no pool named a cluster
    if observed.failure is not None or observed.cluster is None:
        return pending(again_s)
    return Decision((*reclaim(), off))
