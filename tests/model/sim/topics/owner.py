"""A broker that owns a topic, or believes so, with those who publish to it and those who consume it.

It runs the drivers that ship, over the client that ships, and puts them together as daybook_broker/topics/topic.py does. It holds no
lease: nobody stops it but the list of the topic.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from daybook.client.client import Client
from daybook.core.errors import DaybookError, MetadataUnavailableError
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.events import ListKnown, Published, PublishFailed, TopicEnded
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.policy import LedgerTerms
from daybook.core.topics.trimming import Retention
from daybook.metadata.topics import TopicManager
from tests.model.sim.queues import over_limit
from tests.model.sim.shipped.loop import SCALE
from tests.model.sim.shipped.process import ShippedProcess
from tests.model.sim.topics.consumers import Consumer
from tests.model.sim.topics.drivers import WatchedCursor, WatchedLedgers
from tests.model.sim.topics.swarm import TopicSwarm
from tests.model.sim.topics.watched import WatchedClient
from tests.model.sim.trace import describe

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster
    from tests.model.sim.topics.life import TopicLife

_TICK_S: Final = 0.4
_PAUSE_S: Final = 0.5
_UNLOAD_S: Final = 10
"""A cursor waits for ZooKeeper when it is closed; a broker gives up after as long (daybook_broker/topics/registry.py)."""


_DELETING_S: Final = 60
"""A broker continues when it has lost a topic, and so do its deletions."""


class TopicOwner(ShippedProcess):
    """One broker, for one topic, from its take-over to its end."""

    client_class = WatchedClient

    def __init__(self, cluster: "Cluster", name: str, life: "TopicLife", publishes: int) -> None:
        super().__init__(cluster, name)
        self.topic: TopicName = life.topic
        self.swarm: TopicSwarm = life.swarm
        self.checks = life.checks
        self.extent = TopicExtent()
        """What those who read the topic here may see."""
        self.is_serving = False
        self.unanswered: deque[bytes] = deque()
        self._life = life
        self._rng = self.world.rng(name)
        self._chance = self.world.rng(f"{name}/chance")
        self._left = publishes
        self._messages = 0
        self._pace_s = self._rng.choice((0.004, 0.015, 0.04)) * SCALE
        self._ledgers: WatchedLedgers | None = None
        self._list_version = -1
        self._cursors: dict[str, WatchedCursor] = {}
        self._consumers: dict[str, Consumer] = {}
        self._served = asyncio.Event()
        self._over = asyncio.Event()
        self._unloading = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def work(self) -> None:
        """Connect, own the topic, end."""
        while True:
            try:
                async with self.client() as client:
                    assert isinstance(client, WatchedClient)
                    client.process, client.checks = self, self.checks
                    await self._own(client)
            except MetadataUnavailableError as error:
                self.note(f"cannot connect: {error}")
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def _own(self, client: Client) -> None:
        self.note(f"takes {self.topic} over")
        self._ledgers = ledgers = WatchedLedgers(
            self,
            self.topic,
            self.name,
            client,
            terms=self._terms,
            policy=draw_policy(self.swarm),
            on_result=self._take,
        )
        ledgers.start()
        if not self.alive:
            await asyncio.Event().wait()  # its loop ends with this turn
        tasks = [
            self._begin(self._tick()),
            self._begin(self._publish()),
            self._begin(self._open_cursors(client)),
        ]
        await self._first(self._over, self._unloading)
        if not self._over.is_set():
            await self._unload(ledgers)
        for task in tasks:
            task.cancel()
        await self._stop(ledgers)

    def _terms(self) -> LedgerTerms:
        """Of every ledger, the topic's and its cursors'."""
        return LedgerTerms(self.cluster.swarm.quorum, go_on_without_spare=False, is_degraded=False)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self.watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _first(self, *events: asyncio.Event) -> None:
        waits = [asyncio.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    # Its end

    async def _unload(self, ledgers: WatchedLedgers) -> None:
        """Persist the cursors, then give the topic up in order, as Topic.unload does."""
        self.note(f"unloads {self.topic}")
        self._left = 0
        self._consumers.clear()
        try:
            async with asyncio.timeout(_UNLOAD_S):
                await asyncio.gather(*(cursor.close() for cursor in self._cursors.values()))
                ledgers.unload()
                await self._over.wait()
        except TimeoutError:
            self.note("could not unload in time")

    async def _stop(self, ledgers: WatchedLedgers) -> None:
        self._consumers.clear()
        for cursor in self._cursors.values():
            if not cursor.has_ended:
                self.checks.abandons(self.name)
            await cursor.abandon()
        await ledgers.close()
        deletions = [ledgers.deleted(), *(cursor.deleted() for cursor in self._cursors.values())]
        await asyncio.wait([asyncio.create_task(each) for each in deletions], timeout=_DELETING_S)
        if not self._over.is_set():
            self.checks.in_doubt(self.name)
            self._is_over("it was not unloaded in time")

    def _is_over(self, why: str) -> None:
        self.note(f"serves {self.topic} no more: {why}")
        self.is_serving = False
        self._left = 0
        self._over.set()

    def crash(self) -> None:
        """The process dies, with all that it had under way."""
        if not self.done:
            self.checks.died(self.name)
            super().crash()

    def may_die(self) -> None:
        """Perhaps the process dies now, between two effects: its loop ends with the turn."""
        if self.alive and self.cluster.is_faulty and self._chance.random() < self.swarm.crash:
            self.world.tally.fault("client crash")
            self.stop()
            self.loop.cut_off()
            self.world.at(self.world.now_us, None, self.crash)

    # What it does

    @property
    def has_topic(self) -> bool:
        """Whether the list still is its own."""
        return self.checks.has(str(self.topic), self.name)

    def carries_out(self, effect: object) -> None:
        """One of its machines asks for this."""
        if self.world.tracing:
            self.note(f"→ {describe(effect)}")  # type: ignore[arg-type] # a dataclass, as all effects are

    def check_queues(self, machine: object) -> None:
        """Those of `machine` are bounded."""
        crowded = over_limit(machine) or over_limit(self.extent)
        if crowded:
            self.cluster.checkers.fail("bounded queues", f"{self.name}: {crowded}")

    async def _tick(self) -> None:
        assert self._ledgers is not None
        while True:
            await asyncio.sleep(_TICK_S)
            self._ledgers.tick()
            for cursor in self._cursors.values():
                cursor.tick()
            for consumer in self._consumers.values():
                consumer.step()
            if self._chance.random() < self.swarm.trim:
                self._trim()
            if self.cluster.is_faulty and self._chance.random() < self.swarm.unload:
                self._unloading.set()

    def _trim(self) -> None:
        """As Topic.trim: cursors that are not open yet hold it back."""
        assert self._ledgers is not None
        if len(self._cursors) == self.swarm.subscriptions:
            marks = {name: cursor.persisted for name, cursor in self._cursors.items()}
            self.checks.trims(str(self.topic), self.name, marks)
            retention = Retention(self._chance.choice((0, 0, 2_000)), self._chance.choice((0, 0, 20)))
            self._ledgers.trim(tuple(marks.values()), retention)

    # Subscriptions

    async def _open_cursors(self, client: Client) -> None:
        await self._served.wait()
        topics = TopicManager(client.store, client.layout)
        while True:
            try:
                there = await topics.cursors(self.topic)
            except DaybookError as error:
                self.note(f"cannot list subscriptions: {error}")
                await asyncio.sleep(_PAUSE_S)
            else:
                break
        for number in range(self.swarm.subscriptions):
            name = f"s{number}"
            cursor = self._cursors[name] = self._cursor(client, name, is_there=name in there)
            self._begin(self._consume(cursor))

    def _cursor(self, client: Client, name: str, *, is_there: bool) -> WatchedCursor:
        swarm = self.swarm
        begins = CursorRecord(mark_delete=self.extent.before(self.extent.first))
        return WatchedCursor(
            self,
            self.topic,
            name,
            client,
            self.extent,
            owner_token=self.name,
            list_version=self._list_version,
            terms=self._terms,
            initial=None if is_there else begins,
            policy=CursorPolicy(
                persist_ms=swarm.persist_ms,
                entries_max=swarm.cursor_entries_max,
                idle_ms=swarm.cursor_idle_ms,
                retry_ms=400,
            ),
            on_ended=lambda error: self.note(f"{name} ends: {error}"),
        )

    async def _consume(self, cursor: WatchedCursor) -> None:
        try:
            await cursor.open()
        except DaybookError as error:
            self.note(f"{cursor.subscription} is not opened: {error}")
        else:
            if not (self._over.is_set() or self._unloading.is_set()):
                consumer = self._consumers[cursor.subscription] = Consumer(self, cursor)
                consumer.is_eager = self._life.is_over

    def begin_flush(self, cursor: WatchedCursor) -> None:
        """Persist a cursor now."""
        self._begin(self._flush(cursor))

    async def _flush(self, cursor: WatchedCursor) -> None:
        try:
            await cursor.flush()
        except DaybookError as error:
            self.note(f"{cursor.subscription} is not persisted: {error}")

    # Publishers

    async def _publish(self) -> None:
        ledgers = self._ledgers
        assert ledgers is not None
        while True:
            await asyncio.sleep(self._pace_s * 2 * self._rng.random())
            if self._left and ledgers.refusal is None and ledgers.has_room:
                self._left -= 1
                self.publish(self._rng.choice((1, 1, 2, 3)))

    def publish(self, count: int) -> None:
        """So many messages, which are like no others."""
        assert self._ledgers is not None
        payloads = [f"{self.name}:{self._messages + number}".encode() for number in range(count)]
        self._messages += count
        self.unanswered += payloads
        self.checks.published(str(self.topic), self.name, payloads)
        self._ledgers.publish(payloads)

    def stop_publishing(self) -> None:
        """Publish no more; consumers take what is left."""
        self._left = 0
        for consumer in self._consumers.values():
            consumer.is_eager = True

    # What its ledgers report

    def _take(self, result: ListKnown | Published | PublishFailed | TopicEnded) -> None:
        match result:
            case Published(ledger_id, first, count):
                messages = [self.unanswered.popleft() for _ in range(count)]
                self.checks.acknowledged(str(self.topic), self.name, ledger_id, first, messages)
                last = Position(ledger_id, first + count - 1)
                self.extent.confirm(last)
                self.checks.visible(str(self.topic), last)
            case PublishFailed(count=count):
                for _ in range(count):
                    self.unanswered.popleft()
            case ListKnown():
                self._list_known(result)
            case TopicEnded(error):
                if self.unanswered:
                    what = f"{self.name}: {list(self.unanswered)}"
                    self.cluster.checkers.fail("every message is answered", what)
                if error is None:
                    self.world.tally.state("topic unloaded")
                self._is_over(str(error or "unloaded"))

    def _list_known(self, known: ListKnown) -> None:
        if not self.is_serving:
            self._life.served(self)
        self.is_serving = True
        self.extent.update(known.ledger_list)
        self._list_version = known.version
        for cursor in self._cursors.values():
            cursor.list_changed(known.version)
        self.checks.visible(str(self.topic), self.extent.last_confirmed)
        self._served.set()

    # What its life asks of it; from outside, so in a turn of its loop

    @property
    def is_drained(self) -> bool:
        """Whether every subscription is at the end of the topic."""
        return len(self._consumers) == self.swarm.subscriptions and all(
            consumer.is_idle for consumer in self._consumers.values()
        )

    def unload(self) -> None:
        """Give the topic up."""
        self.loop.call_soon(self._unloading.set)

    def publish_soon(self, count: int) -> None:
        """Publish so many messages."""
        self.loop.call_soon(self.publish, count)


def draw_policy(swarm: TopicSwarm) -> ManagedLedgerPolicy:
    """The limits of a ledger."""
    return ManagedLedgerPolicy(
        entries_max=swarm.entries_max,
        age_ms_min=0,
        age_ms_max=swarm.age_ms_max,
        idle_ms_max=swarm.idle_ms_max,
        retry_ms=400,
    )
