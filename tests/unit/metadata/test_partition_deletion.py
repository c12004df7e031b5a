"""The record of a partitioned topic while the topic is deleted: nobody creates a partition that nobody would delete."""

import json
from typing import Any

import pytest

from daybook.core.errors import MetadataError, NoSuchTopicError, TopicExistsError
from daybook.core.topics.name import TopicName
from daybook.metadata.partitions import Deletion, PartitionedTopic, PartitionManager, partition
from daybook.metadata.topics import TopicManager
from tests.unit.metadata.harness import LAYOUT, Opener, formatted, stores

ORDERS = TopicName("public", "default", "orders")
UNFINISHED = "is being deleted, and its deletion is not finished: ask for the deletion again"


def test_the_record_says_that_a_deletion_has_begun_only_while_one_has() -> None:
    plain = PartitionedTopic(2, {"x": 1})
    assert "deletion" not in json.loads(plain.to_json())
    begun = PartitionedTopic(2, {"x": 1}, Deletion.FORCED)
    assert json.loads(begun.to_json()) == {"x": 1, "formatVersion": 1, "partitions": 2, "deletion": "forced"}
    for record in (plain, begun):
        assert PartitionedTopic.from_json(record.to_json()) == record
    with pytest.raises(MetadataError, match="'later' is not a valid Deletion"):
        PartitionedTopic.from_json(b'{"formatVersion":1,"partitions":2,"deletion":"later"}')


async def test_a_topic_that_is_being_deleted_gets_no_partitions_and_is_not_created_again(
    opener: Opener,
) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        partitions = PartitionManager(store, LAYOUT)
        await partitions.create(ORDERS, 2)
        await partitions.create_partition(ORDERS, 0)
        with pytest.raises(TopicExistsError):
            await partitions.create_partition(ORDERS, 0)
        with pytest.raises(NoSuchTopicError, match=r"has 2 partitions, and .* is none of them"):
            await partitions.create_partition(ORDERS, 2)
        begun = await partitions.begin_deletion(ORDERS, force=True)
        for call in (partitions.create_partition(ORDERS, 1), partitions.grow(ORDERS, 3)):
            with pytest.raises(NoSuchTopicError, match=UNFINISHED):
                await call
        with pytest.raises(TopicExistsError, match=UNFINISHED):
            await partitions.create(ORDERS, 2)
        await partitions.delete(ORDERS, begun.version)
        with pytest.raises(NoSuchTopicError, match="has 0 partitions"):
            await partitions.create_partition(ORDERS, 1)


async def test_a_deletion_may_be_begun_again_and_stays_forced(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        partitions = PartitionManager(store, LAYOUT)
        await partitions.create(ORDERS, 2)
        gentle = await partitions.begin_deletion(ORDERS, force=False)
        assert gentle.value.deletion is Deletion.IF_UNUSED
        assert await partitions.begin_deletion(ORDERS, force=False) == gentle
        forced = await partitions.begin_deletion(ORDERS, force=True)
        assert forced.value.deletion is Deletion.FORCED
        assert await partitions.begin_deletion(ORDERS, force=False) == forced
        await partitions.give_deletion_up(ORDERS, gentle)
        assert await partitions.read(ORDERS) == forced, "somebody else deletes the topic by force since"
        with pytest.raises(MetadataError, match="changed by another client meanwhile"):
            await partitions.delete(ORDERS, gentle.version)


async def test_a_topic_whose_deletion_is_given_up_is_as_it_was(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        partitions = PartitionManager(store, LAYOUT)
        await partitions.create(ORDERS, 2)
        before = await partitions.read(ORDERS)
        assert before is not None
        await partitions.give_deletion_up(ORDERS, await partitions.begin_deletion(ORDERS, force=False))
        after = await partitions.read(ORDERS)
        assert after is not None
        assert after.value == before.value
        await partitions.create_partition(ORDERS, 1)


async def test_rule_67_a_deletion_that_begins_while_a_partition_is_created_comes_first(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        partitions, topics = PartitionManager(store, LAYOUT), TopicManager(store, LAYOUT)
        await partitions.create(ORDERS, 2)
        create = TopicManager.create

        async def late(self: TopicManager, name: TopicName, **rest: Any) -> None:
            await partitions.begin_deletion(ORDERS, force=True)
            await create(self, name, **rest)

        monkeypatch.setattr(TopicManager, "create", late)
        with pytest.raises(NoSuchTopicError, match=UNFINISHED):
            await partitions.create_partition(ORDERS, 0)
        with pytest.raises(NoSuchTopicError):
            await topics.read(partition(ORDERS, 0))


async def test_a_partition_is_created_although_the_topic_grows_meanwhile(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        partitions, topics = PartitionManager(store, LAYOUT), TopicManager(store, LAYOUT)
        await partitions.create(ORDERS, 2)
        create = TopicManager.create
        sizes = [3, 4]

        async def late(self: TopicManager, name: TopicName, **rest: Any) -> None:
            if sizes:
                await partitions.grow(ORDERS, sizes.pop(0))
            await create(self, name, **rest)

        monkeypatch.setattr(TopicManager, "create", late)
        await partitions.create_partition(ORDERS, 0)
        assert (await topics.read(partition(ORDERS, 0))).version == 0
        sizes += range(10, 30)
        with pytest.raises(MetadataError, match="changed by another client meanwhile"):
            await partitions.create_partition(ORDERS, 1)
