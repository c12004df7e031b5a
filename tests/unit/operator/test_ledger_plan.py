"""The plan for a Ledger: created once, mirrored, sealed, given up; and what each condition says."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.draws import Draws
from daybook_operator.plan.effects import (
    ClusterRef,
    CreateLedger,
    DeleteLedger,
    Effect,
    ForgetRequest,
    PatchMeta,
    Report,
    SealLedger,
    SetStatus,
)
from daybook_operator.plan.finalizers import FinalizerRules
from daybook_operator.plan.ledger.observed import LedgerInCluster, ObservedLedger
from daybook_operator.plan.ledger.plan import RESOURCE_KEY, decide
from daybook_operator.plan.lost_ledgers import Verdict
from daybook_operator.plan.names import CLUSTER_ANNOTATION, FINALIZER
from daybook_operator.plan.stored import Failure

from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import POOL_KEY, Fragment, LedgerMetadata
from daybook.core.placement.policies import PlacementSettings
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.core.repair.task import RepairTask
from daybook.metadata.store.store import Versioned

NOW_MS = 1_700_000_000_000
REF = ClusterRef("zk:2181", "daybook")
POOL = {"kind": "BookiePool", "metadata": {"name": "bk", "namespace": "data"}}
BOOKIES = {
    f"data.bk-{n}": BookieInfo(f"data.bk-{n}", zone=f"z{n % 3}", rack=f"r{n}", node=f"n{n}") for n in range(6)
}
OTHERS = {f"data.other-{n}": BookieInfo(f"data.other-{n}", zone=f"y{n}", rack=f"s{n}") for n in range(3)}


def manifest(**changes: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "name": "orders",
        "namespace": "data",
        "uid": "uid-1",
        "generation": 1,
        "finalizers": [FINALIZER],
        "annotations": {CLUSTER_ANNOTATION: REF.text},
    }
    spec = {"poolRef": {"name": "bk"}, "ensembleSize": 3, "writeQuorum": 3, "ackQuorum": 2, "seal": False}
    found = {"apiVersion": "daybook.dev/v1alpha1", "kind": "Ledger", "metadata": meta, "spec": spec}
    spec |= changes.pop("spec", {})
    meta |= changes.pop("meta", {})
    return found | changes


def seen(bookies: Mapping[BookieId, BookieInfo] | None = None, **more: Any) -> LedgerInCluster:
    there = BOOKIES | OTHERS if bookies is None else bookies
    return LedgerInCluster(None, bookies=there, registered=frozenset(there), **more)


def created(*, closed: bool = False, token: str | None = None, **more: Any) -> LedgerInCluster:
    metadata = LedgerMetadata(
        7,
        Quorum(3, 3, 2),
        (Fragment(0, 0, ("data.bk-0", "data.bk-1", "data.bk-2")),),
        password_hash="00$key",
        writer_token=token,
        created_at_ms=NOW_MS,
    )
    metadata = metadata.closed(9, 1000) if closed else metadata
    return replace(seen(), ledger_id=7, metadata=Versioned(metadata, 4), audited=True, **more)


def world(cluster: LedgerInCluster | None, **changes: Any) -> ObservedLedger:
    base = ObservedLedger(
        manifest=manifest(),
        pool=POOL,
        cluster_ref=REF,
        cluster=cluster,
        placement=PlacementSettings("zone"),
    )
    return replace(base, **changes)


def kinds(decision: Decision) -> list[str]:
    return [type(effect).__name__ for effect in decision.effects]


def of_kind(decision: Decision, kind: type[Effect]) -> Any:
    (found,) = [effect for effect in decision.effects if isinstance(effect, kind)]
    return found


def status(decision: Decision) -> Mapping[str, Any]:
    found: Mapping[str, Any] = of_kind(decision, SetStatus).status
    assert isinstance(decision.effects[-1], SetStatus), "the status is last"
    return found


def condition(decision: Decision, type_: str) -> Mapping[str, Any]:
    (found,) = [each for each in status(decision)["conditions"] if each["type"] == type_]
    return dict(found)


# Creation.


def test_the_claim_comes_before_the_ledger() -> None:
    """A ledger without a finalizer and the note of where it is could be left behind unseen."""
    fresh = manifest(meta={"finalizers": [], "annotations": {}})
    decision = decide(world(seen(), manifest=fresh), NOW_MS)
    assert kinds(decision) == ["PatchMeta", "Report", "CreateLedger"]
    claim = of_kind(decision, PatchMeta)
    assert claim.add_finalizer == FINALIZER
    assert ClusterRef.from_text(claim.annotations[CLUSTER_ANNOTATION]) == REF
    assert decision.requeue_after_s == 0


def test_a_ledger_with_a_password_waits_for_it_and_no_log_shows_it() -> None:
    asked = manifest(spec={"passwordSecretRef": {"name": "orders", "key": "password"}})
    waiting = decide(world(seen(), manifest=asked, password=None, password_error="no such Secret"), NOW_MS)
    said = condition(waiting, "Ready")
    assert (said["status"], said["reason"]) == ("False", "PasswordNotReadable")
    assert "no such Secret" in said["message"]
    assert "operator.passwordSecrets" in said["message"]
    assert "CreateLedger" not in kinds(waiting)
    assert waiting.requeue_after_s, "nobody tells that a Secret came"
    create = of_kind(decide(world(seen(), manifest=asked, password=b"hunter2"), NOW_MS), CreateLedger)
    assert create.password == b"hunter2"
    assert "hunter2" not in repr(create)
    assert of_kind(decide(world(seen()), NOW_MS), CreateLedger).password == b""


def test_the_ensemble_is_of_the_pools_own_bookies_over_the_zones() -> None:
    for number in range(20):
        other = manifest(meta={"uid": f"uid-{number}"})
        create = of_kind(decide(world(seen(), manifest=other), NOW_MS), CreateLedger)
        assert set(create.ensemble) <= BOOKIES.keys()
        assert len({BOOKIES[bookie].zone for bookie in create.ensemble}) >= 2
        assert len({BOOKIES[bookie].node for bookie in create.ensemble}) == 3


def test_a_plan_made_twice_draws_the_same_and_another_resource_another_ensemble() -> None:
    def ensemble(uid: str) -> tuple[str, ...]:
        plan = decide(world(seen(), manifest=manifest(meta={"uid": uid})), NOW_MS)
        chosen: tuple[str, ...] = of_kind(plan, CreateLedger).ensemble
        return chosen

    assert ensemble("a") == ensemble("a")
    assert len({frozenset(ensemble(f"uid-{n}")) for n in range(30)}) > 5


def test_the_ledger_says_which_resource_it_is_for() -> None:
    asked = manifest(spec={"customMetadata": {"team": "blue"}})
    create = of_kind(decide(world(seen(), manifest=asked), NOW_MS), CreateLedger)
    assert create.request_uid == "uid-1"
    assert create.custom_metadata == {
        "team": b"blue",
        RESOURCE_KEY: b"data/orders",
        POOL_KEY: b"data.bk",
    }, "and it stays in its pool (rule 69)"
    assert (create.write_quorum, create.ack_quorum) == (3, 2)


def test_read_only_bookies_and_those_that_are_away_get_no_new_ledger() -> None:
    read_only = replace(BOOKIES["data.bk-0"], writable=False)
    few = {"data.bk-0": read_only, "data.bk-1": BOOKIES["data.bk-1"], "data.bk-2": BOOKIES["data.bk-2"]}
    decision = decide(world(seen(few)), NOW_MS)
    ready = condition(decision, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NotEnoughBookies")
    assert status(decision)["state"] == "Pending"
    away = replace(seen(), registered=frozenset(["data.bk-1", "data.bk-2"]))
    assert condition(decide(world(away), NOW_MS), "Ready")["reason"] == "NotEnoughBookies"


def test_without_a_pool_nothing_is_created_and_the_condition_says_so() -> None:
    for placed in (REF, None):
        decision = decide(world(seen() if placed else None, pool=None, cluster_ref=placed), NOW_MS)
        assert not [effect for effect in decision.effects if isinstance(effect, CreateLedger)]
        ready = condition(decision, "Ready")
        assert (ready["reason"], "Create it" in ready["message"]) == ("PoolNotFound", True)


def test_while_zookeeper_is_away_what_is_known_stays() -> None:
    known = status(decide(world(created(closed=True)), NOW_MS))
    away = decide(
        world(None, manifest=manifest(status=dict(known)), cluster_error="no answer"), NOW_MS + 5_000
    )
    now = status(away)
    assert (now["ledgerId"], now["lastEntry"], now["state"]) == (7, 9, "Closed")
    assert condition(away, "Ready")["status"] == "Unknown"
    assert condition(away, "Sealed")["status"] == "True"
    assert away.requeue_after_s is not None


# Mirror.


def test_an_open_ledger_is_mirrored() -> None:
    decision = decide(world(created()), NOW_MS)
    now = status(decision)
    assert (now["state"], now["attached"], now["quorum"]) == ("Open", False, "3/3/2")
    assert now["fragments"] == [
        {
            "firstEntry": 0,
            "bookies": ["data.bk-0", "data.bk-1", "data.bk-2"],
            "racks": ["z0/r0", "z1/r1", "z2/r2"],
            "missing": [],
        }
    ]
    assert "lastEntry" not in now, "while it is open only its writer knows"
    assert now["createdAt"] == iso(NOW_MS)
    assert condition(decision, "Ready")["reason"] == "Created"
    assert condition(decide(world(created(token="t")), NOW_MS), "Ready")["reason"] == "Attached"


def test_a_mirror_that_is_true_is_not_written_again() -> None:
    written = status(decide(world(created()), NOW_MS))
    again = decide(world(created(), manifest=manifest(status=dict(written))), NOW_MS + 60_000)
    assert again.effects == ()


def test_an_under_replicated_ledger_names_its_job_and_what_is_missing() -> None:
    task = RepairTask(7, ("lost data.bk-1",), ("data.bk-1",), 0)
    decision = decide(world(created(task=task, recovery_job="bk-recovery-1")), NOW_MS)
    now = status(decision)
    assert now["underReplicated"] is True
    assert now["fragments"][0]["missing"] == ["data.bk-1"]
    said = condition(decision, "FullyReplicated")
    assert (said["status"], said["reason"]) == ("False", "UnderReplicated")
    assert "bk-recovery-1" in said["message"]
    assert now["message"] == said["message"]


def test_a_ledger_that_no_job_can_repair_is_not_called_replicated() -> None:
    """Its bookie is lost and no other is free: it has no task, and lacks a replica all the same."""
    decision = decide(world(created(problems=("lost",))), NOW_MS)
    assert status(decision)["underReplicated"] is True
    said = condition(decision, "FullyReplicated")
    assert (said["status"], said["reason"]) == ("False", "UnderReplicated")
    assert "add bookies" in said["message"]


def test_a_bookie_that_is_away_for_a_moment_is_waited_for() -> None:
    decision = decide(world(created(problems=("missing",))), NOW_MS)
    assert status(decision)["underReplicated"] is False
    assert condition(decision, "FullyReplicated")["reason"] == "BookieAway"


def test_what_only_lies_badly_is_not_under_replicated() -> None:
    task = RepairTask(7, ("misplaced data.bk-1",), ("data.bk-1",), 0)
    decision = decide(world(created(task=task)), NOW_MS)
    assert status(decision)["underReplicated"] is False
    assert condition(decision, "FullyReplicated")["status"] == "True"


def test_an_unrecoverable_ledger_names_the_bookies_that_may_save_it() -> None:
    task = RepairTask(7, ("lost data.bk-1",), ("data.bk-1",), 0, why_not="unrecoverable: entry 3 is nowhere")
    away = Verdict(7, awaited=("data.bk-1",))
    said = condition(decide(world(created(task=task, verdict=away)), NOW_MS), "FullyReplicated")
    assert (said["status"], said["reason"]) == ("Unknown", "HoldersAway")
    assert "data.bk-1 may have it" in said["message"]
    assert "delete" not in said["message"]


def test_a_ledger_whose_disks_are_gone_is_said_to_be_lost() -> None:
    task = RepairTask(7, ("limbo data.bk-1",), ("data.bk-1",), 0, why_not="unrecoverable: entry 3 is nowhere")
    gone = Verdict(7, gone=("data.bk-1",))
    said = condition(decide(world(created(task=task, verdict=gone)), NOW_MS), "FullyReplicated")
    assert (said["status"], said["reason"]) == ("False", "Unrecoverable")
    assert "daybook ledger delete 7 --without-recovery" in said["message"]


def test_before_an_audit_nobody_knows() -> None:
    unknown = replace(created(), audited=False)
    decision = decide(world(unknown), NOW_MS)
    assert condition(decision, "FullyReplicated")["status"] == "Unknown"
    assert decision.requeue_after_s is not None


def test_rack_diversity_is_judged_by_the_real_ensemble() -> None:
    assert condition(decide(world(created()), NOW_MS), "RackDiverse")["status"] == "True"
    wish = PlacementSettings("rack", min_racks=5)
    assert condition(decide(world(created(), placement=wish), NOW_MS), "RackDiverse")["status"] == "True", (
        "three replicas cannot lie in more than three racks"
    )
    one_rack = {name: replace(info, zone="z", rack="r") for name, info in BOOKIES.items()}
    said = condition(decide(world(replace(created(), bookies=one_rack)), NOW_MS), "RackDiverse")
    assert (said["status"], "add bookies" in said["message"]) == ("False", True)


def test_a_ledger_that_somebody_deleted_is_reported() -> None:
    gone = replace(created(), metadata=None)
    assert condition(decide(world(gone), NOW_MS), "Ready")["reason"] == "LedgerGone"


# Seal.


def test_seal_closes_once() -> None:
    asked = manifest(spec={"seal": True})
    decision = decide(world(created(), manifest=asked), NOW_MS)
    assert kinds(decision) == ["Report", "SealLedger"]
    assert of_kind(decision, SealLedger).ledger_id == 7
    closed = decide(world(created(closed=True), manifest=asked), NOW_MS)
    assert "SealLedger" not in kinds(closed)
    assert (status(closed)["lastEntry"], status(closed)["lengthBytes"]) == (9, 1000)
    assert condition(closed, "Sealed")["status"] == "True"


def test_a_seal_that_fails_is_reported_and_the_rest_stays_true() -> None:
    asked = manifest(spec={"seal": True})
    failed = world(created(), manifest=asked, failure=Failure("SealLedger", "two bookies are away"))
    decision = decide(failed, NOW_MS)
    assert kinds(decision)[-1] == "SetStatus"
    assert "SealLedger" not in kinds(decision)
    said = condition(decision, "Sealed")
    assert (said["reason"], "two bookies are away" in said["message"]) == ("SealFailed", True)
    assert condition(decision, "Ready")["status"] == "True"


# Deletion.


def deleted(seconds_ago: float = 1, **changes: Any) -> dict[str, Any]:
    at = iso(NOW_MS - round(seconds_ago * 1000))
    return manifest(meta={"deletionTimestamp": at, **changes.pop("meta", {})}, **changes)


def test_retain_forgets_the_request_alone() -> None:
    decision = decide(world(created(), manifest=deleted()), NOW_MS)
    assert kinds(decision) == ["ForgetRequest", "Report", "PatchMeta"]
    assert of_kind(decision, PatchMeta).remove_finalizer == FINALIZER
    assert "Ledger 7 stays" in of_kind(decision, Report).message


def test_delete_deletes_before_the_request_is_forgotten_and_the_finalizer_goes_last() -> None:
    """A crash in between finds the ledger by its request again."""
    decision = decide(world(created(), manifest=deleted(spec={"reclaimPolicy": "Delete"})), NOW_MS)
    assert kinds(decision) == ["DeleteLedger", "ForgetRequest", "Report", "PatchMeta"]
    assert of_kind(decision, DeleteLedger).ledger_id == 7
    assert of_kind(decision, ForgetRequest).request_uid == "uid-1"


def test_a_resource_that_goes_creates_nothing_any_more() -> None:
    decision = decide(world(seen(), manifest=deleted()), NOW_MS)
    assert kinds(decision) == ["PatchMeta"]
    without = deleted(meta={"finalizers": []})
    assert decide(world(seen(), manifest=without), NOW_MS) == Decision()


def test_a_pool_that_is_gone_hinders_no_deletion() -> None:
    decision = decide(world(created(), pool=None, manifest=deleted(spec={"reclaimPolicy": "Delete"})), NOW_MS)
    assert kinds(decision)[0] == "DeleteLedger"


def test_without_zookeeper_a_deletion_waits_and_says_how_to_end_it() -> None:
    decision = decide(world(None, manifest=deleted(10**6)), NOW_MS)
    assert kinds(decision)[-1] == "SetStatus"
    assert "PatchMeta" not in kinds(decision)
    ready = condition(decision, "Ready")
    assert (ready["reason"], FINALIZER in ready["message"]) == ("DeletionWaits", True)
    assert status(decision)["state"] == "Deleting"


@pytest.mark.parametrize("hindrance", ["zookeeper", "failure", "paused"])
def test_a_namespace_that_terminates_is_held_for_a_bounded_time_only(hindrance: str) -> None:
    rules = FinalizerRules(bound_ms=60_000)
    cluster = None if hindrance == "zookeeper" else created()
    failure = Failure("DeleteLedger", "no bookies") if hindrance == "failure" else None
    annotations = {CLUSTER_ANNOTATION: REF.text}
    if hindrance == "paused":
        annotations["daybook.dev/pause"] = "true"

    def plan(seconds_ago: float) -> Decision:
        going = deleted(seconds_ago, meta={"annotations": annotations}, status={"ledgerId": 7})
        return decide(
            world(
                cluster,
                manifest=going,
                failure=failure,
                finalizers=rules,
                namespace_is_terminating=True,
            ),
            NOW_MS,
        )

    early = plan(10)
    assert "PatchMeta" not in kinds(early)
    assert early.requeue_after_s is not None
    assert early.requeue_after_s <= 50
    late = plan(61)
    assert kinds(late) == ["Report", "PatchMeta"]
    assert "Ledger 7 and its request uid-1 are left behind" in of_kind(late, Report).message


def test_where_finalizers_are_off_none_is_put_on_and_ours_goes() -> None:
    off = FinalizerRules(used=False)
    fresh = manifest(meta={"finalizers": []})
    assert "PatchMeta" not in kinds(decide(world(seen(), manifest=fresh, finalizers=off), NOW_MS))
    patch = of_kind(decide(world(created(), finalizers=off), NOW_MS), PatchMeta)
    assert (patch.remove_finalizer, patch.add_finalizer) == (FINALIZER, "")


# Pause.


def test_a_paused_ledger_is_left_alone_and_says_so() -> None:
    annotations = {CLUSTER_ANNOTATION: REF.text, "daybook.dev/pause": "true"}
    paused = manifest(meta={"annotations": annotations}, spec={"seal": True})
    decision = decide(world(created(), manifest=paused), NOW_MS)
    assert kinds(decision) == ["SetStatus"]
    assert condition(decision, "Paused")["status"] == "True"
    going = deleted(meta={"annotations": annotations})
    assert "DeleteLedger" not in kinds(decide(world(created(), manifest=going), NOW_MS))


def test_draws_are_a_function_of_their_text_and_even() -> None:
    assert [Draws("a").random() for _ in range(2)] == [Draws("a").random()] * 2
    rng = Draws("b")
    counts = [0] * 4
    for _ in range(4000):
        counts[rng.randrange(4)] += 1
    assert all(900 < count < 1100 for count in counts)
    assert all(0 <= rng.random() < 1 for _ in range(100))
