"""What a Topic's plan writes: what is missing or otherwise than asked, and what the reclaim policy asks for (rule 67).

Partitions exist, with their policy, before the record counts them, so that no client publishes to one without a policy. The list
of a topic's ledgers is its owner's alone (rule 38). So only a broker can delete a topic, and a deletion waits for one.
"""

from dataclasses import replace

from daybook.core.errors import PolicyError
from daybook.core.topics.name import TopicName
from daybook.metadata.partitions import PARTITIONS_MAX
from daybook_operator.plan.effects import (
    CreateTopic,
    DeleteTopic,
    Effect,
    EventType,
    Report,
    SetPartitions,
    SetTopicPolicy,
)
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster
from daybook_operator.plan.topic.policy import policy_of


def changes(observed: ObservedTopic, seen: TopicInCluster) -> tuple[Effect, ...]:
    """What is missing or otherwise than asked: policies first, then the number of partitions.

    Raises PolicyError, also for more partitions than the schema allows: earlier releases' allowed them, and the API server keeps them.
    """
    assert observed.cluster_ref is not None
    cluster, manager, spec = observed.cluster_ref, observed.manager, observed.spec
    if spec.partitions > PARTITIONS_MAX:
        msg = f"spec.partitions={spec.partitions}: at most {PARTITIONS_MAX} are allowed, and they never shrink; create another Topic"
        raise PolicyError(msg)
    effects: list[Effect] = []
    for name, node in observed.topics:
        current = None if node is None else node.policy.value
        wanted = policy_of(spec, manager, current)
        if node is None:
            effects.append(CreateTopic(cluster, name, wanted))
        elif wanted != current:
            effects.append(SetTopicPolicy(cluster, name, node.policy, wanted, manager.uid))
    if spec.partitions > (seen.partitions or 0):
        effects.append(SetPartitions(cluster, observed.name, spec.partitions))
    return (*_events(observed, effects), *effects)


def _events(observed: ObservedTopic, effects: list[Effect]) -> tuple[Report, ...]:
    """What people read of it."""
    if any(isinstance(effect, CreateTopic) for effect in effects) and not observed.own:
        return (_report(observed, "Creating", f"Creating {observed.name}"),)
    adopted = any(
        isinstance(effect, SetTopicPolicy) and effect.current.value.managed_by is None for effect in effects
    )
    if adopted and not observed.own:
        return (_report(observed, "Adopting", f"{observed.name} is managed by this resource from now on"),)
    if any(isinstance(effect, SetPartitions) for effect in effects):
        text = f"{observed.name} gets {observed.spec.partitions} partitions"
        return (_report(observed, "Growing", text),)
    return ()


def reclaim(observed: ObservedTopic) -> tuple[Effect, ...]:
    """What the reclaim policy asks for; then no policy names the resource any more. A topic of somebody else stays untouched.

    A topic that is only watched now stays, whatever the policy. It is released too if the resource managed it before: nobody else may
    change it as long as it names a resource.
    """
    own, cluster = observed.own, observed.cluster_ref
    if cluster is None or not (own or _is_almost_deleted(observed)):
        return ()
    uid = observed.manager.uid
    if observed.spec.managed and observed.spec.deletes_topic:
        names = _names(observed)
        deletions = tuple(DeleteTopic(cluster, name, is_partitioned, uid) for name, is_partitioned in names)
        return (*deletions, _report(observed, "Deleted", f"{observed.name} is deleted"))
    released = tuple(
        SetTopicPolicy(cluster, name, node.policy, replace(node.policy.value, managed_by=None), uid)
        for name, node in own
    )
    why = "by reclaimPolicy Retain" if observed.spec.managed else "because spec.managed is false"
    text = f"{observed.name} stays in cluster {cluster}, {why}"
    return (*released, _report(observed, "Retained", text))


def _is_almost_deleted(observed: ObservedTopic) -> bool:
    """Whether a deletion ended after the last partition and before the record: nothing names a manager any more.

    Whoever began it wanted the record gone, and it counts no partition that exists, so nobody loses anything.
    """
    spec, seen = observed.spec, observed.cluster
    is_asked_for = spec.managed and spec.deletes_topic and spec.partitions > 0
    return is_asked_for and seen is not None and seen.is_being_deleted and not any(seen.parts)


def _names(observed: ObservedTopic) -> tuple[tuple[TopicName, bool], ...]:
    """The topics to delete, and whether each is a partitioned one: without a record there are only its partitions."""
    is_partitioned = observed.cluster is not None and observed.cluster.partitions is not None
    if observed.spec.partitions and is_partitioned:
        return ((observed.name, True),)
    return tuple((name, False) for name, _ in observed.own)


def _report(observed: ObservedTopic, reason: str, text: str) -> Report:
    return Report(observed.ref, EventType.NORMAL, reason, text)
