"""Where in a topic a time is, for its owner: a TTL, the age of a backlog, a seek.

Entries without a time expire with those before them. Many that follow each other count as later ones: a TTL passes them once their
ledger is closed, whose times the list has.
"""

from daybook.client.by_time import last_published_before
from daybook.core.format.frame import Buffer
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook_broker.topics.reading import TopicReads


async def last_before(extent: TopicExtent, reads: TopicReads, unix_ms: int) -> Position:
    """The last entry that was published before `unix_ms`; the position just before the first one if there is none.

    Raises ReadDelayedError.
    """

    async def read(position: Position) -> Buffer | None:
        found = await reads.read_exact([position])
        return found[0].data if found else None

    return await last_published_before(extent, read, unix_ms)
