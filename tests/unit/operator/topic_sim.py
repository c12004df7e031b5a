"""A topic's world in miniature: two Topic resources that name it, its nodes in ZooKeeper, clients, a broker, as plain values.

`TopicSim.reconcile` shows it to the plan and carries the effects out, all of them or only the first few, as an operator does that is
killed. What an effect may touch is checked as it is carried out, against what is true in the miniature and not against what the plan
was told.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import (
    CreateTopic,
    DeleteTopic,
    Effect,
    PatchMeta,
    Ref,
    Report,
    SetPartitions,
    SetStatus,
    SetTopicPolicy,
    ref_of,
)
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.stored import Failure
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster, TopicNode
from daybook_operator.plan.topic.plan import decide

from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import PolicyLayer
from daybook.metadata.partitions import partition
from daybook.metadata.store.store import Versioned
from tests.unit.operator.test_topic_plan import NAME, NOW_MS, POOL, REF, manifest

RECONCILES_MAX = 20
"""So often at most until nothing changes any more."""


class RefusedError(Exception):
    """ZooKeeper, a broker or the API server refuses an effect."""


@dataclass
class Node:
    """A topic in ZooKeeper. `theirs` is what nobody but its users may change, while no resource manages it."""

    policy: PolicyLayer
    version: int = 0
    theirs: PolicyLayer | None = None


class TopicSim:
    """See the module's opening."""

    def __init__(self) -> None:
        self.resources: dict[str, dict[str, Any]] = {}
        self.nodes: dict[TopicName, Node] = {}
        self.partitions: int | None = None
        self.has_zookeeper = True
        self.has_broker = True
        self._uids = 0
        self._seen: dict[str, ObservedTopic] = {}

    # --------------------------------------------------------------------------------------------- what people do

    def create(self, name: str, *, adopts: bool, **spec: Any) -> None:
        annotations = {"daybook.dev/adopt": "true"} if adopts else {}
        self._uids += 1
        meta = {
            "name": name,
            "uid": f"uid-{self._uids}",
            "finalizers": [],
            "annotations": annotations,
        }
        self.resources[name] = manifest(meta=meta, topicName=NAME.local, **spec)

    def delete(self, name: str) -> None:
        meta = self.resources[name]["metadata"]
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._drop_released(name)

    def annotate(self, name: str, annotation: str, *, is_set: bool) -> None:
        annotations = self.resources[name]["metadata"]["annotations"]
        annotations.pop(annotation, None)
        if is_set:
            annotations[annotation] = "true"

    def made_by_a_client(self, partitions: int) -> None:
        """A topic that no resource knows of."""
        names = [partition(NAME, index) for index in range(partitions)] or [NAME]
        for name in names:
            self.nodes.setdefault(name, Node(PolicyLayer(), theirs=PolicyLayer()))
        self.partitions = partitions or None

    def set_by_a_client(self, name: TopicName, policy: PolicyLayer) -> None:
        """Brokers do that for clients only while no resource manages the topic."""
        node = self.nodes[name]
        assert node.policy.managed_by is None
        node.policy, node.theirs, node.version = policy, policy, node.version + 1

    def rewritten_by_a_tool(self, name: TopicName) -> None:
        """Past the brokers, in ZooKeeper."""
        node = self.nodes[name]
        node.policy = replace(node.policy, ttl_ms=1, inactive_ms=77, unknown_fields={"x": 1})
        node.version += 1
        if node.theirs is not None:
            node.theirs = node.policy

    # ------------------------------------------------------------------------------------------- what the operator does

    def observe(self, name: str) -> ObservedTopic:
        resource = self.resources[name]
        wanted = max(resource["spec"].get("partitions", 0), self.partitions or 0)
        parts = tuple(self._node(partition(NAME, index)) for index in range(wanted))
        seen = TopicInCluster(self.partitions, self._node(NAME), parts)
        return ObservedTopic(deepcopy(resource), POOL, REF, seen if self.has_zookeeper else None)

    def _node(self, name: TopicName) -> TopicNode | None:
        node = self.nodes.get(name)
        if node is None:
            return None
        return TopicNode(
            LedgerList(unknown_fields={"creationToken": "t"}), Versioned(node.policy, node.version)
        )

    def read(self, name: str) -> None:
        """Begin a reconcile: what is done by it is planned by what is true now."""
        self._seen[name] = self.observe(name)

    def reconcile(self, name: str, effects: int | None = None) -> Decision:
        """Carry out the plan, or the first so many effects of it; a reconcile that began before goes on in its place."""
        observed = self._seen.pop(name, None)
        if observed is None:
            if name not in self.resources:
                return Decision()
            observed = self.observe(name)
        decision = decide(observed, NOW_MS)
        for effect in decision.effects[:effects]:
            try:
                self._perform(effect, observed)
            except RefusedError as error:
                failure = Failure(type(effect).__name__, str(error))
                said = decide(replace(observed, failure=failure), NOW_MS)
                assert {type(each) for each in said.effects} <= {Report, SetStatus}
                self._report(said.effects)
                break
        return decision

    def _report(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetStatus) and (resource := self._of(effect.ref)) is not None:
                resource["status"] = dict(effect.status)

    def settle(self, *names: str, effects: int | None = None) -> None:
        """Reconcile until nothing changes any more; the first time only `effects` of each."""
        for name in names:
            self.reconcile(name, effects)
        for _ in range(RECONCILES_MAX):
            effects_of_all = [self.reconcile(name).effects for name in names]
            if not any(effects_of_all):
                return
        raise AssertionError([self.reconcile(name).effects for name in names])

    # ----------------------------------------------------------------------------------------------------- effects

    def _perform(self, effect: Effect, observed: ObservedTopic) -> None:
        match effect:
            case Report():
                return
            case SetStatus():
                self._report([effect])
            case PatchMeta():
                self._patch(effect)
            case CreateTopic() | SetTopicPolicy() | SetPartitions() | DeleteTopic():
                if not self.has_zookeeper:
                    raise RefusedError("ZooKeeper does not answer")
                self._change(effect, observed)
            case _:
                raise AssertionError(effect)

    def _change(
        self, effect: CreateTopic | SetTopicPolicy | SetPartitions | DeleteTopic, observed: ObservedTopic
    ) -> None:
        manager = observed.manager
        match effect:
            case CreateTopic(_, name, policy):
                assert observed.spec.managed
                assert policy.managed_by == manager
                if name in self.nodes:
                    raise RefusedError("it exists")
                self.nodes[name] = Node(policy)
            case SetTopicPolicy(_, name, current, policy):
                self._set_policy(self.nodes.get(name), current, policy, observed)
            case SetPartitions(_, _, number):
                assert observed.spec.managed
                policies = [self.nodes[partition(NAME, index)].policy for index in range(number)]
                assert {policy.managed_by for policy in policies} == {manager}, (
                    "policies come first (rule 67)"
                )
                self.partitions = max(number, self.partitions or 0)
            case DeleteTopic(_, name, is_partitioned, uid):
                assert observed.spec.managed
                assert observed.spec.deletes_topic
                if not self.has_broker:
                    raise RefusedError("no broker is registered")
                parts = [partition(name, index) for index in range(self.partitions or 0)]
                for each in parts if is_partitioned else [name]:
                    gone = self.nodes.pop(each, None)
                    assert gone is None or (gone.policy.managed_by and gone.policy.managed_by.uid == uid)
                self.partitions = None if is_partitioned else self.partitions

    def _set_policy(
        self,
        node: Node | None,
        current: Versioned[PolicyLayer],
        policy: PolicyLayer,
        observed: ObservedTopic,
    ) -> None:
        if node is None or node.version != current.version:
            raise RefusedError("it was changed by somebody else meanwhile")
        before = node.policy
        assert before.managed_by in (None, observed.manager), "another resource has it"
        assert before.managed_by or observed.may_adopt or observed.own, "nobody allowed to adopt it"
        assert (policy.inactive_ms, policy.unknown_fields) == (before.inactive_ms, before.unknown_fields)
        if policy.managed_by is None:
            assert policy == replace(before, managed_by=None)
        node.policy, node.version = policy, node.version + 1
        node.theirs = policy if policy.managed_by is None else None

    def _patch(self, effect: PatchMeta) -> None:
        resource = self._of(effect.ref)
        if resource is None:
            raise RefusedError("it is gone, or another one of its name is there")
        meta = resource["metadata"]
        if effect.add_finalizer and "deletionTimestamp" in meta:
            raise RefusedError("no finalizer can be added to what is being deleted")
        meta["annotations"] |= dict(effect.annotations or {})
        kept = {*meta["finalizers"], *filter(None, [effect.add_finalizer])} - {effect.remove_finalizer}
        meta["finalizers"] = sorted(kept)
        self._drop_released(meta["name"])

    def _of(self, ref: Ref) -> dict[str, Any] | None:
        resource = self.resources.get(ref.name)
        return resource if resource is not None and ref_of(resource).uid == ref.uid else None

    def _drop_released(self, name: str) -> None:
        meta = self.resources[name]["metadata"]
        if "deletionTimestamp" in meta and FINALIZER not in meta["finalizers"]:
            del self.resources[name]
