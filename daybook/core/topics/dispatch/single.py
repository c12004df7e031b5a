"""The delivery of exclusive and failover subscriptions, and of readers: one consumer receives everything, in order.

A failover subscription has several consumers, and one of them is active; never two (rule 64). When another one is to be active, the former one is
notified first. It may still acknowledge what it has, so the next one becomes active only after a pause, unless the former one left. Then
delivery begins again behind the mark-delete position: whatever is not acknowledged has one receiver, the active one.

Redelivery begins again at the same position, whichever messages the consumer names, because delivery keeps the order (rule 65).
"""

from collections.abc import Sequence
from typing import assert_never

from daybook.core.machine import RequestIds
from daybook.core.topics.acks import AckState
from daybook.core.topics.dispatch.active import NO_PARTITION, choose_active
from daybook.core.topics.dispatch.consumers import Consumer, notify_of_end
from daybook.core.topics.dispatch.entries import TopicEntry, messages_left
from daybook.core.topics.dispatch.events import (
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
    EntriesAcked,
    EntriesExpected,
    EntriesRead,
    PermitsGranted,
    ReadFailed,
    RedeliveryRequested,
    SingleEvent,
    StartTimer,
    TimerFired,
)
from daybook.core.topics.dispatch.new_entries import Horizon, NewEntries
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.dispatch.read_pause import ReadPause
from daybook.core.topics.extent import TopicExtent


class SingleDispatch:
    """The machine of one subscription with one active consumer. It may have others only if `is_failover`."""

    def __init__(
        self,
        topic: str,
        extent: TopicExtent,
        acks: AckState,
        *,
        is_failover: bool = False,
        partition: int = NO_PARTITION,
        policy: DispatchPolicy | None = None,
        horizon: Horizon | None = None,
        ids: RequestIds | None = None,
    ) -> None:
        """With `horizon` the consumers read what is compacted up to it, then the topic's own ledgers.

        `ids` are those of the machine that this one follows, whose answers may still come.
        """
        self._topic = topic
        self._extent = extent
        self._acks = acks
        self._is_failover = is_failover
        self._partition = partition
        self._policy = policy or DispatchPolicy()
        self._ids = ids or RequestIds()
        self._request_id = 0
        """Of the read that is under way."""
        self._pause = ReadPause(self._ids, self._policy.retry_ms)
        self._new = NewEntries(extent, acks, self._policy, horizon)
        self.consumers: dict[ConsumerKey, Consumer] = {}
        self.active: Consumer | None = None
        """The one that receives; none while a switch waits for the former one."""
        self._former: Consumer | None = None
        """Who was active last, and received what `_new` is behind."""
        self._switch_timer_id = 0

    @property
    def is_done(self) -> bool:
        """Whether no consumer is there, so that nothing is asked for."""
        return not self.consumers

    def start(self) -> list[DispatchEffect]:
        """The first effects."""
        return []

    def step(self, event: SingleEvent) -> list[DispatchEffect]:
        """The effects of an event. Every event but an answer names a consumer that is there."""
        out: list[DispatchEffect] = []
        match event:
            case PermitsGranted() | ConsumerPaused() | ConsumerResumed():
                self.consumers[event.key].take_news(event)
            case EntriesAcked():
                self._acked(event)
            case AckedThrough():
                self._acks.ack_through(*event.acked)
            case EntriesRead():
                self._read(event, out)
            case EntriesExpected() | AcksAdvanced():
                pass
            case ConsumerAdded():
                self._add(event, out)
            case ConsumerRemoved():
                self._remove(event, out)
            case RedeliveryRequested():
                self._deliver_again(event)
            case ReadFailed():
                self._read_failed(event, out)
            case AcksReset():
                self._reset()
            case TimerFired():
                self._timer_fired(event, out)
            case _:
                assert_never(event)
        notify_of_end(self.consumers.values(), self._extent, self._acks, out)
        self._go_on(out)
        return out

    # Consumers

    def _add(self, event: ConsumerAdded, out: list[DispatchEffect]) -> None:
        assert self._is_failover or not self.consumers, "an exclusive subscription has one consumer"
        assert event.key not in self.consumers
        consumer = self.consumers[event.key] = Consumer.of(event)
        before = self.active
        self._choose(out)
        if self.active is before or self.active is None:
            self._announce(consumer, out, is_active=False)

    def _remove(self, event: ConsumerRemoved, out: list[DispatchEffect]) -> None:
        consumer = self.consumers.pop(event.key)
        if consumer is self.active:
            self.active = None
        if consumer is self._former:
            self._former = None
            self._switch_timer_id = 0
            self._rewind()
        self._choose(out)

    def _choose(self, out: list[DispatchEffect]) -> None:
        """Let the right one be active: at once, or once the former one had time for what it has."""
        if self._switch_timer_id:
            return
        chosen = choose_active(self.consumers.values(), self._topic, self._partition)
        if chosen is None or chosen is self.active:
            return
        if self.active is not None:
            self._announce(self.active, out, is_active=False)
            self.active = None
            self._switch_timer_id = self._ids.next()
            out.append(StartTimer(self._switch_timer_id, self._policy.switch_delay_ms))
            return
        if chosen is not self._former:
            self._former = chosen
            self._rewind()
        self.active = chosen
        self._announce(chosen, out, is_active=True)

    def _announce(self, consumer: Consumer, out: list[DispatchEffect], *, is_active: bool) -> None:
        if self._is_failover:
            out.append(ActiveChanged(consumer.key, is_active))

    def _timer_fired(self, event: TimerFired, out: list[DispatchEffect]) -> None:
        if event.timer_id == self._switch_timer_id:
            self._switch_timer_id = 0
            self._choose(out)
        else:
            self._pause.ends(event.timer_id)

    # Acknowledgements

    def _acked(self, event: EntriesAcked) -> None:
        for position, words, batch_size in event.acked:
            if words:
                self._acks.ack_batch(position, words, batch_size)
            else:
                self._acks.ack(position)

    def _deliver_again(self, event: RedeliveryRequested) -> None:
        consumer = self.consumers[event.key]
        consumer.asks_again(event.epoch)
        if consumer is self._former:  # the active one, or the one that may become it again after the switch
            self._rewind()

    def _reset(self) -> None:
        for consumer in self.consumers.values():
            consumer.knows_end = False
        self._rewind()

    def _rewind(self) -> None:
        """Begin again behind the mark-delete position; what is being read counts no more."""
        self._new.rewind()
        self._request_id = 0

    # Entries

    def _read(self, event: EntriesRead, out: list[DispatchEffect]) -> None:
        if event.request_id != self._request_id:
            return
        self._request_id = 0
        if event.entries or event.compacted is not None:
            self._new.read(event)
        else:
            self._pause.begin(out)

    def _read_failed(self, event: ReadFailed, out: list[DispatchEffect]) -> None:
        if event.request_id != self._request_id:
            return
        self._request_id = 0
        self._pause.begin(out)

    def _go_on(self, out: list[DispatchEffect]) -> None:
        """Deliver what there is, and ask for more."""
        consumer = self.active
        if consumer is None or not consumer.is_ready:
            return
        if self._new.waiting:
            self._deliver(consumer, out)
        if consumer.permits > 0 and not self._request_id and not self._pause.is_on:
            request_id = self._ids.next()
            request = self._new.request(request_id, consumer.permits)
            if request is not None:
                self._request_id = request_id
                out.append(request)

    def _deliver(self, consumer: Consumer, out: list[DispatchEffect]) -> None:
        entries: list[TopicEntry] = []
        ack_sets: list[Sequence[int]] = []
        waiting = self._new.waiting
        if not self._new.left and self._acks.is_untouched_from(waiting[0].position):
            for each in waiting:
                if consumer.permits <= 0:
                    break
                entries.append(each)
                consumer.permits -= each.messages
            del waiting[: len(entries)]
            out.append(Deliver(consumer.key, entries, epoch=consumer.epoch))
            return
        while consumer.is_ready and (entry := self._new.take()) is not None:
            words = self._new.words(entry.position)
            consumer.permits -= messages_left(words) if words else entry.messages
            entries.append(entry)
            ack_sets.append(words)
        if entries:
            partly = ack_sets if any(ack_sets) else ()
            out.append(Deliver(consumer.key, entries, ack_sets=partly, epoch=consumer.epoch))
