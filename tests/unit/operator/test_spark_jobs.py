"""The CronJobs of a pool: which there are, what is in them, when they go; and what the pool says of their runs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.effects import Apply, ClusterRef, Effect, Manifest, Remove
from daybook_operator.plan.jobs.plan import JobsPlan, ObservedJobs, decide_jobs
from daybook_operator.plan.pool.jobs_health import conditions_of_jobs
from daybook_operator.plan.pool.spec import PoolDefaults, spec_of
from daybook_operator.plan.spark_jobs import JobsReport, JobsSpec, Run, cron_job_of_topics
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.pool_facts import pool_manifest

REF = ClusterRef("zk:2181", "daybook")
DEFAULTS = PoolDefaults("bookie:1", "zk:2181", spark_image="spark:1", jobs_account="daybook-jobs")
NIGHTLY = {"schedule": "0 2 * * *"}


def topic(name: str, *, meta: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"namespace": "data", "name": name, "uid": name, **(meta or {})},
        "spec": {"poolRef": {"name": "bk"}, **spec},
    }


def compacted(name: str, schedule: str = "0 3 * * *", **more: Any) -> dict[str, Any]:
    return topic(name, compaction={"enabled": True, "schedule": schedule, **more})


def world(jobs: Mapping[str, Any] | None = None, *topics: Manifest, **spec: Any) -> ObservedJobs:
    pool = pool_manifest(jobs=jobs or {}, **spec)
    return ObservedJobs(pool, spec_of(pool, DEFAULTS), REF, topics)


def plan(seen: ObservedJobs, defaults: PoolDefaults = DEFAULTS) -> JobsPlan:
    return decide_jobs(seen, defaults)


def applied(found: JobsPlan) -> dict[str, Manifest]:
    return {
        each.manifest["metadata"]["name"]: each.manifest for each in found.effects if isinstance(each, Apply)
    }


def removed(found: JobsPlan) -> list[str]:
    return [each.ref.name for each in found.effects if isinstance(each, Remove)]


def carried_out(seen: ObservedJobs, effects: tuple[Effect, ...]) -> ObservedJobs:
    """The API server after some of the effects."""
    live = {each["metadata"]["name"]: each for each in seen.cron_jobs}
    for effect in effects:
        match effect:
            case Apply(manifest):
                live[manifest["metadata"]["name"]] = manifest
            case Remove(ref):
                del live[ref.name]
    return replace(seen, cron_jobs=tuple(live.values()))


# Which there are


def test_rule_74_a_pool_has_one_cron_job_for_each_job_of_its_own() -> None:
    found = applied(
        plan(world({"retention": NIGHTLY, "audit": {"schedule": "@weekly", "timeZone": "Europe/Berlin"}}))
    )
    assert found.keys() == {"bk-retention", "bk-audit"}
    audit = found["bk-audit"]["spec"]
    assert (audit["schedule"], audit["timeZone"], audit["suspend"]) == ("@weekly", "Europe/Berlin", False)
    assert (audit["successfulJobsHistoryLimit"], audit["failedJobsHistoryLimit"]) == (1, 3)
    assert plan(world()) == JobsPlan()


def test_rule_74_a_cron_job_runs_at_the_time_of_its_time_zone() -> None:
    """Two Topics whose timings differ in the time zone alone, and a job of the pool in a third one."""
    found = applied(
        plan(
            world(
                {"audit": {"schedule": "@weekly", "timeZone": "Asia/Tokyo"}},
                compacted("a"),
                compacted("b", timeZone="Europe/Berlin"),
            )
        )
    )
    times = sorted((each["spec"]["schedule"], each["spec"]["timeZone"]) for each in found.values())
    assert times == [("0 3 * * *", "Etc/UTC"), ("0 3 * * *", "Europe/Berlin"), ("@weekly", "Asia/Tokyo")]


def test_rule_74_no_two_runs_of_a_cron_job_are_at_work_at_once() -> None:
    offload = topic("b", offload={"schedule": "@daily", "to": "s3://b"})
    found = applied(plan(world({"retention": NIGHTLY, "audit": NIGHTLY}, compacted("a"), offload)))
    assert [each["spec"]["concurrencyPolicy"] for each in found.values()] == ["Forbid"] * 4


def test_rule_74_topics_of_one_schedule_and_time_zone_share_a_cron_job() -> None:
    offload = {"schedule": "0 3 * * *", "to": "s3://b"}
    found = applied(
        plan(
            world(
                {},
                compacted("a"),
                compacted("b"),
                compacted("c", timeZone="Europe/Berlin"),
                topic("d", offload=offload),
                topic("e", offload={**offload, "to": "s3://other"}),
            )
        )
    )
    assert found.keys() == {
        cron_job_of_topics("bk", "compaction", "0 3 * * *", "Etc/UTC"),
        cron_job_of_topics("bk", "compaction", "0 3 * * *", "Europe/Berlin"),
        cron_job_of_topics("bk", "offload", "0 3 * * *", "Etc/UTC"),
    }


def test_rule_74_topics_that_are_suspended_paused_or_gone_name_none() -> None:
    left_out = [
        compacted("a", suspend=True),
        compacted("b")
        | {"metadata": topic("b", meta={"annotations": {"daybook.dev/pause": "true"}})["metadata"]},
        compacted("c")
        | {"metadata": topic("c", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})["metadata"]},
        topic("d"),
    ]
    assert plan(world({}, *left_out)) == JobsPlan()


@pytest.mark.parametrize(
    ("jobs", "spec"),
    [({"suspend": True}, {}), ({}, {"hibernate": True}), ({"retention": {**NIGHTLY, "suspend": True}}, {})],
)
def test_rule_74_a_job_that_is_to_rest_stays_and_is_suspended(
    jobs: Mapping[str, Any], spec: Mapping[str, Any]
) -> None:
    found = applied(plan(world({"retention": NIGHTLY, **jobs}, compacted("a"), **spec)))
    assert found.pop("bk-retention")["spec"]["suspend"] is True
    (of_topics,) = found.values()
    assert of_topics["spec"]["suspend"] is ("retention" not in jobs), "a job of its own rests alone"


def test_names_are_as_short_as_cron_jobs_need_and_tell_pools_apart() -> None:
    long, longer = "b" * 40, "b" * 39 + "c"
    names = {cron_job_of_topics(pool, "compaction", "@daily", "Etc/UTC") for pool in (long, longer, "bk")}
    assert len(names) == 3
    assert all(len(name) <= 52 for name in (*names, f"{long}-retention"))


# What is in one


def test_the_driver_is_told_what_to_do_and_whom_to_ask() -> None:
    seen = world({"retention": NIGHTLY, "audit": NIGHTLY}, compacted("a", timeZone="Europe/Berlin"))
    commands = {
        manifest["metadata"]["labels"]["daybook.dev/job"]: driver_of(manifest)["containers"][0]["args"][3:]
        for manifest in applied(plan(seen)).values()
    }
    start = ["daybook", "spark"]
    master = ["--master", "k8s://https://kubernetes.default.svc:443"]
    words = ["--termination-log", "/dev/termination-log"]
    assert commands == {
        "retention": [*start, "retention", *master, "--pool", "data.bk", *words],
        "audit": [*start, "audit", *master, *words],
        "compaction": [
            *start,
            "compaction",
            *master,
            "--pool",
            "data.bk",
            "--schedule",
            "0 3 * * * Europe/Berlin",
            *words,
        ],
    }


def test_a_retention_searches_the_places_that_no_topic_names_any_more() -> None:
    places = ["s3://old/daybook?region=eu-west-1", "file:///mnt/$(HOME)"]
    found = applied(plan(world({"retention": {**NIGHTLY, "filesBelow": places}, "audit": NIGHTLY})))
    words = driver_of(found["bk-retention"])["containers"][0]["args"]
    assert words[-6:-2] == ["--files-below", places[0], "--files-below", "file:///mnt/$$(HOME)"]
    assert "--files-below" not in driver_of(found["bk-audit"])["containers"][0]["args"]


def driver_of(cron_job: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


def variables(container: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_driver_and_executors_have_the_same_secrets_and_are_held_as_tightly() -> None:
    jobs = {
        "retention": NIGHTLY,
        "brokerTokenSecretRef": {"name": "token"},
        "passwordSecretRef": {"name": "ledgers", "key": "p"},
        "credentialsSecretName": "bucket",
        "executors": {"count": 5, "cpu": "1500m", "memory": "3Gi"},
        "driver": {"cpu": "250m", "memory": "1Gi"},
    }
    access = {"tls": {"secretName": "zk-tls"}, "digestSecretRef": {"name": "zk"}}
    seen = world(
        jobs,
        zookeeperAccess=access,
        tls={"secretName": "bk-tls", "clientAuth": "Required"},
        imagePullSecrets=[{"name": "pull"}],
        podTemplate={"nodeSelector": {"disk": "none"}, "priorityClassName": "low"},
    )
    driver = driver_of(applied(plan(seen))["bk-retention"])
    (container,) = driver["containers"]
    given = variables(container)
    executor = json.loads(given["DAYBOOK_SPARK_EXECUTOR"])["spec"]
    (other,) = executor["containers"]
    for each in (container, other):
        assert variables(each)["DAYBOOK_TOKEN"] == {"secretKeyRef": {"name": "token", "key": "token"}}
        assert variables(each)["DAYBOOK_PASSWORD"] == {"secretKeyRef": {"name": "ledgers", "key": "p"}}
        assert variables(each)["DAYBOOK_TLS_CERTIFICATE"] == "/etc/daybook/tls/tls.crt"
        assert variables(each)["DAYBOOK_ZOOKEEPER_DIGEST"] == {
            "secretKeyRef": {"name": "zk", "key": "digest"}
        }
        assert variables(each)["DAYBOOK_ZOOKEEPER"] == "zk:2181"
        assert each["workingDir"] == "/tmp", "Spark writes there, and the root is read-only"
        assert each["envFrom"] == [{"secretRef": {"name": "bucket"}}]
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert {mount["mountPath"] for mount in each["volumeMounts"]} == {
            "/tmp",
            "/etc/daybook/tls",
            "/etc/daybook/zookeeper-tls",
        }
    for pod in (driver, executor):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert {"name": "tmp", "emptyDir": {}} in pod["volumes"]
        assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"disk": "none"}, "low")
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert (driver["serviceAccountName"], driver["automountServiceAccountToken"]) == ("daybook-jobs", True)
    assert executor["serviceAccountName"] == "daybook-jobs", "executors write to the bucket by its role"
    assert executor["automountServiceAccountToken"] is False, "an executor asks the API server for nothing"
    settings = json.loads(given["DAYBOOK_SPARK_SETTINGS"])
    assert (settings["spark.executor.instances"], settings["spark.executor.cores"]) == ("5", "2")
    assert (settings["spark.executor.memory"], settings["spark.executor.memoryOverhead"]) == (
        "1536m",
        "1536m",
    )
    assert settings["spark.kubernetes.executor.request.cores"] == "1500m"
    assert settings["spark.driver.memory"] == "512m"
    assert settings["spark.kubernetes.namespace"] == "data"
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "$(POD_IP)"
    names = [each["name"] for each in container["env"]]
    assert names.index("POD_IP") < names.index("DAYBOOK_SPARK_SETTINGS"), (
        "only earlier variables are filled in"
    )


def test_tls_that_is_optional_is_used_if_the_operator_speaks_it() -> None:
    seen = world({"audit": NIGHTLY}, tls={"secretName": "bk-tls", "mode": "Optional"})
    for speaks in (False, True):
        found = driver_of(applied(plan(replace(seen, operator_speaks_tls=speaks)))["bk-audit"])
        assert ("DAYBOOK_TLS_CA" in variables(found["containers"][0])) is speaks


def test_an_audit_that_finds_something_is_not_repeated_at_once() -> None:
    found = applied(plan(world({"retention": NIGHTLY, "audit": NIGHTLY, "backoffLimit": 4})))
    limits = {name: each["spec"]["jobTemplate"]["spec"]["backoffLimit"] for name, each in found.items()}
    assert limits == {"bk-retention": 4, "bk-audit": 0}


def test_a_pools_own_image_counts_before_the_operators() -> None:
    found = applied(plan(world({"retention": NIGHTLY, "image": "mine/spark:2"})))["bk-retention"]
    assert driver_of(found)["containers"][0]["image"] == "mine/spark:2"


# When they go, and when they cannot be made


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "retention": st.sampled_from([NIGHTLY, {"schedule": "@daily", "suspend": True}]),
        "audit": st.sampled_from([NIGHTLY]),
        "suspend": st.booleans(),
    },
)
TOPICS = st.lists(
    st.builds(
        compacted,
        st.sampled_from("abc"),
        st.sampled_from(["0 3 * * *", "@daily"]),
        suspend=st.booleans(),
        timeZone=st.sampled_from(["Etc/UTC", "Europe/Berlin"]),
    ),
    max_size=3,
)


@given(SPECS, TOPICS, SPECS, TOPICS, st.integers(0, 6))
def test_two_reconciles_are_one_and_one_that_was_interrupted_is_made_up_for(
    first: Mapping[str, Any],
    topics: list[Manifest],
    second: Mapping[str, Any],
    later: list[Manifest],
    done: int,
) -> None:
    seen = world(first, *topics)
    seen = carried_out(seen, plan(seen).effects)
    assert plan(seen).effects == ()
    changed = replace(world(second, *later), cron_jobs=seen.cron_jobs)
    changed = carried_out(changed, plan(changed).effects[:done])
    changed = carried_out(changed, plan(changed).effects)
    assert plan(changed) == JobsPlan()
    fresh = world(second, *later)
    assert sorted(each["metadata"]["name"] for each in changed.cron_jobs) == sorted(applied(plan(fresh)))


def test_rule_74_what_nothing_names_any_more_is_removed() -> None:
    seen = world({"retention": NIGHTLY}, compacted("a"))
    there = carried_out(seen, plan(seen).effects)
    (name,) = {each["metadata"]["name"] for each in there.cron_jobs} - {"bk-retention"}
    assert removed(plan(replace(world({"retention": NIGHTLY}), cron_jobs=there.cron_jobs))) == [name]


def test_rule_74_a_cron_job_of_somebody_else_is_left_alone() -> None:
    seen = world({"retention": NIGHTLY, "audit": NIGHTLY})
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"namespace": "data", "name": "bk-audit"},
    }
    other = {**foreign, "metadata": {"namespace": "data", "name": "backup"}}
    found = plan(replace(seen, cron_jobs=(foreign, other)))
    assert applied(found).keys() == {"bk-retention"}
    assert removed(found) == []
    assert found.problems == {
        "bk-audit": "a CronJob of this name belongs to somebody else: delete or rename it"
    }


@pytest.mark.parametrize(
    "meta", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"annotations": {"daybook.dev/pause": "true"}}]
)
def test_a_pool_that_is_paused_or_goes_keeps_what_it_has(meta: Mapping[str, Any]) -> None:
    seen = world({"retention": NIGHTLY})
    there = carried_out(seen, plan(seen).effects)
    pool = {**there.pool, "metadata": {**there.pool["metadata"], **meta}}
    assert plan(replace(world({"audit": NIGHTLY}), pool=pool, cron_jobs=there.cron_jobs)) == JobsPlan()


def test_without_an_image_or_a_zookeeper_there_is_none_and_the_reason_is_told() -> None:
    seen = world({"retention": NIGHTLY})
    nothing = plan(seen, replace(DEFAULTS, spark_image=""))
    assert nothing.effects == ()
    assert "the image of Spark" in nothing.problems["bk-retention"]
    assert (
        "no ZooKeeper" in plan(replace(seen, cluster_ref=ClusterRef("", "daybook"))).problems["bk-retention"]
    )


# What the pool says


def conditions(jobs: Mapping[str, Any], report: JobsReport) -> dict[str, tuple[str, str, str]]:
    found = conditions_of_jobs("bk", JobsSpec.model_validate(jobs), report)
    return {each.type: (each.word, each.reason, each.message) for each in found}


def test_nothing_is_said_before_anything_is_known() -> None:
    assert conditions_of_jobs("bk", JobsSpec(retention=None), None) == []


def test_the_last_run_of_each_job_is_told() -> None:
    jobs = {"retention": NIGHTLY}
    assert conditions(jobs, JobsReport())["RetentionHealthy"][:2] == ("True", "NotYetRun")
    assert conditions(jobs, JobsReport())["AuditHealthy"][:2] == ("True", "NotScheduled")
    good = Run("bk-retention-1", 0, 5, succeeded=True)
    assert conditions(jobs, JobsReport({"bk-retention": good}))["RetentionHealthy"][:2] == (
        "True",
        "Succeeded",
    )
    bad = replace(good, succeeded=False)
    word, reason, message = conditions(jobs, JobsReport({"bk-retention": bad}))["RetentionHealthy"]
    assert (word, reason) == ("False", "JobFailed")
    assert "kubectl logs job/bk-retention-1" in message
    assert "kubectl create job --from=cronjob/bk-retention bk-retention-now" in message
    word, reason, message = conditions(jobs, JobsReport({}, {"bk-retention": "no account"}))[
        "RetentionHealthy"
    ]
    assert (word, reason) == ("False", "DoesNotRun")
    assert "does not run: no account. Correct spec.jobs" in message


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ('{"job": "retention", "error": "no broker: start one"}', "no broker: start one"),
        (
            '{"topics": 9, "failed": 2, "failures": [{"topic": "a", "message": "why"}]}',
            "2 of 9 topics failed, such as a: why",
        ),
        ('{"topics": 9, "failed": 0, "failures": []}', '{"topics": 9, "failed": 0, "failures": []}'),
        ("Killed", "Killed"),
        ("[1]", "[1]"),
        ("Traceback" + "x" * 1020 + " end", "x" * 1020 + " end"),
        ('{"error": "why' + "x" * 2000 + '"}', "why" + "x" * 1021),
    ],
)
def test_a_driver_is_quoted_as_far_as_it_can_be_read(message: str, said: str) -> None:
    assert Run("job", 0, 0, succeeded=False, message=message).said == said
