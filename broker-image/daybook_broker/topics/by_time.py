"""Where in a topic a time is: the first entry that was published at it or later, found by a few reads of entries.

Producers set the publish times, each by its own clock; the search takes them as rising, as Pulsar's does. Of most ledgers the topic's
list says whether they are earlier or later (daybook/core/topics/publish_times.py), so entries of one or two ledgers are read.
"""

from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.publish_times import around
from daybook.wire.pulsar.entries import decode_metadata, split_entry
from daybook_broker.topics.reading import TopicReads


async def last_before(extent: TopicExtent, reads: TopicReads, unix_ms: int) -> Position:
    """The last entry that was published before `unix_ms`; the position just before the first one if there is none.

    Raises ReadDelayedError and EntryError.
    """
    earlier, last = around(extent, unix_ms)
    while count := extent.count(earlier, last):
        middle = extent.nth_after(earlier, (count + 1) // 2)
        found = await reads.read_exact([middle])
        if found and decode_metadata(split_entry(found[0].data)).publish_time >= unix_ms:
            last = extent.before(middle)
        else:
            earlier = middle
    return earlier
