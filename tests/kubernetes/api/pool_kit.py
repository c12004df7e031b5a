"""A pool on a real API server and a real ZooKeeper: the operator in this process, the kubelets' part played by hand.

The operator is the real one without its queue, so that a test says when it looks, or the whole of it as a process, which is
killed between any two writes; the next begins from what is true. Bookies are either registrations with
a cookie and a disk, which is all that the operator sees of them, or real processes where data has to move.
"""

import asyncio
import signal
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from daybook_operator.clusters.clusters import Clusters
from daybook_operator.clusters.context import LinkContext
from daybook_operator.kube.api import Kube, KubeError, load_configuration
from daybook_operator.kube.queue import BOOKIE_POOL, RECOVERY, Key
from daybook_operator.metrics import LabelledRegistries, OperatorMetrics
from daybook_operator.plan.conditions import find
from daybook_operator.reconcile.inventory import Inventory, keys_of_pool
from daybook_operator.reconcile.performer import EffectError, Performer
from daybook_operator.reconcile.pool import PoolReconciler
from daybook_operator.reconcile.recovery import RecoveryReconciler
from daybook_operator.reconcile.services import Services
from daybook_operator.settings import OperatorSettings
from kubernetes import client as kubernetes

from daybook.autorecovery.cluster import is_set_within
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.bookie.exits import EXIT_DISK_LOST, EXIT_FORGOTTEN
from daybook.core.errors import MetadataUnavailableError
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import BookieDirectory, Cookie
from daybook.metadata.claim import Claim
from daybook.metadata.layout import Layout
from daybook.metadata.registration import Registration
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.runtime.logs import get_logger
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pretend_nodes import PretendNodes
from tests.kubernetes.api.operator_kit import KILLED, PATIENCE_S, SESSION_MS, Noted, OperatorProcess
from tests.unit.bookie.service.process_kit import BookieProcess

_LOG = get_logger(__name__)
CLUSTER = "daybook"
LOOK_MS = 100
SAME_ENDS_MAX = 8
AUDITING = AutoRecoverySettings(
    audit_interval_ms=500, open_grace_ms=200, retry_first_ms=200, retry_max_ms=1000
)


class Bookies(Protocol):
    """What runs in the pods."""

    async def run(self, ordinal: int, pod: Any) -> int | str | None:
        """Start or look at a bookie: its exit code, "ready", or None while it starts."""

    async def stop(self, ordinal: int) -> None:
        """Its pod is deleted."""


@dataclass
class Site:
    """A namespace with nodes in three zones, a ZooKeeper, and the acts of kubelets."""

    plane: ControlPlane
    api: Any
    namespace: str
    nodes: PretendNodes
    zookeeper: str
    zones: tuple[str | None, ...] = ("zone-1", "zone-2", "zone-3")
    held_back: set[int] = field(default_factory=set)
    """Ordinals that the scheduler finds no node for."""

    def __post_init__(self) -> None:
        self.core = kubernetes.CoreV1Api(self.api)
        self.apps = kubernetes.AppsV1Api(self.api)
        self.custom = kubernetes.CustomObjectsApi(self.api)
        self.configuration = load_configuration(self.plane.kubeconfig)
        for number, zone in enumerate(self.zones):
            self.nodes.create_node(f"{self.namespace}-n{number}", zone=zone)

    def create(self, **spec: Any) -> None:
        body = {
            "apiVersion": "daybook.dev/v1alpha1",
            "kind": BOOKIE_POOL,
            "metadata": {"name": "bk", "namespace": self.namespace},
            "spec": {"storage": {"store": {"size": "1Gi"}}, **spec},
        }
        self.custom.create_namespaced_custom_object(
            "daybook.dev", "v1alpha1", self.namespace, "bookiepools", body
        )

    def change(self, **spec: Any) -> None:
        self.custom.patch_namespaced_custom_object(
            "daybook.dev", "v1alpha1", self.namespace, "bookiepools", "bk", {"spec": spec}
        )

    def pool(self) -> dict[str, Any]:
        found: dict[str, Any] = self.custom.get_namespaced_custom_object(
            "daybook.dev", "v1alpha1", self.namespace, "bookiepools", "bk"
        )
        return found

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.pool().get("status", {})
        return status

    def condition(self, type_: str) -> Any:
        return find(self.status.get("conditions", ()), type_) or {}

    def is_running(self, replicas: int) -> bool:
        """Whether so many bookies serve and everything is replicated."""
        status = self.status
        return (status.get("phase"), status.get("readyReplicas"), status.get("replicas")) == (
            "Running",
            replicas,
            replicas,
        ) and self.condition("FullyReplicated").get("status") == "True"

    def stateful_set(self) -> Any:
        return self.apps.read_namespaced_stateful_set("bk", self.namespace)

    def pods(self) -> dict[int, Any]:
        labels = "daybook.dev/pool=bk,app.kubernetes.io/component=bookie"
        found = self.core.list_namespaced_pod(self.namespace, label_selector=labels).items
        return {int(pod.metadata.name.removeprefix("bk-")): pod for pod in found}

    def claims(self) -> dict[str, Any]:
        found = self.core.list_namespaced_persistent_volume_claim(self.namespace).items
        return {claim.metadata.name: claim for claim in found}

    def bookie(self, ordinal: int) -> str:
        return f"{self.namespace}.bk-{ordinal}"

    async def attend(self, bookies: Bookies) -> None:
        """One round of all kubelets and the scheduler."""
        pods = self.pods()
        for ordinal, pod in sorted(pods.items()):
            name = pod.metadata.name
            if pod.metadata.deletion_timestamp is not None:
                await bookies.stop(ordinal)
                self.nodes.bury(self.namespace, name)
            elif pod.spec.node_name is None:
                if ordinal not in self.held_back:
                    self.nodes.bind(self.namespace, name, f"{self.namespace}-n{ordinal % len(self.zones)}")
            else:
                self._show(pod, await bookies.run(ordinal, pod))

    def _show(self, pod: Any, outcome: int | str | None) -> None:
        statuses = pod.status.container_statuses or []
        is_ready = bool(statuses) and statuses[0].ready
        if outcome == "ready" and not is_ready:
            self.nodes.run(self.namespace, pod.metadata.name)
        elif isinstance(outcome, int) and not (statuses and statuses[0].last_state.terminated):
            self.nodes.crash(self.namespace, pod.metadata.name, exit_code=outcome, message="its last words")

    async def with_directory(self, work: Callable[[BookieDirectory], Awaitable[Any]]) -> Any:
        """Run `work` on ZooKeeper's word about bookies."""
        store = await ZooKeeperStore.open(self.zookeeper)
        try:
            return await work(BookieDirectory(store, Layout(CLUSTER)))
        finally:
            await store.close()


class PretendBookies:
    """Bookies that are a cookie, a disk and a registration. `writable` False would be a full one."""

    def __init__(self, site: Site, store: MetadataStore) -> None:
        self._site = site
        self._store = store
        self._layout = Layout(CLUSTER)
        self._directory = BookieDirectory(store, self._layout)
        self.disks: set[str] = set()
        """UIDs of claims whose volume has data."""
        self.registered: dict[int, Registration] = {}
        self.unhealthy_images: set[str] = set()
        self.downs: list[frozenset[int]] = []
        """Who was down together, at each stop."""

    async def run(self, ordinal: int, pod: Any) -> int | str | None:
        if pod.spec.containers[0].image in self.unhealthy_images:
            return 1
        if ordinal in self.registered:
            return "ready"
        bookie = self._site.bookie(ordinal)
        disk = self._site.claims()[f"store-bk-{ordinal}"].metadata.uid
        owner = next(e.value for e in pod.spec.containers[0].env if e.name == "DAYBOOK_BOOKIE_OWNER_UID")
        exit_code = await self._claim_identity(bookie, disk, owner)
        if exit_code is not None:
            return exit_code
        place = (await self._directory.topology()).get(bookie)
        if place is None:
            return None
        info = BookieInfo(bookie, address="127.0.0.1:9", capacity_bytes=100, free_bytes=80)
        claim = Claim(self._store, self._layout, bookie, uuid.uuid4().hex)
        cookie = await self._directory.cookie(bookie)
        assert cookie is not None
        claim.incarnation = cookie.value.incarnation
        await claim.disks.read(claim.incarnation)
        self.registered[ordinal] = await Registration.register(
            self._store, self._layout, info, claim, on_superseded=lambda error: _LOG.error(str(error))
        )
        return "ready"

    async def _claim_identity(self, bookie: str, disk: str, owner: str) -> int | None:
        """Rule 29, as far as it is seen from outside; an exit code, or None if it may start."""
        node = await self._directory.cookie(bookie)
        fresh = Cookie(bookie, "instance", uuid.uuid4().hex, ("journal", "store"), owner)
        replacement = await self._directory.replacement(bookie)
        if (node is not None) != (disk in self.disks):
            if replacement is None:
                return EXIT_DISK_LOST if node is not None else EXIT_FORGOTTEN
            await self._store.multi(self._directory.stamping(fresh, over=node, leave=replacement))
        elif node is None:
            await self._store.multi(self._directory.stamping(fresh, over=None, leave=None))
        else:
            assert node.value.pool_uid == owner, "its cookie is of another pool"
        self.disks.add(disk)
        return None

    async def stop(self, ordinal: int) -> None:
        registration = self.registered.pop(ordinal, None)
        if registration is not None:
            await registration.close()
            self.downs.append(frozenset(self._site.pods()) - frozenset(self.registered))

    async def lose_disk(self, ordinal: int) -> None:
        """The process dies, and the volume is empty."""
        await self.stop(ordinal)
        self.disks.discard(self._site.claims()[f"store-bk-{ordinal}"].metadata.uid)


class RealBookies:
    """Bookies as processes of this machine, with the settings that their pods have."""

    def __init__(self, site: Site, directory: Path) -> None:
        self._site = site
        self._directory = directory
        self.processes: dict[int, BookieProcess] = {}

    async def run(self, ordinal: int, pod: Any) -> int | str | None:
        if ordinal not in self.processes:
            owner = next(e.value for e in pod.spec.containers[0].env if e.name == "DAYBOOK_BOOKIE_OWNER_UID")
            bookie = BookieProcess(
                self._directory / f"bk-{ordinal}",
                self._site.zookeeper,
                cluster=CLUSTER,
                bookie_id=self._site.bookie(ordinal),
                wait_for_topology=True,
                owner_uid=owner,
                session_timeout_ms=SESSION_MS,
                gc_interval_ms=500,
                drain_ms=500,
            )
            bookie.spawn()
            self.processes[ordinal] = bookie
        bookie = self.processes[ordinal]
        assert bookie.process is not None
        if (code := bookie.process.poll()) is not None:
            return code
        return "ready" if (bookie.directory / "ready.json").exists() else None

    async def stop(self, ordinal: int) -> None:
        bookie = self.processes.pop(ordinal, None)
        if bookie is not None:
            assert await asyncio.to_thread(bookie.end) == 0

    async def close(self) -> None:
        """End what is left, however it ends: a test that failed has said why."""
        for bookie in self.processes.values():
            await asyncio.to_thread(bookie.end)
        self.processes.clear()


class Operator:
    """The operator in this process."""

    def __init__(self, site: Site, bookies: Bookies) -> None:
        self.site = site
        self._bookies = bookies
        self._changed = asyncio.Event()
        self.trouble = ""

    async def __aenter__(self) -> Self:
        settings = OperatorSettings(
            kubeconfig=self.site.plane.kubeconfig,
            zookeeper=self.site.zookeeper,
            cluster=CLUSTER,
            bookie_image="local/bookie:1",
            full_audit_pause_ms=100,
            finalizer_bound_ms=2_000,
            recovery_look_ms=200,
        )
        metrics = OperatorMetrics()
        self._kube = Kube(self.site.configuration, threads=4, timeout_s=15, metrics=metrics)
        context = LinkContext(
            settings,
            AUDITING,
            "operator",
            LabelledRegistries("cluster"),
            lambda _: self._changed.set(),
            lambda *_: self._changed.set(),
        )
        self._clusters = Clusters(context)
        inventory = Inventory()
        self.performer = Performer(
            self._kube,
            self._clusters,
            metrics,
            "operator",
            namespaces=lambda: {key.namespace for key in inventory.pools()},
        )
        self._services = Services(
            self._kube,
            self._clusters,
            self.performer,
            settings,
            metrics,
            inventory,
            lambda _: self._changed.set(),
        )
        self._reconcilers = {
            BOOKIE_POOL: PoolReconciler(self._services).reconcile,
            RECOVERY: RecoveryReconciler(self._services).reconcile,
        }
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._clusters.close()
        self._kube.close()

    async def look(self) -> None:
        """One look at the pool and its repair; what fails is tried again at the next look, as by the queue."""
        for key in keys_of_pool(self.site.namespace, "bk"):
            try:
                await self._reconcile(key)
            except (EffectError, KubeError, MetadataUnavailableError) as error:
                self.trouble = f"{key}: {error}"

    async def _reconcile(self, key: Key) -> None:
        await self._reconcilers[key.kind](key)

    async def drive(self, until: Callable[[], bool], what: str = "") -> None:
        """Look, let kubelets act, and look again, until it is so."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    await self.look()
                    await self.site.attend(self._bookies)
                    if until():
                        return
                    self._changed.clear()
                    await is_set_within(self._changed, LOOK_MS)
        except TimeoutError as error:
            msg = f"never {what}: {self.trouble} {self.site.pool().get('status')}"
            raise AssertionError(msg) from error


def killable(site: Site, directory: Path) -> OperatorProcess:
    """The operator of the site as a process of its own.

    It waits for ZooKeeper as long as it takes: one that finds it slow says so in the status and in every budget, which
    the next one takes back, and two that write once each before they die would do nothing else.
    """
    return OperatorProcess(
        site.plane,
        site.namespace,
        directory,
        site.zookeeper,
        CLUSTER=CLUSTER,
        FULL_AUDIT_PAUSE_MS="100",
        ZOOKEEPER_TIMEOUT_MS=str(int(PATIENCE_S * 1000)),
    )


async def drive_killed(
    site: Site, bookies: Bookies, operator: OperatorProcess, until: Callable[[], bool], what: str
) -> list[Noted]:
    """Have it done by processes that are SIGKILLed between any two writes; the list of what they wrote.

    The first dies before its first write, each other before its second. After every SAME_ENDS_MAX of them that did the
    same, the next ones do a write more: on a slow machine two of them may take back each other's write for ever.
    """
    done: list[Noted] = []
    ends: Counter[tuple[str, ...]] = Counter()
    before = 1
    while True:
        operator.start_dying(before, steps=True)
        finished = await attend_until(site, bookies, operator, until, what)
        code = operator.end(signal.SIGKILL)
        assert code == KILLED, operator.tail()
        noted = operator.effects()
        done += [each for each in noted if each.done]
        if finished:
            assert done, f"nobody did anything, and yet {what}"
            return done
        assert not noted[-1].done, f"it ended by itself: {operator.tail()}"
        _LOG.info("killed", before=noted[-1].kind, after=[each.kind for each in noted[:-1]])
        end = tuple(each.kind for each in noted)
        ends[end] += 1
        before = 2 + ends[end] // SAME_ENDS_MAX


async def attend_until(
    site: Site, bookies: Bookies, operator: OperatorProcess, until: Callable[[], bool], what: str
) -> bool:
    """Let kubelets act until the operator is dead (False), or it is done (True)."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while operator.is_running():
                await site.attend(bookies)
                if until():
                    return True
                await is_set_within(asyncio.Event(), LOOK_MS)
    except TimeoutError as error:
        msg = f"never {what}: {site.pool().get('status')} {operator.tail()}"
        raise AssertionError(msg) from error
    return False
