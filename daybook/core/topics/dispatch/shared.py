"""The delivery of shared subscriptions: each entry goes to one of the consumers, in turn, and to another one if that one does not
acknowledge it.

What is to be delivered again goes first, the lowest position first (rule 65): new entries wait until it is read. An entry is with one
consumer, or due, or new, or acknowledged; whatever becomes of a consumer, none is forgotten. When the last consumer leaves, delivery
begins again behind the mark-delete position, and the counts of redeliveries begin anew.

The chunks of a message all go to the consumer that received the first of them, at once and whatever it has permits for: it needs them all
before it can acknowledge any. Only a connection that takes nothing holds them up, and what comes after them with them.
"""

from typing import assert_never

from daybook.core.machine import RequestIds
from daybook.core.topics.acks import AckState
from daybook.core.topics.dispatch.chunks import ChunkHolders, ChunkOf, no_chunks
from daybook.core.topics.dispatch.consumers import Consumer, notify_of_end
from daybook.core.topics.dispatch.entries import TopicEntry, messages_left
from daybook.core.topics.dispatch.events import (
    AcksAdvanced,
    AcksReset,
    ConsumerAdded,
    ConsumerKey,
    ConsumerPaused,
    ConsumerRemoved,
    ConsumerResumed,
    Deliver,
    DispatchEffect,
    EntriesAcked,
    EntriesExpected,
    EntriesRead,
    PermitsGranted,
    ReadAgain,
    ReadEntries,
    ReadFailed,
    RedeliveryRequested,
    SharedEvent,
    TimerFired,
)
from daybook.core.topics.dispatch.new_entries import NewEntries
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.dispatch.read_pause import ReadPause
from daybook.core.topics.dispatch.redelivery import Redelivery
from daybook.core.topics.dispatch.rotation import Rotation
from daybook.core.topics.dispatch.unacked import Unacked
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position


class SharedDispatch:
    """The machine of one shared subscription."""

    def __init__(
        self,
        extent: TopicExtent,
        acks: AckState,
        *,
        policy: DispatchPolicy | None = None,
        chunk_of: ChunkOf = no_chunks,
        ids: RequestIds | None = None,
    ) -> None:
        """`ids` are those of the machine that this one follows, whose answers may still come."""
        self._extent = extent
        self._acks = acks
        self._policy = policy or DispatchPolicy()
        self._ids = ids or RequestIds()
        self._request: ReadEntries | ReadAgain | None = None
        """The read that is under way."""
        self._pause = ReadPause(self._ids, self._policy.retry_ms)
        self._new = NewEntries(extent, acks, self._policy)
        self._redelivery = Redelivery()
        self._again: dict[Position, TopicEntry] = {}
        """Entries that are due and were read: of about the lowest positions, as many as one read returns."""
        self._unacked = Unacked(self._policy)
        self._rotation = Rotation()
        self._chunks = ChunkHolders(chunk_of)
        self._is_held_up = False
        """Whether the next entry is for a consumer whose connection takes nothing."""
        self.consumers: dict[ConsumerKey, Consumer] = {}

    @property
    def is_done(self) -> bool:
        """Whether no consumer is there, so that nothing is asked for."""
        return not self.consumers

    @property
    def is_blocked(self) -> bool:
        """Whether so many are that nobody receives anything."""
        return self._unacked.is_full

    def start(self) -> list[DispatchEffect]:
        """The first effects."""
        return []

    def step(self, event: SharedEvent) -> list[DispatchEffect]:
        """The effects of an event. Every event but an answer names a consumer that is there."""
        out: list[DispatchEffect] = []
        match event:
            case PermitsGranted() | ConsumerPaused() | ConsumerResumed():
                self.consumers[event.key].take_news(event)
            case EntriesAcked():
                self._acked(event)
            case EntriesRead():
                self._read(event, out)
            case EntriesExpected():
                pass
            case ConsumerAdded():
                self._add(event)
            case ConsumerRemoved():
                self._remove(event)
            case RedeliveryRequested():
                self._deliver_again(event)
            case ReadFailed():
                self._read_failed(event, out)
            case AcksAdvanced():
                self._forget_acked()
            case AcksReset():
                self._reset()
            case TimerFired():
                self._pause.ends(event.timer_id)
            case _:
                assert_never(event)
        notify_of_end(self.consumers.values(), self._extent, self._acks, out)
        self._go_on(out)
        return out

    # Consumers

    def _add(self, event: ConsumerAdded) -> None:
        assert event.key not in self.consumers
        consumer = self.consumers[event.key] = Consumer.of(event)
        self._rotation.add(consumer)
        self._unacked.add_consumer(consumer)

    def _remove(self, event: ConsumerRemoved) -> None:
        consumer = self.consumers.pop(event.key)
        self._rotation.remove(consumer)
        self._chunks.left(consumer.key)
        self._redelivery.add(self._unacked.remove_consumer(consumer), is_counted=False)
        if not self.consumers:
            self._begin_again()

    def _deliver_again(self, event: RedeliveryRequested) -> None:
        consumer = self.consumers[event.key]
        consumer.asks_again(event.epoch)
        self._redelivery.add(self._unacked.take_back(consumer, event.positions), is_counted=True)

    def _reset(self) -> None:
        for consumer in self.consumers.values():
            consumer.knows_end = False
            self._unacked.take_back(consumer)
        self._begin_again()

    def _begin_again(self) -> None:
        """Deliver from behind the mark-delete position on; what is being read counts no more."""
        self._redelivery.clear()
        self._again.clear()
        self._chunks.clear()
        self._new.rewind()
        self._request = None

    # Acknowledgements

    def _acked(self, event: EntriesAcked) -> None:
        """Acknowledge entries, whoever has them: the consumer may have received them before it reconnected."""
        acks = self._acks
        for position, words, batch_size in event.acked:
            if acks.ack_batch(position, words, batch_size) if words else acks.ack(position):
                self._unacked.remain(self.consumers, event.key, position, 0)
                self._forget(position)
            elif left := messages_left(acks.ack_set(position)):
                self._unacked.remain(self.consumers, event.key, position, left)

    def _forget_acked(self) -> None:
        self._unacked.drop_where(self.consumers, self._acks.is_acked)
        self._redelivery.forget_where(self._acks.is_acked)
        self._keep_what_is_due()

    def _forget(self, position: Position) -> None:
        self._redelivery.forget(position)
        self._again.pop(position, None)

    def _keep_what_is_due(self) -> None:
        self._again = {
            position: entry for position, entry in self._again.items() if position in self._redelivery
        }

    # Reads

    def _ask(self, permits: int, out: list[DispatchEffect]) -> None:
        """Read what comes next, if nothing is being read."""
        if self._request is not None or self._pause.is_on:
            return
        request_id = self._ids.next()
        if self._redelivery:
            positions = self._redelivery.first(self._new.pace.entries_for(permits))
            self._again = {each: self._again[each] for each in positions if each in self._again}
            self._request = ReadAgain(request_id, [each for each in positions if each not in self._again])
        else:
            self._request = self._new.request(request_id, permits)
        if self._request is not None:
            out.append(self._request)

    def _read(self, event: EntriesRead, out: list[DispatchEffect]) -> None:
        request = self._request
        if request is None or event.request_id != request.request_id:
            return
        self._request = None
        if isinstance(request, ReadAgain):
            self._again.update((entry.position, entry) for entry in event.entries)
            for position in request.positions:
                if position not in self._again:
                    self._redelivery.forget(position)
            self._keep_what_is_due()
        elif event.entries:
            self._new.read(event)
        else:
            self._pause.begin(out)

    def _read_failed(self, event: ReadFailed, out: list[DispatchEffect]) -> None:
        if self._request is None or event.request_id != self._request.request_id:
            return
        self._request = None
        self._pause.begin(out)

    # Delivery

    def _go_on(self, out: list[DispatchEffect]) -> None:
        """Deliver what there is, by turns, and ask for more."""
        self._is_held_up = False
        while not self._unacked.is_full and (ready := self._rotation.ready()):
            waiting = len(self._new.waiting) + len(self._again)
            share = max(1, min(waiting // len(ready), self._policy.turn_entries_max))
            for consumer in ready:
                if not consumer.is_ready:
                    continue  # a chunk that another one's turn came upon took its last permit
                if not self._serve(consumer, share, out):
                    if not self._unacked.is_full and not self._is_held_up:
                        self._ask(sum(each.permits for each in ready), out)
                    return

    def _serve(self, consumer: Consumer, entries_max: int, out: list[DispatchEffect]) -> bool:
        """Deliver at most so many entries to the consumer, and chunks to those who wait for them; False if there is nothing to deliver."""
        delivery = _Delivery(consumer)
        others = 0
        while (
            len(delivery.entries) + others < entries_max
            and consumer.is_ready
            and not self._unacked.is_full
            and (entry := self._take()) is not None
        ):
            key = self._chunks.receiver(entry, consumer.key)
            if key == consumer.key:
                self._hand(entry, delivery)
            elif self.consumers[key].is_paused:
                self._is_held_up = True
                self._redelivery.add([entry.position], is_counted=False)
                self._again[entry.position] = entry
                break
            else:
                other = _Delivery(self.consumers[key])
                self._hand(entry, other)
                others += 1
                self._leave(other, out)
        if delivery.entries:
            self._leave(delivery, out)
        return bool(delivery.entries or others)

    def _hand(self, entry: TopicEntry, delivery: "_Delivery") -> None:
        """The entry is with the consumer from now on."""
        consumer = delivery.consumer
        words = self._acks.ack_set(entry.position)
        messages = messages_left(words) if words else entry.messages
        consumer.permits -= messages
        self._unacked.add(consumer, entry.position, messages)
        self._chunks.delivered(entry, consumer.key)
        delivery.entries.append(entry)
        delivery.counts.append(self._redelivery.count(entry.position))
        delivery.ack_sets.append(words)

    def _leave(self, delivery: "_Delivery", out: list[DispatchEffect]) -> None:
        """The consumer has had its turn; one whose turn brought it nothing, because all was for others, keeps it."""
        self._rotation.served(delivery.consumer)
        out.append(delivery.effect())

    def _take(self) -> TopicEntry | None:
        """The entry that comes next, if it was read."""
        lowest = self._redelivery.lowest
        if lowest is None:
            return self._new.take()
        entry = self._again.pop(lowest, None)
        if entry is not None:
            self._redelivery.delivered(lowest)
        return entry


class _Delivery:
    """What a consumer receives in one turn."""

    __slots__ = ("ack_sets", "consumer", "counts", "entries")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.entries: list[TopicEntry] = []
        self.counts: list[int] = []
        self.ack_sets: list[tuple[int, ...]] = []

    def effect(self) -> Deliver:
        """It, as an effect."""
        return Deliver(
            self.consumer.key,
            self.entries,
            self.counts if any(self.counts) else (),
            self.ack_sets if any(self.ack_sets) else (),
            self.consumer.epoch,
        )
