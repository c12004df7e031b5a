"""Where in a topic a time is, found by a few reads of entries.

The topic's list says of most ledgers whether they are earlier or later, so entries of one or two are read. Producers set the publish
times, each by its own clock: entries count as sorted to within a tolerance, and tasks compare each entry's time with what is wanted.
"""

from contextlib import closing

import daybook
from daybook.client.reader import Reader
from daybook.core.format.entries import Entry
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.publish_times import CLOCK_TOLERANCE_MS, around
from daybook.offload.reading import EntriesFile
from daybook.wire.pulsar.entries import publish_time_ms
from daybook_spark.plan.existing import confirmed
from daybook_spark.rows.topic_rows import TimeRange


async def span_of(client: daybook.Client, extent: TopicExtent, times: TimeRange) -> tuple[Position, Position]:
    """From which position on, and before which one, all entries with these times are."""
    search = _Search(client, extent)
    start, end = extent.first, extent.end
    if times.start_ms is not None:
        start = extent.after(await search.last_before(times.start_ms - CLOCK_TOLERANCE_MS))
    if times.end_ms is not None:
        end = extent.after(await search.last_before(times.end_ms + CLOCK_TOLERANCE_MS))
    return start, end


class _Search:
    """A binary search over the entries of a topic."""

    def __init__(self, client: daybook.Client, extent: TopicExtent) -> None:
        self._client = client
        self._extent = extent
        self._readers: dict[int, Reader] = {}
        rows = extent.ledger_list.ledgers
        self._files = {row.ledger_id: row.offload for row in rows if row.offload and not row.has_replicas}
        self._replicas = {row.ledger_id: row.replicas_id for row in rows}

    async def last_before(self, unix_ms: int) -> Position:
        """The last entry that was published before a time; the position just before the first one if there is none."""
        earlier, last = around(self._extent, unix_ms)
        while count := self._extent.count(earlier, last):
            middle = self._extent.nth_after(earlier, (count + 1) // 2)
            published_ms = await self._published_ms(middle)
            if published_ms is not None and published_ms >= unix_ms:
                last = self._extent.before(middle)
            else:
                earlier = middle
        return earlier

    async def _published_ms(self, position: Position) -> int | None:
        """When an entry was published; None for one that is no message."""
        entry = (
            self._of_file(position) if position.ledger_id in self._files else await self._of_bookies(position)
        )
        return publish_time_ms(entry.data)

    async def _of_bookies(self, position: Position) -> Entry:
        reader = self._readers.get(position.ledger_id)
        if reader is None:
            metadata, last = await confirmed(self._client, self._replicas[position.ledger_id])
            reader = Reader(metadata, self._client, last_add_confirmed=last)
            self._readers[position.ledger_id] = reader
        (entry,) = await reader.read_batch(position.entry_id, position.entry_id)
        return entry

    def _of_file(self, position: Position) -> Entry:
        """Nothing else runs while a query is planned, so a read that blocks holds nothing up."""
        ledger_id, entry_id = position
        offload = self._files[ledger_id]
        with closing(EntriesFile(offload.place, ledger_id, offload.entries)) as file:
            ((entry,),) = file.read(entry_id, entry_id)
        return entry
