"""Pools of one cluster: what one of them may stop depends on the bookies of all, as they are just before the pod goes."""

from dataclasses import replace

import pytest
from daybook_operator.kube.api import NotNowError
from daybook_operator.plan.effects import ClusterRef, Evict, Ref
from daybook_operator.plan.pool.budgets import WHOLE_POOL
from daybook_operator.plan.pool.observed import ObservedPod
from daybook_operator.plan.pool.other_pools import ClusterNow, why_not_now
from daybook_operator.reconcile.performer import EffectError
from daybook_operator.reconcile.pool import without_what_failed
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import Location
from tests.unit.operator.pool_sim import PoolSim, grown, kinds
from tests.unit.operator.test_pool_budgets import least

OTHER = "data.other-0"


@pytest.fixture
def sim() -> PoolSim:
    """A pool of three that is to roll, beside the one bookie of another pool; everything is replicated."""
    made = grown()
    made.ledgers[7] = ("data.bk-0", OTHER)
    made.cookies.add(OTHER)
    made.bookies[OTHER] = BookieInfo(OTHER, zone="zone-2", boot_id="other's first")
    made.locations[OTHER] = Location("", "zone-2", "zone-2", "node-1")
    made.other_pods[OTHER] = ObservedPod("other-0", -1, "other-uid", ready=True)
    made.settle()
    made.manifest["spec"]["image"] = "other"
    return made


def audited(sim: PoolSim) -> None:
    """A full audit that began after all that happened stands in the status."""
    for _ in range(3):
        sim.reconcile()
        sim.now_ms += 2_000
        sim.audit()
    sim.reconcile()
    sim.reconcile()


def waits_for(sim: PoolSim) -> str:
    return str(sim.manifest["status"]["rollout"]["message"])


def test_a_pool_does_not_roll_while_a_bookie_of_another_is_about_to_stop(sim: PoolSim) -> None:
    """It is registered until its process has ended, and all else looks well."""
    sim.other_pods[OTHER] = replace(sim.other_pods[OTHER], terminating=True)
    audited(sim)
    assert "Evict" not in kinds(sim.done)
    assert f"{OTHER} of another pool of the cluster is stopping" in waits_for(sim)
    sim.other_pods[OTHER] = replace(sim.other_pods[OTHER], terminating=False)
    sim.reconcile()
    assert "Evict" in kinds(sim.done)


@pytest.mark.parametrize("gate", ["FullyReplicated", "Ready"])
def test_a_pool_does_not_roll_while_a_bookie_of_another_is_away(sim: PoolSim, gate: str) -> None:
    sim.manifest["spec"]["rollout"] = {"gate": gate}
    there = sim.bookies.pop(OTHER)
    sim.clean_audit_began_ms = sim.now_ms + 60_000  # by an audit that did not see it
    for _ in range(3):
        sim.now_ms += 30_000
        sim.reconcile()
    assert "Evict" not in kinds(sim.done)
    assert f"{OTHER} of another pool of the cluster is not registered" in waits_for(sim)
    sim.bookies[OTHER] = there
    sim.audit_saw = frozenset((b, info.boot_id) for b, info in sim.bookies.items())
    audited(sim)
    assert "Evict" in kinds(sim.done)


def test_a_bookie_that_no_ledger_names_holds_nobody_up(sim: PoolSim) -> None:
    """That of a pool that hibernates, or comes up."""
    del sim.bookies[OTHER], sim.ledgers[7]
    audited(sim)
    assert "Evict" in kinds(sim.done)


def test_a_pod_stays_that_the_cluster_needs_by_now(sim: PoolSim) -> None:
    """Two pools decided by the same facts; the other one's turn came first."""
    while not (evicts := [each for each in sim.reconcile(0).effects if isinstance(each, Evict)]):
        sim.reconcile()
        sim.now_ms += 2_000
        sim.audit()
    seen, before, evict = sim.world(), dict(sim.other_pods), evicts[0]
    sim.other_pods[OTHER] = replace(sim.other_pods[OTHER], terminating=True)
    assert sim.why_no_eviction(evict) == f"{OTHER} is stopping"
    told = without_what_failed(seen, EffectError(evict, NotNowError("data.bk-2 stays for now: why")))
    assert told is not None
    assert (told.not_now, told.failed) == ("data.bk-2 stays for now: why", {})
    assert without_what_failed(told, EffectError(evict, NotNowError("again"))) is None
    sim.other_pods = before
    assert sim.why_no_eviction(evict) == ""


def test_what_a_disruption_budget_refuses_is_said_and_tried_again(sim: PoolSim) -> None:
    audited(sim)
    sim = grown()
    sim.manifest["spec"]["image"] = "other"
    sim.objects["PodDisruptionBudget", "somebody-elses"] = {
        "metadata": {"name": "somebody-elses", "namespace": "data", "uid": "x"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {}}},
    }
    audited(sim)
    assert "Evict" not in kinds(sim.done)
    assert "PodDisruptionBudget" in waits_for(sim)
    assert sim.condition("Progressing")["reason"] == "RollingOut", "waiting is no failure"
    assert "bookie" not in sim.manifest["status"]["rollout"], "nobody was stopped"
    sim.now_ms += 2_000_000
    sim.reconcile()
    assert sim.condition("Progressing")["reason"] == "ProgressDeadlineExceeded"
    del sim.objects["PodDisruptionBudget", "somebody-elses"]
    sim.reconcile()
    assert "Evict" in kinds(sim.done)


def test_a_roll_that_asks_for_readiness_alone_has_a_budget_that_does() -> None:
    sim = grown(rollout={"gate": "Ready", "maxUnavailable": 2})
    sim.in_need = {9}
    assert least(sim) == {WHOLE_POOL: 3}
    sim.manifest["spec"]["image"] = "other"
    sim.reconcile()
    sim.reconcile()
    assert least(sim) == {WHOLE_POOL: 1}


def test_budgets_count_the_bookies_of_other_pools(sim: PoolSim) -> None:
    sim.manifest["spec"]["image"] = "registry/bookie:1"
    audited(sim)
    assert least(sim) == {WHOLE_POOL: 2}
    sim.other_pods[OTHER] = replace(sim.other_pods[OTHER], terminating=True)
    assert least(sim) == {"zone-1": 1, "zone-2": 0, "zone-3": 1}, "the rack of the one that is away"
    assert least(sim, is_spread=False) == {"zone-1": 1, "zone-2": 1, "zone-3": 1}
    sim.crash(2)
    assert least(sim) == {WHOLE_POOL: 3}, "two racks are away, whosoever they are"


BOOKIES = tuple(f"data.bk-{n}" for n in range(4))
PODS = st.builds(
    lambda ready, terminating: ObservedPod("p", 0, "u", ready=ready, terminating=terminating),
    st.booleans(),
    st.booleans(),
)


@given(
    st.dictionaries(st.sampled_from(BOOKIES), st.sampled_from(["a", "b"])),
    st.dictionaries(st.sampled_from(BOOKIES), st.sampled_from(["a", "b"])),
    st.dictionaries(st.sampled_from(BOOKIES), PODS),
    st.sets(st.integers(1, 2)),
)
def test_a_pod_goes_only_if_nothing_has_changed_and_nobody_else_is_going(
    then: dict[str, str], now: dict[str, str], pods: dict[str, ObservedPod], in_need: set[int]
) -> None:
    ref = Ref("v1", "Pod", "data", "bk-0")
    effect = Evict(ref, ClusterRef("zk:2181", "daybook"), BOOKIES[0], then)
    infos = {bookie: BookieInfo(bookie, boot_id=boot) for bookie, boot in now.items()}
    facts = ClusterNow(infos, pods, tuple(in_need))
    is_well = then == now and not in_need
    others = [pod for bookie, pod in pods.items() if bookie in then and bookie != BOOKIES[0]]
    may_go = is_well and all(pod.ready and not pod.terminating for pod in others)
    assert (why_not_now(effect, facts) == "") is may_go
    idle = replace(effect, is_idle=True)
    assert (why_not_now(idle, facts) == "") is (BOOKIES[0] not in now)
