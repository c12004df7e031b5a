"""The plan of a query: the ledgers that it reads, how far each may be read, and the ranges of their entries."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import daybook
from daybook.client.preconditions import check_password
from daybook.client.reader import Reader
from daybook.core.errors import NoSuchLedgerError
from daybook.core.ids import EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook_spark.access import open_client
from daybook_spark.options import Password, ReadOptions
from daybook_spark.plan.entry_range import EntryRange
from daybook_spark.plan.ranges import cut_ledger


def plan(options: ReadOptions) -> list[EntryRange]:
    """The ranges of a query, in order. Raises DaybookError."""
    return asyncio.run(_plan(options))


async def _plan(options: ReadOptions) -> list[EntryRange]:
    async with open_client(options.where) as client:
        return [each async for each in _ranges(client, options)]


async def _ranges(client: daybook.Client, options: ReadOptions) -> AsyncIterator[EntryRange]:
    password = Password.read()
    for ledger_id in options.ledgers:
        metadata, last = await confirmed(client, ledger_id)
        check_password(metadata, password)
        for each in ranges_of(client, metadata, 0, last, options.partition_bytes):
            yield each


async def confirmed(client: daybook.Client, ledger_id: LedgerId) -> tuple[LedgerMetadata, EntryId]:
    """A ledger and its last entry that may be read: every entry that was acknowledged before is among them, except for the last few.

    The answers of a quorum decide, because a single bookie may not have received the newest LAC. Raises NoSuchLedgerError,
    NotEnoughReplicasError.
    """
    try:
        found = await client.ledgers.read(ledger_id, sync=True)
    except NoSuchLedgerError as error:
        msg = f"ledger {ledger_id} does not exist: it was deleted, or trimmed from its topic; plan the query again"
        raise NoSuchLedgerError(msg) from error
    reader = Reader(found.value, client)
    last = await reader.refresh(lenient=False)
    return reader.metadata, last


def ranges_of(
    client: daybook.Client,
    metadata: LedgerMetadata,
    first: EntryId,
    last: EntryId,
    range_bytes: int,
    *,
    topic: str = "",
    partition: int | None = None,
) -> Iterator[EntryRange]:
    """Entries first … last of a ledger, with what tasks need to read them."""
    stored = metadata.to_json()
    known = client.bookies()
    bookies = tuple(known[bookie] for bookie in sorted(metadata.bookies()) if bookie in known)
    for cut in cut_ledger(metadata, first, last, range_bytes):
        yield EntryRange(metadata.ledger_id, *cut, stored, bookies, topic, partition)
