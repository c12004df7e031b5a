"""What the delivery of a subscription knows of its consumers."""

from collections.abc import Iterable
from dataclasses import dataclass

from daybook.core.topics.acks import AckState
from daybook.core.topics.dispatch.events import (
    ConsumerAdded,
    ConsumerKey,
    ConsumerPaused,
    ConsumerResumed,
    DispatchEffect,
    EndReached,
    PermitsGranted,
)
from daybook.core.topics.dispatch.policy import PERMITS_MAX
from daybook.core.topics.extent import TopicExtent


@dataclass(slots=True)
class Consumer:
    """A consumer while it is connected."""

    key: ConsumerKey
    name: str
    priority: int
    epoch: int | None
    """Sent with each entry, so that the consumer drops what was under way when it asked for redelivery."""
    permits: int = 0
    """Messages that it still takes. A batch is delivered whole, so this may be less than 0."""
    unacked: int = 0
    """Messages that it has not acknowledged, on a shared subscription."""
    is_paused: bool = False
    """Whether its connection takes no more for now: otherwise large messages would fill the broker's memory."""
    is_blocked: bool = False
    """Whether it receives nothing until half of these are acknowledged."""
    knows_end: bool = False
    """Whether it was notified of the topic's end."""

    @classmethod
    def of(cls, event: ConsumerAdded) -> "Consumer":
        """A consumer that has just come."""
        return cls(event.key, event.name, event.priority, event.epoch)

    @property
    def is_ready(self) -> bool:
        """Whether it may receive an entry now."""
        return self.permits > 0 and not self.is_blocked and not self.is_paused

    def take_news(self, event: PermitsGranted | ConsumerPaused | ConsumerResumed) -> None:
        """What it takes changes."""
        if isinstance(event, PermitsGranted):
            self.permits = min(self.permits + event.permits, PERMITS_MAX)
        else:
            self.is_paused = isinstance(event, ConsumerPaused)

    def asks_again(self, epoch: int | None) -> None:
        """It asked for redelivery; what is sent from now on has this epoch, unless it is an earlier one."""
        if epoch is not None and (self.epoch is None or epoch > self.epoch):
            self.epoch = epoch


def notify_of_end(
    consumers: Iterable[Consumer], extent: TopicExtent, acks: AckState, out: list[DispatchEffect]
) -> None:
    """Notify each consumer once that a terminated topic is acknowledged to its end."""
    if extent.is_terminated and acks.mark_delete >= extent.last_confirmed:
        for consumer in consumers:
            if not consumer.knows_end:
                consumer.knows_end = True
                out.append(EndReached(consumer.key))
