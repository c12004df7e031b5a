"""What must hold of a topic after any faults: nothing acknowledged is lost, reordered or changed, and nobody receives what is not stored.

A message is its producer's name and its number; each producer numbers its messages from 0 and publishes to one topic. A client
that loses its broker sends again, in order, what had no receipt: so a producer's messages are stored in runs of rising numbers,
and a run may begin with messages that are stored already. No message appears for the first time behind a later one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

SHOWN_MAX = 5
"""Of one kind of violation."""


class Message(NamedTuple):
    """What a producer sends."""

    producer: str
    number: int

    def __str__(self) -> str:
        """For people."""
        return f"{self.producer}#{self.number}"


Place = tuple[int, int, int]
"""Ledger, entry, index in the batch (−1 outside batches)."""


@dataclass(slots=True)
class Received:
    """What one subscription received, in the order of its one active consumer if it `is_ordered`."""

    name: str
    is_ordered: bool
    messages: list[Message] = field(default_factory=list)
    again: list[Message] = field(default_factory=list)
    """What it received after it had acknowledged everything, and that was persisted."""

    @property
    def repeated(self) -> int:
        """How many messages it received once more."""
        return len(self.messages) - len(set(self.messages))


@dataclass(slots=True)
class TopicHistory:
    """What happened to one topic."""

    topic: str
    sent: Counter[str] = field(default_factory=Counter)
    """How many messages each producer sent."""
    receipts: dict[Message, Place] = field(default_factory=dict)
    """What the topic acknowledged, and where it said that the message is."""
    stored: dict[Place, Message] = field(default_factory=dict)
    """What a reader read in the end, in order."""
    received: list[Received] = field(default_factory=list)
    keyed: set[str] = field(default_factory=set)
    """The producers whose messages have keys."""

    @property
    def duplicates(self) -> int:
        """How many messages are stored once more."""
        return len(self.stored) - len(set(self.stored.values()))

    def judge(self) -> list[str]:
        """What is wrong, in words; nothing if all is well."""
        found: list[str] = []
        for kind in (
            self._lost(),
            self._moved(),
            self._invented(),
            _reordered(self.stored.values(), "stored"),
            self._resent_after_receipt(),
            *(self._wrongly_received(each) for each in self.received),
        ):
            found += [violation for violation, _ in zip(kind, range(SHOWN_MAX), strict=False)]
        return [f"{self.topic}: {violation}" for violation in found]

    def _lost(self) -> Iterator[str]:
        there = set(self.stored.values())
        return (
            f"{message} was acknowledged and is lost" for message in self.receipts if message not in there
        )

    def _moved(self) -> Iterator[str]:
        for message, place in self.receipts.items():
            found = self.stored.get(place)
            if found != message:
                yield f"{message} was acknowledged as {place}, where {found or 'nothing'} is"

    def _invented(self) -> Iterator[str]:
        for message in self.stored.values():
            if message.number >= self.sent[message.producer]:
                yield f"{message} is stored, and was never sent"

    def _resent_after_receipt(self) -> Iterator[str]:
        """A message that had its receipt is not sent again: every copy comes before the place that the receipt names."""
        last = {message: place for place, message in self.stored.items()}
        for message, place in self.receipts.items():
            if (found := last.get(message, place)) > place:
                yield f"{message} was acknowledged as {place}, and stored again as {found}"

    def _wrongly_received(self, received: Received) -> Iterator[str]:
        there = set(self.stored.values())
        seen = set(received.messages)
        for message in seen - there:
            yield f"{received.name} received {message}, which is not stored"
        for message in self.receipts:
            if message not in seen:
                yield f"{received.name} never received {message}"
        for message in received.again:
            yield f"{received.name} received {message} again, which it had acknowledged for good"
        if received.is_ordered:
            yield from _reordered(received.messages, f"received by {received.name}")


def _reordered(messages: Iterable[Message], what: str) -> Iterator[str]:
    """First appearances rise for each producer; what appears again continues from there."""
    highest: defaultdict[str, int] = defaultdict(lambda: -1)
    seen: set[Message] = set()
    for message in messages:
        if message not in seen and message.number < highest[message.producer]:
            yield f"{message} is {what} for the first time behind {message.producer}#{highest[message.producer]}"
        seen.add(message)
        highest[message.producer] = max(highest[message.producer], message.number)
