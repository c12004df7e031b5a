"""The subscriptions of one topic: those that are stored, opened when the topic is taken over, and those of readers, which end with them.

A subscription that is stored belongs to the topic until somebody deletes it, whether it has consumers or not: what it has not acknowledged
stays. Many topics with many subscriptions are taken over at once, so they are opened beside one another.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from daybook.core.errors import DaybookError, NoSuchTopicError
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, Position
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook.runtime.shielded import shielded
from daybook_broker.errors import NoSuchSubscriptionError, NotAllowedError, NotReadyError, TooManyError
from daybook_broker.topics.consumer import Consumer
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.reader_cursor import ReaderCursor
from daybook_broker.topics.reading import TopicReads
from daybook_broker.topics.subscription import MakeCompactedReads, Subscription

log = get_logger(__name__)


class StoredCursor(Protocol):
    """The cursor of a subscription that survives its broker: topics/cursor.py."""

    @property
    def acks(self) -> AckState:
        """What is acknowledged; there once it is open."""

    @property
    def persisted(self) -> Position:
        """What trimming may rely on (rule 40)."""

    async def open(self) -> None:
        """Read it, or create it where it is to begin."""

    async def flush(self) -> None:
        """Store it; returns once it is durable."""

    async def close(self) -> None:
        """Store it, and end."""

    async def delete(self) -> None:
        """Delete it, and end."""

    async def abandon(self) -> None:
        """End at once; the next owner recovers what is open."""

    def tick(self) -> None:
        """Let time pass."""

    def list_changed(self, version: int) -> None:
        """The topic's list has this version now."""


MakeCursor = Callable[[str, CursorRecord | None, Callable[[DaybookError], None]], StoredCursor]
"""The cursor of the subscription with this name; with a record it is created if there is none. The last argument is called if it ends."""


@dataclass(frozen=True, slots=True)
class SubscriptionWish:
    """What a client asks for with SUBSCRIBE, about the subscription."""

    name: str
    is_durable: bool = True
    begins_early: bool = False
    """Whether a new one begins with the first message that there is; else with the next one that comes. A reader's `start` goes before."""
    start: Position | None = None
    """Where a reader begins: behind this position."""
    reads_compacted: bool = False
    """Whether it may begin before the topic's own ledgers, with what is compacted."""
    properties: tuple[tuple[str, str], ...] = ()
    is_asked_for: bool = False
    """Whether a person asks for a new one: then it is created also where consumers do not create subscriptions."""


class Subscriptions:
    """All subscriptions of one topic."""

    def __init__(
        self,
        topic: str,
        extent: TopicExtent,
        reads: TopicReads,
        make_cursor: MakeCursor,
        *,
        make_compacted: MakeCompactedReads,
        policy: DispatchPolicy,
        subscriptions_max: int,
        consumers_max: int,
        auto_create: bool = True,
    ) -> None:
        self._topic = topic
        self._extent = extent
        self._reads = reads
        self._make_cursor = make_cursor
        self._make_compacted = make_compacted
        self._policy = policy
        self._max = subscriptions_max
        self._consumers_max = consumers_max
        self._auto_create = auto_create
        self._cursors: dict[str, StoredCursor] = {}
        """Of all that are stored, those too that are being opened or deleted."""
        self._stored: set[str] = set()
        """Those that exist for certain, so that trimming may not pass them, whether they can be opened or not."""
        self._opening: dict[str, asyncio.Task[Subscription]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """The deletions that are under way. Nobody cancels them: a cursor whose node is gone would hold the trimming for ever."""
        self._by_name: dict[str, Subscription] = {}
        self._is_closing = False
        self.last_left_ms = 0
        """When one of them ended, or began to be deleted; 0: none did."""

    # Finding

    def all(self) -> list[Subscription]:
        """All of them, those of readers too."""
        return list(self._by_name.values())

    def get(self, name: str) -> Subscription:
        """The subscription. Raises NoSuchSubscriptionError."""
        found = self._by_name.get(name)
        if found is None:
            msg = f"topic {self._topic} has no subscription {name!r}: subscribe first, or read the names in the topic's statistics"
            raise NoSuchSubscriptionError(msg)
        return found

    def has(self, name: str) -> bool:
        """Whether the topic has such a subscription, open or not; one that is being deleted does not count."""
        return name in self._by_name or (name in self._stored and name not in self._leaving)

    def names(self) -> list[str]:
        """The names of those that `has` knows, in order."""
        return sorted(filter(self.has, self._stored.union(self._by_name)))

    def unopened(self) -> list[str]:
        """The names of stored ones that are not open, in order; they hold the trimming."""
        return sorted(self._stored.difference(self._by_name))

    def marks(self) -> tuple[Position, ...]:
        """How far each stored subscription is, as it is persisted: what trimming may not pass (rule 40, rule 51)."""
        return tuple(self.marks_by_name().values())

    def marks_by_name(self) -> dict[str, Position]:
        """The same with the names of the subscriptions."""
        return {name: cursor.persisted for name, cursor in self._cursors.items()}

    # Opening

    def open(self, names: Sequence[str]) -> Coroutine[Any, Any, None]:
        """Open the subscriptions that are stored. From now on they hold the trimming; await the result for those that are open then.

        Raises why one of them cannot be opened. It is opened anew when a consumer comes.
        """
        for name in names:
            self._stored.add(name)
            self._begin(name, None)
        return self._wait_for(list(self._opening.values()))

    @staticmethod
    async def _wait_for(opening: Sequence[asyncio.Task[Subscription]]) -> None:
        await asyncio.gather(*opening)

    async def opened(self) -> None:
        """Wait until nothing is being opened: for whoever wants to know all of them."""
        while self._opening:
            await asyncio.wait(list(self._opening.values()))

    async def subscribe(self, wish: SubscriptionWish) -> Subscription:
        """The subscription that a consumer asks for, a new one if need be."""
        while (leaving := self._leaving.get(wish.name)) is not None:
            await asyncio.wait([leaving])
        found = self._by_name.get(wish.name)
        if found is not None and found.is_durable != wish.is_durable:
            kind = "stored" if found.is_durable else "one of a reader"
            msg = f"subscription {wish.name!r} of topic {self._topic} is {kind}: use another name"
            raise NotAllowedError(msg)
        if found is not None:
            return found
        if wish.name not in self._opening:
            self._check_new(wish)
            if not wish.is_durable:
                return self._new_reader(wish)
            self._begin(wish.name, self._first_record(wish) if self._may_create(wish) else None)
        return await self._when_open(wish.name)

    async def find(self, name: str) -> Subscription:
        """The subscription, opened anew if its cursor has ended. Raises NoSuchSubscriptionError, NotReadyError, and why it cannot be opened."""
        if self.has(name) and name not in self._by_name:
            if self._is_closing:
                raise self._closing()
            if name not in self._opening:
                self._begin(name, None)
            return await self._when_open(name)
        return self.get(name)

    async def _when_open(self, name: str) -> Subscription:
        """The subscription that is being opened; the opening continues if whoever awaits it is cancelled."""
        opening = self._opening[name]
        await asyncio.wait([opening])
        if opening.cancelled():
            raise self._closing()
        return opening.result()

    def _check_new(self, wish: SubscriptionWish) -> None:
        if self._is_closing:
            raise self._closing()
        if len(self._by_name) + len(self._opening) >= self._max:
            msg = (
                f"topic {self._topic} has {self._max} subscriptions: delete some, or raise subscriptions_max"
            )
            raise TooManyError(msg)
        if wish.is_durable and not (self.has(wish.name) or self._may_create(wish)):
            self.get(wish.name)

    def _may_create(self, wish: SubscriptionWish) -> bool:
        return self._auto_create or wish.is_asked_for

    def _closing(self) -> NotReadyError:
        return NotReadyError(f"topic {self._topic} moves to another broker: look it up again")

    def _first_record(self, wish: SubscriptionWish) -> CursorRecord:
        extent = self._extent
        mark_delete = extent.before(extent.first) if wish.begins_early else extent.last_confirmed
        if wish.begins_early and wish.reads_compacted:
            mark_delete = NO_POSITION
        return CursorRecord(mark_delete, properties=dict(wish.properties))

    def _new_reader(self, wish: SubscriptionWish) -> Subscription:
        extent = self._extent
        start = wish.start
        if (
            start is None or start > extent.last_confirmed
        ):  # nothing is there to begin with: as the client prefers
            start = NO_POSITION if wish.begins_early else extent.last_confirmed
        mark_delete = start
        if not wish.reads_compacted:
            mark_delete = max(mark_delete, min(extent.before(extent.first), extent.last_confirmed))
        return self._add(wish.name, ReaderCursor(extent, mark_delete))

    def _begin(self, name: str, initial: CursorRecord | None) -> None:
        cursor = self._cursors[name] = self._make_cursor(name, initial, partial(self._cursor_ended, name))
        task = asyncio.create_task(self._open(name, cursor), name=f"open {name} of {self._topic}")
        self._opening[name] = task
        task.add_done_callback(lambda _: self._opening.pop(name, None))

    async def _open(self, name: str, cursor: StoredCursor) -> Subscription:
        try:
            await cursor.open()
        except BaseException as error:
            await cursor.abandon()
            if isinstance(error, NoSuchTopicError):
                self._stored.discard(name)
            if name not in self._stored:
                del self._cursors[name]
            raise
        self._stored.add(name)
        return self._add(name, cursor)

    def _cursor_ended(self, name: str, error: DaybookError) -> None:
        """A cursor persists nothing more: whoever comes next opens it anew. Until then it holds back the trimming."""
        log.warning("a cursor ended", topic=self._topic, subscription=name, why=str(error))
        subscription = self._by_name.pop(name, None)
        if subscription is not None:
            subscription.stop()
            subscription.disconnect()

    def _add(self, name: str, cursor: StoredCursor | ReaderCursor) -> Subscription:
        found = self._by_name[name] = Subscription(
            self._topic,
            name,
            self._extent,
            self._reads,
            cursor,
            make_compacted=self._make_compacted,
            is_durable=not isinstance(cursor, ReaderCursor),
            policy=self._policy,
            consumers_max=self._consumers_max,
            on_empty=self._emptied,
        )
        return found

    def _emptied(self, subscription: Subscription) -> None:
        """The last consumer left. A reader's subscription ends with it."""
        if not subscription.is_durable and self._by_name.get(subscription.name) is subscription:
            subscription.stop()
            del self._by_name[subscription.name]
            self.last_left_ms = monotonic_ms()

    # Deleting

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription of a consumer. Raises NotAllowedError if it has others, unless `force`."""
        subscription = consumer.subscription
        others = len(subscription.consumers) - 1
        if others and not force:
            msg = f"subscription {subscription.name} of topic {self._topic} has {others} other consumers: close them first"
            raise NotAllowedError(msg)
        consumer.detach()
        await self.delete(subscription)

    async def delete(self, subscription: Subscription) -> None:
        """Delete a subscription; its consumers connect again, and begin a new one. Raises NotOwnerError, NotReadyError.

        The deletion continues if whoever awaits it is cancelled, as by the loss of a client's connection.
        """
        name = subscription.name
        if self._by_name.get(name) is not subscription:
            return
        if self._is_closing:
            raise self._closing()
        del self._by_name[name]
        self.last_left_ms = monotonic_ms()
        subscription.stop()
        subscription.disconnect()
        cursor = self._cursors.get(name)
        if cursor is None:
            return
        deletion = asyncio.create_task(self._delete(name, cursor), name=f"delete {name} of {self._topic}")
        self._leaving[name] = deletion
        deletion.add_done_callback(partial(self._deletion_ended, name))
        await shielded(deletion)

    async def _delete(self, name: str, cursor: StoredCursor) -> None:
        await cursor.delete()
        del self._cursors[name]
        self._stored.discard(name)

    def _deletion_ended(self, name: str, deletion: asyncio.Task[None]) -> None:
        """One that failed has left the subscription: it holds the trimming, and is opened anew when a consumer comes."""
        del self._leaving[name]
        if not deletion.cancelled() and (error := deletion.exception()) is not None:
            log.warning(
                "a subscription could not be deleted", topic=self._topic, subscription=name, why=str(error)
            )

    # What the topic does

    def wake(self) -> None:
        """The topic has more entries, or will have none any more."""
        for subscription in self._by_name.values():
            subscription.wake()

    def tick(self) -> None:
        """Let time pass; called at least once a second."""
        for cursor in self._cursors.values():
            cursor.tick()

    def list_changed(self, version: int) -> None:
        """The topic's list has this version now: cursors are written by its owner alone (rule 38)."""
        for cursor in self._cursors.values():
            cursor.list_changed(version)

    async def close(self) -> None:
        """Deliver nothing more, and store how far everybody is: the next owner begins there. It waits for ZooKeeper; bound it."""
        self.stop()
        await asyncio.gather(*(cursor.close() for cursor in self._cursors.values()))

    async def abandon(self) -> None:
        """End at once: messages that were acknowledged in the last second are delivered again by the next owner."""
        self.stop()
        await asyncio.gather(*(cursor.abandon() for cursor in self._cursors.values()))

    def stop(self) -> None:
        """Deliver nothing more."""
        self._is_closing = True
        for task in self._opening.values():
            task.cancel()
        for subscription in self._by_name.values():
            subscription.stop()

    def announce(self, urls: BrokerUrls | None) -> None:
        """After the end of the topic: send all clients elsewhere, to the broker at `urls` if it is known."""
        for subscription in self.all():
            subscription.disconnect(urls)
