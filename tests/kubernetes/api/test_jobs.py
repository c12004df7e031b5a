"""CronJobs of pools and Topics against a real API server and ZooKeeper, with the operator as a process that may die."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daybook_operator.plan.spark_jobs import cron_job_of_topics
from kubernetes import client as kubernetes

from daybook.core.topics.job_result import JobResult
from daybook.core.topics.job_terms import CompactionTerms, Timing
from daybook.core.topics.name import TopicName
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.job_results import JobResults
from daybook.metadata.layout import Layout
from daybook.metadata.policies import PolicyManager
from daybook.metadata.store.zookeeper import ZooKeeperStore
from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.operator_kit import (
    OperatorProcess,
    another_operator,
    condition,
    die_before_every_effect,
    pool,
    topic,
    until,
)
from tests.kubernetes.api.rest import Resources

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

NIGHTLY = "0 3 * * *"
COMPACTION = cron_job_of_topics("bk", "compaction", NIGHTLY, "Etc/UTC")
LOST = cron_job_of_topics("bk", "compaction", NIGHTLY, "Mars/Base")


class Site:
    """A namespace with a pool whose bookies nobody starts."""

    def __init__(
        self, plane: ControlPlane, api: kubernetes.ApiClient, namespace: str, zookeeper: str, directory: Path
    ) -> None:
        self.namespace = namespace
        self.cluster = namespace
        self.resources = Resources(plane, namespace)
        self._plane, self._zookeeper, self._directory = plane, zookeeper, directory
        self._batch = kubernetes.BatchV1Api(api)
        asyncio.run(self._format())

    async def _format(self) -> None:
        store = await ZooKeeperStore.open(self._zookeeper)
        await ensure_cluster(store, Layout(self.cluster), created_at_ms=0)
        await store.close()

    def operator(self) -> OperatorProcess:
        """Another operator process, not started."""
        return another_operator(
            self._plane, self.namespace, self._directory, self._zookeeper, SPARK_IMAGE="local/spark:1"
        )

    def create_pool(self, name: str = "bk", **jobs: Any) -> None:
        metadata = {"cluster": self.cluster}  # ZooKeeper is the operator's: a pool names no path below one
        self.resources.create(pool(name, "", self.cluster, metadata=metadata, jobs=jobs))

    def create_topic(self, name: str, **compaction: Any) -> None:
        asked = {"enabled": True, "schedule": NIGHTLY, **compaction}
        self.resources.create(topic(name, self.namespace, compaction=asked))

    def cron_jobs(self) -> dict[str, Any]:
        found = self._batch.list_namespaced_cron_job(self.namespace).items
        return {each.metadata.name: each for each in found}

    def condition(self, kind: str, name: str, type_: str) -> tuple[str | None, str]:
        """The reason and the message."""
        found = condition(self.resources.find(kind, name), type_)
        return found.get("reason"), found.get("message", "")

    def fail(self, cron_job: str, name: str) -> None:
        """A Job of the CronJob that failed, as its controller and the kubelet would have it."""
        found = self._batch.read_namespaced_cron_job(cron_job, self.namespace)
        owner = kubernetes.V1OwnerReference(
            api_version="batch/v1", kind="CronJob", name=cron_job, uid=found.metadata.uid, controller=True
        )
        template = found.spec.job_template
        template.spec.suspend = True  # so that no controller makes a pod of it
        meta = kubernetes.V1ObjectMeta(name=name, labels=template.metadata.labels, owner_references=[owner])
        self._batch.create_namespaced_job(self.namespace, kubernetes.V1Job(metadata=meta, spec=template.spec))
        at = "2026-01-01T00:00:00Z"
        ended = [
            {"type": type_, "status": "True", "reason": "BackoffLimitExceeded", "message": "no pod succeeded"}
            | {"lastTransitionTime": at, "lastProbeTime": at}
            for type_ in ("FailureTarget", "Failed")
        ]
        self._batch.patch_namespaced_job_status(
            name, self.namespace, {"status": {"startTime": at, "conditions": ended, "failed": 1}}
        )

    def leave_result(self, name: str, result: JobResult) -> None:
        """As a job does it."""

        async def write() -> None:
            store = await ZooKeeperStore.open(self._zookeeper)
            await JobResults(store, Layout(self.cluster)).write(self.topic_name(name), result)
            await store.close()

        asyncio.run(write())

    def compaction_of(self, name: str) -> CompactionTerms | None:
        """What the topic's policy says to jobs."""

        async def read() -> CompactionTerms | None:
            store = await ZooKeeperStore.open(self._zookeeper)
            found = await PolicyManager(store, Layout(self.cluster)).topic(self.topic_name(name))
            await store.close()
            return found.value.compaction

        return asyncio.run(read())

    def topic_name(self, name: str) -> TopicName:
        return TopicName("public", self.namespace, name)


@pytest.fixture
def site(
    control_plane: ControlPlane, api: kubernetes.ApiClient, namespace: str, zookeeper: str, tmp_path: Path
) -> Site:
    return Site(control_plane, api, namespace, zookeeper, tmp_path)


@pytest.fixture
def operator(site: Site) -> Iterator[OperatorProcess]:
    """A running operator."""
    process = site.operator()
    process.start()
    yield process
    process.end()


def test_cron_jobs_follow_the_pool_and_its_topics(site: Site, operator: OperatorProcess) -> None:
    site.create_pool(retention={"schedule": "0 2 * * *", "timeZone": "Europe/Berlin"})
    for name in ("one", "two"):
        site.create_topic(name)
    site.create_topic("rests", suspend=True)
    wanted = {"bk-retention", COMPACTION}
    until(lambda: site.cron_jobs().keys() == wanted, operator, "each job has a CronJob")
    retention = site.cron_jobs()["bk-retention"]
    assert (retention.spec.schedule, retention.spec.time_zone) == ("0 2 * * *", "Europe/Berlin")
    assert retention.spec.concurrency_policy == "Forbid"
    until(
        lambda: site.condition("Topic", "two", "JobsHealthy")[0] == "NothingFailed", operator, "the topic is"
    )
    assert site.compaction_of("one") == CompactionTerms(Timing(NIGHTLY))
    assert site.compaction_of("rests") is None
    before = retention.metadata.resource_version

    site.resources.delete("Topic", "one")
    site.resources.delete("Topic", "two")
    until(lambda: site.cron_jobs().keys() == {"bk-retention"}, operator, "what nothing names is removed")
    assert site.cron_jobs()["bk-retention"].metadata.resource_version == before, "and nothing else is written"


def test_a_failure_and_a_refusal_are_told_where_people_look(site: Site, operator: OperatorProcess) -> None:
    site.create_pool(retention={"schedule": "@daily"})
    site.create_topic("fails")
    site.create_topic("lost", timeZone="Mars/Base")
    until(lambda: site.cron_jobs().keys() == {"bk-retention", COMPACTION}, operator, "the others are made")
    until(
        lambda: site.condition("Topic", "lost", "JobsHealthy")[0] == "DoesNotRun",
        operator,
        "the topic says why its job does not run",
    )
    assert "Mars/Base" in site.condition("Topic", "lost", "JobsHealthy")[1]
    failing = f'daybook_operator_topic_conditions{{condition="JobsHealthy",pool="{site.namespace}/bk",status="False"}}'
    until(lambda: operator.metric(failing) == 1, operator, "an alert sees how many Topics say so")

    series = f'daybook_operator_pool_condition{{condition="%s",pool="{site.namespace}/bk"}}'
    until(lambda: operator.metric(series % "RetentionHealthy") == 1, operator, "no alert has a reason yet")
    site.fail("bk-retention", "bk-retention-1")
    until(
        lambda: site.condition("BookiePool", "bk", "RetentionHealthy")[0] == "JobFailed",
        operator,
        "the pool says that its job failed",
    )
    assert "no pod succeeded" in site.condition("BookiePool", "bk", "RetentionHealthy")[1]
    until(lambda: operator.metric(series % "RetentionHealthy") == 0, operator, "an alert sees it")
    assert operator.metric(series % "AuditHealthy") == 1

    site.leave_result("fails", JobResult.of("compaction", 1, 2, error="no broker answers: start one"))
    until(
        lambda: site.condition("Topic", "fails", "JobsHealthy")[0] == "JobFailed", operator, "the topic, too"
    )
    assert "no broker answers: start one" in site.condition("Topic", "fails", "JobsHealthy")[1]
    (shown,) = site.resources.get("Topic", "fails")["status"]["jobs"]
    assert (shown["name"], shown["succeeded"]) == ("compaction", False)
    until(lambda: operator.metric(failing) == 2, operator, "both Topics count")
    for name in ("fails", "lost"):
        site.resources.delete("Topic", name)
    until(lambda: operator.metric(failing) == 0, operator, "and neither does once it is gone")


def test_an_operator_that_dies_before_any_effect_makes_all_of_them(site: Site) -> None:
    names = ["first", "second", "third"]

    def is_done(name: str) -> bool:
        return {f"{name}-retention", f"{name}-audit"} <= site.cron_jobs().keys()

    effects = die_before_every_effect(
        site.operator,
        names,
        about=lambda name: rf"'kind': 'CronJob'.*'name': '{name}-",
        begin=lambda name: site.create_pool(
            name, retention={"schedule": "@daily"}, audit={"schedule": "@weekly"}
        ),
        is_done=is_done,
    )
    assert effects == ["Apply", "Apply"]
