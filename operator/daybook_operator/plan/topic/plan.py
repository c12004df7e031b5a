"""The plan for a Topic resource: create its topics with their policy, keep both as asked, release them when it is deleted.

The policy of each topic names the resource that manages it, and is written in the transaction that creates the topic: a reconcile
that was interrupted finds its own topics again, and two resources of one name find each other. A topic that a client made is
left alone unless a person allows the resource to adopt it (rule 67). `changes` has what is written.
"""

from typing import Any

from daybook.core.errors import PolicyError
from daybook_operator.plan.conditions import Condition, wrong
from daybook_operator.plan.decision import Decision, is_paused, is_terminating, paused, sooner
from daybook_operator.plan.effects import Effect
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.stored import (
    CONFLICT,
    READY,
    SOON_S,
    UNAVAILABLE_S,
    WAITING_S,
    claim,
    effect_failed,
    finish_stored,
    kept,
    pool_not_found,
    release,
    unhold,
    why_no_cluster,
)
from daybook_operator.plan.topic.changes import changes, reclaim
from daybook_operator.plan.topic.jobs import jobs_healthy
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster
from daybook_operator.plan.topic.status import (
    MESSAGE_ORDER,
    backlog_healthy,
    conflict,
    mirror,
    pool_draining,
    ready,
    unmanaged,
    unsupported,
)


def decide(observed: ObservedTopic, now_ms: int) -> Decision:
    """What to do about the resource now."""
    if is_terminating(observed.manifest):
        return _release(observed, now_ms)
    if is_paused(observed.manifest):
        return paused(observed.ref, observed.manifest, now_ms)
    if observed.failure is not None:
        return _finish(observed, (), kept(observed), [effect_failed(observed.failure)], now_ms)
    if (unheld := unhold(observed)) is not None:
        return unheld
    if observed.cluster_ref is None or (observed.cluster is None and not observed.unreadable):
        condition = why_no_cluster(observed, "Brokers and their clients continue meanwhile")
        return _finish(observed, (), kept(observed), [condition], now_ms, UNAVAILABLE_S)
    if observed.cluster is None:
        return _wait(
            observed,
            now_ms,
            "MetadataUnreadable",
            observed.unreadable,
            "Use an operator of the release that wrote it, or repair the node.",
        )
    if not observed.spec.managed:
        return _watch(observed, now_ms)
    if observed.pool is None and not observed.own:
        return _finish(observed, (), kept(observed), [pool_not_found(observed)], now_ms, WAITING_S)
    return _manage(observed, observed.cluster, now_ms)


# A topic that the resource manages.


def _manage(observed: ObservedTopic, seen: TopicInCluster, now_ms: int) -> Decision:
    if found := _conflict(observed, seen):
        why, next_step = found
        conditions = [
            wrong(READY, CONFLICT, why, next_step=next_step),
            conflict(why, next_step),
            unsupported(observed),
        ]
        return _finish(observed, (), kept(observed), conditions, now_ms, WAITING_S)
    try:
        missing = changes(observed, seen)
    except PolicyError as error:
        return _wait(
            observed, now_ms, "PolicyRefused", str(error), "Correct the spec; what was set before holds."
        )
    if missing:
        return Decision((*claim(observed), *missing), SOON_S)
    return _there(observed, claim(observed), now_ms)


def _conflict(observed: ObservedTopic, seen: TopicInCluster) -> tuple[str, str] | None:
    """Who else has the topic, and what to do; None: nobody."""
    if seen.is_being_deleted:
        return (
            f"{observed.name} is being deleted, and its deletion is not finished",
            f"Ask for the deletion again: daybook topic delete --force {observed.name}. The topic is created afterwards.",
        )
    if observed.spec.partitions and seen.plain is not None:
        return (
            f"{observed.name} exists without partitions",
            "Delete it, or create another Topic: a topic without partitions gets none.",
        )
    if not observed.spec.partitions and seen.partitions is not None:
        return (
            f"{observed.name} exists with {seen.partitions} partitions",
            f"Create another Topic with spec.partitions: {seen.partitions}, or delete the partitioned topic.",
        )
    managers = [(name, node.policy.value.managed_by) for name, node in observed.topics if node is not None]
    for name, manager in managers:
        if manager is not None and manager != observed.manager:
            return (
                f"{manager} manages {name}",
                "Delete one of the two resources, or give one another topicName.",
            )
    is_adopted = observed.may_adopt or bool(observed.own)
    if not is_adopted and (managers or seen.partitions is not None):
        return unmanaged(str(observed.name))
    return None


# A topic that the resource only watches.


def _watch(observed: ObservedTopic, now_ms: int) -> Decision:
    if all(node is None for _, node in observed.topics):
        return _wait(
            observed,
            now_ms,
            "TopicNotFound",
            f"There is no {observed.name}",
            "It begins with its first client, or with spec.managed: true.",
        )
    return _there(observed, (), now_ms)


# When the resource goes.


def _release(observed: ObservedTopic, now_ms: int) -> Decision:
    return release(
        observed,
        now_ms,
        reclaim=lambda: reclaim(observed),
        pending=lambda again_s: _deletion_is_pending(observed, now_ms, again_s),
        left_behind=lambda: (
            f"{observed.name} is left behind in {observed.cluster_ref or 'its cluster'}, because "
            f"{observed.finalizers.why_released('it could not be deleted or released')}: delete it with the brokers' admin API"
        ),
    )


def _deletion_is_pending(observed: ObservedTopic, now_ms: int, again_s: float | None) -> Decision:
    why = observed.failure.message if observed.failure is not None else observed.cluster_error
    condition = wrong(
        READY,
        "DeletionWaits",
        f"The topic cannot be deleted or released yet: {why or observed.unreadable or 'ZooKeeper does not answer'}",
        next_step="The operator tries again: a topic is deleted by its broker, so one must run, and take operator.brokerToken if it "
        "asks for tokens; if the cluster is gone for good, "
        f"remove the finalizer {FINALIZER} from this Topic by hand.",
    )
    return _finish(observed, (), kept(observed), [condition], now_ms, sooner(again_s, UNAVAILABLE_S))


# Together.


def _there(observed: ObservedTopic, effects: tuple[Effect, ...], now_ms: int) -> Decision:
    """The topic is there, and nothing of it is to be changed."""
    conditions = [
        ready(observed),
        conflict(),
        backlog_healthy(observed),
        jobs_healthy(observed),
        pool_draining(observed),
        unsupported(observed),
    ]
    return _finish(observed, effects, mirror(observed, now_ms), conditions, now_ms)


def _wait(observed: ObservedTopic, now_ms: int, reason: str, why: str, next_step: str) -> Decision:
    condition = wrong(READY, reason, why, next_step=next_step)
    return _finish(observed, (), kept(observed), [condition], now_ms, WAITING_S)


def _finish(
    observed: ObservedTopic,
    effects: tuple[Effect, ...],
    status: dict[str, Any],
    conditions: list[Condition],
    now_ms: int,
    requeue_after_s: float | None = None,
) -> Decision:
    named = {"topicName": str(observed.name), **status}
    return finish_stored(observed, effects, named, conditions, now_ms, requeue_after_s, order=MESSAGE_ORDER)
