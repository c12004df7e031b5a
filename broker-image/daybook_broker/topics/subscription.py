"""A subscription on the topic's owner: its cursor, the machine that delivers, and the consumers that receive.

The machine (daybook/core/topics/dispatch) decides; here its reads, timers and deliveries are carried out. What is in memory is delivered in
the turn of the event loop in which it was published; what is not is read by one task, never one for each entry. A connection that takes
nothing is waited for, so that a consumer that is slow costs the broker the bytes of its send buffer and of one read.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, assert_never

from daybook.core.errors import DaybookError
from daybook.core.machine import RequestIds
from daybook.core.topics.acks import AckState
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.dispatch.events import (
    Acked,
    AckedThrough,
    AcksAdvanced,
    AcksReset,
    ActiveChanged,
    ConsumerAdded,
    ConsumerKey,
    ConsumerPaused,
    ConsumerRemoved,
    ConsumerResumed,
    Deliver,
    DispatchEffect,
    EndReached,
    EntriesAcked,
    EntriesExpected,
    EntriesRead,
    PermitsGranted,
    ReadAgain,
    ReadEntries,
    ReadFailed,
    RedeliveryRequested,
    SingleEvent,
    StartTimer,
    TimerFired,
)
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.dispatch.shared import SharedDispatch
from daybook.core.topics.dispatch.single import SingleDispatch
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, Position
from daybook.runtime.logs import get_logger
from daybook.wire.pulsar.chunks import chunk_of
from daybook_broker.errors import ConsumerBusyError, NotAllowedError, NotReadyError
from daybook_broker.topics.by_time import last_before
from daybook_broker.topics.compacted_reads import CompactedReads, LastMessage
from daybook_broker.topics.consumer import Consumer, ConsumerWish, SubscriptionKind
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.reading import TopicReads
from daybook_broker.topics.tasks import Tasks

log = get_logger(__name__)

SEEK_RETURN_S: Final = 60.0
"""How long the position of a reader that seeks is kept for it."""
TURN_BYTES_MAX: Final = 2 * 2**20
"""Bytes that a subscription delivers from memory before others have their turn of the event loop."""


MakeCompactedReads: TypeAlias = Callable[[], CompactedReads]
"""For a subscription whose consumers read what is compacted."""


class Cursor(Protocol):
    """The cursor of a subscription, as far as delivery needs it."""

    @property
    def acks(self) -> AckState:
        """What is acknowledged."""

    async def flush(self) -> None:
        """Store it; returns once it is durable."""


class Subscription:
    """One subscription of a topic. Made by `Subscriptions`, once its cursor is open."""

    def __init__(
        self,
        topic: str,
        name: str,
        extent: TopicExtent,
        reads: TopicReads,
        cursor: Cursor,
        *,
        make_compacted: MakeCompactedReads,
        is_durable: bool = True,
        policy: DispatchPolicy | None = None,
        consumers_max: int,
        on_empty: Callable[["Subscription"], None],
    ) -> None:
        """`on_empty` is called when the last consumer has left for good."""
        self.topic = topic
        self.name = name
        self.is_durable = is_durable
        self.cursor = cursor
        self.kind: SubscriptionKind | None = None
        """Of its consumers, or its last ones."""
        self.consumers: dict[ConsumerKey, Consumer] = {}
        self._extent = extent
        self._reads = reads
        self._policy = policy or DispatchPolicy()
        self._consumers_max = consumers_max
        self._on_empty = on_empty
        self._make_compacted = make_compacted
        self._compacted: CompactedReads | None = None
        """What the consumers read up to the horizon, if they asked for it."""
        self._machine: SingleDispatch | SharedDispatch | None = None
        self._ids = RequestIds()
        """Of all its machines, one after the other: a late answer to a former one, or its timer, is nobody's."""
        self._last_key = 0
        self._events: list[SingleEvent] = []
        self._is_stepping = False
        self._turn_bytes = 0
        self._tasks = Tasks(self._crash)
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._is_stopped = False
        self._is_seeking = False
        """Whether consumers were sent away to come back, so that the subscription of a reader waits for it."""

    @property
    def acks(self) -> AckState:
        """What is acknowledged."""
        return self.cursor.acks

    @property
    def machine(self) -> SingleDispatch | SharedDispatch | None:
        """What delivers, for statistics; None before the first consumer."""
        return self._machine

    # Consumers

    async def admit(self, wish: ConsumerWish) -> None:
        """Raise unless such a consumer may come now: ConsumerBusyError, NotReadyError.

        The consumer of an exclusive subscription makes room if its client does not answer any more.
        """
        self._check_fits(wish)
        if wish.kind is SubscriptionKind.EXCLUSIVE and self.consumers:
            (other,) = self.consumers.values()
            if await other.peer.is_alive():
                msg = f"subscription {self.name} of {self.topic} is exclusive, and {other.name!r} from {other.peer.address} has it: "
                raise ConsumerBusyError(msg + "close that consumer, or use another subscription or type")
            other.detach()

    def check(self, wish: ConsumerWish) -> None:
        """Raise unless `add` takes such a consumer now."""
        self._check_fits(wish)
        if wish.kind is SubscriptionKind.EXCLUSIVE and self.consumers:
            msg = f"subscription {self.name} of {self.topic} is exclusive, and another consumer was faster: try again later"
            raise ConsumerBusyError(msg)

    def _check_fits(self, wish: ConsumerWish) -> None:
        """Raise unless such a consumer fits to the others."""
        self._check_open()
        if not self.consumers:
            return
        if wish.kind is not self.kind:
            assert self.kind is not None
            msg = f"subscription {self.name} of {self.topic} is {self.kind.value} while it has consumers: subscribe with that type"
            raise ConsumerBusyError(msg)
        if wish.reads_compacted != (self._compacted is not None):
            msg = f"the consumers of subscription {self.name} of {self.topic} either all read what is compacted, or none: subscribe as the others"
            raise ConsumerBusyError(msg)
        if len(self.consumers) >= self._consumers_max:
            msg = f"subscription {self.name} of {self.topic} has {self._consumers_max} consumers: close some, or raise consumers_max"
            raise ConsumerBusyError(msg)

    def _check_open(self) -> None:
        if self._is_stopped:
            raise NotReadyError(f"subscription {self.name} of {self.topic} is being closed: look it up again")

    def add(self, consumer: Consumer) -> None:
        """A consumer is there. Raises what `check` raises."""
        wish = consumer.wish
        self.check(wish)
        is_other = wish.kind is not self.kind or wish.reads_compacted != (self._compacted is not None)
        if self._machine is None or is_other:
            self.kind = wish.kind
            self._compacted = self._make_compacted() if wish.reads_compacted else None
            self._machine = self._new_machine(wish)
            self._perform_all(self._machine.start())
        self._last_key += 1
        consumer.key = self._last_key
        self.consumers[consumer.key] = consumer
        self._step(ConsumerAdded(consumer.key, consumer.name, wish.priority, wish.epoch))

    def _new_machine(self, wish: ConsumerWish) -> SingleDispatch | SharedDispatch:
        if wish.kind is SubscriptionKind.SHARED:
            return SharedDispatch(
                self._extent, self.acks, policy=self._policy, chunk_of=chunk_of, ids=self._ids
            )
        return SingleDispatch(
            self.topic,
            self._extent,
            self.acks,
            is_failover=wish.kind is SubscriptionKind.FAILOVER,
            partition=wish.partition,
            policy=self._policy,
            horizon=None if self._compacted is None else self._compacted.horizon,
            ids=self._ids,
        )

    def remove(self, consumer: Consumer) -> None:
        """A consumer is gone."""
        if self.consumers.pop(consumer.key, None) is not None:
            self._step(ConsumerRemoved(consumer.key))
            self.check_empty()

    def check_empty(self) -> None:
        """End a reader's subscription that has no consumer, unless its consumers are to come back after a seek."""
        if not self.consumers and not self._is_seeking:
            self._on_empty(self)

    # What clients ask for

    def flow(self, consumer: Consumer, permits: int) -> None:
        """The consumer takes so many messages more."""
        self._step(PermitsGranted(consumer.key, permits))

    def ack(self, consumer: Consumer, acked: Sequence[Acked]) -> None:
        """Acknowledge entries, or parts of batches. Raises NotReadyError where they are not taken any more: the next owner delivers them again."""
        self._check_open()
        consumer.acknowledged(len(acked))
        self._step(EntriesAcked(consumer.key, acked))

    def ack_through(self, consumer: Consumer, acked: Acked) -> None:
        """Acknowledge everything up to an entry. Raises NotAllowedError on a shared subscription, and NotReadyError as `ack`."""
        self._check_open()
        if self.kind is SubscriptionKind.SHARED:
            msg = f"subscription {self.name} of {self.topic} is shared, which has no cumulative acknowledgements: acknowledge each message"
            raise NotAllowedError(msg)
        consumer.acknowledged(1)
        self._step(AckedThrough(consumer.key, acked))

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Deliver these again, or all that the consumer has not acknowledged (None)."""
        self._step(RedeliveryRequested(consumer.key, positions, epoch))

    async def seek(self, first: Position, *, batch: Acked | None = None) -> None:
        """Begin again with `first`, in the middle of it if it is a `batch`. All consumers connect again."""
        mark_delete = self._extent.before(first)
        if self._compacted is not None and first <= self._extent.first:
            mark_delete = max(NO_POSITION, first.before)
        await self._reset(mark_delete, batch, reaches_back=self._compacted is not None)

    async def _reset(self, mark_delete: Position, batch: Acked | None = None, *, reaches_back: bool) -> None:
        self._is_seeking = True
        self.disconnect()
        self.acks.reset(mark_delete, reaches_back=reaches_back)
        if batch is not None:
            self.acks.ack_batch(*batch)
        self._step(AcksReset())
        asyncio.get_running_loop().call_later(SEEK_RETURN_S, self._seek_ended)
        await self.cursor.flush()

    def _seek_ended(self) -> None:
        """Nobody came back, or somebody did."""
        self._is_seeking = False
        self.check_empty()

    async def seek_time(self, unix_ms: int, *, reads_compacted: bool = False) -> None:
        """Begin again with the first entry that was published at `unix_ms` or later, as its consumers read it. All connect again.

        `reads_compacted`: how the first one will read, if there is none yet.
        """
        last = await last_before(self._extent, self._reads, unix_ms)
        compacted = self._make_compacted() if reads_compacted else self._compacted
        if compacted is not None and (last < self._extent.first or last <= compacted.horizon()):
            last = await compacted.last_before(unix_ms)
        await self._reset(last, reaches_back=compacted is not None)

    async def last_message(self) -> LastMessage | None:
        """The last entry that a consumer can receive; None if the topic has none any more. Raises ReadDelayedError, CompactionError."""
        last = self._extent.last_confirmed
        if self._compacted is not None and last <= self._compacted.horizon():
            return await self._compacted.last()
        if not self._extent.contains(last):
            return None
        return next((LastMessage(entry) for entry in await self._reads.read_exact([last])), None)

    def skip_through(self, position: Position) -> None:
        """Take everything up to `position` as acknowledged: its time is over, or a person skips it."""
        self.acks.ack_through(position)
        self._step(AcksAdvanced())

    def expire_through(self, position: Position) -> bool:
        """The same, if an entry that the topic has and that is not acknowledged is up to `position`; False if none is.

        Then nothing is too old, and what a compaction left of earlier ledgers is still to be received.
        """
        has_expired = self._extent.count(self.acks.mark_delete, position) > 0
        if has_expired:
            self.skip_through(position)
        return has_expired

    def disconnect(self, urls: BrokerUrls | None = None) -> None:
        """Close all consumers; their clients connect again, to the broker at `urls` if they are known."""
        for consumer in list(self.consumers.values()):
            self.remove(consumer)
            consumer.close(urls)

    # The topic

    def wake(self) -> None:
        """The topic has more entries, or will have none any more."""
        if self.consumers:
            self._step(EntriesExpected())

    def stop(self) -> None:
        """Deliver nothing more, and take no more acknowledgements: the topic ends here. Consumers stay until `disconnect`."""
        self._is_stopped = True
        self._events.clear()
        self._tasks.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # The machine

    def _step(self, event: SingleEvent) -> None:
        """Pass an event to the machine and carry out what follows, also where that leads to further events."""
        machine = self._machine
        if machine is None or self._is_stopped:
            return
        self._events.append(event)
        if self._is_stepping:
            return
        step: Any = (
            machine.step
        )  # a shared subscription has refused the one event that its machine does not take
        self._is_stepping = True
        self._turn_bytes = 0
        try:
            while self._events:
                self._perform_all(step(self._events.pop(0)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the machine counts no more, and other subscriptions continue
            self._crash(error)
        finally:
            self._is_stepping = False

    def _crash(self, error: BaseException) -> None:
        """The machine counts no more: all consumers connect again, to another one, which begins behind the mark-delete position."""
        log.error("a subscription's delivery failed", **self._names, exc_info=error)
        self._machine = None
        self._events.clear()
        self.disconnect()

    def _perform_all(self, effects: Sequence[DispatchEffect]) -> None:
        for effect in effects:
            match effect:
                case Deliver():
                    self._deliver(effect)
                case ReadEntries():
                    self._read_soon(effect)
                case ReadAgain():
                    self._tasks.begin(self._read(effect, self._reads.read_exact(effect.positions)))
                case StartTimer():
                    self._timers[effect.timer_id] = asyncio.get_running_loop().call_later(
                        effect.after_ms / 1000, self._fire, effect.timer_id
                    )
                case ActiveChanged():
                    self.consumers[effect.key].active_changed(is_active=effect.is_active)
                case EndReached():
                    self.consumers[effect.key].reached_end()
                case _:
                    assert_never(effect)

    def _deliver(self, effect: Deliver) -> None:
        consumer = self.consumers[effect.key]
        self._turn_bytes += consumer.deliver(effect)
        if not consumer.is_waiting and not consumer.peer.is_writable:
            consumer.is_waiting = True
            self._events.append(ConsumerPaused(consumer.key))
            consumer.peer.call_when_writable(partial(self._resume, consumer))

    def _resume(self, consumer: Consumer) -> None:
        consumer.is_waiting = False
        if consumer.key in self.consumers:
            self._step(ConsumerResumed(consumer.key))

    def _fire(self, timer_id: int) -> None:
        del self._timers[timer_id]
        self._step(TimerFired(timer_id))

    # Reads

    def _read_soon(self, effect: ReadEntries) -> None:
        """Answer from memory at once, while this turn has delivered little; else in another turn."""
        if self._compacted is not None and effect.position <= self._compacted.horizon():
            self._tasks.begin(self._read_compacted(effect, self._compacted))
            return
        found = self._reads.cached(effect.position, effect.entries_max, effect.bytes_max)
        if not found:
            read = self._reads.read(effect.position, effect.entries_max, effect.bytes_max)
            self._tasks.begin(self._read(effect, read))
        elif self._turn_bytes < TURN_BYTES_MAX:
            self._events.append(EntriesRead(effect.request_id, found))
        else:
            asyncio.get_running_loop().call_soon(self._step, EntriesRead(effect.request_id, found))

    async def _read(
        self, effect: ReadEntries | ReadAgain, read: Coroutine[Any, Any, Sequence[TopicEntry]]
    ) -> None:
        answer: SingleEvent = ReadFailed(effect.request_id)
        try:
            answer = EntriesRead(effect.request_id, await read)
        except DaybookError as error:
            log.warning("entries cannot be read yet", **self._names, why=str(error))
        self._step(answer)

    async def _read_compacted(self, effect: ReadEntries, reads: CompactedReads) -> None:
        answer: SingleEvent = ReadFailed(effect.request_id)
        try:
            entries, part = await reads.read(effect.position, effect.entries_max, effect.bytes_max)
            answer = EntriesRead(effect.request_id, entries, part)
        except DaybookError as error:
            log.warning("compacted entries cannot be read yet", **self._names, why=str(error))
        self._step(answer)

    @property
    def _names(self) -> dict[str, str]:
        """What a log says about which subscription it is."""
        return {"topic": self.topic, "subscription": self.name}
