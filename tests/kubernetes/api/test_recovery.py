"""Lost bookies are made good by Jobs alone: a real API server, ZooKeeper and bookies, and the Jobs' own command."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daybook_operator.kube.api import Kube, load_configuration
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.pods import RECOVERY, service_account
from daybook_operator.plan.pool.spec import PoolDefaults, spec_of
from daybook_operator.plan.recovery.jobs import NewJob
from daybook_operator.plan.recovery.manifests import job_manifest
from daybook_operator.reconcile.job_problems import problems_of
from kubernetes import client as kubernetes

from daybook.client.client import Client
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.runtime.clock import unix_ms
from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.operator_kit import OperatorProcess, bookies, condition, pool, until, with_client
from tests.kubernetes.api.policy import refusing
from tests.kubernetes.api.rest import Resources
from tests.unit.bookie.service.process_kit import BookieProcess, with_store
from tests.unit.operator.pool_facts import pool_manifest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LEDGERS = 300


class Stage:
    """A pool of four bookies that run as processes, and its operator."""

    def __init__(
        self, plane: ControlPlane, api: kubernetes.ApiClient, namespace: str, zookeeper: str, directory: Path
    ) -> None:
        self.namespace = namespace
        self.zookeeper = zookeeper
        self.cluster = f"recovery-{namespace}"
        self.resources = Resources(plane, namespace)
        self.batch = kubernetes.BatchV1Api(api)
        self.operator = OperatorProcess(plane, namespace, directory / "operator", zookeeper)
        with_store(zookeeper, lambda store: ensure_cluster(store, Layout(self.cluster), created_at_ms=0))
        self.bookies = bookies(directory, zookeeper, self.cluster, namespace, number=4)

    def bookie(self, number: int) -> BookieProcess:
        return self.bookies[number]

    def jobs(self) -> dict[str, Any]:
        """The recovery Jobs by name."""
        listed = self.batch.list_namespaced_job(
            self.namespace, label_selector="app.kubernetes.io/component=recovery"
        )
        return {job.metadata.name: job for job in listed.items}

    def condition(self, type_: str) -> dict[str, Any]:
        """One condition of the pool; {} while it is not said."""
        return condition(self.resources.get("BookiePool", "bk"), type_)

    def recovery(self) -> dict[str, Any]:
        """`status.recovery` of the pool."""
        found: dict[str, Any] = (self.resources.get("BookiePool", "bk").get("status") or {}).get(
            "recovery", {}
        )
        return found

    def carry_out(self, job: Any) -> None:
        """Run the Job's command, in its environment, as its pod would. Its tasks are done then, and it may go."""
        (container,) = job.spec.template.spec.containers
        command = [str(Path(sys.executable).with_name(container.command[0])), *container.command[1:]]
        environment = {each.name: each.value for each in container.env}
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr

    def write_ledgers(self, number: int, named: str) -> list[LedgerId]:
        """Closed ledgers with entries that name this bookie, and leave another free."""

        async def write(client: Client) -> list[LedgerId]:
            made: list[LedgerId] = []
            while len(made) < number:
                ledger = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
                await ledger.append_many([b"x"] * 8)
                await ledger.close()
                if named in (await client.ledgers.read(ledger.id)).value.bookies():
                    made.append(ledger.id)
            return made

        return with_client(self.zookeeper, self.cluster, write)

    def bookies_of(self, ledger_ids: list[LedgerId]) -> set[str]:
        """Who holds these ledgers now."""

        async def read(client: Client) -> set[str]:
            found = [(await client.ledgers.read(each, sync=True)).value for each in ledger_ids]
            return {bookie for each in found for bookie in each.bookies()}

        return with_client(self.zookeeper, self.cluster, read)


@pytest.fixture
def stage(
    control_plane: ControlPlane,
    api: kubernetes.ApiClient,
    namespace: str,
    zookeeper_server: EmbeddedZooKeeper,
    tmp_path: Path,
) -> Iterator[Stage]:
    made = Stage(control_plane, api, namespace, zookeeper_server.connect_string, tmp_path)
    try:
        for each in made.bookies:
            each.wait()
        yield made
    finally:
        if made.operator.is_running():
            made.operator.end()
        for each in made.bookies:
            each.end()


def test_jobs_make_good_what_a_lost_bookie_held_and_go_when_it_comes_back(stage: Stage) -> None:
    spec = {"lostBookieDelaySeconds": 1, "parallelism": 2, "ledgersPerJob": 3}
    stage.resources.create(pool("a-paused-one", stage.zookeeper, stage.cluster, is_paused=True))
    stage.resources.create(pool("bk", stage.zookeeper, stage.cluster, replicas=4, recovery=spec))
    gone = f"{stage.namespace}.bk-3"
    made = stage.write_ledgers(5, gone)
    stage.operator.start()
    until(lambda: bool(stage.recovery().get("lastFullAudit", {}).get("clean")), stage.operator, "all is well")

    lost = stage.bookie(3)
    lost.end()
    until(lambda: len(stage.jobs()) == 2, stage.operator, "five ledgers make two Jobs of three at most")
    before = stage.jobs()
    until(
        lambda: stage.recovery().get("underReplicated") == 5 and stage.recovery().get("activeJobs") == 2,
        stage.operator,
        "the pool's status says so",
    )
    assert stage.recovery()["lostBookies"] == [gone]
    lost.spawn()
    lost.wait()
    until(lambda: stage.jobs() == {}, stage.operator, "a bookie that comes back cancels what is not needed")
    until(lambda: stage.recovery().get("underReplicated") == 0, stage.operator, "nothing is missing any more")

    lost.end()
    until(lambda: len(stage.jobs()) == 2, stage.operator, "it is lost again")
    assert not set(stage.jobs()) & set(before), "other tasks are other Jobs"
    for job in stage.jobs().values():
        stage.carry_out(job)
    assert gone not in stage.bookies_of(made)
    until(lambda: stage.recovery().get("underReplicated") == 0, stage.operator, "the counts go down")
    until(lambda: stage.jobs() == {}, stage.operator, "a Job whose ledgers are mended goes")
    until(lambda: stage.recovery().get("activeJobs") == 0, stage.operator, "and the status says so")
    until(
        lambda: bool(stage.recovery().get("lastFullAudit", {}).get("clean")),
        stage.operator,
        "a full audit that began since found everything",
    )


def test_hundreds_of_under_replicated_ledgers_make_few_jobs(stage: Stage) -> None:
    """They name a bookie that never was; what matters is how many Jobs there are, not whether they can help."""
    names = tuple(f"{stage.namespace}.bk-{number}" for number in (0, 1, 9))

    async def create(client: Client) -> None:
        for _ in range(LEDGERS):
            await client.ledgers.create_ledger(
                lambda number: LedgerMetadata(
                    number, Quorum(3, 3, 2), (Fragment(0, 0, names),), password_hash="00$key"
                ).closed(0, 1)
            )

    with_client(stage.zookeeper, stage.cluster, create)
    recovery = {"lostBookieDelaySeconds": 0, "paused": True}
    stage.resources.create(pool("bk", stage.zookeeper, stage.cluster, replicas=4, recovery=recovery))
    stage.operator.start()
    until(lambda: stage.recovery().get("underReplicated") == LEDGERS, stage.operator, "all are marked")
    assert stage.jobs() == {}
    _pause(stage, "false")
    until(lambda: len(stage.jobs()) == 2, stage.operator, "two Jobs at once")
    sizes = [len(job.spec.template.spec.containers[0].command) - 2 for job in stage.jobs().values()]
    assert all(size <= 100 for size in sizes)
    assert sum(sizes) > 100
    until(
        lambda: stage.recovery().get("waitingLedgers") == LEDGERS - sum(sizes), stage.operator, "others wait"
    )
    _pause(stage, "true")
    until(lambda: stage.jobs() == {}, stage.operator, "a pause of repair cancels them")
    with refusing(stage.resources.plane, stage.namespace, "jobs", "no Jobs on Sundays"):
        _pause(stage, "false")
        until(
            lambda: stage.condition("RecoveryBlocked").get("status") == "True",
            stage.operator,
            "that Jobs are refused is told",
        )
        assert "no Jobs on Sundays" in stage.condition("RecoveryBlocked")["message"]
    until(lambda: len(stage.jobs()) == 2, stage.operator, "they are tried again")
    until(
        lambda: stage.condition("RecoveryBlocked")["status"] == "False",
        stage.operator,
        "and that is told as well",
    )
    before = set(stage.jobs())
    _change(stage, '{"image":"local/bookie:2"}')
    until(
        lambda: [_image(job) for job in stage.jobs().values()] == ["local/bookie:2"] * 2,
        stage.operator,
        "no pod of theirs runs, so Jobs with the other image take their places",
    )
    assert not before & set(stage.jobs())


def test_a_job_whose_pod_is_refused_says_why_it_does_not_start(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Jobs of Kubernetes fail silently: their events alone tell."""
    manifest = pool_manifest()
    manifest["metadata"] |= {"namespace": namespace}
    made = job_manifest(
        manifest,
        spec_of(manifest, PoolDefaults("local/bookie:1", "zk:2181")),
        ClusterRef("zk:2181", "daybook"),
        NewJob("bk-recovery-1", (7,), ("7:1:1",)),
        operator_speaks_tls=False,
    )
    made["metadata"]["ownerReferences"] = []

    async def troubles() -> tuple[str, ...]:
        configuration = load_configuration(control_plane.kubeconfig)
        kube = Kube(configuration, threads=1, timeout_s=30, metrics=OperatorMetrics())
        try:
            return await problems_of(kube, await kube.listing("Job", namespace), unix_ms())
        finally:
            kube.close()

    with refusing(control_plane, namespace, "pods", "no pods on Sundays"):
        control_plane.apply(
            [
                {
                    **service_account(manifest, RECOVERY),
                    "metadata": {"name": "bk-recovery", "namespace": namespace},
                },
                made,
            ]
        )
        until(lambda: bool(asyncio.run(troubles())), what="the Job's event is heard")
        (said,) = asyncio.run(troubles())
    assert said.startswith(f"Job {namespace}/bk-recovery-1: ")
    assert "no pods on Sundays" in said


def _image(job: Any) -> str:
    return str(job.spec.template.spec.containers[0].image)


def _pause(stage: Stage, word: str) -> None:
    _change(stage, f'{{"recovery":{{"paused":{word}}}}}')


def _change(stage: Stage, spec: str) -> None:
    patch = f'{{"spec":{spec}}}'
    stage.resources.plane.kubectl(
        "patch", "bookiepool", "bk", "-n", stage.namespace, "--type=merge", "-p", patch
    )
