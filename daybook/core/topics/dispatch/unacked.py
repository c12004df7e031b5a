"""What the consumers of a shared subscription have received and not acknowledged: no entry is with two of them.

Too many messages of one consumer block it, and too many of all of them block the subscription, each until half are acknowledged.
Otherwise a consumer that never acknowledges takes the whole topic, and the memory of the broker.
"""

from collections.abc import Callable, Iterable

from daybook.core.topics.dispatch.consumers import Consumer
from daybook.core.topics.dispatch.events import ConsumerKey
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.ledger_list import Position


class Unacked:
    """The entries that are with a consumer, each with the number of its messages that are not acknowledged."""

    __slots__ = ("_held", "_policy", "is_full", "messages")

    def __init__(self, policy: DispatchPolicy) -> None:
        self._policy = policy
        self._held: dict[ConsumerKey, dict[Position, int]] = {}
        self.messages = 0
        """Of all consumers together."""
        self.is_full = False
        """Whether nobody receives anything until half of these are acknowledged."""

    def add_consumer(self, consumer: Consumer) -> None:
        """A consumer came, and has nothing."""
        self._held[consumer.key] = {}

    def remove_consumer(self, consumer: Consumer) -> list[Position]:
        """A consumer left; what it had."""
        positions = self.take_back(consumer)
        del self._held[consumer.key]
        return positions

    def add(self, consumer: Consumer, position: Position, messages: int) -> None:
        """The consumer received an entry."""
        held = self._held[consumer.key]
        assert position not in held, f"{position} is with {consumer.name} already"
        held[position] = messages
        self._count(consumer, messages)

    def take_back(self, consumer: Consumer, positions: Iterable[Position] | None = None) -> list[Position]:
        """The consumer has these no more, or all (None); those that it had."""
        held = self._held[consumer.key]
        taken = (
            list(held) if positions is None else [each for each in dict.fromkeys(positions) if each in held]
        )
        self._count(consumer, -sum(held.pop(position) for position in taken))
        return taken

    def remain(
        self, consumers: dict[ConsumerKey, Consumer], key: ConsumerKey, position: Position, messages: int
    ) -> None:
        """So many messages of an entry are not acknowledged. `key` acknowledged the rest, which another consumer may have."""
        if position not in self._held[key]:
            key = next((other for other, held in self._held.items() if position in held), key)
        held = self._held[key]
        if position not in held:
            return
        self._count(consumers[key], messages - held[position])
        if messages:
            held[position] = messages
        else:
            del held[position]

    def drop_where(self, consumers: dict[ConsumerKey, Consumer], is_gone: Callable[[Position], bool]) -> None:
        """Nobody has these entries any more."""
        for key, held in self._held.items():
            self.take_back(consumers[key], [position for position in held if is_gone(position)])

    def _count(self, consumer: Consumer, messages: int) -> None:
        consumer.unacked += messages
        self.messages += messages
        limit = self._policy.unacked_per_consumer_max
        consumer.is_blocked = consumer.unacked >= limit or (
            consumer.is_blocked and consumer.unacked > limit // 2
        )
        limit = self._policy.unacked_per_subscription_max
        self.is_full = self.messages >= limit or (self.is_full and self.messages > limit // 2)
