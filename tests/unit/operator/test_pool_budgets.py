"""Disruption budgets: who may be evicted, as a plan that follows what is replicated now."""

from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.pool.budgets import KIND, WHOLE_POOL, budgets
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.replication import replication_of
from daybook_operator.plan.pool.state import Drain, Stage
from daybook_operator.plan.pool.topology import placing_of

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


def test_budgets_stay_while_those_that_replace_them_cannot_be_made(sim: PoolSim) -> None:
    sim.crash(1)
    refused = replace(sim.world(), refused={(KIND, "bk-zone-3"): "exceeded quota"})
    sim.objects[KIND, "bk-zone-3"] = {"metadata": {"name": "bk-zone-3", "namespace": "data", "uid": "x"}}
    for seen in (refused, sim.world()):
        effects = [each for each in decide(seen, sim.now_ms).effects if KIND in str(each)]
        assert kinds(effects)[:2] == ["Apply"] * 2
        assert "Remove" not in kinds(effects)
