"""The deletion of a pool: what goes, what stays, and what it waits for."""

from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.effects import PatchMeta, Remove
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.delete import deletion
from daybook_operator.plan.pool.observed import ObservedPool

from tests.unit.operator.pool_sim import PoolSim, grown, kinds


@pytest.fixture
def sim() -> PoolSim:
    """Three bookies that serve, everything replicated."""
    return grown()


def terminating(sim: PoolSim, **spec: Any) -> ObservedPool:
    sim.manifest["spec"] |= spec
    sim.manifest["metadata"] |= {"deletionTimestamp": iso(sim.now_ms), "finalizers": [FINALIZER]}
    return sim.world()


def test_a_pool_that_retains_goes_at_once_even_without_zookeeper(sim: PoolSim) -> None:
    sim.has_zookeeper = False
    (effect,) = deletion(terminating(sim), sim.now_ms).effects
    assert isinstance(effect, PatchMeta)
    assert effect.remove_finalizer == FINALIZER


def test_a_pool_that_deletes_destroys_nothing_that_a_ledger_needs(sim: PoolSim) -> None:
    sim.ledgers = {1: ("data.bk-0", "data.bk-1")}
    for effect in deletion(terminating(sim, reclaimPolicy="Delete"), sim.now_ms).effects:
        sim.perform(effect)
    assert sim.condition("Ready")["reason"] == "DeletionBlocked"
    said = sim.condition("Ready")["message"]
    assert said.index("daybook topic delete") < said.index("daybook ledger delete"), (
        "a topic would miss its ledgers"
    )
    assert sim.stateful_set is not None
    sim.ledgers = {}
    (first, *_) = deletion(sim.world(), sim.now_ms).effects
    assert isinstance(first, Remove)
    assert first.ref.kind == "StatefulSet"
    sim.stateful_set, sim.pods, sim.bookies = None, {}, {}
    effects = deletion(sim.world(), sim.now_ms).effects
    assert kinds(effects)[:4] == ["DeleteCookie"] * 3 + ["SetLocations"]
    assert [each.ref.kind for each in effects if isinstance(each, Remove)] == ["PersistentVolumeClaim"] * 6


def test_a_terminating_namespace_is_not_held(sim: PoolSim) -> None:
    sim.has_zookeeper = False
    seen = replace(terminating(sim, reclaimPolicy="Delete"), namespace_is_terminating=True)
    assert not [each for each in deletion(seen, sim.now_ms).effects if isinstance(each, PatchMeta)]
    later = deletion(seen, sim.now_ms + 60_000).effects
    assert kinds(later) == ["PatchMeta"]


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_paused_pool_that_is_deleted_is_held_and_says_so(sim: PoolSim, policy: str) -> None:
    sim.manifest["metadata"]["annotations"] = {"daybook.dev/pause": "true"}
    sim.reconcile()
    terminating(sim, reclaimPolicy=policy)
    assert kinds(sim.reconcile().effects) == ["Report", "SetStatus"]
    said = sim.condition("Paused")
    assert (said["status"], said["reason"]) == ("True", "DeletionHeld")
    assert sim.told[-1].reason == "DeletionHeld"
    assert sim.reconcile().effects == ()
    del sim.manifest["metadata"]["annotations"]
    (first, *_) = decide(sim.world(), sim.now_ms).effects
    assert isinstance(first, PatchMeta if policy == "Retain" else Remove)


def test_a_pause_does_not_hold_a_terminating_namespace(sim: PoolSim) -> None:
    sim.manifest["metadata"]["annotations"] = {"daybook.dev/pause": "true"}
    seen = replace(terminating(sim, reclaimPolicy="Delete"), namespace_is_terminating=True)
    decision = deletion(seen, sim.now_ms)
    assert not [each for each in decision.effects if isinstance(each, PatchMeta)]
    assert decision.requeue_after_s == pytest.approx(60, abs=1)
    assert kinds(deletion(seen, sim.now_ms + 60_000).effects) == ["PatchMeta"]
