"""A subscription on its broker, with reads, a connection and a cursor of the test's own: what happens when something goes wrong."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from daybook_broker.errors import ConsumerBusyError, NotReadyError
from daybook_broker.topics import subscription as module
from daybook_broker.topics.consumer import Consumer, ConsumerWish, SubscriptionKind
from daybook_broker.topics.ledger_reads import ReadDelayedError
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.reader_cursor import ReaderCursor
from daybook_broker.topics.subscription import Subscription
from daybook_broker.totals import Totals

from daybook.core.format.frame import Buffer
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.dispatch.events import Acked
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState, Position

FIRST, SECOND = 3, 4
ENTRIES = 10


class Connection:
    """The connection of a client, which takes what it is sent or not."""

    def __init__(self, happened: asyncio.Event) -> None:
        self.happened = happened
        self.address = "here:1"
        self.client_version = "by hand"
        self.pending_bytes = 0
        self.is_writable = True
        self.is_there = True
        self.frames: list[bytes] = []
        self.waiting: list[Callable[[], None]] = []

    def send(self, *parts: Buffer) -> None:
        self.frames += [bytes(part) for part in parts]
        self.happened.set()

    def call_when_writable(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def count_pending(self) -> None: ...
    def pause(self, reason: object) -> None: ...
    def resume(self, reason: object) -> None: ...

    async def is_alive(self) -> bool:
        return self.is_there


class Reads:
    """The entries of a topic: in memory, or read by a task that may fail first."""

    def __init__(self, extent: TopicExtent) -> None:
        self.extent = extent
        self.in_memory = True
        self.failures: list[Exception] = []
        self.reads = 0
        self.held: asyncio.Event | None = None
        """What the next read waits for."""
        self.is_holding = asyncio.Event()
        self.has_answered = asyncio.Event()
        self.mistakes = 0
        """How many looks into the memory end with an error of the broker."""

    def cached(self, position: Position, entries_max: int, bytes_max: int) -> list[TopicEntry] | None:
        if self.mistakes:
            self.mistakes -= 1
            raise ZeroDivisionError
        return self.entries(position, entries_max) if self.in_memory else None

    async def read(self, position: Position, entries_max: int, bytes_max: int) -> list[TopicEntry]:
        self.fail()
        if (held := self.held) is not None:
            self.held = None
            self.is_holding.set()
            await held.wait()
            self.has_answered.set()  # who waits for it goes on after the subscription has the answer
        return self.entries(position, entries_max)

    async def read_exact(self, positions: Sequence[Position]) -> list[TopicEntry]:
        self.fail()
        return [TopicEntry(position, b"x", 1) for position in positions]

    def fail(self) -> None:
        self.reads += 1
        if self.failures:
            raise self.failures.pop(0)

    def entries(self, position: Position, entries_max: int) -> list[TopicEntry]:
        run = self.extent.run(position, entries_max)
        if run is None:
            return []
        return [TopicEntry(Position(run[0], entry_id), b"x", 1) for entry_id in range(run[1], run[2] + 1)]


class Bench:
    """One subscription and its consumers."""

    def __init__(self, **policy: int) -> None:
        ledgers = (
            ListedLedger(FIRST, 0, entries=ENTRIES, closed_at_ms=1),
            ListedLedger(SECOND, 0, entries=ENTRIES, closed_at_ms=1),
        )
        last = Position(SECOND, ENTRIES - 1)
        self.extent = TopicExtent(LedgerList(ListState.CLOSED, ledgers, last))
        self.reads = Reads(self.extent)
        self.emptied = 0
        self.closed: list[BrokerUrls | None] = []
        self.happened = asyncio.Event()
        reads: Any = self.reads
        self.subscription = Subscription(
            "topic",
            "s",
            self.extent,
            reads,
            ReaderCursor(self.extent, NO_POSITION),
            make_compacted=lambda: reads,
            policy=DispatchPolicy(**policy),
            consumers_max=2,
            on_empty=self.on_empty,
        )

    def on_empty(self, _: Subscription) -> None:
        self.emptied += 1
        self.happened.set()

    def on_closed(self, _: Consumer, urls: BrokerUrls | None) -> None:
        self.closed.append(urls)
        self.happened.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what a connection, or the subscription, does."""
        async with asyncio.timeout(40):
            while not holds():
                self.happened.clear()
                await self.happened.wait()

    async def add(
        self, kind: SubscriptionKind = SubscriptionKind.EXCLUSIVE, *, permits: int = 100
    ) -> tuple[Consumer, Connection]:
        connection = Connection(self.happened)
        wish = ConsumerWish(1, "c", kind)
        await self.subscription.admit(wish)
        consumer = Consumer(wish, self.subscription, connection, Totals(), on_closed=self.on_closed)
        self.subscription.add(consumer)
        self.subscription.flow(consumer, permits)
        return consumer, connection

    async def reading_is_held(self) -> None:
        """Wait until a read waits for `Reads.held`."""
        await self.reads.is_holding.wait()
        self.reads.is_holding.clear()

    async def received(self, consumer: Consumer, count: int) -> None:
        """Wait for so many entries."""
        await self.until(lambda: consumer.entries_out >= count)
        assert consumer.entries_out == count


async def test_what_is_in_memory_is_sent_in_the_same_turn() -> None:
    bench = Bench()
    consumer, connection = await bench.add()
    assert consumer.entries_out == 2 * ENTRIES
    assert len(connection.frames) == 4 * ENTRIES


async def test_a_turn_sends_so_much_and_the_rest_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_BYTES_MAX", 2)
    bench = Bench(read_entries_max=1)
    consumer, _ = await bench.add()
    assert consumer.entries_out == 2
    await bench.received(consumer, 2 * ENTRIES)


async def test_a_read_that_is_delayed_is_repeated() -> None:
    bench = Bench(retry_ms=1)
    bench.reads.in_memory = False
    bench.reads.failures = [ReadDelayedError("later"), ReadDelayedError("still later")]
    consumer, _ = await bench.add()
    await bench.received(consumer, 2 * ENTRIES)


async def test_a_connection_that_takes_nothing_is_waited_for() -> None:
    bench = Bench(read_entries_max=5)
    bench.reads.in_memory = False
    consumer, connection = await bench.add()
    connection.is_writable = False
    await bench.received(consumer, 5)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (consumer.entries_out, bench.reads.reads, len(connection.waiting)) == (5, 2, 1)
    connection.is_writable = True
    connection.waiting.pop()()
    await bench.received(consumer, 2 * ENTRIES)
    assert not connection.waiting


async def test_a_connection_that_takes_more_after_its_consumer_left_changes_nothing() -> None:
    bench = Bench()
    consumer, connection = await bench.add(permits=0)
    connection.is_writable = False
    bench.subscription.flow(consumer, 100)
    consumer.detach()
    connection.waiting.pop()()
    assert bench.emptied == 1


async def test_after_an_error_of_the_broker_the_consumers_connect_again() -> None:
    bench = Bench()
    bench.reads.in_memory = False
    bench.reads.failures = [ZeroDivisionError("a mistake")]
    await bench.add()
    await bench.until(lambda: bool(bench.closed))
    assert not bench.subscription.consumers
    consumer, _ = await bench.add()
    await bench.received(consumer, 2 * ENTRIES)


async def test_a_slow_answer_to_a_former_consumer_is_not_taken_for_one_to_the_next() -> None:
    """A subscription of another type has another machine, whose requests are numbered from 1 again."""
    bench = Bench(read_entries_max=5)
    bench.reads.in_memory = False
    former, _ = await bench.add(permits=5)
    await bench.received(former, 5)
    slow = bench.reads.held = asyncio.Event()
    bench.subscription.flow(former, 100)
    await bench.reading_is_held()
    former.detach()
    later, _ = await bench.add(SubscriptionKind.FAILOVER, permits=1)
    await bench.received(later, 1)
    own = bench.reads.held = asyncio.Event()
    bench.subscription.flow(later, 1)
    await bench.reading_is_held()
    slow.set()
    await bench.reads.has_answered.wait()
    own.set()
    bench.subscription.flow(later, 100)
    await bench.received(later, 2 * ENTRIES)


async def test_after_an_error_within_a_step_the_consumers_connect_again() -> None:
    bench = Bench()
    consumer, _ = await bench.add(permits=0)
    bench.reads.mistakes = 1
    bench.subscription.flow(consumer, 1)
    assert bench.closed == [None]
    again, _ = await bench.add()
    await bench.received(again, 2 * ENTRIES)


async def test_who_may_come() -> None:
    bench = Bench()
    await bench.add(SubscriptionKind.SHARED)
    with pytest.raises(ConsumerBusyError, match="Shared"):
        await bench.add(SubscriptionKind.EXCLUSIVE)
    await bench.add(SubscriptionKind.SHARED)
    with pytest.raises(ConsumerBusyError, match="2 consumers"):
        await bench.add(SubscriptionKind.SHARED)
    bench.subscription.disconnect(BrokerUrls("there", ""))
    assert bench.closed == [BrokerUrls("there", "")] * 2
    first, connection = await bench.add()
    with pytest.raises(ConsumerBusyError, match="exclusive"):
        await bench.add()
    connection.is_there = False
    await bench.add()
    assert first.is_closed
    with pytest.raises(ConsumerBusyError, match="faster"):
        bench.subscription.add(
            Consumer(first.wish, bench.subscription, connection, Totals(), on_closed=print)
        )
    bench.subscription.stop()
    with pytest.raises(NotReadyError):
        await bench.add()


async def test_a_stopped_subscription_delivers_nothing_and_takes_no_acknowledgements() -> None:
    bench = Bench()
    bench.reads.in_memory = False
    consumer, connection = await bench.add()
    bench.subscription.stop()
    with pytest.raises(NotReadyError, match="look it up again"):
        bench.subscription.ack(consumer, [Acked(Position(FIRST, 0))])
    with pytest.raises(NotReadyError, match="look it up again"):
        bench.subscription.ack_through(consumer, Acked(Position(FIRST, 0)))
    bench.subscription.wake()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not connection.frames
    assert bench.subscription.acks.mark_delete < Position(FIRST, 0)


async def test_a_reader_that_seeks_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEEK_RETURN_S", 0.0)
    bench = Bench()
    await bench.add()
    await bench.subscription.seek(Position(SECOND, 3))
    assert bench.emptied == 0
    await bench.until(lambda: bench.emptied > 0)
    consumer, _ = await bench.add()
    await bench.received(consumer, ENTRIES - 3)


async def test_what_others_skip_is_not_delivered() -> None:
    bench = Bench()
    consumer, _ = await bench.add(permits=2)
    bench.subscription.skip_through(Position(SECOND, 7))
    bench.subscription.flow(consumer, 100)
    assert consumer.entries_out == 2 + 2
    last = await bench.subscription.last_message()
    assert last is not None
    assert last.entry.position == Position(SECOND, 9)
