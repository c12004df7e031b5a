"""The plan for a Topic: its topics made with their policy, adopted, grown, watched, released; and what each condition says."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import (
    ClusterRef,
    CreateTopic,
    DeleteTopic,
    Effect,
    PatchMeta,
    Report,
    SetPartitions,
    SetStatus,
    SetTopicPolicy,
)
from daybook_operator.plan.finalizers import FinalizerRules
from daybook_operator.plan.names import CLUSTER_ANNOTATION, FINALIZER
from daybook_operator.plan.stored import Failure
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster, TopicNode
from daybook_operator.plan.topic.plan import decide
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState
from daybook.core.topics.manager import Manager
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import BacklogAction, Degrade, Durability, PolicyLayer
from daybook.metadata.partitions import partition
from daybook.metadata.store.store import Versioned

NOW_MS = 1_700_000_000_000
REF = ClusterRef("zk:2181", "daybook")
POOL = {"kind": "BookiePool", "metadata": {"name": "bk", "namespace": "data"}}
NAME = TopicName("public", "default", "orders")
MANAGER = Manager("data", "orders", "uid-1")
OTHER = Manager("data", "orders-too", "uid-2")
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def manifest(*, meta: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {
            "name": "orders",
            "namespace": "data",
            "uid": "uid-1",
            "generation": 1,
            "finalizers": [FINALIZER],
            "annotations": {CLUSTER_ANNOTATION: REF.text},
            **(meta or {}),
        },
        "spec": {"poolRef": {"name": "bk"}, **spec},
    }


def world(cluster: TopicInCluster | None = None, **changes: Any) -> ObservedTopic:
    base = ObservedTopic(manifest(), POOL, REF, cluster or TopicInCluster())
    return replace(base, **changes)


def node(policy: PolicyLayer, *ledgers: ListedLedger) -> TopicNode:
    state = ListState.OPEN if ledgers and ledgers[-1].is_open else ListState.CLOSED
    end = max((each.last_position for each in ledgers if each.entries), default=NO_POSITION)
    stored = LedgerList(state, ledgers=ledgers, last_confirmed=end, unknown_fields={"creationToken": "t"})
    return TopicNode(stored, Versioned(policy, 3))


def kinds(decision: Decision) -> list[str]:
    return [type(effect).__name__ for effect in decision.effects]


def of_kind(decision: Decision, kind: type[Effect]) -> Any:
    (found,) = [effect for effect in decision.effects if isinstance(effect, kind)]
    return found


def status(decision: Decision) -> Mapping[str, Any]:
    found: Mapping[str, Any] = of_kind(decision, SetStatus).status
    return found


def condition(decision: Decision, type_: str = "Ready") -> Mapping[str, Any]:
    (found,) = [each for each in status(decision)["conditions"] if each["type"] == type_]
    return dict(found)


def carried_out(world: ObservedTopic, effects: Iterable[Effect]) -> ObservedTopic:
    """The world after some effects, as ZooKeeper would have it."""
    for effect in effects:
        seen = world.cluster
        assert seen is not None
        match effect:
            case CreateTopic(_, name, policy) | SetTopicPolicy(_, name, _, policy):
                if name == NAME:
                    seen = replace(seen, plain=node(policy))
                else:
                    number = int(name.local.rpartition("-")[2])
                    parts = list(seen.parts)
                    parts[number] = node(policy)
                    seen = replace(seen, parts=tuple(parts))
            case SetPartitions(_, _, number):
                seen = replace(seen, partitions=number)
            case PatchMeta(add_finalizer=finalizer) if finalizer:
                meta = {**world.manifest["metadata"], "finalizers": [finalizer]}
                world = replace(world, manifest={**world.manifest, "metadata": meta})
        world = replace(world, cluster=seen)
    return world


def settled(world: ObservedTopic) -> ObservedTopic:
    """The world once the plan has nothing more to change."""
    for _ in range(5):
        decision = decide(world, NOW_MS)
        if "SetStatus" in kinds(decision):
            return world
        world = carried_out(world, decision.effects)
    raise AssertionError(kinds(decision))


def created(**spec: Any) -> ObservedTopic:
    """The world of a topic that this resource has made."""
    count = spec.get("partitions", 0)
    return settled(world(TopicInCluster(parts=(None,) * count), manifest=manifest(**spec)))


# Creation and changes


def test_the_claim_comes_before_the_topic_and_the_policy_with_it() -> None:
    fresh = manifest(meta={"finalizers": [], "annotations": {}}, messageTTLSeconds=60)
    decision = decide(world(manifest=fresh), NOW_MS)
    assert kinds(decision) == ["PatchMeta", "Report", "CreateTopic"]
    assert of_kind(decision, PatchMeta).add_finalizer == FINALIZER
    made = of_kind(decision, CreateTopic)
    assert made.name == NAME
    assert made.policy == PolicyLayer(
        ensemble_size=3,
        write_quorum=3,
        retention_ms=0,
        retention_bytes=0,
        ttl_ms=60_000,
        pool="data.bk",
        managed_by=MANAGER,
    )


def test_rule_67_partitions_have_their_policy_before_the_record_counts_them() -> None:
    asked = manifest(partitions=2)
    decision = decide(world(TopicInCluster(parts=(None, None)), manifest=asked), NOW_MS)
    assert kinds(decision) == ["Report", "CreateTopic", "CreateTopic", "SetPartitions"]
    grown = replace(created(partitions=2), manifest=manifest(partitions=3))
    assert grown.cluster is not None
    wider = replace(grown, cluster=replace(grown.cluster, parts=(*grown.cluster.parts, None)))
    decision = decide(wider, NOW_MS)
    assert kinds(decision) == ["Report", "CreateTopic", "SetPartitions"]
    assert of_kind(decision, CreateTopic).name == partition(NAME, 2)
    assert of_kind(decision, SetPartitions).partitions == 3
    assert "3 partitions" in of_kind(decision, Report).message


def test_what_the_spec_says_becomes_the_policy() -> None:
    asked = manifest(
        durability="Sync",
        ensembleSize=5,
        writeQuorum=2,
        retention={"policy": "Limit", "timeSeconds": 3600, "size": "1Gi"},
        backlogQuota={"size": "2Gi", "ageSeconds": 60, "action": "Evict"},
    )
    policy = of_kind(decide(world(manifest=asked), NOW_MS), CreateTopic).policy
    assert (policy.durability, policy.degrade) == (Durability.SYNC, Degrade.NEVER)
    assert (policy.ensemble_size, policy.write_quorum) == (5, 2)
    assert (policy.retention_ms, policy.retention_bytes) == (3_600_000, 1024**3)
    assert (policy.backlog_bytes, policy.backlog_ms) == (2 * 1024**3, 60_000)
    assert policy.backlog_action is BacklogAction.EVICT
    assert policy.pool == "data.bk", "the topic stays in the pool of its poolRef (rule 69)"


@pytest.mark.parametrize(
    ("write_quorum", "ack_quorum", "durability"),
    [
        (3, 3, Durability.SYNC),
        (3, 2, Durability.SEMI_SYNC),
        (3, 1, Durability.ASYNC),
        (1, 1, Durability.SYNC),
    ],
)
def test_an_ack_quorum_is_a_durability(write_quorum: int, ack_quorum: int, durability: Durability) -> None:
    asked = manifest(writeQuorum=write_quorum, ackQuorum=ack_quorum)
    assert of_kind(decide(world(manifest=asked), NOW_MS), CreateTopic).policy.durability is durability


def test_an_ack_quorum_that_no_durability_has_is_a_condition() -> None:
    asked = manifest(ensembleSize=5, writeQuorum=5, ackQuorum=3)
    said = condition(decide(world(manifest=asked), NOW_MS))
    assert (said["status"], said["reason"]) == ("False", "PolicyRefused")
    assert "set durability, and ackQuorum to null" in said["message"]


def test_a_retention_that_no_broker_could_read_is_a_condition() -> None:
    asked = manifest(retention={"policy": "Limit", "timeSeconds": 2**62})
    decision = decide(world(manifest=asked), NOW_MS)
    assert "CreateTopic" not in kinds(decision)
    assert condition(decision)["reason"] == "PolicyRefused"
    assert "retentionMs has more than 64 bits" in condition(decision)["message"]


def test_a_policy_that_another_tool_rewrote_is_set_again_and_what_only_tools_set_stays() -> None:
    there = created()
    assert there.cluster is not None
    assert there.cluster.plain is not None
    theirs = replace(there.cluster.plain.policy.value, ttl_ms=1, inactive_ms=77, unknown_fields={"x": 1})
    changed = replace(there, cluster=replace(there.cluster, plain=node(theirs)))
    effect = of_kind(decide(changed, NOW_MS), SetTopicPolicy)
    assert (effect.policy.ttl_ms, effect.policy.inactive_ms, effect.policy.unknown_fields) == (
        0,
        77,
        {"x": 1},
    )
    assert (effect.current.version, effect.manager_uid) == (3, "uid-1")


@given(
    count=st.integers(0, 3),
    durability=st.sampled_from([None, "Sync", "SemiSync", "Async"]),
    kept=st.sampled_from(
        [{"policy": "Discard"}, {"policy": "Forever"}, {"policy": "Limit", "timeSeconds": 9}]
    ),
    quota=st.sampled_from([None, {"ageSeconds": 5}, {"size": "1Mi", "action": "Refuse"}]),
    cut=st.integers(0, 6),
)
def test_two_reconciles_are_one_wherever_the_first_was_interrupted(
    count: int, durability: str | None, kept: dict[str, Any], quota: dict[str, Any] | None, cut: int
) -> None:
    spec: dict[str, Any] = {
        "partitions": count,
        "durability": durability,
        "retention": kept,
        "backlogQuota": quota,
    }
    fresh = world(TopicInCluster(parts=(None,) * count), manifest=manifest(**spec))
    whole = settled(fresh)
    interrupted = settled(carried_out(fresh, decide(fresh, NOW_MS).effects[:cut]))
    assert interrupted.cluster == whole.cluster
    assert condition(decide(whole, NOW_MS))["reason"] == "Reconciled"


# Conflicts


def test_rule_67_a_topic_that_a_client_made_is_left_alone_until_a_person_allows_it() -> None:
    theirs = TopicInCluster(plain=node(PolicyLayer(ttl_ms=5)))
    decision = decide(world(theirs), NOW_MS)
    assert kinds(decision) == ["Report", "Report", "SetStatus"]
    assert condition(decision, "ResourceConflict")["status"] == "True"
    assert 'daybook.dev/adopt: "true"' in condition(decision)["message"]
    allowed = manifest(meta={"annotations": {CLUSTER_ANNOTATION: REF.text, "daybook.dev/adopt": "true"}})
    decision = decide(world(theirs, manifest=allowed), NOW_MS)
    assert kinds(decision) == ["Report", "SetTopicPolicy"]
    assert of_kind(decision, Report).reason == "Adopting"
    assert of_kind(decision, SetTopicPolicy).policy.managed_by == MANAGER


def test_partitions_that_a_client_made_are_left_alone_also_without_policies() -> None:
    asked = manifest(partitions=2)
    said = condition(decide(world(TopicInCluster(2, parts=(None, None)), manifest=asked), NOW_MS))
    assert said["reason"] == "ResourceConflict"


def test_rule_67_the_second_resource_that_names_a_topic_has_a_conflict() -> None:
    allowed = manifest(meta={"annotations": {CLUSTER_ANNOTATION: REF.text, "daybook.dev/adopt": "true"}})
    for asked in (manifest(), allowed):
        theirs = TopicInCluster(plain=node(PolicyLayer(managed_by=OTHER)))
        decision = decide(world(theirs, manifest=asked), NOW_MS)
        assert not {"CreateTopic", "SetTopicPolicy"} & set(kinds(decision))
        assert "Topic data/orders-too manages" in condition(decision, "ResourceConflict")["message"]


def test_a_topic_does_not_become_a_partitioned_one_nor_the_other_way_round() -> None:
    plain = world(TopicInCluster(plain=node(PolicyLayer()), parts=(None,)), manifest=manifest(partitions=1))
    assert "exists without partitions" in condition(decide(plain, NOW_MS))["message"]
    parts = world(TopicInCluster(4, parts=(node(PolicyLayer()),) * 4))
    assert "exists with 4 partitions" in condition(decide(parts, NOW_MS))["message"]


def test_partitions_never_shrink() -> None:
    there = replace(created(partitions=3), manifest=manifest(partitions=2))
    decision = decide(there, NOW_MS)
    assert "SetPartitions" not in kinds(decision)
    assert "set spec.partitions to 3" in condition(decision)["message"]


def test_more_partitions_than_a_topic_can_have_are_a_condition_before_any_of_them_is_made() -> None:
    too_many = world(TopicInCluster(parts=(None,) * 1001), manifest=manifest(partitions=1001))
    decision = decide(too_many, NOW_MS)
    assert not {"CreateTopic", "SetPartitions"} & set(kinds(decision))
    assert condition(decision)["reason"] == "PolicyRefused"
    assert "spec.partitions=1001: at most 1000 are allowed" in condition(decision)["message"]


# What is said


def test_what_nothing_carries_out_yet_is_a_condition_and_the_rest_holds() -> None:
    offload = {"schedule": "0 3 * * *", "to": "s3://bucket/topics", "rows": True}
    there = created(deduplication=True, segment={"maxEntries": 9}, offload=offload)
    decision = decide(there, NOW_MS)
    assert condition(decision)["status"] == "True"
    said = condition(decision, "Unsupported")
    assert (said["status"], said["reason"]) == ("True", "NotCarriedOut")
    assert "carry out spec.deduplication, spec.segment." in said["message"]
    assert condition(decide(created(), NOW_MS), "Unsupported")["status"] == "False"


def test_what_nothing_carries_out_is_said_of_a_topic_that_is_only_watched_too() -> None:
    asked = manifest(managed=False, deduplication=True)
    decision = decide(world(TopicInCluster(plain=node(PolicyLayer())), manifest=asked), NOW_MS)
    said = condition(decision, "Unsupported")
    assert (said["status"], said["reason"]) == ("True", "NotCarriedOut")


@pytest.mark.parametrize("count", [0, 3])
def test_a_topic_that_is_terminated_is_not_ready(count: int) -> None:
    """It was terminated before it was adopted, or by somebody who writes into ZooKeeper."""
    there = created(partitions=count)
    assert there.cluster is not None
    managed = there.topics[-1][1]
    assert managed is not None
    ended = replace(managed, ledger_list=LedgerList(ListState.TERMINATED))
    parts = (*there.cluster.parts[:-1], ended) if count else ()
    cluster = replace(there.cluster, plain=None if count else ended, parts=parts)
    said = condition(decide(replace(there, cluster=cluster), NOW_MS))
    assert (said["status"], said["reason"]) == ("False", "Terminated")
    assert str(there.topics[-1][0]) in said["message"]
    assert ("1 of 3 partitions" in said["message"]) == bool(count)
    watched = manifest(partitions=count, managed=False)
    said = condition(decide(replace(there, cluster=cluster, manifest=watched), NOW_MS))
    assert said["reason"] == "Observed", "nothing is asked of it"


def test_a_topic_that_is_only_watched_is_never_changed() -> None:
    asked = manifest(managed=False, messageTTLSeconds=5)
    nothing = decide(world(manifest=asked), NOW_MS)
    assert condition(nothing)["reason"] == "TopicNotFound"
    theirs = decide(world(TopicInCluster(plain=node(PolicyLayer())), manifest=asked), NOW_MS)
    assert condition(theirs)["reason"] == "Observed"
    for decision in (nothing, theirs):
        assert {*kinds(decision)} <= {"Report", "SetStatus"}


@pytest.mark.parametrize(
    ("changes", "reason", "word"),
    [
        ({"pool": None, "cluster_ref": None, "cluster": None}, "PoolNotFound", "False"),
        ({"cluster_ref": None, "cluster": None}, "PoolWithoutCluster", "False"),
        ({"cluster": None, "cluster_error": "no answer"}, "MetadataUnavailable", "Unknown"),
        ({"cluster": None, "unreadable": "format 9"}, "MetadataUnreadable", "False"),
        ({"failure": Failure("CreateTopic", "conflict")}, "CreateTopicFailed", "False"),
        ({"pool": None}, "PoolNotFound", "False"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_made(changes: dict[str, Any], reason: str, word: str) -> None:
    decision = decide(replace(world(), **changes), NOW_MS)
    assert (condition(decision)["reason"], condition(decision)["status"]) == (reason, word)
    assert "CreateTopic" not in kinds(decision)


def test_a_paused_topic_is_left_alone() -> None:
    pause = manifest(meta={"annotations": {"daybook.dev/pause": "true"}})
    decision = decide(world(manifest=pause), NOW_MS)
    assert condition(decision, "Paused")["status"] == "True"
    assert "CreateTopic" not in kinds(decision)


# When the resource goes


def going(there: ObservedTopic, **spec: Any) -> ObservedTopic:
    asked = manifest(meta=DELETED, **spec)
    return replace(there, manifest=asked)


def test_rule_67_a_retained_topic_stays_and_names_no_manager_any_more() -> None:
    decision = decide(going(created(partitions=2), partitions=2), NOW_MS)
    assert kinds(decision) == ["SetTopicPolicy", "SetTopicPolicy", "Report", "PatchMeta"]
    assert all(
        each.policy.managed_by is None for each in decision.effects if isinstance(each, SetTopicPolicy)
    )
    assert of_kind(decision, PatchMeta).remove_finalizer == FINALIZER


@pytest.mark.parametrize("count", [0, 2])
def test_rule_67_a_broker_deletes_the_topic_before_the_finalizer_goes(count: int) -> None:
    there = going(created(partitions=count), partitions=count, reclaimPolicy="Delete")
    decision = decide(there, NOW_MS)
    assert kinds(decision) == ["DeleteTopic", "Report", "PatchMeta"]
    effect = of_kind(decision, DeleteTopic)
    assert (effect.name, effect.is_partitioned, effect.manager_uid) == (NAME, count > 0, "uid-1")
    waiting = decide(replace(there, failure=Failure("DeleteTopic", "no broker is registered")), NOW_MS)
    said = condition(waiting)
    assert said["reason"] == "DeletionWaits"
    assert "no broker is registered" in said["message"]
    assert "PatchMeta" not in kinds(waiting)


def test_partitions_without_a_record_are_deleted_one_by_one() -> None:
    fresh = world(TopicInCluster(parts=(None, None)), manifest=manifest(partitions=2))
    half = carried_out(fresh, decide(fresh, NOW_MS).effects[:2])
    decision = decide(going(half, partitions=2, reclaimPolicy="Delete"), NOW_MS)
    effect = of_kind(decision, DeleteTopic)
    assert (effect.name, effect.is_partitioned) == (partition(NAME, 0), False)


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_topic_of_somebody_else_survives_the_resource(policy: str) -> None:
    theirs = TopicInCluster(plain=node(PolicyLayer(managed_by=OTHER)))
    assert kinds(decide(going(world(theirs), reclaimPolicy=policy), NOW_MS)) == ["PatchMeta"]
    watched = going(world(TopicInCluster(plain=node(PolicyLayer()))), reclaimPolicy=policy, managed=False)
    assert kinds(decide(watched, NOW_MS)) == ["PatchMeta"]


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_topic_that_is_only_watched_now_stays_and_names_no_resource_that_is_gone(policy: str) -> None:
    decision = decide(going(created(), reclaimPolicy=policy, managed=False), NOW_MS)
    assert kinds(decision) == ["SetTopicPolicy", "Report", "PatchMeta"]
    assert of_kind(decision, SetTopicPolicy).policy.managed_by is None
    assert "because spec.managed is false" in of_kind(decision, Report).message


def test_a_terminating_namespace_does_not_wait_for_a_broker_for_ever() -> None:
    there = replace(
        going(created(), reclaimPolicy="Delete"),
        cluster=None,
        namespace_is_terminating=True,
        finalizers=FinalizerRules(bound_ms=1000),
    )
    decision = decide(there, NOW_MS + 10**9 * 100)
    assert kinds(decision) == ["Report", "PatchMeta"]
    assert "left behind" in of_kind(decision, Report).message
