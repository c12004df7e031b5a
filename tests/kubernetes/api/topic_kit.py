"""Topic resources on a real API server: a namespace with a pool, of which the topics' cluster has the bookies and the brokers."""

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from daybook.client.client import Client
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import PolicyLayer
from daybook.local.cluster import CLUSTER_NAME
from daybook.metadata.partitions import PartitionManager, partition
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from tests.cluster.control_plane import ControlPlane
from tests.fixtures.brokers import Brokers
from tests.kubernetes.api.operator_kit import (
    OperatorProcess,
    another_operator,
    condition,
    pool,
    topic,
    with_client,
)
from tests.kubernetes.api.rest import Resources

T = TypeVar("T")
_NUMBERS = count(1)


def new_namespace(prefix: str) -> str:
    """One that this process has not used: a worker may come back to a module."""
    return f"{prefix}-{os.getpid()}-{next(_NUMBERS)}"


@dataclass
class Site:
    """A namespace with a pool that is left alone; it stands for the bookies of a local cluster with brokers."""

    plane: ControlPlane
    resources: Resources
    zookeeper: str
    directory: Path

    @property
    def namespace(self) -> str:
        """Of Kubernetes, and of the topics."""
        return self.resources.namespace

    def operator(self, **settings: str) -> OperatorProcess:
        """Another operator process of this namespace, not started."""
        return another_operator(self.plane, self.namespace, self.directory, self.zookeeper, **settings)

    def create(self, name: str, *, adopts: bool = False, **spec: Any) -> None:
        self.resources.create(topic(name, self.namespace, adopts=adopts, **spec))

    def patch(self, name: str, patch: str) -> None:
        self.plane.kubectl("patch", "topic", name, "-n", self.namespace, "--type=merge", "-p", patch)

    def get(self, name: str) -> dict[str, Any]:
        """The resource; {} if it is gone."""
        return self.resources.find("Topic", name)

    def is_ready(self, name: str) -> bool:
        return condition(self.get(name), "Ready").get("status") == "True"

    def is_gone(self, name: str) -> bool:
        return self.get(name) == {}

    def reason(self, name: str, kind: str = "Ready") -> str | None:
        return condition(self.get(name), kind).get("reason")

    def has_reason(self, name: str, reason: str, kind: str = "Ready") -> bool:
        return self.reason(name, kind) == reason

    def topic_name(self, name: str) -> TopicName:
        return TopicName("public", self.namespace, name)

    def ask(self, work: Callable[[Client], Awaitable[T]]) -> T:
        return with_client(self.zookeeper, CLUSTER_NAME, work)

    def policy(self, name: TopicName) -> PolicyLayer | None:
        """What is set for a topic; None: there is no such topic."""

        async def read(client: Client) -> PolicyLayer | None:
            try:
                return (await PolicyManager(client.store, client.layout).topic(name)).value
            except NoSuchTopicError:
                return None

        return self.ask(read)

    def partitions(self, name: TopicName) -> int | None:
        async def read(client: Client) -> int | None:
            found = await PartitionManager(client.store, client.layout).read(name)
            return None if found is None else found.value.partitions

        return self.ask(read)

    def made_by_a_client(self, name: TopicName, partitions: int = 0) -> None:
        """A topic that no resource knows of."""

        async def create(client: Client) -> None:
            topics = TopicManager(client.store, client.layout)
            if not partitions:
                await topics.create(name)
                return
            await PartitionManager(client.store, client.layout).create(name, partitions)
            for number in range(partitions):
                await topics.create(partition(name, number))

        self.ask(create)

    def deletion_begins(self, name: TopicName) -> None:
        """As a broker leaves it that fails before it has deleted a partition, or after the last one."""

        async def begin(client: Client) -> None:
            await PartitionManager(client.store, client.layout).begin_deletion(name, force=True)

        self.ask(begin)

    def pools_of_ledgers(self) -> set[str]:
        """The pools that the cluster's ledgers stay in."""

        async def read(client: Client) -> set[str]:
            return {found.value.pool async for found in client.list_ledgers()}

        return self.ask(read)

    def manager(self, name: TopicName) -> str | None:
        """The name of the resource that a topic's policy names; None: it names none."""
        policy = self.policy(name)
        return policy.managed_by.name if policy is not None and policy.managed_by is not None else None


@contextmanager
def made_site(plane: ControlPlane, namespace: str, brokers: Brokers, directory: Path) -> Iterator[Site]:
    plane.kubectl("create", "namespace", namespace)
    zookeeper = brokers.cluster.zookeeper.connect_string
    resources = Resources(plane, namespace)
    try:
        resources.create(pool("bk", zookeeper, CLUSTER_NAME, is_paused=True))
        yield Site(plane, resources, zookeeper, directory)
    finally:
        plane.kubectl("delete", "namespace", namespace, "--wait=false")
