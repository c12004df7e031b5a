"""Where in a topic a time is, found by a few reads of entries.

The topic's list says of most ledgers whether they are earlier or later, so entries of one or two are read. Producers set the publish
times, each by its own clock: entries count as sorted to within a tolerance, and tasks compare each entry's time with what is wanted.
An entry whose metadata cannot be read has no time, and leaves no message out: where nobody knows what is before it, more is read.
"""

import asyncio
from contextlib import closing

import daybook
from daybook.client.by_time import EARLIER, LATER, last_published_before
from daybook.client.reader import Reader
from daybook.core.format.entries import Entry
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.publish_times import CLOCK_TOLERANCE_MS
from daybook.offload.reading import EntriesFile
from daybook_spark.plan.existing import confirmed
from daybook_spark.rows.topic_rows import TimeRange


async def span_of(client: daybook.Client, extent: TopicExtent, times: TimeRange) -> tuple[Position, Position]:
    """From which position on, and before which one, all entries with these times are."""
    read = _Entries(client, extent).read
    start, end = extent.first, extent.end
    if times.start_ms is not None:
        start_ms = times.start_ms - CLOCK_TOLERANCE_MS
        start = extent.after(await last_published_before(extent, read, start_ms, LATER))
    if times.end_ms is not None:
        end_ms = times.end_ms + CLOCK_TOLERANCE_MS
        end = extent.after(await last_published_before(extent, read, end_ms, EARLIER))
    return start, end


class _Entries:
    """The entries of a topic, one by one."""

    def __init__(self, client: daybook.Client, extent: TopicExtent) -> None:
        self._client = client
        self._readers: dict[int, Reader] = {}
        rows = extent.ledger_list.ledgers
        self._files = {row.ledger_id: row.offload for row in rows if row.offload and not row.has_replicas}
        self._replicas = {row.ledger_id: row.replicas_id for row in rows}
        self._group: dict[Position, Entry] = {}
        """The row group that was read last: a search that steps back reads it once."""

    async def read(self, position: Position) -> bytes:
        """An entry as it is stored."""
        if position.ledger_id in self._files:
            entry = await asyncio.to_thread(self._of_file, position)
        else:
            entry = await self._of_bookies(position)
        return entry.data

    async def _of_bookies(self, position: Position) -> Entry:
        reader = self._readers.get(position.ledger_id)
        if reader is None:
            metadata, last = await confirmed(self._client, self._replicas[position.ledger_id])
            reader = Reader(metadata, self._client, last_add_confirmed=last)
            self._readers[position.ledger_id] = reader
        (entry,) = await reader.read_batch(position.entry_id, position.entry_id)
        return entry

    def _of_file(self, position: Position) -> Entry:
        if position not in self._group:
            ledger_id, entry_id = position
            offload = self._files[ledger_id]
            with closing(EntriesFile(offload.place, ledger_id, offload.entries)) as file:
                group = file.read_group(file.group_of(entry_id))
            self._group = {Position(ledger_id, entry.entry_id): entry for entry in group}
        return self._group[position]
