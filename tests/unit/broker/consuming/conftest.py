"""A broker that the tests of this folder share, in a thread of its own, and Pulsar's client of it."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pulsar
import pytest
from daybook_broker.broker import Broker
from daybook_broker.topics.subscription import Subscription
from daybook_broker.topics.topic import Topic

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from tests.unit.broker.kit import LIMIT_S, running_broker

T = TypeVar("T")

UNACKED_MAX = 40
"""Messages that a consumer of these tests may leave unacknowledged."""


class ServedBroker:
    """A broker on an event loop of its own, for tests that wait for Pulsar's client."""

    def __init__(self, cluster: LocalCluster, **changes: Any) -> None:
        self._cluster = cluster
        self._changes = changes
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="broker")
        self.broker: Broker
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with running_broker(self._cluster, **self._changes) as self.broker:
            self._is_ready.set()
            await self._stop.wait()

    def start(self) -> "ServedBroker":
        self._thread.start()
        assert self._is_ready.wait(LIMIT_S), "the broker does not start"
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LIMIT_S)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work` on the broker's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def client(self) -> pulsar.Client:
        return pulsar.Client(self.broker.service_url, operation_timeout_seconds=int(LIMIT_S))

    def serves(self, name: str) -> bool:
        return self.broker.registry.get(TopicName.parse(name)) is not None

    def topic(self, name: str) -> Topic:
        found = self.broker.registry.get(TopicName.parse(name))
        assert found is not None
        return found

    def subscription(self, topic: str, name: str) -> Subscription:
        return self.topic(topic).subscriptions.get(name)


@pytest.fixture(scope="package")
def served(cluster: LocalCluster) -> Iterator[ServedBroker]:
    """The broker of this folder's tests; do not stop it."""
    broker = ServedBroker(cluster, unacked_consumer_max=UNACKED_MAX).start()
    yield broker
    broker.stop()


@pytest.fixture(scope="package")
def client(served: ServedBroker) -> Iterator[pulsar.Client]:
    """A client that these tests share."""
    client = served.client()
    yield client
    client.close()
