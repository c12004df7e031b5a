"""The steps of a pool's plan: what is replicated, where bookies stand, growth, hibernation."""

import re
from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.conditions import from_iso
from daybook_operator.plan.effects import (
    Apply,
    DeleteCookie,
    PatchMeta,
    Propagation,
    Remove,
    SetLocations,
    SetLostBookieDelay,
)
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool.budgets import budget_name
from daybook_operator.plan.pool.decide import audit_wanted_since_ms, decide
from daybook_operator.plan.pool.growth import growth_step
from daybook_operator.plan.pool.placement import placement_condition
from daybook_operator.plan.pool.replication import replication_of
from daybook_operator.plan.pool.scale import scale_of
from daybook_operator.plan.pool.spec import TopologySpec
from daybook_operator.plan.pool.state import Drain, Recovery, Roll, Stage, iso_after
from daybook_operator.plan.pool.topology import location_on, placing_of, rack_label, topology_step
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import Location
from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.pool_sim import PoolSim, grown, kinds


@pytest.fixture
def sim() -> PoolSim:
    """Three bookies that serve, everything replicated."""
    return grown()


# FullyReplicated.


def test_a_new_pool_is_quiet_once_it_is_up(sim: PoolSim) -> None:
    assert decide(sim.world(), sim.now_ms).effects == ()


def test_an_audit_that_began_before_the_last_bookie_returned_proves_nothing(sim: PoolSim) -> None:
    assert replication_of(sim.world(), sim.now_ms).is_full is True
    sim.crash(1)
    sim.reconcile()
    assert replication_of(sim.world(), sim.now_ms).condition.reason == "BookieAway"
    sim.kubelet(1)
    sim.reconcile()
    found = replication_of(sim.world(), sim.now_ms)
    assert (found.is_full, found.condition.reason) == (False, "AuditPending")
    since_ms = audit_wanted_since_ms(sim.world(), sim.now_ms)
    assert since_ms is not None
    for began_ms, is_full in ((since_ms, False), (since_ms + 1_000, True)):
        sim.clean_audit_began_ms = began_ms
        sim.reconcile()
        assert replication_of(sim.world(), sim.now_ms).is_full is is_full
    assert audit_wanted_since_ms(sim.world(), sim.now_ms) is None


def test_a_bookie_that_is_away_is_copied_where_another_can_take_its_place() -> None:
    sim = grown(replicas=4)
    sim.ledgers[1] = ("data.bk-0", "data.bk-1", "data.bk-2")
    sim.crash(1)
    assert "copied to other bookies" in replication_of(sim.world(), sim.now_ms).condition.message
    sim.crash(3)
    said = replication_of(sim.world(), sim.now_ms).condition.message
    assert "an ensemble of 3, and only 2 bookies are writable" in said
    assert "No bookie can replace it: raise spec.replicas or restore it" in said


def test_what_the_audit_found_no_place_for_is_said_of_a_lost_bookie_only(sim: PoolSim) -> None:
    sim.crash(1)
    world = sim.world()
    assert world.cluster is not None
    for lost, is_said in (((), False), (("data.bk-1",), True)):
        seen = replace(world.cluster, lost=lost, blocked=("ledger 7, entry 0: no zone is left",))
        said = replication_of(replace(world, cluster=seen), sim.now_ms).condition.message
        assert ("no zone is left" in said) is is_said
        assert ("No bookie can replace it" in said) is is_said


def test_a_bookie_that_restarted_between_two_reconciles_closes_the_gate(sim: PoolSim) -> None:
    """It was never seen away: only its boot tells."""
    sim.crash(1)
    sim.kubelet(1)
    assert replication_of(sim.world(), sim.now_ms).condition.reason == "AuditPending"


def test_a_clean_audit_outlives_the_operator_that_made_it(sim: PoolSim) -> None:
    sim.clean_audit_began_ms = None
    sim.reconcile()
    assert replication_of(sim.world(), sim.now_ms).is_full is True
    sim.manifest["status"]["recovery"]["lastFullAudit"]["clean"] = False
    assert replication_of(sim.world(), sim.now_ms).is_full is False


def test_the_clock_of_an_operator_before_this_one_may_be_ahead(sim: PoolSim) -> None:
    ahead_ms = sim.now_ms + 3_600_000
    sim.clean_audit_began_ms = ahead_ms
    sim.reconcile()
    sim.crash(1)
    sim.kubelet(1)
    found = replication_of(sim.world(), sim.now_ms)
    assert found.is_full is False, "an audit from the future is older than what was noticed just now"
    assert found.recovery.changed_ms == ahead_ms // 1000 * 1000


def test_nobody_can_tell_while_zookeeper_is_away_and_nothing_is_stopped(sim: PoolSim) -> None:
    sim.has_zookeeper = False
    sim.manifest["spec"] |= {"image": "other", "replicas": 2}
    decision = sim.reconcile()
    assert sim.condition("FullyReplicated")["status"] == "Unknown"
    assert not [each for each in decision.effects if isinstance(each, Remove | DeleteCookie)]
    assert sim.stateful_set is not None
    assert sim.stateful_set["spec"]["replicas"] == 3
    assert sim.condition("Draining")["reason"] == "ZooKeeperUnreachable"


@given(st.integers(1, 4_102_444_800_000))
def test_a_remembered_time_is_never_before_what_it_is_about(at_ms: int) -> None:
    assert at_ms <= from_iso(iso_after(at_ms)) < at_ms + 1000


STAGES = st.sampled_from(list(Stage))
TIMES = st.integers(1, 4_000_000).map(lambda seconds: seconds * 1000)


@given(STAGES, st.integers(0, 999), TIMES, TIMES, TIMES, st.integers(0, 10**6))
def test_what_a_drain_remembers_comes_back(
    stage: Stage, ordinal: int, started: int, since: int, progress: int, remaining: int
) -> None:
    drain = Drain(f"data.bk-{ordinal}", ordinal, stage, started, since, progress, remaining)
    assert Drain.from_record(drain.record("why")) == drain


@pytest.mark.parametrize(
    "broken", [None, {}, {"bookie": "x"}, {"bookie": "b", "ordinal": "?", "stage": "Odd"}]
)
def test_a_status_that_somebody_spoilt_is_no_drain_roll_or_memory(broken: Any) -> None:
    assert Drain.from_record(broken) is None
    assert Roll.from_record(broken) is None
    assert Recovery.from_record(broken) == Recovery()


# Topology.


@pytest.mark.parametrize(
    ("labels", "topology", "expected"),
    [
        ({"topology.kubernetes.io/zone": "z"}, TopologySpec(), Location("", "z", "z", "n")),
        (
            {"topology.kubernetes.io/zone": "z", "topology.daybook.dev/rack": "r"},
            TopologySpec(),
            Location("", "z", "r", "n"),
        ),
        ({"topology.daybook.dev/rack": "r"}, TopologySpec(), Location("", "", "r", "n")),
        ({}, TopologySpec(), None),
        ({}, TopologySpec(on_missing="DefaultRack"), Location("", "", "default-rack", "n")),
        ({"dc": "d", "row": "w"}, TopologySpec(region_key="dc", rack_key="row"), Location("d", "", "w", "n")),
    ],
)
def test_where_a_bookie_stands(
    labels: dict[str, str], topology: TopologySpec, expected: Location | None
) -> None:
    assert location_on(labels, "n", topology) == expected


def test_a_place_is_written_as_soon_as_the_pod_is_bound_and_before_it_serves() -> None:
    sim = PoolSim()
    sim.reconcile()
    sim.controllers()
    assert not sim.bookies
    decision = sim.reconcile()
    (written,) = [each for each in decision.effects if isinstance(each, SetLocations)]
    assert sorted(written.changes) == ["data.bk-0", "data.bk-1", "data.bk-2"]


def test_a_bookie_that_moved_to_another_zone_is_reported_again(sim: PoolSim) -> None:
    sim.pods[0].node = "node-2"
    (first, *_) = topology_step(sim.world(), placing_of(sim.world())).effects
    assert first == SetLocations(
        sim.world().cluster_ref, {"data.bk-0": Location("", "zone-3", "zone-3", "node-2")}
    )


def test_labels_taken_from_a_node_do_not_take_the_place_of_who_serves_there(sim: PoolSim) -> None:
    sim.nodes["node-1"] = {}
    assert kinds(sim.reconcile().effects) == ["Report", "SetStatus"]
    assert "node-1" in sim.condition("RackPlacementSatisfied")["message"]
    sim.crash(1)
    assert SetLocations(sim.world().cluster_ref, {"data.bk-1": None}) in sim.reconcile().effects
    sim.kubelet(1)
    assert not sim.serves(1), "a bookie that comes there waits"


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_rack_is_a_valid_label_and_two_racks_are_two_labels(zone: str, rack: str) -> None:
    label = rack_label(Location("", zone, rack, ""))
    assert len(label) <= 63
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", label)
    assert rack_label(Location("", zone, f"{rack}x", "")) != label
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", budget_name("bk", label))


# Placement.


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        ({"policy": "Rack", "minRacksPerWriteQuorum": 5}, "TooFewRacks"),
        ({"policy": "Zone", "minZonesPerWriteQuorum": 4}, "TooFewZones"),
        ({"policy": "Region", "minRegionsPerWriteQuorum": 2}, "EnsemblesChecked"),  # nobody names a region
        ({"policy": "Random", "minRacksPerWriteQuorum": 5}, "EnsemblesChecked"),
        ({"policy": "Rack", "minRacksPerWriteQuorum": 3}, "EnsemblesChecked"),
    ],
)
def test_an_unsatisfiable_placement_is_reported_and_does_no_harm(
    placement: dict[str, Any], reason: str
) -> None:
    sim = grown(placement=placement)
    assert sim.condition("RackPlacementSatisfied")["reason"] == reason
    assert sim.manifest["status"]["phase"] == "Running"
    sim.manifest["spec"]["placement"] = {"policy": "Rack", "minRacksPerWriteQuorum": 9}
    assert {"Apply", "Remove"}.isdisjoint(
        kinds(sim.reconcile().effects) if reason != "EnsemblesChecked" else ()
    )


@pytest.mark.parametrize(
    ("topology", "is_named"),
    [({}, True), ({"spread": "Preferred"}, False), ({"onMissing": "DefaultRack"}, False)],
)
def test_pods_that_wait_for_a_node_name_the_label_that_the_spread_requires(
    topology: dict[str, Any], *, is_named: bool
) -> None:
    """The scheduler takes no node without it, also where a label names the rack."""
    sim = PoolSim(pool_manifest(topology=topology))
    sim.reconcile()
    sim.controllers()
    for pod in sim.pods.values():
        pod.node = ""
    sim.reconcile()
    said = sim.condition("RackPlacementSatisfied")
    assert said["reason"] == "NotPlacedYet"
    assert ("with the label topology.kubernetes.io/zone" in said["message"]) is is_named


def test_placement_is_judged_by_real_ensembles(sim: PoolSim) -> None:
    seen = sim.world()
    assert seen.cluster is not None
    survey = replace(seen.cluster.survey, misplaced=("ledger 7: one rack",), misplaced_count=1)
    seen = replace(seen, cluster=replace(seen.cluster, survey=survey))
    found = placement_condition(seen, placing_of(seen))
    assert (found.status, found.reason) == (False, "Misplaced")
    assert "ledger 7: one rack" in found.message


# Growth.


def test_growth_asks_nobody_and_comes_first(sim: PoolSim) -> None:
    sim.has_zookeeper = False
    sim.crash(0)
    sim.crash(1)
    sim.manifest["spec"]["storage"] = {"store": {"size": "20Gi"}}
    effects = sim.reconcile().effects
    assert [each.manifest["metadata"]["name"] for each in effects[:3] if isinstance(each, Apply)] == [
        "store-bk-0",
        "store-bk-1",
        "store-bk-2",
    ]
    removed = effects[3]
    assert isinstance(removed, Remove)
    assert (removed.ref.kind, removed.propagation) == ("StatefulSet", Propagation.ORPHAN)
    assert not [
        each for each in effects[4:] if isinstance(each, Apply) and each.manifest["kind"] == "StatefulSet"
    ]
    sim.controllers()
    sim.reconcile()
    assert sim.stateful_set is not None
    sizes = [
        each["spec"]["resources"]["requests"]["storage"]
        for each in sim.stateful_set["spec"]["volumeClaimTemplates"]
    ]
    assert sizes == ["10Gi", "20Gi"]
    assert sorted(sim.pods) == [0, 1, 2]


def test_volumes_that_cannot_grow_are_reported_and_those_in_use_may_be_left(sim: PoolSim) -> None:
    sim.manifest["spec"]["storage"] = {"store": {"size": "20Gi"}}
    sim.expandable = False
    found = growth_step(sim.world())
    assert found.condition.reason == "NotExpandable"
    assert kinds(found.step.effects) == ["Remove"], "new bookies get the new size all the same"
    sim.expandable = True
    sim.manifest["spec"]["storage"]["resizeInUseVolumes"] = False
    assert kinds(growth_step(sim.world()).step.effects) == ["Remove"]


# Hibernation, the rest.


def test_a_pool_hibernates_only_from_a_clean_state_and_wakes_whole(sim: PoolSim) -> None:
    sim.manifest["spec"]["hibernate"] = True
    sim.ledgers, sim.in_need = {9: ("data.bk-0", "data.bk-1")}, {9}
    sim.reconcile()
    assert sim.condition("Hibernated")["reason"] == "WaitingForReplication"
    assert scale_of(sim.world(), replication_of(sim.world(), sim.now_ms)).replicas == 3
    sim.settle(8)
    assert not sim.in_need, "workers copy what is missing first"
    assert (sim.pods, len(sim.claims), sim.manifest["status"]["phase"]) == ({}, 6, "Hibernated")
    sim.manifest["spec"] |= {"hibernate": False, "replicas": 2}
    sim.reconcile()
    assert sim.stateful_set is not None
    assert sim.stateful_set["spec"]["replicas"] == 3, "who has data comes back to be drained"


def test_a_hibernated_pool_whose_volumes_grow_stays_asleep(sim: PoolSim) -> None:
    """Its StatefulSet is made anew, and for a while there is none that says that nobody is wanted."""
    sim.manifest["spec"]["hibernate"] = True
    sim.settle(6)
    sim.manifest["spec"]["storage"] = {"store": {"size": "20Gi"}}
    for _ in range(6):
        sim.reconcile()
        assert sim.stateful_set is None or sim.stateful_set["spec"]["replicas"] == 0
        sim.controllers()
        assert sim.pods == {}
    assert sim.stateful_set is not None
    sizes = [
        each["spec"]["resources"]["requests"]["storage"]
        for each in sim.stateful_set["spec"]["volumeClaimTemplates"]
    ]
    assert sizes == ["10Gi", "20Gi"]
    assert sim.manifest["status"]["phase"] == "Hibernated"


def test_a_pool_that_is_just_stopping_grows_its_templates_once_it_has_stopped(sim: PoolSim) -> None:
    """Pods without a StatefulSet would be taken for ones that are wanted."""
    sim.manifest["spec"]["hibernate"] = True
    sim.reconcile()
    assert sim.stateful_set is not None
    assert sim.stateful_set["spec"]["replicas"] == 0
    sim.manifest["spec"]["storage"] = {"store": {"size": "20Gi"}}
    before = dict(sim.stateful_set)
    assert not growth_step(sim.world()).recreates
    sim.reconcile()  # the API server refuses an apply that changes the templates
    assert sim.stateful_set == before
    sim.controllers()
    assert growth_step(sim.world()).recreates
    sim.settle(6)
    assert sim.stateful_set["spec"]["volumeClaimTemplates"] != before["spec"]["volumeClaimTemplates"]
    assert (sim.pods, sim.manifest["status"]["phase"]) == ({}, "Hibernated")


def test_where_finalizers_are_switched_off_a_pool_loses_the_one_it_has(sim: PoolSim) -> None:
    assert sim.manifest["metadata"]["finalizers"] == [FINALIZER]
    world = sim.world()
    off = replace(world, defaults=replace(world.defaults, uses_finalizers=False))
    (effect,) = decide(off, sim.now_ms).effects
    assert isinstance(effect, PatchMeta)
    assert (effect.add_finalizer, effect.remove_finalizer) == ("", FINALIZER)


def test_a_paused_pool_is_left_alone(sim: PoolSim) -> None:
    sim.manifest["metadata"]["annotations"] = {"daybook.dev/pause": "true"}
    sim.manifest["spec"] |= {"image": "other", "replicas": 1}
    assert kinds(sim.reconcile().effects) == ["Report", "SetStatus"] or kinds(tuple(sim.done[-1:])) == [
        "SetStatus"
    ]
    assert sim.condition("Paused")["status"] == "True"
    assert sim.reconcile().effects == ()


def test_the_delay_for_lost_bookies_is_the_clusters() -> None:
    sim = PoolSim(pool_manifest(recovery={"lostBookieDelaySeconds": 600}))
    delay = SetLostBookieDelay(sim.world().cluster_ref, 600.0)
    assert delay in decide(sim.world(), 1_000).effects


def test_a_nearly_full_disk_is_reported(sim: PoolSim) -> None:
    full: BookieInfo = replace(sim.bookies["data.bk-1"], capacity_bytes=100, free_bytes=5)
    sim.bookies["data.bk-1"] = full
    sim.reconcile()
    said = sim.condition("DiskPressure")
    assert (said["status"], said["reason"]) == ("True", "NearlyFull")
    assert "data.bk-1 (95%)" in said["message"]
    assert "Raise spec.storage.store.size" in said["message"]


def test_a_store_that_its_own_cap_fills_does_not_ask_to_grow_the_volume() -> None:
    sim = PoolSim(pool_manifest(settings={"store_map_bytes": "268435456"}))
    sim.settle()
    full: BookieInfo = replace(sim.bookies["data.bk-1"], capacity_bytes=268435456, free_bytes=1)
    sim.bookies["data.bk-1"] = full
    sim.reconcile()
    assert "Raise spec.settings.store_map_bytes" in sim.condition("DiskPressure")["message"]


def test_every_condition_that_is_wrong_says_what_to_do_and_reaches_the_message(sim: PoolSim) -> None:
    sim.crash(0)
    sim.pods[0].exit_code = 1
    sim.reconcile()
    message = sim.manifest["status"]["message"]
    assert "data.bk-0: it ended with exit code 1" in message
    assert "kubectl logs --previous" in message
