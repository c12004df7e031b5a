"""What a pool's status says when something is not known, was refused, or is another's to say: the truth and no more."""

import json

import pytest
from daybook_operator.plan.effects import Remove

from tests.operator.unit.pool_sim import PoolSim, grown


@pytest.fixture
def sim() -> PoolSim:
    """Three bookies that serve, everything replicated."""
    return grown()


def test_bookies_go_on_without_zookeeper_and_nobody_says_that_they_do_not_serve(sim: PoolSim) -> None:
    sim.has_zookeeper = False
    sim.manifest["spec"] |= {"image": "other", "rollout": {"gate": "Ready"}}
    decision = sim.reconcile()
    ready = sim.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "ZooKeeperUnreachable")
    assert "connection refused" in ready["message"]
    assert "do not serve" not in json.dumps(sim.manifest["status"])
    assert "BookiesStarting" not in json.dumps(sim.manifest["status"])
    assert {each["state"] for each in sim.manifest["status"]["bookies"]} == {"Unknown"}
    assert "writableReplicas" not in sim.manifest["status"]
    assert not [each for each in decision.effects if isinstance(each, Remove)]


def test_without_zookeeper_a_bookie_without_a_pod_is_away_all_the_same(sim: PoolSim) -> None:
    sim.has_zookeeper = False
    del sim.pods[1]
    sim.reconcile()
    ready = sim.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "BookiesAway")
    assert ready["message"].startswith("1 of 3 bookies do not serve: data.bk-1: its pod is not there yet")
    states = {each["id"]: each["state"] for each in sim.manifest["status"]["bookies"]}
    assert states == {"data.bk-0": "Unknown", "data.bk-1": "Away", "data.bk-2": "Unknown"}
