"""A pool through whatever may happen to it: pods come and go, users change their minds, the operator dies half-way.

The checks are in the miniature world (`pool_sim`), at each effect; here is what may happen, and that it ends well.
"""

from typing import Any

import pytest
from daybook_operator.plan.pool.roll import outdated
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.operator.pool_sim import PoolSim

ORDINALS = st.integers(0, 6)


class PoolWalk(RuleBasedStateMachine):
    """One pool, and everything that may happen to it in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = PoolSim()
        self.sim.settle(8)

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.sim.manifest["spec"]
        return spec

    @rule()
    def reconciles(self) -> None:
        self.sim.reconcile()

    @rule(effects=st.integers(0, 6))
    def the_operator_dies_half_way(self, effects: int) -> None:
        self.sim.reconcile(effects)

    @rule()
    def controllers_act(self) -> None:
        self.sim.controllers()

    @rule(ordinal=ORDINALS)
    def a_pod_starts(self, ordinal: int) -> None:
        if not self.sim.serves(ordinal):
            self.sim.kubelet(ordinal)

    @rule(ordinal=ORDINALS)
    def a_pod_crashes(self, ordinal: int) -> None:
        self.sim.crash(ordinal)

    @rule(ordinal=ORDINALS)
    def a_disk_is_lost(self, ordinal: int) -> None:
        self.sim.lose_disk(ordinal)

    @rule(replicas=st.integers(3, 6))
    def replicas_change(self, replicas: int) -> None:
        self.spec["replicas"] = replicas

    @rule(image=st.sampled_from(["a", "b", "broken"]))
    def the_image_changes(self, image: str) -> None:
        self.spec["image"] = image

    @rule(size=st.sampled_from(["20Gi", "30Gi"]))
    def the_size_grows(self, size: str) -> None:
        self.spec["storage"] = {"store": {"size": max(size, self.spec["storage"]["store"]["size"])}}

    @rule(hibernate=st.booleans())
    def hibernation_is_switched(self, hibernate: bool) -> None:
        self.spec["hibernate"] = hibernate

    @rule(deletes=st.booleans())
    def retention_changes(self, deletes: bool) -> None:
        self.spec["scaleDown"] = {"pvcRetention": "Delete" if deletes else "Retain"}

    @rule(is_there=st.booleans())
    def zookeeper_comes_and_goes(self, is_there: bool) -> None:
        self.sim.has_zookeeper = is_there

    @precondition(lambda self: self.sim.has_zookeeper)
    @rule(choice=st.integers(0, 6))
    def a_ledger_is_made(self, choice: int) -> None:
        self.sim.write_ledger(choice)

    @precondition(lambda self: self.sim.has_zookeeper)
    @rule()
    def workers_work(self) -> None:
        self.sim.work()

    @rule()
    def an_audit_ends(self) -> None:
        self.sim.now_ms += 2_000
        self.sim.audit()

    @rule(by_hand=st.integers(0, 6))
    def somebody_scales_the_stateful_set(self, by_hand: int) -> None:
        if self.sim.stateful_set is not None and by_hand > self.sim.stateful_set["spec"]["replicas"]:
            self.sim.stateful_set["spec"]["replicas"] = by_hand

    @invariant()
    def the_status_can_be_told(self) -> None:
        ids = [each["id"] for each in self.sim.manifest.get("status", {}).get("bookies", ())]
        assert len(ids) == len(set(ids))

    def teardown(self) -> None:
        """Left alone in a healthy world, the pool becomes what its spec says, and stays so."""
        sim = self.sim
        sim.has_zookeeper = True
        if self.spec.get("image") == "broken":
            self.spec["image"] = "mended"
        for ordinal in range(7):  # disks lost in several racks at once are for a person
            claim = sim.claims.get(f"store-bk-{ordinal}")
            if sim.bookie(ordinal) in sim.cookies and (claim is None or not claim.has_data):
                sim.replacements.add(sim.bookie(ordinal))
        sim.settle()
        replicas = 0 if self.spec.get("hibernate") else self.spec["replicas"]
        assert sim.stateful_set is not None
        assert (sim.stateful_set["spec"]["replicas"], len(sim.pods)) == (replicas, replicas), sim.manifest[
            "status"
        ]
        assert not outdated(sim.world())
        assert "drain" not in sim.manifest["status"]
        assert all(info.writable for info in sim.bookies.values()), "who stays takes new ledgers"
        assert sim.manifest["status"]["phase"] == ("Hibernated" if replicas == 0 else "Running")
        sim.reconcile()
        effects = sim.reconcile().effects
        assert not effects, "once all is well nothing is done"


PoolWalk.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestPoolWalk = pytest.mark.timeout(100)(PoolWalk.TestCase)
