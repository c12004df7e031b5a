"""Tenants, namespaces, policies and partitioned topics in the store."""

import asyncio

import pytest

from daybook.core.errors import MetadataError, NoSuchTopicError, PolicyError, TopicExistsError, TopicNameError
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import Degrade, Durability, Policy, PolicyLayer
from daybook.metadata.partitions import PARTITIONS_MAX, PartitionManager, partition, partition_of
from daybook.metadata.policies import PolicyManager
from daybook.metadata.store.store import BadVersionError, NotEmptyError, Versioned
from daybook.metadata.topics import TopicManager
from tests.unit.metadata.harness import LAYOUT, Opener, formatted, memory_opener, stores

ORDERS = TopicName("public", "default", "orders")


async def test_a_namespace_is_created_once_and_deleted_when_it_is_empty(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        policies, topics = PolicyManager(store, LAYOUT), TopicManager(store, LAYOUT)
        results = await asyncio.gather(
            *(policies.create_namespace("acme", "eu") for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results].count(TopicExistsError) == 2
        await policies.create_tenant("other")
        with pytest.raises(TopicExistsError, match="tenant acme exists already"):
            await policies.create_tenant("acme")
        assert await topics.tenants() == ("acme", "other")
        created = await topics.create(TopicName("acme", "eu", "t"))
        with pytest.raises(NotEmptyError, match="still has topics"):
            await policies.delete_namespace("acme", "eu")
        with pytest.raises(NotEmptyError, match="still has namespaces"):
            await policies.delete_tenant("acme")
        await topics.delete(TopicName("acme", "eu", "t"), created.version)
        await policies.delete_namespace("acme", "eu")
        await policies.delete_tenant("acme")
        for call in (policies.delete_namespace("acme", "eu"), policies.delete_tenant("acme")):
            with pytest.raises(NoSuchTopicError, match="does not exist"):
                await call
        with pytest.raises(TopicNameError):
            await policies.create_tenant("a/b")


async def test_the_policy_of_a_topic_is_its_own_then_its_namespaces_then_the_brokers(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        policies, topics = PolicyManager(store, LAYOUT, Policy(ttl_ms=1)), TopicManager(store, LAYOUT)
        await topics.create(ORDERS)
        assert await policies.of(ORDERS) == Policy(ttl_ms=1)
        empty = await policies.namespace("public", "default")
        assert empty.value == PolicyLayer(), "a namespace that began with its first topic sets nothing"
        await policies.set_namespace("public", "default", empty, PolicyLayer(ttl_ms=2, retention_ms=2))
        with pytest.raises(BadVersionError):
            await policies.set_namespace("public", "default", empty, PolicyLayer())
        own = await policies.topic(ORDERS)
        await policies.set_topic(ORDERS, own, PolicyLayer(ttl_ms=3, unknown_fields={"later": 1}))
        assert await policies.of(ORDERS) == Policy(ttl_ms=3, retention_ms=2)
        assert (await policies.topic(ORDERS)).value.unknown_fields == {"later": 1}
        with pytest.raises(BadVersionError):
            await policies.set_topic(ORDERS, own, PolicyLayer())


async def test_what_does_not_go_together_is_refused_and_named_where_it_came_to_be_later(
    opener: Opener,
) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        policies, topics = PolicyManager(store, LAYOUT), TopicManager(store, LAYOUT)
        sync = PolicyLayer(durability=Durability.SYNC)
        with pytest.raises(PolicyError):
            await policies.create_namespace("public", "default", sync)
        await policies.create_namespace("public", "default", PolicyLayer(degrade=Degrade.NEVER))
        await topics.create(ORDERS)
        await policies.set_topic(ORDERS, await policies.topic(ORDERS), sync)
        namespace = await policies.namespace("public", "default")
        with pytest.raises(PolicyError):
            await policies.set_namespace("public", "default", namespace, sync)
        await policies.set_namespace("public", "default", namespace, PolicyLayer())
        with pytest.raises(PolicyError, match=r"of its namespace do not go together .*serves it with"):
            await policies.of(ORDERS)
        with pytest.raises(PolicyError, match="degrade=never"):
            await policies.set_topic(ORDERS, await policies.topic(ORDERS), sync)


async def test_policies_that_are_not_there_or_cannot_be_read_are_errors() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        policies, topics = PolicyManager(store, LAYOUT), TopicManager(store, LAYOUT)
        nothing = Versioned(PolicyLayer(), 0)
        for call in (
            policies.of(ORDERS),
            policies.topic(ORDERS),
            policies.set_topic(ORDERS, nothing, PolicyLayer()),
            policies.namespace("public", "default"),
            policies.set_namespace("public", "default", nothing, PolicyLayer()),
        ):
            with pytest.raises(NoSuchTopicError, match="does not exist"):
                await call
        await topics.create(ORDERS, {"ttlMs": "x"})
        with pytest.raises(MetadataError, match="ttlMs='x'"):
            await policies.topic(ORDERS)
        for data in (b"{", b"[1]", b'{"ttlMs":-5}'):
            await store.put(LAYOUT.namespace("public", "default"), data, None)
            with pytest.raises(MetadataError, match="policy of namespace public/default cannot be read"):
                await policies.namespace("public", "default")


async def test_a_partitioned_topic_is_created_once_and_grows(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        partitions = PartitionManager(store, LAYOUT)
        assert await partitions.read(ORDERS) is None
        assert await partitions.topics("public", "default") == ()
        results = await asyncio.gather(
            *(partitions.create(ORDERS, 3) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results].count(TopicExistsError) == 2
        await partitions.create(TopicName("public", "default", "a/b".replace("/", "?")), 1)
        assert await partitions.topics("public", "default") == (TopicName("public", "default", "a?b"), ORDERS)
        await partitions.grow(ORDERS, 5)
        found = await partitions.read(ORDERS)
        assert found is not None
        assert found.value.partitions == 5
        for number in (5, 4):
            with pytest.raises(PolicyError, match="can only grow"):
                await partitions.grow(ORDERS, number)
        await partitions.delete(ORDERS, found.version)
        assert await partitions.read(ORDERS) is None
        for call in (
            partitions.delete(ORDERS, 0),
            partitions.begin_deletion(ORDERS, force=True),
            partitions.grow(ORDERS, 9),
        ):
            with pytest.raises(NoSuchTopicError, match="does not exist"):
                await call


async def test_what_cannot_be_partitioned_is_refused() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        partitions = PartitionManager(store, LAYOUT)
        for number in (0, -1, PARTITIONS_MAX + 1):
            with pytest.raises(PolicyError, match=f"use 1 to {PARTITIONS_MAX}"):
                await partitions.create(ORDERS, number)
        with pytest.raises(TopicNameError, match="cannot have partitions"):
            await partitions.create(partition(ORDERS, 0), 2)
        await TopicManager(store, LAYOUT).create(ORDERS)
        with pytest.raises(TopicExistsError, match="without partitions"):
            await partitions.create(ORDERS, 2)
        await store.create(
            LAYOUT.partitioned_topic(TopicName("public", "default", "odd")), b"{}", parents=True
        )
        with pytest.raises(MetadataError):
            await partitions.read(TopicName("public", "default", "odd"))


def test_a_partition_is_recognised_by_its_name() -> None:
    assert partition_of(partition(ORDERS, 12)) == (ORDERS, 12)
    for local in ("orders", "-partition-1", "orders-partition-", "orders-partition-01", "orders-partition-x"):
        assert partition_of(TopicName("public", "default", local)) is None
