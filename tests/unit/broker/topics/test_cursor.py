"""Cursors over real bookies and ZooKeeper: rule 38 and rule 40 as the broker carries them out."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from daybook_broker.topics.cursor import SubscriptionCursor

import daybook
from daybook.core.errors import (
    DaybookError,
    MetadataError,
    NoSuchLedgerError,
    NoSuchTopicError,
    NotOwnerError,
)
from daybook.core.ids import LedgerId
from daybook.core.quorum import Quorum
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.cursor_record import LEDGER_RANGES_MAX, NO_LEDGER, CursorRecord
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import LedgerList, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import LedgerTerms
from daybook.core.topics.unnamed import made_by
from daybook.metadata.store.store import Versioned
from daybook.metadata.topics import TopicManager
from tests.fixtures.cluster import Connect
from tests.unit.core.topics.lists import extent_of

pytestmark = pytest.mark.integration

TERMS = LedgerTerms(Quorum(3, 3, 2), go_on_without_spare=True, is_degraded=False)
BEGIN = CursorRecord(Position(1, -1), properties={"made": "by a test"})
AT_ONCE = CursorPolicy(persist_ms=0)
IDLE_AT_ONCE = CursorPolicy(persist_ms=0, idle_ms=0)
SUBSCRIPTION = "billing/π".replace("/", "-")


def at(entry: int) -> Position:
    return Position(1, entry)


class Owner:
    """A broker that has taken a topic over, as far as its cursors notice."""

    def __init__(self, client: daybook.Client, name: TopicName, extent: TopicExtent | None = None) -> None:
        self.client = client
        self.name = name
        self.extent = extent or extent_of((1, 100))
        self.topics = TopicManager(client.store, client.layout)
        self.token = uuid.uuid4().hex
        self.list = Versioned(LedgerList(), -1)
        self.ended: list[DaybookError] = []

    async def take_over(self) -> "Owner":
        self.list = await self.topics.read(self.name, sync=True)
        await self.write_list()
        return self

    async def write_list(self) -> None:
        created_at_ms = self.list.value.last_ledger_created_at_ms + 1
        target = replace(self.list.value, owner_token=self.token, last_ledger_created_at_ms=created_at_ms)
        self.list = await self.topics.cas(self.name, self.list, target)

    def cursor(
        self,
        *,
        initial: CursorRecord | None = None,
        policy: CursorPolicy | None = None,
        name: str = SUBSCRIPTION,
    ) -> SubscriptionCursor:
        return SubscriptionCursor(
            self.name,
            name,
            self.client,
            self.extent,
            owner_token=self.token,
            list_version=self.list.version,
            terms=lambda: TERMS,
            initial=initial,
            policy=policy,
            on_ended=self.ended.append,
        )

    async def node(self) -> CursorRecord:
        return (await self.topics.read_cursor(self.name, SUBSCRIPTION)).value

    @asynccontextmanager
    async def holding(
        self, initial: CursorRecord | None = None, policy: CursorPolicy | None = None
    ) -> AsyncIterator[SubscriptionCursor]:
        """An open cursor, which its broker drops in the end without closing it."""
        cursor = self.cursor(initial=initial, policy=policy)
        try:
            async with asyncio.timeout(40):
                await cursor.open()
            yield cursor
        finally:
            await cursor.abandon()


async def flush(cursor: SubscriptionCursor) -> None:
    """Flush while time passes for the cursor, as its topic sees to."""
    async with asyncio.timeout(40):
        waiting = asyncio.create_task(cursor.flush())
        while not waiting.done():
            cursor.tick()
            await asyncio.wait([waiting], timeout=0.05)
        await waiting


@pytest.fixture
async def owner(client: daybook.Client) -> Owner:
    """The owner of a topic that no other test uses."""
    name = TopicName("public", "default", uuid.uuid4().hex)
    await TopicManager(client.store, client.layout).create(name)
    return await Owner(client, name).take_over()


async def test_rule_40_what_was_persisted_outlives_the_broker(owner: Owner) -> None:
    async with owner.holding(BEGIN) as cursor:
        assert cursor.persisted == at(-1)
        cursor.acks.ack_through(at(4))
        cursor.acks.ack(at(7))
        cursor.acks.ack_batch(at(9), (0b101,), 3)
        await flush(cursor)
        assert cursor.persisted == at(4)
        ledger_id = (await owner.node()).cursor_ledger
        metadata = (await owner.client.ledgers.read(ledger_id)).value
        assert metadata.custom_metadata == made_by(str(owner.name), owner.token, SUBSCRIPTION)
        cursor.acks.ack(at(5))
        await flush(cursor)
        cursor.acks.ack(at(6))
    await owner.take_over()
    async with owner.holding() as again:
        assert again.persisted == again.acks.mark_delete == at(5), "the last one was not persisted"
        assert again.acks.is_acked(at(7))
        assert again.acks.ack_set(at(9)) == (0b101,)
        assert again.acks.properties == {"made": "by a test"}
        await again.close()
        assert again.error is None
    node = await owner.node()
    assert (node.mark_delete, node.cursor_ledger) == (at(5), NO_LEDGER)
    with pytest.raises(NoSuchLedgerError):
        await owner.client.ledgers.read(ledger_id, sync=True)


async def test_rule_40_of_10001_holes_all_but_the_last_survive_a_restart(owner: Owner) -> None:
    owner.extent = extent_of((1, 20_010))
    async with owner.holding(BEGIN) as cursor:
        for hole in range(LEDGER_RANGES_MAX + 1):
            cursor.acks.ack(at(2 * hole + 1))
        await flush(cursor)
    async with owner.holding() as again:
        assert again.acks.range_count == LEDGER_RANGES_MAX
        assert not again.acks.is_acked(at(2 * LEDGER_RANGES_MAX + 1))


async def test_rule_40_a_cursor_whose_ledger_is_gone_falls_back_to_its_node(owner: Owner) -> None:
    async with owner.holding(BEGIN) as cursor:
        for entry in (0, 1):
            cursor.acks.ack(at(entry))
            await flush(cursor)
    await owner.client.delete_ledger((await owner.node()).cursor_ledger)
    async with owner.holding() as again:
        assert again.acks.mark_delete == at(0)
        again.acks.ack(at(1))
        await flush(again)
        assert again.persisted == at(1)


async def test_rule_38_a_superseded_broker_persists_nothing_more(connect: Connect, owner: Owner) -> None:
    async with owner.holding(BEGIN) as cursor, connect() as client:
        cursor.acks.ack(at(0))
        await flush(cursor)
        second = await Owner(client, owner.name).take_over()
        async with second.holding() as other:
            assert other.acks.mark_delete == at(0)
            cursor.acks.ack(at(1))
            with pytest.raises(NotOwnerError):
                await flush(cursor)
            assert cursor.persisted == at(0)
            assert [type(error) for error in owner.ended] == [NotOwnerError]
            with pytest.raises(NotOwnerError):
                await flush(cursor)
            cursor.tick()
            await cursor.close()
            other.acks.ack(at(1))
            await flush(other)
        with pytest.raises(NotOwnerError):
            await cursor.delete()


async def test_the_owners_own_change_of_the_list_stops_no_cursor(owner: Owner) -> None:
    async with owner.holding(BEGIN, IDLE_AT_ONCE) as cursor:
        await owner.write_list()
        cursor.acks.ack(at(0))
        await flush(cursor)
        await owner.write_list()
        cursor.list_changed(owner.list.version)
        cursor.acks.ack(at(1))
        await flush(cursor)
        assert (await owner.node()).mark_delete == at(1)
        assert not owner.ended


async def test_a_tick_persists_what_moved_and_an_idle_cursor_costs_nothing(owner: Owner) -> None:
    async with owner.holding(BEGIN, AT_ONCE) as cursor:
        tasks = asyncio.all_tasks()
        cursor.tick()
        assert asyncio.all_tasks() == tasks
        cursor.acks.ack(at(0))
        cursor.tick()
        assert asyncio.all_tasks() > tasks
        await flush(cursor)
        assert cursor.persisted == at(0)
        await flush(cursor)


async def test_the_deletion_of_a_ledger_that_was_replaced_outlives_the_owner(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = owner.client
    may_delete, deleted, delete = asyncio.Event(), asyncio.Event(), client.delete_ledger

    async def delete_later(ledger_id: LedgerId) -> None:
        await may_delete.wait()
        await delete(ledger_id)
        deleted.set()

    monkeypatch.setattr(client, "delete_ledger", delete_later)
    async with owner.holding(BEGIN, CursorPolicy(persist_ms=0, entries_max=1)) as cursor:
        cursor.acks.ack(at(0))
        await flush(cursor)
        replaced = (await owner.node()).cursor_ledger
        cursor.acks.ack(at(1))
        await flush(cursor)
        assert (await owner.node()).cursor_ledger not in (replaced, NO_LEDGER)
    may_delete.set()
    async with asyncio.timeout(40):
        await deleted.wait()
    with pytest.raises(NoSuchLedgerError):
        await client.ledgers.read(replaced, sync=True)


async def test_a_seek_is_durable_once_it_is_flushed(owner: Owner) -> None:
    async with owner.holding(BEGIN) as cursor:
        cursor.acks.ack_through(at(50))
        await flush(cursor)
        cursor.acks.reset(at(10))
        assert cursor.persisted == at(10)
        await flush(cursor)
        assert (await owner.node()).mark_delete == at(10)
    async with owner.holding() as again:
        assert again.acks.mark_delete == at(10)


async def test_a_subscription_is_created_once_and_deleted(owner: Owner) -> None:
    async with owner.holding(BEGIN) as cursor:
        cursor.acks.ack(at(3))
        await flush(cursor)
        ledger_id = (await owner.node()).cursor_ledger
        async with owner.holding(CursorRecord(at(77))) as same:
            assert same.acks.mark_delete == at(-1)
        await cursor.delete()
    assert await owner.topics.cursors(owner.name) == ()
    with pytest.raises(NoSuchLedgerError):
        await owner.client.ledgers.read(ledger_id, sync=True)
    with pytest.raises(NoSuchTopicError):
        await owner.cursor().open()
    await owner.topics.delete(owner.name, owner.list.version)
    with pytest.raises(NotOwnerError):
        await owner.cursor(initial=BEGIN).open()


async def test_a_broker_that_stops_at_once_says_so_to_whoever_waits(owner: Owner) -> None:
    cursor = owner.cursor(initial=BEGIN)
    await cursor.open()
    cursor.acks.ack(at(0))
    waiting = asyncio.create_task(cursor.flush())
    await asyncio.sleep(0)
    await cursor.abandon()
    with pytest.raises(NotOwnerError, match="not served by this broker any more"):
        await waiting
    assert owner.ended == []
    never_opened = owner.cursor()
    await never_opened.close()
    await never_opened.abandon()


async def test_after_an_error_of_its_own_a_cursor_stops_and_says_so(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with owner.holding(BEGIN) as cursor:
        monkeypatch.setattr(owner.client, "create_ledger", None)
        cursor.acks.ack(at(0))
        with pytest.raises(DaybookError, match="stopped after an error of the broker"):
            await flush(cursor)
        assert len(owner.ended) == 1
        cursor.acks.ack(at(1))
        cursor.tick()
        assert cursor.persisted == at(-1)


async def test_an_error_in_a_step_ends_the_cursor_and_not_who_lets_time_pass(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        msg = "a range is not beyond the mark-delete position"
        raise MetadataError(msg)

    async with owner.holding(BEGIN, IDLE_AT_ONCE) as cursor:
        cursor.acks.ack(at(0))
        with monkeypatch.context() as patch:
            patch.setattr(AckState, "record", fails)
            cursor.tick()
        await asyncio.sleep(0)
        assert [type(error) for error in owner.ended] == [DaybookError]
        with pytest.raises(DaybookError, match="stopped after an error of the broker"):
            await cursor.flush()
    async with owner.holding() as again:
        assert again.acks.mark_delete == at(-1)


async def test_a_ledger_that_failed_is_replaced(owner: Owner) -> None:
    policy = CursorPolicy(persist_ms=0, retry_ms=0)
    async with owner.holding(BEGIN, policy) as cursor:
        cursor.acks.ack(at(0))
        await flush(cursor)
        first = (await owner.node()).cursor_ledger
        await owner.client.recover((await owner.client.ledgers.read(first)).value)
        cursor.acks.ack(at(1))
        await flush(cursor)
        assert cursor.persisted == at(1)
        assert (await owner.node()).cursor_ledger > first


async def test_holes_that_the_node_has_no_room_for_stay_in_a_ledger_that_is_closed(owner: Owner) -> None:
    owner.extent = extent_of((1, 20_010))
    async with owner.holding(BEGIN) as cursor:
        for hole in range(1_001):
            cursor.acks.ack(at(2 * hole + 1))
        await cursor.close()
        assert cursor.error is None
    ledger_id = (await owner.node()).cursor_ledger
    assert (await owner.client.ledgers.read(ledger_id)).value.is_closed
    async with owner.holding() as again:
        assert again.acks.range_count == 1_001
