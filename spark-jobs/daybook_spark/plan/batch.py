"""The plan of a query: the ledgers that it reads, how far each may be read, and the ranges of their entries."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import daybook
from daybook.client.preconditions import check_password
from daybook.core.ids import EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import ListedLedger, Position
from daybook.metadata.manifests import ManifestManager, NoSuchManifestError
from daybook_spark.access import open_client
from daybook_spark.options import Password, ReadOptions
from daybook_spark.plan.bounds import Bounds
from daybook_spark.plan.entry_range import EntryRange, FileRange, Range
from daybook_spark.plan.existing import TopicPart, confirmed, extent_of, metadata_of, parts_of
from daybook_spark.plan.ranges import cut_file, cut_ledger
from daybook_spark.plan.times import span_of
from daybook_spark.rows.topic_rows import ALL_TIMES


def plan(options: ReadOptions, bounds: Bounds) -> list[Range]:
    """The ranges of a query, in order. Raises DaybookError."""
    return asyncio.run(_plan(options, bounds))


async def _plan(options: ReadOptions, bounds: Bounds) -> list[Range]:
    async with open_client(options.where) as client:
        if options.ledgers or options.manifest:
            return [each async for each in _of_ledgers(client, options, bounds)]
        parts = await parts_of(client, options)
        return [
            each for part in parts for each in await _of_topic(client, part, bounds, options.partition_bytes)
        ]


async def _of_ledgers(
    client: daybook.Client, options: ReadOptions, bounds: Bounds
) -> AsyncIterator[EntryRange]:
    password = Password.read()
    ledgers = await _named_by(client, options.manifest) if options.manifest else options.ledgers
    for ledger_id in ledgers:
        metadata, last = await confirmed(client, ledger_id)
        check_password(metadata, password)
        span = bounds.of_ledger(ledger_id, 0, last)
        if span is not None:
            for each in ranges_of(client, metadata, *span, options.partition_bytes):
                yield each


async def _of_topic(client: daybook.Client, part: TopicPart, bounds: Bounds, range_bytes: int) -> list[Range]:
    extent = await extent_of(client, part)
    if bounds.times != ALL_TIMES:
        first, end = await span_of(client, extent, bounds.times)
        bounds = replace(bounds, start=max(first, bounds.start), end=min(end, bounds.end))
    return await topic_ranges(client, part, extent, bounds, range_bytes)


async def _named_by(client: daybook.Client, manifest: str) -> tuple[LedgerId, ...]:
    """What jobs have committed to a manifest until now. Raises NoSuchManifestError."""
    found = await ManifestManager(client.store, client.layout).read(manifest)
    if found is None:
        msg = f"no job has committed to manifest {manifest!r}: check its name, or write to it first"
        raise NoSuchManifestError(msg)
    return tuple(written.ledger_id for written in found.value.ledgers)


async def topic_ranges(
    client: daybook.Client, part: TopicPart, extent: TopicExtent, bounds: Bounds, range_bytes: int
) -> list[Range]:
    """The entries of a topic within bounds, as ranges in order. Raises NoSuchLedgerError for a ledger that was trimmed meanwhile."""
    spans = {
        ledger_id: span
        for ledger_id, first, last in _ledgers_of(extent)
        if (span := bounds.of_ledger(ledger_id, first, last)) is not None
    }
    rows = [row for row in extent.ledger_list.ledgers if row.ledger_id in spans]
    metadata = await metadata_of(client, [row.replicas_id for row in rows if row.has_replicas])
    found = list[Range]()
    for row in rows:
        span = spans[row.ledger_id]
        if row.has_replicas:
            of_row = ranges_of(client, metadata[row.replicas_id], *span, range_bytes)
            found += (
                replace(each, ledger_id=row.ledger_id, topic=part.topic, partition=part.partition)
                for each in of_row
            )
        else:
            found += file_ranges(part, row, *span, range_bytes)
    return found


def file_ranges(
    part: TopicPart, row: ListedLedger, first: EntryId, last: EntryId, range_bytes: int
) -> Iterator[FileRange]:
    """Entries first … last of a ledger whose file is the only copy."""
    whole = FileRange.of(row, first, last, part.topic, part.partition)
    for cut in cut_file(whole.entry_bytes, first, last, range_bytes):
        yield replace(whole, first=cut.first, last=cut.last)


def _ledgers_of(extent: TopicExtent) -> Iterator[tuple[int, EntryId, EntryId]]:
    """Each ledger that has entries, with its first and its last one."""
    position = extent.first
    while (run := extent.run(position, 2**62)) is not None:
        yield run
        position = Position(run[0], run[2] + 1)


def ranges_of(
    client: daybook.Client,
    metadata: LedgerMetadata,
    first: EntryId,
    last: EntryId,
    range_bytes: int,
) -> Iterator[EntryRange]:
    """Entries first … last of a ledger, with what tasks need to read them."""
    stored = metadata.to_json()
    known = client.bookies()
    bookies = tuple(known[bookie] for bookie in sorted(metadata.bookies()) if bookie in known)
    for cut in cut_ledger(metadata, first, last, range_bytes):
        yield EntryRange(metadata.ledger_id, *cut, stored, bookies)
