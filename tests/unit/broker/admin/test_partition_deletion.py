"""The deletion of a partitioned topic over real HTTP, while clients use it, partitions move, and brokers fail."""

import asyncio
from typing import Any

import pulsar
import pytest
from daybook_broker.ownership.api import Elsewhere, LookupResult

from daybook.core.errors import MetadataUnavailableError, NoSuchTopicError
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.partitions import partition
from tests.unit.broker.admin.kit import TOPICS, Admin, admins, new_namespace, owner_of
from tests.unit.broker.kit import LIMIT_S, with_pulsar

pytestmark = pytest.mark.integration

PARTITIONS = 4


async def create(admin: Admin) -> tuple[TopicName, str, str]:
    """A new topic with partitions, the path of its namespace, and its own."""
    name = TopicName(*new_namespace(), "orders")
    root = f"{TOPICS}/{name.tenant}/{name.namespace}"
    await admin.do("PUT", f"{root}/orders/partitions", PARTITIONS)
    return name, root, f"{root}/orders"


async def test_rule_67_partitions_that_clients_use_do_not_come_back_while_they_are_deleted_by_force(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admins(cluster, 1) as (admin,):
        name, root, path = await create(admin)
        broker, loop = admin.broker, asyncio.get_running_loop()
        last = partition(name, PARTITIONS - 1)
        came_back: set[TopicName] = set()
        all_came_back = asyncio.Event()
        create_topic, delete_topic = broker.registry._create, broker.topics.delete

        async def note(wanted: TopicName) -> None:
            try:
                await create_topic(wanted)
            finally:
                came_back.add(wanted)
                if len(came_back) == PARTITIONS - 1:
                    all_came_back.set()

        async def delete(deleted: TopicName, version: int) -> None:
            if deleted == last:
                async with asyncio.timeout(LIMIT_S):
                    await all_came_back.wait()
            await delete_topic(deleted, version)

        monkeypatch.setattr(broker.registry, "_create", note)
        monkeypatch.setattr(broker.topics, "delete", delete)

        def use(client: pulsar.Client) -> None:
            client.subscribe(str(name), "s")
            producer = client.create_producer(str(name))
            for number in range(2 * PARTITIONS):
                producer.send(b"%d" % number)
            came_back.clear()
            ended = asyncio.run_coroutine_threadsafe(
                admin.do("DELETE", f"{path}/partitions", force="true"), loop
            )
            ended.result(LIMIT_S)
            left = asyncio.run_coroutine_threadsafe(admin.get(root), loop).result(LIMIT_S)
            assert left == []

        await with_pulsar(broker, use)
        assert await broker.partitions.read(name) is None
        assert await broker.topics.topics(name.tenant, name.namespace) == ()
        assert (await admin.refused("DELETE", f"{path}/partitions"))[0] == 404


async def test_a_partition_that_comes_to_the_broker_meanwhile_is_deleted_too(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admins(cluster, 1) as (admin,):
        name, root, path = await create(admin)
        ownership = admin.broker.ownership
        lookup, moving = ownership.lookup, [partition(name, 1)]

        async def moves(topic: TopicName, **rest: Any) -> LookupResult:
            if topic in moving:
                moving.remove(topic)
                return Elsewhere(admin.broker._info(), is_owner=True, authoritative=False)
            return await lookup(topic, **rest)

        monkeypatch.setattr(ownership, "lookup", moves)
        await admin.do("DELETE", f"{path}/partitions")
        assert moving == []
        assert await admin.get(root) == []
        assert await admin.broker.partitions.read(name) is None


async def test_a_deletion_that_a_failure_ended_is_finished_by_the_next_request(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admins(cluster, 1) as (admin,):
        name, root, path = await create(admin)
        topics = admin.broker.topics
        delete_topic = topics.delete

        async def fails(deleted: TopicName, version: int) -> None:
            if deleted == partition(name, 2):
                msg = "ZooKeeper does not answer"
                raise MetadataUnavailableError(msg)
            await delete_topic(deleted, version)

        await admin.do("PUT", f"{path}-partition-3/subscription/s")
        with monkeypatch.context() as patch:
            patch.setattr(topics, "delete", fails)
            assert (await admin.refused("DELETE", f"{path}/partitions", force="true"))[0] == 503
        assert await admin.get(f"{path}/partitions") == {"partitions": PARTITIONS, "deleted": True}
        assert await admin.get(root) == [str(partition(name, 2)), str(partition(name, 3))]
        for method, rest, body, status in (
            ("PUT", "/partitions", PARTITIONS, 409),
            ("POST", "/partitions", 9, 404),
            ("PUT", "-partition-0", None, 404),
        ):
            found, reason = await admin.refused(method, path + rest, body)
            assert (found, "ask for the deletion again" in reason) == (status, True), reason
        with pytest.raises(NoSuchTopicError, match="its deletion is not finished"):
            await admin.broker.partitions_of(name, create=True)
        await admin.do("DELETE", f"{path}/partitions")
        assert await admin.get(root) == []
        await admin.do("PUT", f"{path}/partitions", 2)
        assert await admin.get(f"{path}/partitions") == {"partitions": 2, "deleted": False}


async def test_a_subscription_of_the_last_partition_keeps_the_messages_of_all(cluster: LocalCluster) -> None:
    async with admins(cluster, 1) as (admin,):
        name, _, path = await create(admin)
        before = await admin.broker.topics.topics(name.tenant, name.namespace)
        await admin.do("PUT", f"{path}-partition-3/subscription/s")
        status, reason = await admin.refused("DELETE", f"{path}/partitions")
        assert (status, "1 subscriptions" in reason) == (412, True)
        assert await admin.broker.topics.topics(name.tenant, name.namespace) == before
        assert await admin.get(f"{path}/partitions") == {"partitions": PARTITIONS, "deleted": False}


async def test_a_deletion_that_is_refused_lets_the_topic_stay(cluster: LocalCluster) -> None:
    async with admins(cluster, 2) as brokers:
        name, root, path = await create(brokers[0])
        used = partition(name, PARTITIONS - 1)
        owner, (other,) = await owner_of(brokers, used)
        loop = asyncio.get_running_loop()
        refused: list[tuple[int, str]] = []

        async def refuse() -> None:
            refused.append(await other.refused("DELETE", f"{path}/partitions"))
            assert await other.get(f"{path}/partitions") == {"partitions": PARTITIONS, "deleted": False}

        def publish(client: pulsar.Client) -> None:
            producer = client.create_producer(str(used))
            asyncio.run_coroutine_threadsafe(refuse(), loop).result(LIMIT_S)
            producer.send(b"1")
            producer.close()

        await with_pulsar(owner.broker, publish)
        assert refused == [(412, f"topic {used} has 1 producers: close them first, or delete it by force")]
        await other.do("DELETE", f"{path}/partitions", force="true")
        assert await other.get(root) == []
