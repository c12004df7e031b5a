"""What a Topic's plan does about a partitioned topic whose deletion is not finished."""

from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.effects import DeleteTopic
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster, TopicNode
from daybook_operator.plan.topic.plan import decide

from daybook.core.topics.policy import PolicyLayer
from tests.unit.operator.test_topic_plan import (
    DELETED,
    MANAGER,
    NAME,
    NOW_MS,
    OTHER,
    condition,
    kinds,
    manifest,
    node,
    of_kind,
    world,
)

OWN = node(PolicyLayer(managed_by=MANAGER))


def half_deleted(*parts: TopicNode | None, **spec: Any) -> ObservedTopic:
    """A resource that is deleted, and its topic with a deletion that has begun."""
    seen = TopicInCluster(len(parts), parts=parts, is_being_deleted=True)
    return world(seen, manifest=manifest(meta=DELETED, partitions=len(parts), **spec))


@pytest.mark.parametrize("parts", [(None, OWN), (None, None)])
def test_rule_67_a_resource_is_let_go_only_after_its_half_deleted_topic_is_gone(
    parts: tuple[TopicNode | None, ...],
) -> None:
    decision = decide(half_deleted(*parts, reclaimPolicy="Delete"), NOW_MS)
    assert kinds(decision) == ["DeleteTopic", "Report", "PatchMeta"]
    effect = of_kind(decision, DeleteTopic)
    assert (effect.name, effect.is_partitioned) == (NAME, True)


def test_partitions_of_somebody_else_are_not_deleted_with_a_resource() -> None:
    theirs = half_deleted(None, node(PolicyLayer(managed_by=OTHER)), reclaimPolicy="Delete")
    assert kinds(decide(theirs, NOW_MS)) == ["PatchMeta"]
    assert kinds(decide(half_deleted(None, None, reclaimPolicy="Retain"), NOW_MS)) == ["PatchMeta"]


def test_a_topic_that_is_being_deleted_gets_no_partitions() -> None:
    there = half_deleted(None, None)
    fresh = replace(there, manifest=manifest(partitions=2))
    decision = decide(fresh, NOW_MS)
    assert not {"CreateTopic", "SetPartitions"} & set(kinds(decision))
    said = condition(decision)
    assert "its deletion is not finished" in said["message"]
    assert "Ask for the deletion again" in said["message"]
