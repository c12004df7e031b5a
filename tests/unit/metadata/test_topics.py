"""Topics in the store: rule 28 (listing), rule 38 (only the owner writes) and rule 42 of docs/protocol.md."""

import asyncio
from dataclasses import replace

import pytest

from daybook.core.errors import (
    MetadataError,
    NoSuchTopicError,
    NotOwnerError,
    TopicExistsError,
    TopicNameError,
)
from daybook.core.topics.cursor_record import NODE_RANGES_MAX, AckedRange, CursorRecord
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, ListState, Position
from daybook.core.topics.name import TopicName
from daybook.metadata.layout import decode_name, encode_name
from daybook.metadata.store.memory import Fault, FaultKind
from daybook.metadata.store.store import BadVersionError, NoNodeError, Put, Versioned
from daybook.metadata.topics import TopicManager
from daybook.metadata.tree import IncompleteListingError
from tests.unit.metadata.harness import LAYOUT, Opener, formatted, memory_opener, stores

ORDERS = TopicName("public", "default", "orders")
STRANGE = ["orders", ".", "..", "%2E", "größe ☃", "a b", "a\tb\x01", "zookeeper", "q?#&=%2F", "x" * 1024]
"""Last parts of names that Pulsar allows."""


def opened(found: Versioned[LedgerList], token: str, ledger_id: int = 3) -> LedgerList:
    """The list after its owner has created a ledger."""
    ledger = ListedLedger(ledger_id, created_at_ms=1)
    return replace(
        found.value, state=ListState.OPEN, ledgers=(*found.value.ledgers, ledger), owner_token=token
    )


@pytest.mark.parametrize("name", STRANGE)
def test_any_name_is_one_node_and_comes_back(name: str) -> None:
    node = encode_name(name)
    assert "/" not in node
    assert node.isascii()
    assert node.isprintable()
    assert node not in {".", ".."}
    assert decode_name(node) == name


@pytest.mark.parametrize("node", ["", "a b", "%e4", "%", "%2e", ".", "ä", "%FF"])
def test_a_node_that_no_name_makes_is_none(node: str) -> None:
    with pytest.raises(ValueError, match=r"node of a name|utf-8"):
        decode_name(node)


async def test_a_topic_is_created_once_with_its_policy(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        managers = [TopicManager(one, layout), TopicManager(two, layout)]
        results = await asyncio.gather(
            *(managers[n % 2].create(ORDERS, {"partitions": n}) for n in range(4)), return_exceptions=True
        )
        created = [found for found in results if isinstance(found, Versioned)]
        assert len(created) == 1
        assert [type(found) for found in results].count(TopicExistsError) == 3
        assert await managers[1].read(ORDERS, sync=True) == created[0]
        policy = await managers[0].policy(ORDERS)
        assert policy.value == {"partitions": results.index(created[0])}
        assert await managers[0].cursors(ORDERS) == ()


async def test_what_is_not_there_is_named(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, await formatted(store))
        nowhere = Versioned(LedgerList(), 0)
        cursor = Versioned(CursorRecord(), 0)
        for call in (
            manager.read(ORDERS),
            manager.cas(ORDERS, nowhere, opened(nowhere, "t")),
            manager.delete(ORDERS, 0),
            manager.policy(ORDERS),
            manager.set_policy(ORDERS, Versioned({}, 0), {}),
            manager.cursors(ORDERS),
            manager.read_cursor(ORDERS, "s"),
            manager.create_cursor(ORDERS, "s", CursorRecord(), list_version=0),
            manager.put_cursor(ORDERS, "s", cursor, CursorRecord(), list_version=0),
            manager.delete_cursor(ORDERS, "s", list_version=0),
            manager.namespaces("public"),
            manager.topics("public", "default"),
        ):
            with pytest.raises(NoSuchTopicError, match=r"does not exist|no subscription"):
                await call


async def test_rule_38_the_loser_of_a_change_learns_that_another_broker_owns_the_topic(
    opener: Opener,
) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        first, second = TopicManager(one, layout), TopicManager(two, layout)
        created = await first.create(ORDERS)
        theirs = await second.cas(ORDERS, created, replace(created.value, owner_token="second"))
        with pytest.raises(NotOwnerError, match="look the topic up again"):
            await first.cas(ORDERS, created, opened(created, "first"))
        with pytest.raises(MetadataError, match="id above"):
            await second.cas(ORDERS, theirs, opened(theirs, "second", ledger_id=-1))
        mine = await second.cas(ORDERS, theirs, opened(theirs, "second"))
        assert mine.version == 2
        assert await first.read(ORDERS, sync=True) == mine


async def test_rule_38_only_the_owner_writes_cursors(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        first, second = TopicManager(one, layout), TopicManager(two, layout)
        created = await first.create(ORDERS)
        cursor = await first.create_cursor(ORDERS, "s", CursorRecord(), list_version=0)
        cursor = await first.put_cursor(
            ORDERS, "s", cursor, replace(cursor.value, mark_delete=Position(1, 1)), list_version=0
        )
        assert await second.read_cursor(ORDERS, "s") == cursor
        taken = await second.cas(ORDERS, created, replace(created.value, owner_token="second"))
        late = replace(cursor.value, mark_delete=Position(1, 2))
        for call in (
            first.put_cursor(ORDERS, "s", cursor, late, list_version=0),
            first.create_cursor(ORDERS, "late", late, list_version=0),
            first.delete_cursor(ORDERS, "s", list_version=0),
        ):
            with pytest.raises(NotOwnerError):
                await call
        assert await second.read_cursor(ORDERS, "s") == cursor
        with pytest.raises(TopicExistsError, match="subscription 's' already"):
            await second.create_cursor(ORDERS, "s", late, list_version=taken.version)
        await second.delete_cursor(ORDERS, "s", list_version=taken.version)
        assert await second.cursors(ORDERS) == ()


async def test_rule_40_a_cursors_node_takes_so_many_ranges_and_says_what_it_took() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, await formatted(store))
        await manager.create(ORDERS)
        cursor = await manager.create_cursor(ORDERS, "s", CursorRecord(), list_version=0)
        ranges = tuple(AckedRange(1, 2 * n, 2 * n) for n in range(NODE_RANGES_MAX + 1))
        stored = await manager.put_cursor(
            ORDERS, "s", cursor, replace(cursor.value, ranges=ranges), list_version=0
        )
        assert stored.value.ranges == ranges[:-1]
        assert await manager.read_cursor(ORDERS, "s") == stored


async def test_subscriptions_of_any_name_are_listed(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, await formatted(store))
        await manager.create(ORDERS)
        names = (*STRANGE, "a/b")
        for name in names:
            await manager.create_cursor(ORDERS, name, CursorRecord(), list_version=0)
        assert await manager.cursors(ORDERS) == tuple(sorted(names))
        with pytest.raises(TopicNameError):
            await manager.create_cursor(ORDERS, " ", CursorRecord(), list_version=0)


async def test_topics_of_any_name_are_listed_by_namespace(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, await formatted(store))
        assert await manager.tenants() == ()
        for tenant, namespace in (("public", "default"), ("public", ".."), ("a=b", "default")):
            for local in STRANGE:
                await manager.create(TopicName(tenant, namespace, local))
        assert await manager.tenants() == ("a=b", "public")
        assert await manager.namespaces("public") == ("..", "default")
        expected = tuple(TopicName("public", "..", local) for local in sorted(STRANGE))
        assert await manager.topics("public", "..") == expected
        with pytest.raises(TopicNameError, match="cannot name a tenant"):
            await manager.namespaces("a/b")


async def test_rule_28_a_foreign_node_or_a_missing_directory_is_an_error_never_a_shorter_list() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, LAYOUT)
        assert await manager.tenants() == (), "a cluster that was formatted by a release without topics"
        await formatted(store)
        await manager.create(ORDERS)
        await store.create(f"{LAYOUT.namespace('public', 'default')}/not encoded")
        with pytest.raises(IncompleteListingError, match="remove nodes that do not belong there"):
            await manager.topics("public", "default")
        await store.delete(LAYOUT.cursors(ORDERS))
        with pytest.raises(IncompleteListingError, match="is missing"):
            await manager.cursors(ORDERS)


async def test_rule_38_only_the_owner_raises_the_epoch_of_exclusive_producers(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        manager = TopicManager(store, layout)
        with pytest.raises(NoSuchTopicError):
            await manager.put_epoch(ORDERS, 0, list_version=0)
        created = await manager.create(ORDERS)
        assert await manager.epoch(ORDERS) is None
        await manager.put_epoch(ORDERS, 0, list_version=0)
        await manager.cas(ORDERS, created, opened(created, "t"))
        with pytest.raises(NotOwnerError):
            await manager.put_epoch(ORDERS, 1, list_version=0)
        await manager.put_epoch(ORDERS, 1, list_version=1)
        assert await manager.epoch(ORDERS) == 1
        await store.put(layout.topic_epoch(ORDERS), b"x", None)
        with pytest.raises(MetadataError, match="is no number"):
            await manager.epoch(ORDERS)


async def test_a_topic_without_ledgers_is_deleted_with_all_that_is_below_it(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        manager = TopicManager(store, layout)
        created = await manager.create(ORDERS)
        await manager.create_cursor(ORDERS, "s", CursorRecord(), list_version=0)
        await manager.put_epoch(ORDERS, 3, list_version=0)
        with_ledger = await manager.cas(ORDERS, created, opened(created, "t"))
        with pytest.raises(NotOwnerError):
            await manager.delete(ORDERS, created.version)
        with pytest.raises(MetadataError, match="still has 1 ledgers"):
            await manager.delete(ORDERS, with_ledger.version)
        ledger = replace(with_ledger.value.ledgers[0], closed_at_ms=2)
        closed = replace(with_ledger.value, state=ListState.CLOSED, ledgers=(ledger,))
        trimmed = await manager.cas(
            ORDERS, await manager.cas(ORDERS, with_ledger, closed), replace(closed, ledgers=())
        )
        await manager.delete(ORDERS, trimmed.version)
        assert await manager.topics("public", "default") == ()
        with pytest.raises(NoNodeError):
            await store.get(layout.topic(ORDERS))
        assert (await manager.create(ORDERS)).version == 0, "the name is free again"


async def test_a_topic_that_is_taken_over_while_it_is_deleted_stays() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, await formatted(store))
        created = await manager.create(ORDERS)
        taken = Put(LAYOUT.topic(ORDERS), replace(created.value, owner_token="b").to_json(), None)
        server.inject(
            Fault(FaultKind.REFUSE, "children", LAYOUT.cursors(ORDERS), then=lambda: server.apply([taken], 0))
        )
        with pytest.raises(NotOwnerError):
            await manager.delete(ORDERS, created.version)
        assert (await manager.read(ORDERS)).value.owner_token == "b"


async def test_the_policy_is_changed_by_people_without_the_owners_knowledge(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, await formatted(store))
        created = await manager.create(ORDERS)
        before = await manager.policy(ORDERS)
        after = await manager.set_policy(ORDERS, before, {"retentionMs": 5})
        assert await manager.policy(ORDERS) == after
        with pytest.raises(BadVersionError):
            await manager.set_policy(ORDERS, before, {})
        assert await manager.read(ORDERS) == created, "the list is the owner's"


@pytest.mark.parametrize(("data", "what"), [(b"{", "no JSON"), (b"[]", "no JSON object")])
async def test_a_policy_that_cannot_be_read_is_an_error(data: bytes, what: str) -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, await formatted(store))
        await manager.create(ORDERS)
        await store.put(LAYOUT.topic_policy(ORDERS), data, None)
        with pytest.raises(MetadataError, match=what):
            await manager.policy(ORDERS)


@pytest.mark.parametrize("kind", [FaultKind.REFUSE, FaultKind.DROP_REPLY])
async def test_rule_42_what_was_created_before_its_reply_was_lost_is_recognised_as_own(
    kind: FaultKind,
) -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = TopicManager(store, await formatted(store))
        server.inject(Fault(kind, "multi"))
        created = await manager.create(ORDERS)
        assert await manager.read(ORDERS) == created
        server.inject(Fault(kind, "multi"))
        cursor = await manager.create_cursor(ORDERS, "s", CursorRecord(), list_version=0)
        assert await manager.read_cursor(ORDERS, "s") == cursor
        server.inject(Fault(kind, "multi"))
        moved = replace(cursor.value, mark_delete=Position(2, 2))
        cursor = await manager.put_cursor(ORDERS, "s", cursor, moved, list_version=0)
        assert await manager.read_cursor(ORDERS, "s") == cursor
