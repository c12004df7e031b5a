"""What a pool's status says when something is not known, was refused, or is another's to say: the truth and no more."""

import json
from dataclasses import replace
from typing import get_args

import pytest
from daybook_operator.kube.api import ForbiddenError, KubeError, NotFoundError, UnavailableError, WebhookError
from daybook_operator.plan.conditions import find, iso
from daybook_operator.plan.effects import (
    Apply,
    AuthoriseReplacement,
    ClusterRef,
    DeleteCookie,
    Effect,
    Evict,
    MarkLeaving,
    PatchMeta,
    Ref,
    Remove,
    Report,
    SetLocations,
    SetLostBookieDelay,
    SetReadOnly,
    SetStatus,
    UnmarkLeaving,
)
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.observed import ObservedPool
from daybook_operator.plan.pool.parts import part_of
from daybook_operator.reconcile.performer import EffectError
from daybook_operator.reconcile.pool import without_what_failed

from tests.unit.operator.pool_sim import PoolSim, grown, kinds


@pytest.fixture
def sim() -> PoolSim:
    """Three bookies that serve, everything replicated."""
    return grown()


def test_bookies_continue_without_zookeeper_and_nobody_says_that_they_do_not_serve(sim: PoolSim) -> None:
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
    assert ready["message"].startswith("1 of 3 bookies do not serve: data.bk-1: its pod does not exist yet")
    states = {each["id"]: each["state"] for each in sim.manifest["status"]["bookies"]}
    assert states == {"data.bk-0": "Unknown", "data.bk-1": "Away", "data.bk-2": "Unknown"}


def test_jobs_that_do_not_start_are_reported_in_the_words_of_those_who_say_so(sim: PoolSim) -> None:
    assert sim.condition("RecoveryBlocked")["status"] == "False"
    seen = sim.world()
    assert seen.cluster is not None
    words = 'Job data/bk-recovery-1: pods "bk-recovery-1-x" is forbidden: exceeded quota: small'
    seen = replace(seen, cluster=replace(seen.cluster, job_problems=(words,)))
    for each in decide(seen, sim.now_ms).effects:
        sim.perform(each)
    said = sim.condition("RecoveryBlocked")
    assert (said["status"], words in said["message"]) == ("True", True)
    assert [each.reason for each in sim.told][-1] == "JobsDoNotStart"
    assert words in sim.manifest["status"]["message"]


# What fails.


def failing(
    sim: PoolSim,
    effect: type[Effect],
    why: str = "the role does not allow it",
    *,
    kind: type[KubeError] = ForbiddenError,
) -> ObservedPool:
    """The world after the first effect of a kind in the plan was refused."""
    seen = sim.world()
    plan = decide(seen, sim.now_ms)
    (refused, *_) = [each for each in plan.effects if isinstance(each, effect)]
    less = without_what_failed(seen, EffectError(refused, kind(why)))
    assert less is not None
    return less


def test_a_webhook_that_does_not_answer_about_an_object_holds_nothing_else_up(sim: PoolSim) -> None:
    sim.manifest["spec"]["image"] = "other"
    sim.objects.pop(("Service", "bk"))
    sim.objects.pop(("ServiceAccount", "bk-bookie"))
    seen = failing(sim, Apply, "failed calling webhook", kind=WebhookError)
    effects = decide(seen, sim.now_ms).effects
    assert [each.manifest["kind"] for each in effects if isinstance(each, Apply)] == [
        "Service",
        "StatefulSet",
    ]
    for each in effects:
        sim.perform(each)
    said = sim.condition("Ready")
    assert said["reason"] == "ObjectsRefused"
    assert "ServiceAccount bk-bookie: failed calling webhook" in said["message"]


def test_a_bookie_that_cannot_be_stopped_stops_the_roll_alone_and_the_status_says_so(sim: PoolSim) -> None:
    sim.manifest["spec"]["image"] = "other"
    while "Evict" not in kinds(decide(sim.world(), sim.now_ms).effects):
        sim.reconcile()
        sim.now_ms += 2_000
        sim.audit()
    sim.objects.pop(("Service", "bk"))
    seen = failing(sim, Evict)
    effects = decide(seen, sim.now_ms).effects
    assert not [each for each in effects if isinstance(each, Evict)]
    assert "BookieStopped" not in [each.reason for each in effects if isinstance(each, Report)]
    assert [each.manifest["kind"] for each in effects if isinstance(each, Apply)] == ["Service"]
    for each in effects:
        sim.perform(each)
    said = sim.condition("Progressing")
    assert (said["reason"], "the role does not allow it" in said["message"]) == ("StepFailed", True)
    assert "bookie" not in sim.manifest["status"]["rollout"], "none was stopped"
    assert sim.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("effect", [PatchMeta, SetLocations])
def test_a_place_that_cannot_be_written_holds_nothing_else_up_and_is_reported(effect: type[Effect]) -> None:
    sim = PoolSim()
    sim.reconcile()
    sim.controllers()
    sim.manifest["metadata"]["finalizers"] = [FINALIZER]
    seen = failing(sim, effect)
    effects = decide(seen, sim.now_ms).effects
    assert not [each for each in effects if isinstance(each, PatchMeta | SetLocations)]
    assert isinstance(effects[-1], SetStatus)
    said = find(effects[-1].status["conditions"], "Ready")
    assert said is not None
    assert (said["status"], said["reason"]) == ("False", "StepFailed")
    assert "where bookies stand: the role does not allow it" in said["message"]


def test_a_replacement_that_is_refused_is_said_of_the_bookie(sim: PoolSim) -> None:
    sim.lose_disk(1)
    sim.kubelet(1)
    effects = decide(failing(sim, AuthoriseReplacement, "it is registered"), sim.now_ms).effects
    assert "ReplacementAuthorised" not in [each.reason for each in effects if isinstance(each, Report)]
    assert isinstance(effects[-1], SetStatus)
    (bookie,) = [each for each in effects[-1].status["bookies"] if each["id"] == "data.bk-1"]
    assert "could not be authorised: it is registered" in bookie["message"]


def test_a_deletion_that_is_refused_is_reported(sim: PoolSim) -> None:
    sim.manifest["spec"]["reclaimPolicy"] = "Delete"
    sim.manifest["metadata"] |= {"deletionTimestamp": iso(sim.now_ms), "finalizers": [FINALIZER]}
    (told, status) = decide(failing(sim, Remove), sim.now_ms).effects
    assert isinstance(told, Report)
    assert isinstance(status, SetStatus)
    assert "the role does not allow it" in status.status["message"]


def test_what_lies_with_the_api_server_or_an_old_observation_is_tried_again_silently(sim: PoolSim) -> None:
    pod = Ref("v1", "Pod", "data", "bk-0")
    for effect, cause in (
        (Remove(pod), UnavailableError("later")),
        (PatchMeta(pod, labels={}), NotFoundError("it is gone")),
        (SetStatus(sim.world().ref, {}), ForbiddenError("not yours")),
    ):
        assert without_what_failed(sim.world(), EffectError(effect, cause)) is None


def test_every_effect_of_a_pools_plan_is_part_of_something() -> None:
    """Or one that is refused would keep the status from being written for ever."""
    of_ledgers = {"CreateLedger", "AdoptLedger", "SealLedger", "DeleteLedger", "ForgetRequest"}
    of_topics = {"CreateTopic", "SetTopicPolicy", "SetPartitions", "DeleteTopic"}
    handled_otherwise = {"Apply", "SetStatus", "Report"}
    names = {each.__name__ for each in get_args(Effect)} - of_ledgers - of_topics - handled_otherwise
    ref = ClusterRef("zk:2181", "daybook")
    made: list[Effect] = [
        Remove(Ref("v1", "Pod", "data", "bk-0")),
        Evict(Ref("v1", "Pod", "data", "bk-0"), ref, "data.bk-0"),
        PatchMeta(Ref("v1", "Pod", "data", "bk-0")),
        SetLocations(ref, {}),
        AuthoriseReplacement(ref, "b", "me"),
        SetReadOnly(ref, "b", read_only=True),
        MarkLeaving(ref, "b", ()),
        UnmarkLeaving(ref, "b"),
        DeleteCookie(ref, "b"),
        SetLostBookieDelay(ref, 1.0),
    ]
    assert {type(each).__name__ for each in made} == names
    assert all(part_of(each, None) is not None for each in made)
