"""The repair's Jobs as manifests, and what the pool's status says of it."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import Apply, ClusterRef, Remove
from daybook_operator.plan.lost_ledgers import Verdict
from daybook_operator.plan.names import TASKS_ANNOTATION
from daybook_operator.plan.pool.spec import PoolDefaults, spec_of
from daybook_operator.plan.recovery.jobs import ObservedJob, ObservedTask
from daybook_operator.plan.recovery.plan import (
    ObservedAudit,
    ObservedRecovery,
    carrier_of,
    decide_recovery,
    recovery_status,
)
from daybook_operator.reconcile.recovery import RecoveryReconciler
from daybook_operator.reconcile.services import Services

from daybook.client.placement_settings import placement_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum

REF = ClusterRef("zk:2181", "daybook")
DEFAULTS = PoolDefaults("bookie:1", "zk:2181")
NOW_MS = 1_700_000_000_000


def pool(meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "BookiePool",
        "metadata": {"name": "bk", "namespace": "data", "uid": "pool-uid", **(meta or {})},
        "spec": {"storage": {"store": {"size": "10Gi"}}, **spec},
    }


def decide(
    manifest: dict[str, Any], seen: ObservedRecovery, *, operator_speaks_tls: bool = False, **more: Any
) -> Decision:
    return decide_recovery(
        manifest,
        spec_of(manifest, DEFAULTS),
        seen,
        NOW_MS,
        poll_s=5,
        needless_ms=1000,
        operator_speaks_tls=operator_speaks_tls,
        **more,
    )


def lacking(*ledger_ids: int) -> ObservedRecovery:
    return ObservedRecovery(REF, tuple(ObservedTask(each, 0, 1, ("lost data.bk-0",)) for each in ledger_ids))


@pytest.mark.parametrize(("asked", "allowed", "expected"), [(2, 100, [2, 2]), (100, 3, [3, 1])])
def test_a_job_has_at_most_the_ledgers_that_the_pool_asks_for_and_the_operator_allows(
    asked: int, allowed: int, expected: list[int]
) -> None:
    manifest = pool(recovery={"parallelism": 2, "ledgersPerJob": asked})
    effects = decide(manifest, lacking(1, 2, 3, 4), ledgers_per_job_max=allowed).effects
    jobs = [each.manifest for each in effects if isinstance(each, Apply) and each.manifest["kind"] == "Job"]
    tasks = [each["metadata"]["annotations"][TASKS_ANNOTATION] for each in jobs]
    assert [len(each.split(",")) for each in tasks] == expected


def job_of(decision: Decision) -> dict[str, Any]:
    (found,) = [e for e in decision.effects if isinstance(e, Apply) and e.manifest["kind"] == "Job"]
    copied: dict[str, Any] = json.loads(json.dumps(found.manifest))
    return copied


def test_a_job_runs_the_ordinary_worker_for_its_ledgers() -> None:
    job = job_of(decide(pool(), lacking(3, 5)))
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "bookie:1"
    assert container["command"] == ["daybook", "recover", "3", "5"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert (env["DAYBOOK_ZOOKEEPER"], env["DAYBOOK_CLUSTER"]) == ("zk:2181", "daybook")
    assert job["metadata"]["annotations"][TASKS_ANNOTATION] == "3:0:1,5:0:1"
    assert job["metadata"]["ownerReferences"][0]["uid"] == "pool-uid"
    assert (job["spec"]["backoffLimit"], job["spec"]["ttlSecondsAfterFinished"]) == (3, 300)


def test_jobs_speak_tls_with_the_operator_while_bookies_serve_both_ways() -> None:
    manifest = pool(tls={"secretName": "certs", "mode": "Optional"})
    for speaks in (False, True):
        plan = decide(manifest, lacking(3), operator_speaks_tls=speaks)
        (container,) = job_of(plan)["spec"]["template"]["spec"]["containers"]
        assert ("DAYBOOK_TLS_CA" in {each["name"] for each in container["env"]}) is speaks


def test_the_account_comes_first_and_may_do_nothing() -> None:
    first, *_ = decide(pool(), lacking(3)).effects
    assert isinstance(first, Apply)
    assert (first.manifest["kind"], first.manifest["metadata"]["name"]) == ("ServiceAccount", "bk-recovery")
    assert first.manifest["automountServiceAccountToken"] is False


def test_a_jobs_pod_complies_with_restricted_pod_security() -> None:
    pod = job_of(decide(pool(), lacking(3)))["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = pod["containers"][0]["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False


def test_a_job_has_what_the_pool_says_of_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pool(
        recovery={
            "backoffLimit": 1,
            "activeDeadlineSeconds": 60,
            "ttlSecondsAfterFinished": 9,
            "bandwidthPerJob": "1Mi",
            "jobTemplate": {"resources": {"requests": {"cpu": "100m"}}},
        },
        placement={"policy": "Rack", "minRacksPerWriteQuorum": 3},
        tls={"secretName": "certs", "clientAuth": "Required"},
        podTemplate={"tolerations": [{"key": "bookies"}]},
    )
    job = job_of(decide(asked, lacking(3)))
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (1, 60)
    pod = job["spec"]["template"]["spec"]
    env = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert env["DAYBOOK_AUTORECOVERY_BYTES_PER_SECOND"] == "1048576"
    assert env["DAYBOOK_TLS_KEY"].endswith("/tls.key")
    assert pod["tolerations"] == [{"key": "bookies"}]
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "100m"}}

    own = {"nodeSelector": {"for": "repair"}, "tolerations": [], "priorityClassName": "low"}
    asked["spec"]["recovery"]["jobTemplate"] |= own
    pod = job_of(decide(asked, lacking(3)))["spec"]["template"]["spec"]
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"for": "repair"}, "low")
    assert "tolerations" not in pod, "an empty list is a word too"

    for name, value in env.items():
        monkeypatch.setenv(name, value)
    bookies = {f"b{n}": BookieInfo(f"b{n}", rack=f"r{min(n, 1)}") for n in range(3)}
    assert placement_policy().problems(Quorum(3, 3, 2), ("b0", "b1", "b2"), bookies), (
        "the worker wants the three racks that the pool asks for"
    )


@pytest.mark.parametrize(
    "manifest",
    [
        pool({"annotations": {"daybook.dev/pause": "true"}}),
        pool({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
)
def test_a_pool_that_is_paused_or_goes_starts_no_job(manifest: dict[str, Any]) -> None:
    assert decide(manifest, lacking(3)) == Decision()


def hibernating(reason: str, name: str = "bk") -> dict[str, Any]:
    """A pool that is to hibernate, and how far that is."""
    said = {"type": "Hibernated", "status": "False", "reason": reason}
    return {**pool({"name": name}, hibernate=True), "status": {"conditions": [said]}}


@pytest.mark.parametrize(
    ("manifest", "switched_off"),
    [
        (pool(recovery={"paused": True}), False),
        (hibernating("Stopping"), False),
        (hibernating("Stopped"), False),
        (pool(), True),
    ],
)
def test_where_repair_is_off_the_jobs_that_run_are_cancelled(
    manifest: dict[str, Any], *, switched_off: bool
) -> None:
    job = ObservedJob("bk-recovery-1", "data", "job-uid", ("3:0:1",))
    seen = replace(lacking(3, 4), jobs=(job,), switched_off=switched_off)
    decision = decide(manifest, seen)
    assert [type(effect) for effect in decision.effects] == [Remove]
    (remove,) = decision.effects
    assert isinstance(remove, Remove)
    assert (remove.ref.name, remove.ref.uid) == ("bk-recovery-1", "job-uid")


@pytest.mark.parametrize("reason", ["Awake", "WaitingForReplication", "WaitingForDrain"])
def test_a_pool_that_waits_for_repair_before_it_hibernates_has_it_done(reason: str) -> None:
    manifest = hibernating(reason)
    assert job_of(decide(manifest, lacking(3)))
    assert carrier_of([hibernating("Stopped", "a"), manifest]) is manifest


def test_the_gauge_counts_what_no_bookie_can_repair_as_the_status_does() -> None:
    metrics = OperatorMetrics()
    reconciler = RecoveryReconciler(cast("Services", SimpleNamespace(metrics=metrics)))
    reconciler._measure(replace(lacking(3), blocked=2))
    labels = {"cluster": str(REF)}
    assert metrics.registry.get_sample_value("daybook_operator_under_replicated_ledgers", labels) == 3


def test_the_status_counts_what_is_left() -> None:
    tasks = (
        ObservedTask(1, 0, 1, ("lost data.bk-0",)),
        ObservedTask(2, 0, 1, ("gap data.bk-1",)),
        ObservedTask(3, 4, 1, ("lost data.bk-0",), NOW_MS + 9),
        ObservedTask(4, 0, 1, ("misplaced data.bk-0",)),
    )
    jobs = (
        ObservedJob("a", "data", "u1", ("1:0:1",)),
        ObservedJob("b", "data", "u2", ("9:0:1",), finished=True),
    )
    seen = ObservedRecovery(
        REF,
        tasks,
        jobs,
        lost_bookies=("data.bk-0",),
        misplaced=1,
        blocked=2,
        last_full_audit=ObservedAudit(NOW_MS, 2_000, is_clean=False, ledgers=4),
        verdicts=(Verdict(3, gone=("data.bk-0",)), Verdict(1, awaited=("data.bk-0",))),
    )
    status = recovery_status(seen, NOW_MS)
    assert (status["underReplicated"], status["activeJobs"], status["waitingLedgers"]) == (5, 1, 2)
    assert (status["unrecoverable"], status["unrecoverableLedgers"]) == (1, [3])
    assert (status["unreachable"], status["unreachableLedgers"]) == (1, [1])
    assert status["lostBookies"] == ["data.bk-0"]
    assert status["lastFullAudit"]["clean"] is False
    assert status["lastFullAudit"]["startedAt"] < status["lastFullAudit"]["finishedAt"]


def test_a_pool_that_stands_still_does_not_carry_the_repair_of_others() -> None:
    paused = pool({"name": "a", "annotations": {"daybook.dev/pause": "true"}})
    hibernated = hibernating("Stopped", "b")
    going = pool({"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"})
    able, other = pool({"name": "d"}), pool({"name": "e"})
    assert carrier_of([paused, hibernated, going, able, other]) is able
    assert carrier_of([going, paused, hibernated]) is paused  # it audits, and makes no Jobs
    assert carrier_of([going]) is None
