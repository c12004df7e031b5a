"""A topic's ledgers over real bookies and ZooKeeper: rule 38, rule 50 and rule 51 as the broker carries them out."""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from daybook_broker.topics.managed_ledger import TopicLedgers

import daybook
from daybook.core.errors import (
    DaybookError,
    EntryTooLargeError,
    NoSuchLedgerError,
    NoSuchTopicError,
    NotOwnerError,
)
from daybook.core.ids import ENTRY_BYTES_MAX, LedgerId
from daybook.core.quorum import Quorum
from daybook.core.topics.events import ListKnown, Published, PublishFailed, TopicEnded
from daybook.core.topics.ledger_list import LedgerList, ListState, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.policy import LedgerTerms
from daybook.core.topics.trimming import Retention
from daybook.core.topics.unnamed import made_by
from daybook.metadata.topics import TopicManager
from tests.fixtures.cluster import Connect

pytestmark = pytest.mark.integration

TERMS = LedgerTerms(Quorum(3, 3, 2), go_on_without_spare=True, is_degraded=False)
ROLLS = ManagedLedgerPolicy(entries_max=2, age_ms_min=0)


class Publisher:
    """Publishes to a topic, and records what became of it."""

    def __init__(self, name: TopicName, client: daybook.Client, policy: ManagedLedgerPolicy) -> None:
        self.unanswered: deque[bytes] = deque()
        self.published: dict[Position, bytes] = {}
        self.failed: list[bytes] = []
        self.lists: list[LedgerList] = []
        self.ended: list[DaybookError | None] = []
        self._changed = asyncio.Event()
        self.token = uuid.uuid4().hex
        self.topic = TopicLedgers(
            name, self.token, client, terms=lambda: TERMS, policy=policy, on_result=self._take
        )
        self.topic.start()

    def _take(self, result: ListKnown | Published | PublishFailed | TopicEnded) -> None:
        match result:
            case ListKnown():
                self.lists.append(result.ledger_list)
            case Published():
                for entry in range(result.first_entry, result.first_entry + result.count):
                    self.published[Position(result.ledger_id, entry)] = self.unanswered.popleft()
            case PublishFailed():
                self.failed += [self.unanswered.popleft() for _ in range(result.count)]
            case TopicEnded():
                self.ended.append(result.error)
        self._changed.set()

    def publish(self, *payloads: bytes) -> None:
        """Publish without waiting."""
        self.topic.publish(payloads)
        self.unanswered += payloads

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a result made `condition` true."""
        async with asyncio.timeout(40):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def answered(self) -> None:
        """Wait until everything is answered."""
        await self.until(lambda: not self.unanswered)


@asynccontextmanager
async def publisher(
    name: TopicName, client: daybook.Client, policy: ManagedLedgerPolicy | None = None
) -> AsyncIterator[Publisher]:
    """A publisher whose topic is served."""
    found = Publisher(name, client, policy or ManagedLedgerPolicy())
    try:
        await found.until(lambda: found.lists)
        yield found
    finally:
        await found.topic.close()


@pytest.fixture
async def name(client: daybook.Client) -> TopicName:
    """A topic that no other test uses."""
    found = TopicName("public", "default", uuid.uuid4().hex)
    await TopicManager(client.store, client.layout).create(found)
    return found


async def contents(client: daybook.Client, name: TopicName) -> dict[Position, bytes]:
    """What is in the topic."""
    stored = await TopicManager(client.store, client.layout).read(name, sync=True)
    found: dict[Position, bytes] = {}
    for ledger in stored.value.ledgers:
        reader = await client.open_ledger(ledger.ledger_id)
        async for entry in reader.read():
            found[Position(ledger.ledger_id, entry.entry_id)] = bytes(entry.data)
    return found


async def test_what_is_published_is_in_the_ledgers_of_the_list(
    client: daybook.Client, name: TopicName
) -> None:
    async with publisher(name, client) as one:
        for number in range(50):
            one.publish(b"%d" % number, b"%d more" % number)
        await one.answered()
        assert list(one.published.values())[:3] == [b"0", b"0 more", b"1"]
        assert len(one.published) == 100
        (ledger,) = one.lists[-1].ledgers
        metadata = (await client.ledgers.read(ledger.ledger_id)).value
        assert metadata.custom_metadata == made_by(str(name), one.token)
        one.topic.unload()
        await one.until(lambda: one.ended)
        assert one.ended == [None]
        with pytest.raises(NotOwnerError):
            one.publish(b"late")
    stored = await TopicManager(client.store, client.layout).read(name)
    assert stored.value.state is ListState.CLOSED
    assert stored.value.last_confirmed == Position(ledger.ledger_id, 99)
    assert await contents(client, name) == one.published


async def test_rule_38_a_new_owner_has_all_that_was_acknowledged_and_the_old_one_stops(
    connect: Connect, name: TopicName
) -> None:
    async with connect() as first_client, connect() as second_client:
        async with publisher(name, first_client) as first:
            first.publish(b"a", b"b")
            await first.answered()
            async with publisher(name, second_client) as second:
                first.publish(b"c")
                await first.until(lambda: first.ended)
                assert first.failed == [b"c"]
                assert isinstance(first.ended[0], NotOwnerError)
                second.publish(b"d")
                await second.answered()
                expected = {**first.published, **second.published}
        assert await contents(second_client, name) == expected
        assert sorted(expected) == list(expected)


async def test_rule_50_after_the_ledger_was_fenced_messages_go_on_in_the_next_one(
    connect: Connect, name: TopicName
) -> None:
    async with connect() as client, connect() as auditor, publisher(name, client) as one:
        one.publish(b"a", b"b")
        await one.answered()
        ledger_id = one.lists[-1].ledgers[-1].ledger_id
        await auditor.recover((await auditor.ledgers.read(ledger_id)).value)
        one.publish(b"c", b"d")
        one.publish(b"e")
        await one.answered()
        assert list(one.published.values()) == [b"a", b"b", b"c", b"d", b"e"]
        assert [position.entry_id for position in one.published] == [0, 1, 0, 1, 2]
        one.topic.unload()
        await one.until(lambda: one.ended)
        assert await contents(client, name) == one.published


async def test_rule_51_full_ledgers_are_rolled_trimmed_and_deleted(
    client: daybook.Client, name: TopicName
) -> None:
    async with publisher(name, client, ROLLS) as one:
        for number in range(6):
            one.publish(b"%d" % number)
            await one.answered()
        ids = [ledger.ledger_id for ledger in one.lists[-1].ledgers]
        assert [ledger.entries for ledger in one.lists[-1].ledgers] == [2, 2, 0]
        # the third one is full, too, and a trim that cannot begin at once is dropped
        await one.until(lambda: one.lists[-1].state is ListState.CLOSED)
        one.topic.trim((Position(ids[0], 1),), Retention())
        await one.until(lambda: one.lists[-1].ledgers[0].ledger_id == ids[1])
        one.topic.unload()
        await one.until(lambda: one.ended)
        kept = {position: data for position, data in one.published.items() if position.ledger_id != ids[0]}
        assert await contents(client, name) == kept


async def test_the_deletion_of_what_was_trimmed_outlives_the_owner(
    client: daybook.Client, name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_delete, deleted, delete = asyncio.Event(), asyncio.Event(), client.delete_ledger

    async def delete_later(ledger_id: LedgerId) -> None:
        await may_delete.wait()
        await delete(ledger_id)
        deleted.set()

    monkeypatch.setattr(client, "delete_ledger", delete_later)
    async with publisher(name, client, ROLLS) as one:
        for number in range(3):
            one.publish(b"%d" % number)
            await one.answered()
        first, second = [ledger.ledger_id for ledger in one.lists[-1].ledgers]
        one.topic.trim((Position(first, 1),), Retention())
        await one.until(lambda: one.lists[-1].ledgers[0].ledger_id == second)
    may_delete.set()
    async with asyncio.timeout(40):
        await deleted.wait()
    with pytest.raises(NoSuchLedgerError):
        await client.ledgers.read(first, sync=True)


async def test_an_entry_that_no_ledger_takes_is_refused_before_it_is_sent(
    client: daybook.Client, name: TopicName
) -> None:
    async with publisher(name, client) as one:
        with pytest.raises(EntryTooLargeError):
            one.topic.publish([bytes(ENTRY_BYTES_MAX + 1)])
        one.publish(b"a")
        await one.answered()
        assert one.topic.has_room


async def test_a_topic_that_does_not_exist_is_not_served(client: daybook.Client) -> None:
    one = Publisher(TopicName("public", "default", "nowhere"), client, ManagedLedgerPolicy())
    await one.until(lambda: one.ended)
    assert isinstance(one.ended[0], NoSuchTopicError)
    await one.topic.close()


async def test_after_an_error_of_its_own_a_topic_stops_and_says_so(
    client: daybook.Client, name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with publisher(name, client) as one:
        monkeypatch.setattr(client, "create_ledger", None)
        one.publish(b"a")
        await one.until(lambda: one.ended)
        with pytest.raises(DaybookError, match="stopped after an error of the broker"):
            one.publish(b"b")
        one.topic.tick()
        assert len(one.ended) == 1
