"""What goes into the machines of a subscription's delivery and what comes out of them.

One event stands for a whole command, and one effect for a list of entries: nothing is made for each entry but the entry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.ledger_list import Position

ConsumerKey: TypeAlias = int
"""A consumer of a subscription, while it is connected; no two of a subscription ever have the same."""

# Events.


@dataclass(frozen=True, slots=True)
class ConsumerAdded:
    """A consumer is there. The highest priority is 0; `epoch` is the consumer's own count of its requests for redelivery."""

    key: ConsumerKey
    name: str
    priority: int = 0
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerRemoved:
    """The consumer is gone, and what it did not acknowledge goes to others."""

    key: ConsumerKey


@dataclass(frozen=True, slots=True)
class PermitsGranted:
    """The consumer takes so many messages more than before."""

    key: ConsumerKey
    permits: int


@dataclass(frozen=True, slots=True)
class ConsumerPaused:
    """The consumer's connection takes no more for now, whatever the consumer has permits for."""

    key: ConsumerKey


@dataclass(frozen=True, slots=True)
class ConsumerResumed:
    """It takes more again."""

    key: ConsumerKey


class Acked(NamedTuple):
    """An entry that is acknowledged, or with `words` the messages of a batch whose bits are not set."""

    position: Position
    words: Sequence[int] = ()
    batch_size: int = 0


@dataclass(frozen=True, slots=True)
class EntriesAcked:
    """The consumer acknowledged these, whoever received them."""

    key: ConsumerKey
    acked: Sequence[Acked]


@dataclass(frozen=True, slots=True)
class AckedThrough:
    """The consumer acknowledged everything up to this. A shared subscription has no such acknowledgements."""

    key: ConsumerKey
    acked: Acked


@dataclass(frozen=True, slots=True)
class RedeliveryRequested:
    """Deliver these again that the consumer has not acknowledged, or all of them (None)."""

    key: ConsumerKey
    positions: Sequence[Position] | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CompactedPart:
    """What a part of the compacted ledgers says beside its entries."""

    through: Position
    """The part reaches up to here: an entry that is not in it was removed."""
    left: Mapping[Position, Sequence[int]]
    """The words of batches of which a part was removed: a set bit is a message that is left."""


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """The answer to `ReadEntries`: entries in order, perhaps fewer than requested, and to `ReadAgain`: all that still exist."""

    request_id: int
    entries: Sequence[TopicEntry]
    compacted: CompactedPart | None = None
    """Of entries that come from compacted ledgers."""


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """Another answer to them: they are asked again after a pause."""

    request_id: int


@dataclass(frozen=True, slots=True)
class EntriesExpected:
    """The topic has more entries than before, or none will follow."""


@dataclass(frozen=True, slots=True)
class AcksAdvanced:
    """Somebody else than a consumer acknowledged entries: their time was over, or a person skipped them."""


@dataclass(frozen=True, slots=True)
class AcksReset:
    """The subscription begins again at another position: a seek."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of `StartTimer` is over."""

    timer_id: int


SharedEvent: TypeAlias = (
    ConsumerAdded
    | ConsumerRemoved
    | PermitsGranted
    | ConsumerPaused
    | ConsumerResumed
    | EntriesAcked
    | RedeliveryRequested
    | EntriesRead
    | ReadFailed
    | EntriesExpected
    | AcksAdvanced
    | AcksReset
    | TimerFired
)
SingleEvent: TypeAlias = SharedEvent | AckedThrough

# Effects: requests.


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Read from `position` on, at most so many entries and about so many bytes."""

    request_id: int
    position: Position
    entries_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Read exactly these, which rise."""

    request_id: int
    positions: Sequence[Position]


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Feed `TimerFired` after so many ms. A timer that nobody waits for any more does no harm."""

    timer_id: int
    after_ms: int


# Effects: results.


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send these to the consumer, in order. A sequence that is empty stands for an entry's default, 0 or ()."""

    key: ConsumerKey
    entries: Sequence[TopicEntry]
    redelivery_counts: Sequence[int] = ()
    ack_sets: Sequence[Sequence[int]] = ()
    """The words of a batch of which a part is acknowledged."""
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ActiveChanged:
    """Notify the consumer of a failover subscription whether it is the active one."""

    key: ConsumerKey
    is_active: bool


@dataclass(frozen=True, slots=True)
class EndReached:
    """Notify the consumer: all that the topic has is acknowledged, and nothing will follow."""

    key: ConsumerKey


DispatchEffect: TypeAlias = ReadEntries | ReadAgain | StartTimer | Deliver | ActiveChanged | EndReached
