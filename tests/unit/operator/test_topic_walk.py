"""A topic through whatever may happen to it: two resources name it, clients make it, people change their minds, the operator dies half-way.

The checks of single effects are in the miniature world (`topic_sim`); here is what may happen, and that it ends well: in one state,
however the last reconciles were interrupted, and what no resource manages is as its users left it.
"""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from daybook.core.topics.policy import PolicyLayer
from tests.unit.operator.test_topic_plan import NAME
from tests.unit.operator.topic_sim import TopicSim

RESOURCES = ("orders", "orders-too")
WHICH = st.sampled_from(RESOURCES)
COUNTS = st.sampled_from([0, 2, 3])
MOSTLY = st.sampled_from([True, True, True, False])
ENDS = {"Reconciled", "MorePartitions", "Observed", "ResourceConflict", "TopicNotFound"}
"""The reasons of Ready of a Topic that waits for nobody but a person."""


class TopicWalk(RuleBasedStateMachine):
    """One topic, two resources, and everything that may happen to them in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = TopicSim()

    @initialize(
        theirs=st.none() | COUNTS,
        asked=st.lists(st.tuples(COUNTS, st.booleans(), st.booleans(), MOSTLY), max_size=2),
    )
    def some_are_there(self, theirs: int | None, asked: list[tuple[int, bool, bool, bool]]) -> None:
        """What a client made, and resources; or nothing yet."""
        if theirs is not None:
            self.sim.made_by_a_client(theirs)
        for which, (count, adopts, deletes, managed) in zip(RESOURCES, asked, strict=False):
            self.a_resource_is_created(which, count, adopts, deletes, managed)
        self.sim.settle(*RESOURCES)

    def spec(self, which: str) -> dict[str, Any]:
        """Of a resource that is there and can be changed; else of nobody."""
        found: dict[str, Any] = self.sim.resources.get(which, {}).get("spec", {})
        return found

    @rule(which=WHICH, count=COUNTS, adopts=st.booleans(), deletes=st.booleans(), managed=st.booleans())
    def a_resource_is_created(
        self, which: str, count: int, adopts: bool, deletes: bool, managed: bool
    ) -> None:
        if which not in self.sim.resources:
            policy = "Delete" if deletes else "Retain"
            self.sim.create(which, adopts=adopts, partitions=count, reclaimPolicy=policy, managed=managed)

    @rule(which=WHICH)
    def a_resource_is_deleted(self, which: str) -> None:
        if which in self.sim.resources:
            self.sim.delete(which)

    @rule(which=WHICH, count=COUNTS)
    def partitions_grow(self, which: str, count: int) -> None:
        if 0 < self.spec(which).get("partitions", 0) < count:
            self.spec(which)["partitions"] = count

    @rule(which=WHICH, ttl_s=st.integers(0, 2))
    def the_policy_changes(self, which: str, ttl_s: int) -> None:
        self.spec(which)["messageTTLSeconds"] = ttl_s

    @rule(which=WHICH, deletes=st.booleans())
    def the_reclaim_policy_changes(self, which: str, deletes: bool) -> None:
        self.spec(which)["reclaimPolicy"] = "Delete" if deletes else "Retain"

    @rule(which=WHICH, managed=st.booleans())
    def management_is_switched(self, which: str, managed: bool) -> None:
        self.spec(which)["managed"] = managed

    @rule(
        which=WHICH,
        annotation=st.sampled_from(["daybook.dev/adopt", "daybook.dev/pause"]),
        is_set=st.booleans(),
    )
    def an_annotation_is_switched(self, which: str, annotation: str, is_set: bool) -> None:
        if which in self.sim.resources:
            self.sim.annotate(which, annotation, is_set=is_set)

    @rule(count=COUNTS)
    def a_client_makes_the_topic(self, count: int) -> None:
        if not self.sim.nodes:
            self.sim.made_by_a_client(count)

    @rule(choice=st.integers(0, 3), ttl_ms=st.integers(0, 9))
    def a_client_sets_a_policy(self, choice: int, ttl_ms: int) -> None:
        free = sorted(name for name, node in self.sim.nodes.items() if node.policy.managed_by is None)
        if choice < len(free):
            self.sim.set_by_a_client(free[choice], PolicyLayer(ttl_ms=ttl_ms, inactive_ms=5))

    @rule(choice=st.integers(0, 3))
    def a_tool_rewrites_a_policy(self, choice: int) -> None:
        names = sorted(self.sim.nodes)
        if choice < len(names):
            self.sim.rewritten_by_a_tool(names[choice])

    @rule(is_there=st.booleans())
    def zookeeper_comes_and_goes(self, is_there: bool) -> None:
        self.sim.has_zookeeper = is_there

    @rule(is_there=st.booleans())
    def brokers_come_and_go(self, is_there: bool) -> None:
        self.sim.has_broker = is_there

    @rule(which=WHICH)
    def reconciles(self, which: str) -> None:
        self.sim.reconcile(which)

    @rule(which=WHICH)
    def a_reconcile_reads_and_is_slow(self, which: str) -> None:
        if which in self.sim.resources:
            self.sim.read(which)

    @rule(which=WHICH, effects=st.integers(0, 6))
    def the_operator_dies_half_way(self, which: str, effects: int) -> None:
        self.sim.reconcile(which, effects)

    @invariant()
    def what_nobody_manages_is_as_its_users_left_it(self) -> None:
        for name, node in self.sim.nodes.items():
            if node.policy.managed_by is None:
                assert node.policy == node.theirs, name

    def teardown(self) -> None:
        """Left alone in a healthy world it comes to rest, and to the same rest if the operator dies once more on the way."""
        sim = self.sim
        sim.has_zookeeper = sim.has_broker = True
        for which in list(sim.resources):
            sim.annotate(which, "daybook.dev/pause", is_set=False)
        for which in RESOURCES:
            sim.reconcile(which, 0)
        others = [deepcopy(sim) for _ in range(4)]
        sim.settle(*RESOURCES)
        self.check_the_end(sim)
        for effects, other in enumerate(others):
            other.settle(*RESOURCES, effects=effects)
            self.check_the_end(other)
            if len(sim.resources) < len(RESOURCES):  # of two, whichever comes first has the topic
                assert (other.nodes, other.partitions) == (sim.nodes, sim.partitions)

        for which in list(sim.resources):
            sim.delete(which)
        sim.settle(*RESOURCES)
        assert not sim.resources
        assert not any(node.policy.managed_by for node in sim.nodes.values())

    def check_the_end(self, sim: TopicSim) -> None:
        uids = {resource["metadata"]["uid"] for resource in sim.resources.values()}
        for names in ({NAME}, sim.nodes.keys() - {NAME}):  # a topic and partitions of its name may meet
            managers = {node.policy.managed_by for name, node in sim.nodes.items() if name in names}
            assert len(managers - {None}) <= 1
            assert {manager.uid for manager in managers if manager} <= uids, "who is gone manages nothing"
        for resource in sim.resources.values():
            (ready,) = [each for each in resource["status"]["conditions"] if each["type"] == "Ready"]
            assert ready["reason"] in ENDS
            assert "deletionTimestamp" not in resource["metadata"]
            if ready["reason"] == "Reconciled":
                spec, uid = resource["spec"], resource["metadata"]["uid"]
                policies = [node.policy for node in sim.nodes.values()]
                own = [each for each in policies if each.managed_by and each.managed_by.uid == uid]
                assert len(own) == max(1, spec["partitions"])
                assert (sim.partitions or 0) == spec["partitions"]
                assert {each.ttl_ms for each in own} == {spec.get("messageTTLSeconds", 0) * 1000}
        for which in RESOURCES:
            assert not sim.reconcile(which).effects, "two reconciles are one"


TopicWalk.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestTopicWalk = pytest.mark.timeout(100)(TopicWalk.TestCase)
