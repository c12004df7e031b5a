"""Where in a topic a time is: the last entry that was published before it, found by a few reads of entries.

Producers set the publish times, each by its own clock; the search takes them as rising, as Pulsar's does. Of most ledgers the topic's
list says whether they are earlier or later (daybook/core/topics/publish_times.py), so entries of one or two ledgers are read.

An entry whose metadata cannot be read has no time. It counts as one of the time before it: as an earlier one it would take newer messages
with it, which a TTL then acknowledges and a query leaves out, and as a later one, a TTL would never pass it. Where no time before it is
found, the caller says what it counts as.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from daybook.core.format.frame import Buffer
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.publish_times import around
from daybook.wire.pulsar.entries import publish_time_ms

WITHOUT_TIME_MAX: Final = 64
"""How many entries without a time a search passes at once, so that it stays short."""

Read: TypeAlias = Callable[[Position], Awaitable[Buffer | None]]
"""The entry at a position; None for one that was trimmed meanwhile, which counts as earlier."""


class Unknown(NamedTuple):
    """The times that entries without one count as having where none is found before them."""

    first_ms: float
    """Of all entries up to the last that is known to be earlier, none has a time."""
    many_ms: float
    """WITHOUT_TIME_MAX entries have none: nobody knows what is before them."""


EARLIER: Final = Unknown(-math.inf, -math.inf)
"""The position that is found is rather too late than too early."""
LATER: Final = Unknown(math.inf, math.inf)
"""It is rather too early than too late."""
EARLIER_IF_FEW: Final = Unknown(-math.inf, math.inf)
"""An entry without a time counts as those before it, and many hide nothing."""


async def last_published_before(
    extent: TopicExtent, read: Read, unix_ms: int, unknown: Unknown = EARLIER_IF_FEW
) -> Position:
    """The last entry that was published before `unix_ms`; the position just before the first one if there is none.

    Raises what `read` raises.
    """
    earlier, last = around(extent, unix_ms)
    while count := extent.count(earlier, last):
        middle = extent.nth_after(earlier, (count + 1) // 2)
        oldest, published_ms = await _with_time(extent, read, earlier, middle, unknown)
        if published_ms >= unix_ms:
            last = extent.before(oldest)
        else:
            earlier = middle
    return earlier


async def _with_time(
    extent: TopicExtent, read: Read, earlier: Position, position: Position, unknown: Unknown
) -> tuple[Position, float]:
    """The entry at `position`, or the last one before it and behind `earlier`, that has a time; with that."""
    count = extent.count(earlier, position)
    for _ in range(min(count, WITHOUT_TIME_MAX)):
        entry = await read(position)
        if entry is None:
            return position, -math.inf
        published_ms = publish_time_ms(entry)
        if published_ms is not None:
            return position, published_ms
        position = extent.before(position)
    return extent.after(position), unknown.many_ms if count > WITHOUT_TIME_MAX else unknown.first_ms
