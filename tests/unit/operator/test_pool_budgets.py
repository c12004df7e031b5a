"""Disruption budgets: who may be evicted, as a plan that follows what is replicated now."""

from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.pool.budgets import KIND, WHOLE_POOL, budgets
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.replication import replication_of
from daybook_operator.plan.pool.state import Drain, Stage
from daybook_operator.plan.pool.topology import placing_of

from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.pool_sim import PoolSim, grown, kinds


@pytest.fixture
def sim() -> PoolSim:
    """Three bookies that serve, everything replicated."""
    return grown()


def least(sim: PoolSim, *, is_spread: bool = True) -> dict[str, int]:
    seen = sim.world()
    return budgets(seen, placing_of(seen), replication_of(seen, sim.now_ms), is_spread=is_spread)


def test_budgets_follow_what_is_replicated_now() -> None:
    sim = grown(replicas=6)
    assert least(sim) == {WHOLE_POOL: 5}, "one may go, and not one of each rack"
    sim.crash(1)
    sim.reconcile()
    assert least(sim) == {"zone-1": 2, "zone-2": 0, "zone-3": 2}, "the rest of its rack, and nobody else"
    assert least(sim, is_spread=False) == {"zone-1": 2, "zone-2": 1, "zone-3": 2}
    sim.crash(2)
    assert least(sim) == {WHOLE_POOL: 6}
    sim.kubelet(1)
    sim.kubelet(2)
    sim.reconcile()
    assert least(sim) == {WHOLE_POOL: 6}, "until an audit that began since is clean"
    sim.settle(4)
    assert least(sim) == {WHOLE_POOL: 5}


def test_a_rack_stays_closed_while_somebody_is_back_whom_no_audit_has_seen() -> None:
    """What it missed while it was away may have its only other replica in that rack."""
    sim = grown(replicas=6)
    sim.crash(2)
    sim.kubelet(2)
    sim.crash(1)
    sim.reconcile()
    assert least(sim) == {WHOLE_POOL: 6}, "data.bk-2, of another rack, has missed what nobody knows"
    sim.kubelet(1)
    sim.settle(4)
    assert least(sim) == {WHOLE_POOL: 5}
    sim.crash(4)
    sim.kubelet(4)
    sim.crash(1)
    sim.reconcile()
    assert least(sim) == {WHOLE_POOL: 6}, "nor may a rack go of which the other bookie is just back"
    sim.kubelet(1)
    sim.settle(4)
    sim.crash(1)
    sim.reconcile()
    sim.reconcile()
    assert least(sim) == {"zone-1": 2, "zone-2": 0, "zone-3": 2}, "the clean audit is remembered"


def test_nobody_may_go_while_a_replica_is_missing_or_nobody_can_tell(sim: PoolSim) -> None:
    sim.in_need = {7}
    assert least(sim) == {WHOLE_POOL: 3}
    sim.crash(1)
    assert least(sim) == {WHOLE_POOL: 3}
    sim.in_need = set()
    sim.has_zookeeper = False
    assert least(sim) == {WHOLE_POOL: 3}


def test_a_bookie_that_is_not_placed_yet_holds_nobody_up(sim: PoolSim) -> None:
    """It has never served; and counted, it would stand in for one that does."""
    sim.manifest["spec"]["replicas"] = 4
    assert least(sim) == {WHOLE_POOL: 2}


def test_a_forgotten_bookie_that_still_runs_frees_nobody(sim: PoolSim) -> None:
    """Its pod counts for the budget as long as it is there, and another would be let go in its stead."""
    sim.manifest["status"]["drain"] = Drain("data.bk-2", 2, Stage.COOKIE_REMOVED, 1, 1, 1, 0).record("")
    assert sim.world().expected == (0, 1)
    assert least(sim) == {WHOLE_POOL: 2}


def live_budgets(sim: PoolSim) -> dict[str, Any]:
    """Their selectors, by name."""
    return {
        name: each["spec"]["selector"]["matchLabels"]
        for (kind, name), each in sim.objects.items()
        if kind == KIND
    }


def test_no_pod_is_under_two_budgets_and_none_is_ever_under_none(sim: PoolSim) -> None:
    assert live_budgets(sim) == {
        "bk.bookies": {"app.kubernetes.io/component": "bookie", "daybook.dev/pool": "bk"}
    }
    sim.crash(1)
    effects = [each for each in sim.reconcile().effects if KIND in str(each)]
    assert kinds(effects) == ["Apply"] * 3 + ["Remove"], "the new ones are there before the old one goes"
    racks = [each["daybook.dev/rack"] for each in live_budgets(sim).values()]
    assert sorted(racks) == ["zone-1", "zone-2", "zone-3"] == sorted(sim.pods[n].rack for n in sim.pods)
    sim.kubelet(1)
    effects = [each for each in sim.reconcile().effects if KIND in str(each)]
    assert kinds(effects) == ["Apply"] + ["Remove"] * 3
    assert list(live_budgets(sim)) == ["bk.bookies"]
    sim.manifest["spec"]["enablePDB"] = False
    sim.reconcile()
    assert not live_budgets(sim)


def in_racks(*racks: str, replicas: int = 3, **placement: Any) -> PoolSim:
    """A pool that has come up on nodes that have labels of these racks, and of no zone, with a ledger on two of its bookies."""
    sim = PoolSim(pool_manifest(replicas=replicas, placement=placement))
    sim.nodes = {f"node-{n}": {"topology.daybook.dev/rack": rack} for n, rack in enumerate(racks)}
    sim.settle(16)
    sim.write_ledger(0)
    sim.settle(16)
    return sim


def least_after_a_crash(sim: PoolSim) -> dict[str, int]:
    """minAvailable of the budgets that there are once bk-0 is away, by name."""
    sim.crash(0)
    sim.reconcile()
    return {name: each["spec"]["minAvailable"] for (kind, name), each in sim.objects.items() if kind == KIND}


@pytest.mark.parametrize("policy", ["Rack", "Zone"])
def test_a_policy_that_spreads_nothing_over_racks_lets_nobody_follow_the_one_that_is_away(
    policy: str,
) -> None:
    """All replicas lie in the one rack: no minimum of a kind of domain that the policy lacks or no node names changes that."""
    sim = in_racks("r1", "r1", "r1", policy=policy, minRacksPerWriteQuorum=1)
    assert sim.condition("RackPlacementSatisfied")["reason"] == "EnsemblesChecked"
    assert least_after_a_crash(sim) == {"bk-r1": 2}


@pytest.mark.parametrize("policy", ["Rack", "Zone"])
def test_racks_that_the_policy_spreads_over_may_be_drained_whole(policy: str) -> None:
    sim = in_racks("r1", "r2", "r3", policy=policy)
    assert least_after_a_crash(sim) == {"bk-r1": 0, "bk-r2": 1, "bk-r3": 1}


def test_an_entry_on_one_bookie_has_no_replica_in_another_rack() -> None:
    sim = in_racks("r1", "r1", "r2", "r2", policy="Rack", replicas=4)
    sim.ledgers[99] = ("data.bk-1",)
    sim.settle(16)
    assert least_after_a_crash(sim) == {"bk-r1": 1, "bk-r2": 2}


def test_budgets_stay_while_those_that_replace_them_cannot_be_made(sim: PoolSim) -> None:
    sim.crash(1)
    refused = replace(sim.world(), refused={(KIND, "bk-zone-3"): "exceeded quota"})
    sim.objects[KIND, "bk-zone-3"] = {"metadata": {"name": "bk-zone-3", "namespace": "data", "uid": "x"}}
    for seen in (refused, sim.world()):
        effects = [each for each in decide(seen, sim.now_ms).effects if KIND in str(each)]
        assert kinds(effects)[:2] == ["Apply"] * 2
        assert "Remove" not in kinds(effects)
