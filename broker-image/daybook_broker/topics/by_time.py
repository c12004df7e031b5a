"""Where in a topic a time is: the first entry that was published at it or later, found by a few reads of entries.

Producers set the publish times, each by its own clock; the search takes them as rising, as Pulsar's does. Of most ledgers the topic's
list says whether they are earlier or later (daybook/core/topics/publish_times.py), so entries of one or two ledgers are read.

An entry whose metadata cannot be read has no time. It counts as one of the time before it: as an earlier one, a TTL would take newer
messages as acknowledged, and as a later one, a TTL would never pass it. Many that follow each other count as later ones: a TTL passes
them once their ledger is closed, whose times the list has.
"""

import math
from typing import Final

from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.publish_times import around
from daybook.wire.pulsar.entries import publish_time_ms
from daybook_broker.topics.reading import TopicReads

WITHOUT_TIME_MAX: Final = 64
"""How many entries without a time a search passes at once. Of more of them it looks at what is before, so that it stays short."""


async def last_before(extent: TopicExtent, reads: TopicReads, unix_ms: int) -> Position:
    """The last entry that was published before `unix_ms`; the position just before the first one if there is none.

    Raises ReadDelayedError.
    """
    earlier, last = around(extent, unix_ms)
    while count := extent.count(earlier, last):
        middle = extent.nth_after(earlier, (count + 1) // 2)
        oldest, published_ms = await _with_time(extent, reads, earlier, middle)
        if published_ms >= unix_ms:
            last = extent.before(oldest)
        else:
            earlier = middle
    return earlier


async def _with_time(
    extent: TopicExtent, reads: TopicReads, earlier: Position, position: Position
) -> tuple[Position, float]:
    """The entry at `position`, or the last one before it and behind `earlier`, that has a time; with that.

    Without one down to `earlier`, or where it was trimmed meanwhile, the time is `-inf`; where too many have none, `inf`: nobody knows
    then what is before them.
    """
    count = extent.count(earlier, position)
    for _ in range(min(count, WITHOUT_TIME_MAX)):
        found = await reads.read_exact([position])
        if not found:
            return position, -math.inf
        published_ms = publish_time_ms(found[0].data)
        if published_ms is not None:
            return position, published_ms
        position = extent.before(position)
    return extent.after(position), math.inf if count > WITHOUT_TIME_MAX else -math.inf
