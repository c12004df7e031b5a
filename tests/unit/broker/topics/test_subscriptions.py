"""All subscriptions of a topic, with cursors of the test's own."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from daybook_broker.errors import NoSuchSubscriptionError, NotAllowedError, NotReadyError, TooManyError
from daybook_broker.topics.consumer import Consumer, ConsumerWish, SubscriptionKind
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.subscription import Subscription
from daybook_broker.topics.subscriptions import Subscriptions, SubscriptionWish
from daybook_broker.totals import Totals

from daybook.core.errors import DaybookError, MetadataUnavailableError, NoSuchTopicError, NotOwnerError
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState, Position

LAST = Position(3, 9)


class Cursor:
    """A cursor in memory; it opens once a test lets it."""

    def __init__(
        self,
        bench: "Bench",
        name: str,
        initial: CursorRecord | None,
        on_ended: Callable[[DaybookError], None],
    ) -> None:
        self.bench = bench
        self.name = name
        self.initial = initial
        self.end = on_ended
        self.is_open = False
        self.calls: list[str] = []
        self.versions: list[int] = []
        self.acks = AckState(bench.extent, initial)

    @property
    def persisted(self) -> Position:
        return self.acks.mark_delete if self.is_open else NO_POSITION

    async def open(self) -> None:
        self.bench.has_begun.set()
        await self.bench.may_open.wait()
        if self.bench.failures:
            raise self.bench.failures.pop(0)
        self.is_open = True

    async def delete(self) -> None:
        self.calls.append("delete")
        self.bench.has_begun.set()
        await self.bench.may_delete.wait()
        if self.bench.failures:
            raise self.bench.failures.pop(0)

    async def close(self) -> None:
        self.calls.append("close")

    async def abandon(self) -> None:
        self.calls.append("abandon")

    async def flush(self) -> None:
        self.calls.append("flush")

    def tick(self) -> None:
        self.calls.append("tick")

    def list_changed(self, version: int) -> None:
        self.versions.append(version)


class Bench:
    """The subscriptions of one topic, which has ten entries."""

    def __init__(self, **settings: Any) -> None:
        ledger = ListedLedger(3, 0, entries=10, closed_at_ms=1)
        self.extent = TopicExtent(LedgerList(ListState.CLOSED, (ledger,), LAST))
        self.cursors: list[Cursor] = []
        self.may_open, self.may_delete = asyncio.Event(), asyncio.Event()
        self.may_open.set()
        self.may_delete.set()
        self.has_begun = asyncio.Event()
        """Whether a cursor is being opened or deleted, or was, since a test cleared it."""
        self.failures: list[DaybookError] = []
        reads: Any = None
        settings = {"subscriptions_max": 3, "consumers_max": 5, **settings}
        self.subscriptions = Subscriptions(
            "topic",
            self.extent,
            reads,
            self.cursor,
            make_compacted=lambda: reads,
            policy=DispatchPolicy(),
            **settings,
        )

    def cursor(
        self, name: str, initial: CursorRecord | None, on_ended: Callable[[DaybookError], None]
    ) -> Cursor:
        self.cursors.append(Cursor(self, name, initial, on_ended))
        return self.cursors[-1]

    def consumer(self, subscription: Subscription) -> tuple[Consumer, list[BrokerUrls | None]]:
        closed: list[BrokerUrls | None] = []
        peer: Any = None
        wish = ConsumerWish(1, "c", SubscriptionKind.SHARED)
        consumer = Consumer(wish, subscription, peer, Totals(), on_closed=lambda _, urls: closed.append(urls))
        subscription.add(consumer)
        return consumer, closed


async def test_a_new_subscription_begins_at_the_end_or_at_the_beginning() -> None:
    bench = Bench()
    await bench.subscriptions.subscribe(SubscriptionWish("late"))
    await bench.subscriptions.subscribe(
        SubscriptionWish("early", begins_early=True, properties=(("a", "b"),))
    )
    late, early = (cursor.initial for cursor in bench.cursors)
    assert late == CursorRecord(LAST)
    assert early == CursorRecord(Position(3, -1), properties={"a": "b"})
    assert bench.subscriptions.marks() == (LAST, Position(3, -1))


async def test_those_who_come_together_share_one_cursor() -> None:
    bench = Bench()
    wish = SubscriptionWish("s")
    first, second = await asyncio.gather(*(bench.subscriptions.subscribe(wish) for _ in range(2)))
    assert first is second is await bench.subscriptions.subscribe(wish)
    assert len(bench.cursors) == 1


async def test_rule_40_subscriptions_hold_the_trimming_from_before_they_are_open() -> None:
    bench = Bench()
    bench.may_open.clear()
    opening = asyncio.create_task(bench.subscriptions.open(["a", "b"]))
    assert bench.subscriptions.marks() == (NO_POSITION, NO_POSITION)
    bench.subscriptions.list_changed(7)
    assert [cursor.versions for cursor in bench.cursors] == [[7], [7]]
    bench.may_open.set()
    await opening
    await bench.subscriptions.opened()
    assert [each.name for each in bench.subscriptions.all()] == ["a", "b"]


async def test_rule_40_one_that_cannot_be_opened_holds_the_trimming_until_a_consumer_comes() -> None:
    bench = Bench()
    bench.failures = [MetadataUnavailableError("not now"), MetadataUnavailableError("not yet")]
    with pytest.raises(MetadataUnavailableError):
        await bench.subscriptions.open(["s"])
    assert bench.cursors[0].calls == ["abandon"]
    with pytest.raises(MetadataUnavailableError):
        await bench.subscriptions.subscribe(SubscriptionWish("s"))
    assert bench.subscriptions.marks() == (NO_POSITION,)
    await bench.subscriptions.subscribe(SubscriptionWish("s"))
    assert bench.subscriptions.get("s").cursor is bench.cursors[2]


async def test_one_that_could_not_be_created_and_one_that_is_gone_hold_nothing() -> None:
    bench = Bench()
    bench.failures = [MetadataUnavailableError("not now"), NoSuchTopicError("gone")]
    with pytest.raises(MetadataUnavailableError):
        await bench.subscriptions.subscribe(SubscriptionWish("s"))
    with pytest.raises(NoSuchTopicError):
        await bench.subscriptions.open(["t"])
    assert bench.subscriptions.marks() == ()


async def test_a_cursor_that_ends_sends_its_consumers_away_and_is_opened_anew() -> None:
    bench = Bench()
    subscription = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    _, closed = bench.consumer(subscription)
    bench.cursors[0].end(MetadataUnavailableError("lost"))
    assert closed == [None]
    with pytest.raises(NoSuchSubscriptionError, match="'s'"):
        bench.subscriptions.get("s")
    assert await bench.subscriptions.subscribe(SubscriptionWish("s")) is not subscription
    bench.cursors[1].end(MetadataUnavailableError("lost"))
    bench.cursors[1].end(MetadataUnavailableError("lost twice"))


async def test_whoever_comes_while_a_subscription_is_deleted_gets_a_new_one() -> None:
    bench = Bench()
    subscription = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    consumer, closed = bench.consumer(subscription)
    bench.consumer(subscription)
    with pytest.raises(NotAllowedError, match="1 other"):
        await bench.subscriptions.unsubscribe(consumer, force=False)
    bench.may_delete.clear()
    deleting = asyncio.create_task(bench.subscriptions.unsubscribe(consumer, force=True))
    subscribing = asyncio.create_task(bench.subscriptions.subscribe(SubscriptionWish("s")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not subscribing.done()
    bench.may_delete.set()
    await deleting
    assert await subscribing is not subscription
    assert closed == []
    await bench.subscriptions.delete(subscription)
    assert [cursor.calls for cursor in bench.cursors] == [["delete"], []]


async def test_a_deletion_continues_if_the_client_that_asked_for_it_is_lost() -> None:
    bench = Bench()
    subscription = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    consumer, _ = bench.consumer(subscription)
    bench.may_delete.clear()
    deleting = asyncio.create_task(bench.subscriptions.unsubscribe(consumer, force=False))
    for _ in range(5):
        await asyncio.sleep(0)
    deleting.cancel()
    await asyncio.wait([deleting])
    subscribing = asyncio.create_task(bench.subscriptions.subscribe(SubscriptionWish("s")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(bench.cursors) == 1, "the former node is still there"
    bench.may_delete.set()
    again = await subscribing
    assert bench.subscriptions.unopened() == []
    again.acks.reset(Position(3, 2))
    assert bench.subscriptions.marks() == (Position(3, 2),), "nothing of the former one holds the trimming"
    assert [cursor.calls for cursor in bench.cursors] == [["delete"], []]


async def test_a_subscription_whose_deletion_failed_holds_the_trimming_until_it_is_opened_anew() -> None:
    bench = Bench()
    subscription = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    bench.failures = [NotOwnerError("moved")]
    with pytest.raises(NotOwnerError):
        await bench.subscriptions.delete(subscription)
    assert (bench.subscriptions.unopened(), bench.subscriptions.marks()) == (["s"], (LAST,))
    again = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    assert again.cursor is bench.cursors[1]


async def test_a_reader_has_a_subscription_of_its_own_that_ends_with_it() -> None:
    bench = Bench()
    for start, begins_early, mark_delete in (
        (None, False, LAST),
        (None, True, Position(3, -1)),
        (NO_POSITION, False, Position(3, -1)),
        (Position(3, 4), False, Position(3, 4)),
        (Position(3, 4), True, Position(3, 4)),
        (Position(2**63 - 1, 5), False, LAST),
        (Position(2**63 - 1, 5), True, Position(3, -1)),
    ):
        wish = SubscriptionWish("r", is_durable=False, start=start, begins_early=begins_early)
        reader = await bench.subscriptions.subscribe(wish)
        assert reader.acks.mark_delete == mark_delete
        assert await bench.subscriptions.subscribe(wish) is reader
        consumer, _ = bench.consumer(reader)
        assert bench.subscriptions.marks() == ()
        with pytest.raises(NotAllowedError, match="of a reader"):
            await bench.subscriptions.subscribe(SubscriptionWish("r"))
        consumer.detach()
        assert bench.subscriptions.all() == []
    reader = await bench.subscriptions.subscribe(SubscriptionWish("r", is_durable=False))
    await bench.subscriptions.delete(reader)
    assert not bench.cursors


async def test_subscriptions_have_a_limit_and_may_have_to_exist() -> None:
    bench = Bench(subscriptions_max=1)
    await bench.subscriptions.subscribe(SubscriptionWish("s"))
    with pytest.raises(TooManyError, match="1 subscriptions"):
        await bench.subscriptions.subscribe(SubscriptionWish("t"))
    bench = Bench(auto_create=False)
    with pytest.raises(NoSuchSubscriptionError):
        await bench.subscriptions.subscribe(SubscriptionWish("s"))
    await bench.subscriptions.subscribe(SubscriptionWish("r", is_durable=False))


async def test_a_stored_subscription_is_opened_anew_also_where_consumers_create_none() -> None:
    bench = Bench(auto_create=False)
    bench.failures = [MetadataUnavailableError("not now")]
    with pytest.raises(MetadataUnavailableError):
        await bench.subscriptions.open(["s"])
    await bench.subscriptions.subscribe(SubscriptionWish("s"))
    bench.cursors[1].end(MetadataUnavailableError("lost"))
    assert bench.subscriptions.has("s")
    again = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    assert again.cursor is bench.cursors[2]
    assert [cursor.initial for cursor in bench.cursors] == [None, None, None], (
        "nobody creates it if it is gone"
    )
    await bench.subscriptions.delete(again)
    assert not bench.subscriptions.has("s")


async def test_a_subscription_whose_cursor_ended_is_named_and_found_opened_anew() -> None:
    bench = Bench()
    subscription = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    assert await bench.subscriptions.find("s") is subscription
    bench.cursors[0].end(MetadataUnavailableError("lost"))
    assert (bench.subscriptions.names(), bench.subscriptions.all()) == (["s"], [])
    bench.failures = [MetadataUnavailableError("not now")]
    with pytest.raises(MetadataUnavailableError, match="not now"):
        await bench.subscriptions.find("s")
    bench.may_open.clear()
    bench.has_begun.clear()
    both = [asyncio.create_task(bench.subscriptions.find("s")) for _ in range(2)]
    await bench.has_begun.wait()
    both[0].cancel()
    await asyncio.wait([both[0]])
    bench.may_open.set()
    again = await both[1]
    assert again.cursor is bench.cursors[2]
    assert bench.cursors[2].initial is None, "nobody creates it if it is gone"
    await bench.subscriptions.delete(again)
    with pytest.raises(NoSuchSubscriptionError):
        await bench.subscriptions.find("s")


async def test_nobody_finds_a_subscription_that_is_being_deleted_and_none_is_opened_by_a_topic_that_ends() -> (
    None
):
    bench = Bench()
    subscription = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    bench.may_delete.clear()
    bench.has_begun.clear()
    deleting = asyncio.create_task(bench.subscriptions.delete(subscription))
    await bench.has_begun.wait()
    assert (bench.subscriptions.names(), bench.subscriptions.unopened()) == ([], ["s"])
    with pytest.raises(NoSuchSubscriptionError):
        await bench.subscriptions.find("s")
    bench.may_delete.set()
    await deleting
    await bench.subscriptions.subscribe(SubscriptionWish("t"))
    bench.cursors[1].end(MetadataUnavailableError("lost"))
    bench.subscriptions.stop()
    with pytest.raises(NotReadyError, match="moves to another broker"):
        await bench.subscriptions.find("t")
    assert len(bench.cursors) == 2


async def test_an_unload_stores_every_cursor_and_sends_the_clients_on() -> None:
    bench = Bench()
    subscription = await bench.subscriptions.subscribe(SubscriptionWish("s"))
    _, closed = bench.consumer(subscription)
    bench.subscriptions.tick()
    await bench.subscriptions.close()
    with pytest.raises(NotReadyError):
        await bench.subscriptions.delete(subscription)
    assert bench.cursors[0].calls == ["tick", "close"]
    bench.subscriptions.announce(BrokerUrls("there", ""))
    assert closed == [BrokerUrls("there", "")]
    with pytest.raises(NotReadyError):
        await bench.subscriptions.subscribe(SubscriptionWish("new"))


async def test_an_abrupt_end_stores_nothing() -> None:
    bench = Bench()
    await bench.subscriptions.subscribe(SubscriptionWish("s"))
    bench.may_open.clear()
    opening = asyncio.create_task(bench.subscriptions.subscribe(SubscriptionWish("t")))
    await asyncio.sleep(0)
    await bench.subscriptions.abandon()
    with pytest.raises(NotReadyError):
        await opening
    assert bench.cursors[0].calls == ["abandon"]
