"""The list of topics while somebody deletes some of them."""

import pytest

from daybook.cli.topic.listing import topic_records
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.name import TopicName
from daybook.metadata.layout import Layout
from daybook.metadata.policies import PolicyManager
from daybook.metadata.store.store import MetadataStore, Versioned
from daybook.metadata.topics import TopicManager
from tests.unit.metadata.harness import formatted, memory_opener, stores


class Racing(TopicManager):
    """Deletes what is named after a step of the listing just before that step, as another client may."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        super().__init__(store, layout)
        self._others = TopicManager(store, layout)
        self._policies = PolicyManager(store, layout)

    async def namespaces(self, tenant: str) -> tuple[str, ...]:
        if tenant == "namespaces":
            await self._policies.delete_tenant(tenant)
        return await super().namespaces(tenant)

    async def topics(self, tenant: str, namespace: str) -> tuple[TopicName, ...]:
        if namespace == "topics":
            await self._policies.delete_namespace(tenant, namespace)
        return await super().topics(tenant, namespace)

    async def read(self, name: TopicName, *, sync: bool = False) -> Versioned[LedgerList]:
        if name.local == "read":
            await self._others.delete(name, 0)
        return await super().read(name, sync=sync)

    async def cursors(self, name: TopicName) -> tuple[str, ...]:
        if name.local == "cursors":
            await self._others.delete(name, 0)
        return await super().cursors(name)


async def test_what_is_deleted_meanwhile_is_left_out_and_all_else_is_listed() -> None:
    async with stores(memory_opener()[1], 1) as (store,):
        layout = await formatted(store)
        policies, racing = PolicyManager(store, layout), Racing(store, layout)
        await policies.create_tenant("namespaces")
        await policies.create_namespace("public", "topics")
        for name in ("a", "cursors", "read", "z"):
            await racing.create(TopicName("public", "default", name))
        found = [record["topic"] async for record in topic_records(racing, None)]
        assert found == ["persistent://public/default/a", "persistent://public/default/z"]


async def test_a_namespace_that_is_named_has_to_exist() -> None:
    async with stores(memory_opener()[1], 1) as (store,):
        layout = await formatted(store)
        await PolicyManager(store, layout).create_namespace("public", "topics")
        with pytest.raises(NoSuchTopicError, match="namespace public/topics does not exist"):
            _ = [record async for record in topic_records(Racing(store, layout), "public/topics")]
