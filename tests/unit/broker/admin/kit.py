"""Brokers with their admin ports, and a client of them."""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
from daybook_broker.admin.server import AdminServer
from daybook_broker.broker import Broker
from daybook_broker.metrics import BrokerMetrics
from prometheus_client import CollectorRegistry

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.runtime.ports import Address
from tests.unit.broker.kit import broker_settings, client_for_broker

NAMESPACE = "/admin/v2/namespaces"
TOPICS = "/admin/v2/persistent"


class Admin:
    """What asks the admin port of one broker."""

    def __init__(self, broker: Broker, session: aiohttp.ClientSession) -> None:
        self.broker = broker
        self._session = session

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        *,
        follow: bool = True,
    ) -> tuple[int, Any]:
        """The status and the decoded answer."""
        async with self._session.request(
            method,
            self.broker.admin_url + path,
            json=body,
            params=query,
            allow_redirects=follow,
            timeout=aiohttp.ClientTimeout(30),
        ) as answer:
            if answer.content_type == "application/json":
                return answer.status, await answer.json()
            return answer.status, answer.headers.get("Location") or await answer.text()

    async def get(self, path: str, **query: str) -> Any:
        """The answer of a request that is to work."""
        status, found = await self.ask("GET", path, query=query)
        assert status == 200, (status, found)
        return found

    async def do(self, method: str, path: str, body: object = None, **query: str) -> None:
        """Carry out a request that is to work and to have no answer."""
        assert await self.ask(method, path, body, query) == (204, "")

    async def refused(self, method: str, path: str, body: object = None, **query: str) -> tuple[int, str]:
        """The status and the reason of a request that is to be refused."""
        status, found = await self.ask(method, path, body, query)
        assert status >= 400, (status, found)
        return status, found["reason"]


@asynccontextmanager
async def admins(cluster: LocalCluster, number: int, **changes: Any) -> AsyncIterator[Sequence[Admin]]:
    """Registered brokers that know each other, and no other: those of earlier tests are gone once their sessions are."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        found = []
        for _ in range(number):
            settings = broker_settings(cluster, f"broker-{uuid.uuid4().hex[:8]}", **changes)
            client = await stack.enter_async_context(client_for_broker(settings))
            broker = Broker(settings, client, BrokerMetrics(CollectorRegistry()))
            server = AdminServer(broker)
            stack.push_async_callback(server.stop)
            address = await server.start(Address("127.0.0.1", 0))
            await broker.start(admin_url=f"http://{address}")
            stack.push_async_callback(broker.stop)
            found.append(Admin(broker, session))
        started = {admin.broker.settings.broker_id for admin in found}
        for admin in found:
            ownership = admin.broker.ownership
            while started != ownership.view.brokers.keys() or ownership.view.leader is None:
                await ownership._members.changed()
        yield found


async def owner_of(brokers: Sequence[Admin], name: TopicName) -> tuple[Admin, list[Admin]]:
    """The owner of a topic, and the other brokers."""
    path = f"/lookup/v2/topic/persistent/{name.tenant}/{name.namespace}/{name.local}"
    found = await brokers[0].get(path)
    (owner,) = [each for each in brokers if each.broker.service_url == found["brokerUrl"]]
    return owner, [each for each in brokers if each is not owner]


def new_namespace() -> tuple[str, str]:
    """A tenant and a namespace that no other test uses."""
    return f"t-{uuid.uuid4().hex[:8]}", "ns"
