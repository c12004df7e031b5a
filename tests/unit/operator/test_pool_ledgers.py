"""A pool's plan while the ledgers of its cluster are still being read, or cannot be."""

from dataclasses import replace
from typing import Any

from daybook_operator.plan.conditions import find, iso
from daybook_operator.plan.effects import PatchMeta, Remove, SetStatus
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.lost_disk import lost_disk_step
from daybook_operator.plan.pool.observed import ObservedPool, Survey
from daybook_operator.plan.pool.placement import placement_condition
from daybook_operator.plan.pool.topology import placing_of

from tests.unit.operator.pool_sim import grown, kinds


def test_nothing_is_decided_by_a_part_of_the_ledgers() -> None:
    """While their metadata is being read, which takes its time where there are many, looks go on."""
    sim = grown(replicas=4)
    sim.ledgers = {1: ("data.bk-2", "data.bk-3")}
    sim.manifest["spec"]["replicas"] = 3

    def partly(world: ObservedPool) -> ObservedPool:
        assert world.cluster is not None
        survey = Survey(ledgers=7, is_whole=False)
        return replace(world, cluster=replace(world.cluster, survey=survey))

    world = partly(sim.world())
    assert placement_condition(world, placing_of(world)).reason == "LedgersBeingRead"
    effects = decide(world, sim.now_ms).effects
    assert isinstance(effects[-1], SetStatus)
    said = find(effects[-1].status["conditions"], "Draining")
    assert said is not None
    assert (said["status"], said["reason"]) == ("Unknown", "LedgersBeingRead")
    assert "SetReadOnly" not in kinds(effects)
    for _ in range(3):
        sim.reconcile()
    stage = sim.manifest["status"]["drain"]["stage"]
    effects = decide(partly(sim.world()), sim.now_ms).effects
    assert {"MarkLeaving", "DeleteCookie"}.isdisjoint(kinds(effects))
    assert stage == "Replicating"
    assert [each.status["drain"]["stage"] for each in effects if isinstance(each, SetStatus)] in ([], [stage])
    sim.lose_disk(1)
    sim.kubelet(1)
    assert "AuthoriseReplacement" not in kinds(decide(partly(sim.world()), sim.now_ms).effects)
    sim.manifest["spec"]["reclaimPolicy"] = "Delete"
    sim.manifest["metadata"] |= {"deletionTimestamp": iso(sim.now_ms), "finalizers": [FINALIZER]}
    world = partly(sim.world())
    assert not [each for each in decide(world, sim.now_ms).effects if isinstance(each, Remove | PatchMeta)]


def test_a_ledger_that_cannot_be_read_is_named_by_all_who_wait_for_it() -> None:
    """They wait until a person acts, so none of them says that it goes on by itself."""
    sim = grown(replicas=4)
    sim.ledgers = {1: ("data.bk-2", "data.bk-3")}
    sim.manifest["spec"]["replicas"] = 3
    trouble = "ledger 7: no JSON"

    def unreadable() -> ObservedPool:
        world = sim.world()
        assert world.cluster is not None
        survey = Survey(ledgers=7, is_whole=False, read_error=trouble)
        return replace(world, cluster=replace(world.cluster, survey=survey))

    def said(type_: str) -> dict[str, Any]:
        (status,) = [
            each.status for each in decide(unreadable(), sim.now_ms).effects if isinstance(each, SetStatus)
        ]
        found = find(status["conditions"], type_)
        assert found is not None
        return dict(found)

    placement = said("RackPlacementSatisfied")
    assert (placement["status"], placement["reason"]) == ("Unknown", "LedgersUnreadable")
    assert trouble in placement["message"]
    drain = said("Draining")
    assert (drain["status"], drain["reason"]) == ("Unknown", "LedgersUnreadable"), "it is not begun"
    assert trouble in drain["message"]
    assert "Repair or delete that ledger" in drain["message"]
    for _ in range(3):
        sim.reconcile()
    drain = said("Draining")
    assert (drain["status"], drain["reason"]) == ("True", "LedgersUnreadable"), "it does not go on"
    assert trouble in drain["message"]
    assert "Repair or delete that ledger" in drain["message"]
    sim.lose_disk(1)
    sim.kubelet(1)
    (why,) = lost_disk_step(unreadable()).why_down.values()
    assert trouble in why
    assert "repair or delete that ledger" in why
    assert "being read" not in why
    sim.manifest["spec"]["reclaimPolicy"] = "Delete"
    sim.manifest["metadata"] |= {"deletionTimestamp": iso(sim.now_ms), "finalizers": [FINALIZER]}
    ready = said("Ready")
    assert ready["reason"] == "DeletionBlocked"
    assert trouble in ready["message"]
    assert "Repair or delete that ledger" in ready["message"]
    assert "No action is needed" not in ready["message"]
