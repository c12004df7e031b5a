"""A broker that loses ZooKeeper: it lets its clients go if another one serves, and keeps them if nobody does (rule 46)."""

import asyncio
from typing import Any

import pytest
from daybook_broker.broker import Broker
from daybook_broker.cut_off import PATIENCE_SESSIONS, WHY, CutOff, is_certain
from daybook_broker.errors import NotReadyError

from daybook.core.errors import DaybookError
from daybook.local.cluster import LocalCluster
from daybook.metadata.brokers import BrokerInfo
from daybook.metadata.store.memory import MemoryServer
from daybook.runtime.clock import monotonic_s
from daybook.wire.pulsar.pulsar_pb2 import ServerError
from tests.unit.broker.admin.kit import admins
from tests.unit.broker.kit import frame_client, new_topic, running_broker
from tests.unit.broker.ownership.kit import Cluster, cluster
from tests.unit.metadata.harness import memory_opener, soon
from tests.unit.runtime.suspension import Suspension

SESSION_S = 10.0
PATIENCE_S = PATIENCE_SESSIONS * SESSION_S


class Connections:
    """What becomes of the clients of a broker."""

    def __init__(self) -> None:
        self.refusal: DaybookError | None = None
        self.changed = asyncio.Event()

    def __len__(self) -> int:
        return 3

    def refuse(self, why: DaybookError | None) -> None:
        self.refusal = why
        self.changed.set()


class Watched:
    """A broker of two that watches its session; `asked` are those that it asked, `serving` is what they say."""

    def __init__(self, server: MemoryServer, brokers: Cluster) -> None:
        self.server = server
        self.connections = Connections()
        self.serving = True
        self.asked: list[str] = []
        self.was_asked = asyncio.Event()
        kept: Any = self.connections
        self.task = asyncio.create_task(
            CutOff(brokers[0].ownership, kept, SESSION_S, self._serves).run(), name="cut off"
        )

    async def _serves(self, info: BrokerInfo) -> bool:
        self.asked.append(info.broker)
        self.was_asked.set()
        return self.serving


async def test_rule_46_clients_are_let_go_once_another_broker_is_certain_of_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, opener = memory_opener(session_timeout_s=SESSION_S)
    async with cluster(opener, 2) as brokers:
        watched = Watched(server, brokers)
        suspension = Suspension(monkeypatch)
        server.suspend()
        due = brokers[0].store.session.alive_until + PATIENCE_S
        suspension.lasts(SESSION_S + PATIENCE_S - 1.0)
        await soon(watched.connections.changed.wait())
        assert monotonic_s() >= due, "until then ZooKeeper may answer nobody"
        assert str(watched.connections.refusal) == WHY
        assert watched.asked == ["broker-1"], "it does not ask itself"
        watched.connections.changed.clear()
        server.resume()
        await soon(watched.connections.changed.wait())
        assert watched.connections.refusal is None
        watched.task.cancel()


async def test_rule_46_clients_are_kept_while_zookeeper_answers_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, opener = memory_opener(session_timeout_s=SESSION_S)
    async with cluster(opener, 2) as brokers:
        watched = Watched(server, brokers)
        watched.serving = False
        suspension = Suspension(monkeypatch)
        server.suspend()
        suspension.lasts(SESSION_S + PATIENCE_S)
        await soon(watched.was_asked.wait())
        server.resume()
        server.suspend()
        watched.was_asked.clear()
        watched.serving = True
        suspension.lasts(SESSION_S + PATIENCE_S)
        await soon(watched.was_asked.wait())
        await soon(watched.connections.changed.wait())
        assert watched.connections.refusal is not None, "the second time it is cut off alone"
        watched.task.cancel()


@pytest.mark.integration
async def test_clients_that_are_let_go_come_back_when_they_may(cluster: LocalCluster) -> None:
    async with running_broker(cluster) as broker:
        async with frame_client(broker) as client:
            await client.produce(new_topic())
            broker.connections.refuse(NotReadyError(WHY))
            await client.ended()
        async with frame_client(broker, connect=False) as refused:
            answer = (await refused.receive()).error
            assert (answer.error, answer.message) == (ServerError.ServiceNotReady, WHY)
            await refused.ended()
        broker.connections.refuse(None)
        async with frame_client(broker) as client:
            await client.produce(new_topic())


@pytest.mark.integration
async def test_rule_46_a_broker_in_doubt_is_not_ready_and_says_so_to_the_others(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admins(cluster, 1) as (admin,):
        broker: Broker = admin.broker
        info = broker.ownership.info
        assert broker.unready() is None
        assert await is_certain(info)
        monkeypatch.setattr(type(broker.ownership), "is_certain", property(lambda _: False))
        assert "may have ended" in (broker.unready() or "")
        assert not await is_certain(info)
        assert broker.problem() is None, "what is asked of it is answered"
        assert "doubt" not in await admin.get("/admin/v2/clusters")
    assert not await is_certain(info), "a broker that stopped"
