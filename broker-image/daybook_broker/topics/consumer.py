"""A consumer of a subscription, as its connection announced it: entries leave as they are stored, behind a head of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from daybook.core.format.frame import Buffer
from daybook.core.topics.dispatch.active import NO_PARTITION
from daybook.core.topics.dispatch.events import ConsumerKey, Deliver
from daybook.runtime.clock import unix_ms
from daybook.wire.pulsar.by_hand import encode_message_head
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandActiveConsumerChange,
    CommandReachedEndOfTopic,
)
from daybook_broker.topics.peer import BrokerUrls, Peer
from daybook_broker.totals import Totals

if TYPE_CHECKING:
    from daybook_broker.topics.subscription import Subscription

ACTIVE_CHANGES_SINCE: Final = 12
"""The protocol version from which on clients know ACTIVE_CONSUMER_CHANGE."""


class SubscriptionKind(Enum):
    """How the consumers of a subscription share its messages."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"


@dataclass(frozen=True, slots=True)
class ConsumerWish:
    """What a client asks for with SUBSCRIBE, about the consumer."""

    consumer_id: int
    name: str
    kind: SubscriptionKind
    priority: int = 0
    epoch: int | None = None
    partition: int = NO_PARTITION
    """Of the topic; part of each message's id."""
    reads_compacted: bool = False
    """Whether it receives what is compacted, up to the horizon."""
    protocol_version: int = ACTIVE_CHANGES_SINCE
    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that the client gives it, for people."""


class Consumer:
    """A consumer that is connected."""

    __slots__ = (
        "_on_closed",
        "_totals",
        "acks",
        "bytes_out",
        "entries_out",
        "id",
        "is_closed",
        "is_waiting",
        "key",
        "messages_out",
        "name",
        "peer",
        "redelivered",
        "since_unix_s",
        "subscription",
        "wish",
    )

    def __init__(
        self,
        wish: ConsumerWish,
        subscription: "Subscription",
        peer: Peer,
        totals: Totals,
        *,
        on_closed: Callable[["Consumer", BrokerUrls | None], None],
    ) -> None:
        """`on_closed` removes it from its connection, and sends CLOSE_CONSUMER."""
        self.id = wish.consumer_id
        self.name = wish.name
        self.wish = wish
        self.key: ConsumerKey = 0
        """Given by the subscription when it admits the consumer."""
        self.subscription = subscription
        self.peer = peer
        self.is_closed = False
        self.is_waiting = False
        """Whether it receives nothing because its connection takes nothing."""
        self.since_unix_s = unix_ms() / 1000
        self.entries_out = self.messages_out = self.bytes_out = self.redelivered = self.acks = 0
        self._totals = totals
        self._on_closed = on_closed

    def deliver(self, delivery: Deliver) -> int:
        """Send entries, in order; how many bytes they have."""
        entries, counts, ack_sets = delivery.entries, delivery.redelivery_counts, delivery.ack_sets
        consumer_id, partition, epoch = self.id, self.wish.partition, delivery.epoch
        parts: list[Buffer] = []
        messages_out = bytes_out = 0
        for index, ((ledger_id, entry_id), data, messages) in enumerate(entries):
            size_bytes = len(data)
            parts += (
                encode_message_head(
                    consumer_id,
                    ledger_id,
                    entry_id,
                    size_bytes,
                    partition=partition,
                    redelivery_count=counts[index] if counts else 0,
                    ack_set=ack_sets[index] if ack_sets else (),
                    consumer_epoch=epoch,
                ),
                data,
            )
            messages_out += messages
            bytes_out += size_bytes
        self.peer.send(*parts)
        redelivered = sum(1 for count in counts if count)
        self.entries_out += len(entries)
        self.messages_out += messages_out
        self.bytes_out += bytes_out
        self.redelivered += redelivered
        totals = self._totals
        totals.entries_out += len(entries)
        totals.messages_out += messages_out
        totals.bytes_out += bytes_out
        totals.redelivered += redelivered
        return bytes_out

    def acknowledged(self, messages: int) -> None:
        """The client has sent so many acknowledgements."""
        self.acks += messages
        self._totals.acks += messages

    def active_changed(self, *, is_active: bool) -> None:
        """Notify the client whether the consumer is the active one of a failover subscription."""
        if self.wish.protocol_version >= ACTIVE_CHANGES_SINCE:
            change = CommandActiveConsumerChange(consumer_id=self.id, is_active=is_active)
            command = BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)
            self.peer.send(encode_frame(command))

    def reached_end(self) -> None:
        """Notify the client that nothing will follow."""
        end = CommandReachedEndOfTopic(consumer_id=self.id)
        self.peer.send(
            encode_frame(BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC, reachedEndOfTopic=end))
        )

    def detach(self) -> None:
        """The connection is lost, or the client has closed the consumer: others receive what it has not acknowledged."""
        if not self.is_closed:
            self.is_closed = True
            self.subscription.remove(self)

    def close(self, urls: BrokerUrls | None = None) -> None:
        """The broker closes the consumer: the client connects it again, to the broker at `urls` if they are known."""
        self.is_closed = True
        self._on_closed(self, urls)
