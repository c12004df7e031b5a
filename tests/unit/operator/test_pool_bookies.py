"""Bookies that come and go by the operator's hand: scale-up, drains, rolls, replacements of lost disks."""

from dataclasses import replace

import pytest
from daybook_operator.plan.conditions import from_iso
from daybook_operator.plan.effects import AuthoriseReplacement, Evict, SetReadOnly, UnmarkLeaving
from daybook_operator.plan.pool.decide import audit_wanted_since_ms, decide
from daybook_operator.plan.pool.drain import drain_step, victim_of
from daybook_operator.plan.pool.lost_disk import lost_disk_step
from daybook_operator.plan.pool.observed import ObservedPod, Survey
from daybook_operator.plan.pool.parts import Part
from daybook_operator.plan.pool.replication import replication_of
from daybook_operator.plan.pool.roll import roll_step

from daybook.core.bookie.exits import EXIT_DISK_LOST, EXIT_FORGOTTEN, EXIT_NOT_STARTED
from daybook.core.placement.policy import BookieInfo
from tests.unit.operator.pool_sim import PoolSim, grown, kinds


@pytest.fixture
def sim() -> PoolSim:
    """Three bookies that serve, everything replicated."""
    return grown()


# Scale.


def test_scale_up_moves_nothing(sim: PoolSim) -> None:
    sim.manifest["spec"]["replicas"] = 5
    assert sim.reconcile().effects
    assert sim.stateful_set is not None
    assert sim.stateful_set["spec"]["replicas"] == 5
    sim.done.clear()
    sim.settle(8)
    assert {"Apply", "SetLocations", "PatchMeta", "Report", "SetStatus"} >= set(kinds(tuple(sim.done)))


def test_ordinals_are_numbers() -> None:
    sim = grown(replicas=11)
    assert victim_of(sim.world()) == 10, "and not 9, which is the last of the alphabet"


def test_an_annotation_restarts_every_bookie_one_by_one_and_once(sim: PoolSim) -> None:
    before = {ordinal: pod.uid for ordinal, pod in sim.pods.items()}
    sim.manifest["metadata"]["annotations"] = {"daybook.dev/restart": "2026-11-22T10:00:00Z"}
    sim.done.clear()
    sim.settle(60)
    stopped = [each.ref.name for each in sim.done if isinstance(each, Evict)]
    assert stopped == ["bk-2", "bk-1", "bk-0"], (
        "the miniature checks that none is stopped while another is down"
    )
    assert not set(before.values()) & {pod.uid for pod in sim.pods.values()}
    sim.done.clear()
    sim.settle()
    assert not [each for each in sim.done if isinstance(each, Evict)]


def test_a_drain_goes_through_its_stages_and_its_volumes_go_by_policy() -> None:
    sim = grown(replicas=4, scaleDown={"pvcRetention": "Delete"})
    sim.ledgers = {1: ("data.bk-2", "data.bk-3"), 2: ("data.bk-0", "data.bk-1")}
    sim.audit_saw = frozenset((b, info.boot_id) for b, info in sim.bookies.items())
    sim.manifest["spec"]["replicas"] = 3
    stages = []
    for _ in range(16):
        sim.now_ms += 2_000
        sim.reconcile()
        stages.append(sim.manifest["status"].get("drain", {}).get("stage", "over"))
        if stages[-1] in {"Lowered", "over"}:  # a pod takes its time to stop
            sim.controllers()
        sim.work()
        sim.now_ms += 2_000
        sim.audit()
    steps = list(dict.fromkeys(stages))
    assert steps == ["ReadOnly", "Replicating", "Verifying", "CookieRemoved", "Lowered", "over"]
    assert sim.ledgers[1] == ("data.bk-0", "data.bk-2")
    assert sorted(sim.claims) == sorted(f"{role}-bk-{n}" for role in ("journal", "store") for n in range(3))
    assert "data.bk-3" not in sim.locations
    assert [each.message for each in sim.told if each.reason == "Drained"]


def test_rule_29_a_bookie_is_forgotten_only_after_an_audit_that_began_when_no_ledger_named_it() -> None:
    sim = grown(replicas=4)
    sim.manifest["spec"]["replicas"] = 3
    for _ in range(4):
        sim.now_ms += 2_000
        sim.reconcile()
    assert sim.manifest["status"]["drain"]["stage"] == "Verifying"
    assert replication_of(sim.world(), sim.now_ms).is_full is True, "the gate of a roll is open"
    assert "data.bk-3" in sim.cookies
    sim.now_ms += 2_000
    sim.audit()
    sim.reconcile()
    sim.reconcile()
    assert "data.bk-3" not in sim.cookies


def test_a_bookie_that_loses_its_disk_while_it_is_drained_is_made_read_only_again() -> None:
    sim = grown(replicas=4)
    sim.ledgers = {1: ("data.bk-2", "data.bk-3")}
    sim.manifest["spec"]["replicas"] = 3
    for _ in range(3):
        sim.reconcile()
    sim.lose_disk(3)
    sim.replacements.add("data.bk-3")
    sim.kubelet(3)
    assert sim.bookies["data.bk-3"].writable
    assert SetReadOnly(sim.world().cluster_ref, "data.bk-3", read_only=True) in sim.reconcile().effects


def test_a_drain_that_would_leave_too_few_bookies_is_not_begun(sim: PoolSim) -> None:
    sim.ledgers = {1: ("data.bk-0", "data.bk-1", "data.bk-2")}
    sim.manifest["spec"]["replicas"] = 2
    sim.reconcile()
    said = sim.condition("Draining")
    assert (said["reason"], said["status"]) == ("TooFewBookies", "False")
    assert "set replicas to 3" in said["message"]
    assert all(info.writable for info in sim.bookies.values())


def test_rule_69_a_drain_that_would_leave_too_few_bookies_of_the_pool_for_its_own_ledgers_is_not_begun(
    sim: PoolSim,
) -> None:
    sim.ledgers = {1: ("data.bk-0", "data.bk-1", "data.bk-2")}
    sim.staying = {1}
    sim.bookies |= {f"data.other-{n}": BookieInfo(f"data.other-{n}") for n in range(3)}
    sim.manifest["spec"]["replicas"] = 2
    sim.reconcile()
    said = sim.condition("Draining")
    assert (said["reason"], said["status"]) == ("TooFewBookies", "False"), (
        "the other pool has room, and may not take it"
    )
    assert "Ledger 1, which stays in this pool, has an ensemble of 3" in said["message"]
    sim.staying.clear()
    sim.reconcile()
    assert sim.condition("Draining")["status"] == "True", "a ledger of no pool goes where there is room"


def test_a_drain_that_is_stuck_says_why_and_holds_up_no_roll() -> None:
    sim = grown(replicas=4)
    sim.ledgers = {1: ("data.bk-2", "data.bk-3")}
    sim.manifest["spec"]["replicas"] = 3
    for _ in range(3):
        sim.reconcile()
    seen = sim.world()
    assert seen.cluster is not None
    seen = replace(seen, cluster=replace(seen.cluster, stuck={1: "no bookie has room"}))
    found = drain_step(seen, replication_of(seen, sim.now_ms), sim.now_ms)
    assert (found.condition.reason, found.condition.status) == ("Blocked", True)
    assert "no bookie has room" in found.condition.message
    sim.manifest["spec"]["image"] = "other"
    for _ in range(2):
        sim.reconcile()
        sim.now_ms += 2_000
        sim.audit()
    sim.reconcile()
    removed = [each.ref.name for each in sim.reconcile().effects if isinstance(each, Evict)]
    assert removed == ["bk-2"], "the highest that is not drained itself"


def test_refused_scale_down_keeps_everybody(sim: PoolSim) -> None:
    sim.manifest["spec"] |= {"replicas": 2, "scaleDown": {"policy": "Refuse"}}
    sim.settle(4)
    assert (len(sim.pods), sim.condition("Draining")["reason"]) == (3, "Refused")


def test_a_step_of_a_drain_that_fails_is_reported_and_holds_nobody_up() -> None:
    sim = grown(replicas=4)
    sim.manifest["spec"] |= {"replicas": 3}
    sim.reconcile()
    decision = decide(
        replace(sim.world(), failed={Part.DRAIN: "bookie data.bk-3 cannot be told"}), sim.now_ms
    )
    assert not [each for each in decision.effects if isinstance(each, SetReadOnly | UnmarkLeaving)]
    for effect in decision.effects:
        sim.perform(effect)
    assert sim.condition("Draining")["reason"] == "StepFailed"
    assert sim.manifest["status"]["drain"]["stage"] == "ReadOnly", "it goes on from where it was"


def test_a_bookie_that_never_served_is_kept_from_it_when_it_is_not_wanted(sim: PoolSim) -> None:
    sim.manifest["spec"]["replicas"] = 4
    sim.reconcile()
    sim.controllers()
    sim.reconcile()
    assert "data.bk-3" in sim.locations
    sim.manifest["spec"]["replicas"] = 3
    for _ in range(2):
        sim.reconcile()
    assert "data.bk-3" not in sim.locations, "so it cannot register behind our back"
    sim.settle(6)
    assert sorted(sim.pods) == [0, 1, 2]


# Rolls.


def test_a_roll_waits_for_everything_to_be_replicated(sim: PoolSim) -> None:
    sim.manifest["spec"]["image"] = "other"
    sim.in_need = {9}
    sim.reconcile()
    assert [each for each in sim.reconcile().effects if isinstance(each, Evict)] == []
    assert sim.manifest["status"]["rollout"]["stage"] == "Gate"
    assert "Ledger 9 lack" in sim.manifest["status"]["rollout"]["message"]
    sim.in_need = set()
    sim.now_ms += 2_000
    sim.audit()
    sim.reconcile()
    assert [each.ref.name for each in sim.reconcile().effects if isinstance(each, Evict)] == ["bk-2"]


def test_the_first_step_of_a_roll_trusts_no_audit_of_before_it(sim: PoolSim) -> None:
    """What was written, and which disk went bad, since yesterday's audit, that audit has not seen."""
    sim.now_ms += 86_400_000
    sim.manifest["spec"]["image"] = "other"
    for _ in range(4):
        sim.now_ms += 2_000
        assert [each for each in sim.reconcile().effects if isinstance(each, Evict)] == []
    said = sim.manifest["status"]["rollout"]
    assert said["stage"] == "Gate"
    assert "full audit that began since" in said["message"]
    assert audit_wanted_since_ms(sim.world(), sim.now_ms) == from_iso(said["startedAt"])
    sim.audit()
    sim.reconcile()
    assert [each.ref.name for each in sim.reconcile().effects if isinstance(each, Evict)] == ["bk-2"]


def test_an_image_that_does_not_start_stops_the_roll_and_can_be_repaired(sim: PoolSim) -> None:
    sim.manifest["spec"]["image"] = "broken"
    sim.settle(6)
    assert [n for n in sim.pods if not sim.serves(n)] == [2], "one is down, and no more"
    assert sim.manifest["status"]["rollout"]["stage"] == "Starting"
    sim.now_ms += 1_000_000
    sim.reconcile()
    assert sim.condition("Progressing")["reason"] == "ProgressDeadlineExceeded"
    sim.manifest["spec"]["image"] = "mended"
    sim.settle()
    assert {pod.image for pod in sim.pods.values()} == {"mended"}


def test_a_paused_roll_stops_nobody(sim: PoolSim) -> None:
    sim.manifest["spec"] |= {"image": "other", "rollout": {"paused": True}}
    sim.settle(4)
    assert {pod.image for pod in sim.pods.values()} == {"registry/bookie:1"}
    assert sim.condition("Progressing")["reason"] == "RolloutPaused"


def test_the_gate_ready_asks_for_readiness_alone(sim: PoolSim) -> None:
    sim.manifest["spec"] |= {"image": "other", "rollout": {"gate": "Ready", "maxUnavailable": 2}}
    sim.in_need = {9}
    sim.reconcile()
    seen = sim.world()
    found = roll_step(seen, replication_of(seen, sim.now_ms), sim.now_ms)
    assert [type(each) for each in found.step.effects][:1] == [Evict]


# Lost disks.


def test_rule_68_a_bookie_that_restored_metadata_does_not_know_keeps_its_disks(sim: PoolSim) -> None:
    """It is younger than the export, and may have the only copies of what began later; a replacement would empty it."""
    sim.crash(1)
    sim.pods[1].exit_code = EXIT_FORGOTTEN
    sim.cookies.discard("data.bk-1")
    world = sim.world()
    assert world.cluster is not None
    lost = lost_disk_step(replace(world, cluster=replace(world.cluster, collection_held=True)))
    assert lost.step.effects == ()
    assert "`daybook metadata readmit data.bk-1 …`" in str(lost.why_down)
    assert any(isinstance(each, AuthoriseReplacement) for each in lost_disk_step(world).step.effects)


@pytest.mark.parametrize(
    ("exit_code", "has_cookie", "policy", "is_authorised"),
    [
        (EXIT_DISK_LOST, True, "Replace", True),
        (EXIT_DISK_LOST, True, "Manual", False),
        (EXIT_DISK_LOST, False, "Replace", False),
        (EXIT_NOT_STARTED, True, "Replace", False),
        (EXIT_FORGOTTEN, False, "Replace", True),
        (EXIT_FORGOTTEN, False, "Manual", False),
        (EXIT_FORGOTTEN, True, "Replace", False),
        (None, True, "Replace", False),
    ],
)
def test_rule_29_who_is_replaced_by_policy(
    sim: PoolSim, exit_code: int | None, policy: str, *, has_cookie: bool, is_authorised: bool
) -> None:
    sim.manifest["spec"]["lostDisk"] = {"policy": policy}
    sim.crash(1)
    sim.pods[1].exit_code = exit_code
    if not has_cookie:
        sim.cookies.discard("data.bk-1")
    effects = lost_disk_step(sim.world()).step.effects
    assert any(isinstance(each, AuthoriseReplacement) for each in effects) is is_authorised


@pytest.mark.parametrize("policy", ["Replace", "Manual"])
def test_rule_29_a_bookie_without_a_cookie_waits_until_it_is_known_which_ledgers_name_it(
    sim: PoolSim, policy: str
) -> None:
    sim.manifest["spec"]["lostDisk"] = {"policy": policy}
    sim.crash(1)
    sim.pods[1].exit_code = EXIT_FORGOTTEN
    sim.cookies.discard("data.bk-1")
    world = sim.world()
    assert world.cluster is not None
    lost = lost_disk_step(replace(world, cluster=replace(world.cluster, survey=Survey(is_whole=False))))
    assert lost.step.effects == ()
    assert "is not known yet" in lost.why_down["data.bk-1"]
    known = lost_disk_step(world)
    assert bool(known.step.effects) is (policy == "Replace")
    by_hand = "`daybook bookie replace data.bk-1 --force`"
    assert (by_hand in known.why_down["data.bk-1"]) is (policy == "Manual")


def lose(sim: PoolSim, *ordinals: int) -> None:
    """Their disks are found empty."""
    for ordinal in ordinals:
        sim.lose_disk(ordinal)
        sim.kubelet(ordinal)


def test_rule_29_as_many_lost_disks_as_an_ack_quorum_are_for_a_person() -> None:
    """All in one zone: three empty disks were authorised at one look."""
    sim = PoolSim()
    sim.nodes = {name: {"topology.kubernetes.io/zone": "zone-1"} for name in sim.nodes}
    sim.settle(16)
    sim.ledgers = {1: ("data.bk-0", "data.bk-1", "data.bk-2")}
    lose(sim, 0, 1, 2)
    found = lost_disk_step(sim.world())
    assert found.step.effects == ()
    assert "3 disks are empty" in found.why_down["data.bk-0"]
    assert "`daybook bookie replace data.bk-0`" in found.why_down["data.bk-0"]


@pytest.mark.parametrize(("ack_quorum", "lost", "is_authorised"), [(1, 1, False), (2, 1, True), (3, 2, True)])
def test_rule_29_a_disk_is_replaced_where_every_ack_quorum_has_another_bookie(
    sim: PoolSim, ack_quorum: int, lost: int, *, is_authorised: bool
) -> None:
    sim.ledgers, sim.ack_quorum = {1: ("data.bk-0", "data.bk-1", "data.bk-2")}, ack_quorum
    lose(sim, *range(lost))
    effects = lost_disk_step(sim.world()).step.effects
    expected = ["data.bk-0"] if is_authorised else []
    assert [each.bookie for each in effects if isinstance(each, AuthoriseReplacement)] == expected


def test_rule_29_the_next_disk_waits_until_nothing_is_in_limbo_any_more() -> None:
    sim = grown(replicas=4)
    sim.ledgers, sim.ack_quorum = {1: ("data.bk-0", "data.bk-1", "data.bk-2", "data.bk-3")}, 3
    lose(sim, 0, 1)

    def look() -> str:
        sim.reconcile()
        return lost_disk_step(sim.world()).why_down["data.bk-1"]

    assert "replaced once data.bk-0" in look(), "it is authorised"
    sim.kubelet(0)
    assert sim.in_limbo == {"data.bk-0"}
    assert "replaced once data.bk-0" in look(), "it is under repair"
    sim.crash(0)
    sim.in_limbo.clear()
    assert "replaced once data.bk-0" in look(), "it cannot be asked, and its replacement is remembered"
    sim.kubelet(0)
    sim.reconcile()
    assert sim.replacements == {"data.bk-1"}, "it has back what it owes"


def test_rule_29_disks_of_other_pools_count(sim: PoolSim) -> None:
    other = "data.other-0"
    sim.ledgers = {1: ("data.bk-0", other)}
    sim.cookies.add(other)
    sim.other_pods[other] = ObservedPod("other-0", -1, "uid", exit_code=EXIT_DISK_LOST)
    lose(sim, 0)
    assert "2 disks are empty" in lost_disk_step(sim.world()).why_down["data.bk-0"]
    del sim.other_pods[other]
    replaced = {"metadata": {}, "status": {"recovery": {"replacedBookies": [other]}}}
    found = lost_disk_step(replace(sim.world(), others=(replaced,)))
    assert "2 disks are empty" in found.why_down["data.bk-0"]
    seen = sim.world()
    assert seen.cluster is not None
    silent = replace(seen.cluster, silent={"data.bk-1": "UNAVAILABLE"})
    assert lost_disk_step(replace(seen, cluster=silent)).step.effects == ()


def test_disks_that_no_ledger_is_on_are_replaced_one_after_the_other(sim: PoolSim) -> None:
    lose(sim, 0, 1, 2)
    for ordinal in range(3):
        sim.reconcile()
        assert sim.replacements == {f"data.bk-{ordinal}"}
        sim.kubelet(ordinal)
        sim.kubelet(ordinal)
    assert all(map(sim.serves, range(3)))


def test_a_forgotten_bookie_that_ledgers_name_is_for_a_person(sim: PoolSim) -> None:
    sim.ledgers = {1: ("data.bk-0", "data.bk-1")}
    sim.crash(1)
    sim.cookies.discard("data.bk-1")
    sim.kubelet(1)
    found = lost_disk_step(sim.world())
    assert found.step.effects == ()
    assert "daybook bookie replace data.bk-1" in found.why_down["data.bk-1"]
