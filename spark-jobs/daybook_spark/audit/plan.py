"""What each task of the audit reads: ranges of entries with their bookies, planned from metadata before the first task starts.

A piece holds all that its task needs, so that tasks open no session in ZooKeeper. It is cut by size: a long fragment is many
pieces, and many small ledgers are one.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql.datasource import InputPartition

from daybook.client.client import Client
from daybook.client.verify import CopyRange, copy_ranges
from daybook.core.errors import DaybookError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.among import in_pool
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.store.read_ahead import read_ahead
from daybook.metadata.store.store import Versioned

PIECE_BYTES: Final = 64 * 1024 * 1024
"""The payload of a piece, once; each of its bookies gives it."""
PIECE_RANGES_MAX: Final = 1000
PIECE_ENTRIES_MAX: Final = 1_000_000
"""A bookie that lacks all of a piece costs the task a number for each entry."""
UNKNOWN_ENTRY_BYTES: Final = 1024
"""The size that an entry of an open ledger is planned with."""


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A range, whether its ledger is closed, and the payload that it should have; or why it cannot be read.

    `placement` says how its ensemble breaks the placement policy or leaves the ledger's pool (rule 36, rule 69); "" if it does not.
    """

    copies: CopyRange
    closed: bool
    size_bytes: int
    error: str = ""
    placement: str = ""


class AuditPiece(InputPartition):
    """The ranges that one task reads, and where their bookies are. The keys of ledgers are in no representation."""

    def __init__(self, ranges: tuple[PlannedRange, ...], bookies: Mapping[BookieId, BookieInfo]) -> None:
        """`bookies` has those of `ranges` that are registered."""
        super().__init__(len(ranges))
        self.ranges = ranges
        self.bookies = dict(bookies)

    def __repr__(self) -> str:
        """What the log of Spark may show."""
        return f"AuditPiece({len(self.ranges)} ranges, {sum(r.size_bytes for r in self.ranges)} bytes)"


async def plan_audit(client: Client, piece_bytes: int = PIECE_BYTES) -> list[AuditPiece]:
    """The pieces of an audit over every ledger of the cluster; of open ledgers, up to the LAC.

    The client's own policy judges where the copies are.
    """
    pieces = [piece async for piece in _gathered(_planned(client), piece_bytes)]
    bookies = client.bookies()
    return [
        AuditPiece(ranges, {name: bookies[name] for name in _named(ranges) if name in bookies})
        for ranges in pieces
    ]


def _named(ranges: tuple[PlannedRange, ...]) -> set[BookieId]:
    return {bookie for planned in ranges for bookie in planned.copies.bookies}


async def _planned(client: Client) -> AsyncIterator[PlannedRange]:
    """A range for each fragment of each ledger that has entries."""

    async def ledger(ledger_id: LedgerId) -> list[PlannedRange] | None:
        try:
            found = await client.ledgers.read(ledger_id)
        except DaybookError:
            return None  # deleted since; what cannot be judged the auditor's cycle reports
        return [_judged(client, found.value.pool, each) for each in await _ranges(client, found)]

    async for ranges in read_ahead(client.ledgers.ids(), ledger):
        for planned in ranges:
            yield planned


async def _ranges(client: Client, found: Versioned[LedgerMetadata]) -> list[PlannedRange]:
    metadata = found.value
    if metadata.is_closed:
        entries = metadata.last_entry + 1
        entry_bytes = -(-metadata.length // entries) if entries else 0
        return [
            PlannedRange(copies, closed=True, size_bytes=entry_bytes * (copies.last - copies.first + 1))
            for copies in copy_ranges(metadata, metadata.last_entry)
        ]
    try:
        reader = await client.open_ledger_unguarded(metadata.ledger_id)
    except DaybookError as error:
        *ended, unknown = copy_ranges(metadata, metadata.last_fragment.first_entry)
        return [*map(_open, ended), replace(_open(unknown), error=str(error))]
    return [_open(copies) for copies in copy_ranges(reader.metadata, reader.last_add_confirmed)]


def _judged(client: Client, pool: str, planned: PlannedRange) -> PlannedRange:
    """As the auditor, this judges no ensemble of which a bookie is away: nobody knows where that one is."""
    bookies, copies = client.bookies(), planned.copies
    if not all(bookie in bookies for bookie in copies.bookies):
        return planned
    problems = in_pool(pool, client.placement).problems(copies.quorum, copies.bookies, bookies)
    return replace(planned, placement="; ".join(problems))


def _open(copies: CopyRange) -> PlannedRange:
    size_bytes = UNKNOWN_ENTRY_BYTES * (copies.last - copies.first + 1)
    return PlannedRange(copies, closed=False, size_bytes=size_bytes)


def _cut(planned: PlannedRange, piece_bytes: int) -> Iterator[PlannedRange]:
    """The same in ranges of about `piece_bytes`."""
    copies = planned.copies
    entries = copies.last - copies.first + 1
    entry_bytes = max(1, planned.size_bytes // entries)
    for part in copies.windows(min(PIECE_ENTRIES_MAX, max(1, piece_bytes // entry_bytes))):
        yield replace(planned, copies=part, size_bytes=entry_bytes * (part.last - part.first + 1))


@dataclass(slots=True)
class _Gathering:
    """The ranges of the piece that is filled now."""

    ranges: list[PlannedRange] = field(default_factory=list)
    size_bytes: int = 0


async def _gathered(
    ranges: AsyncIterator[PlannedRange], piece_bytes: int
) -> AsyncIterator[tuple[PlannedRange, ...]]:
    """Cut what is large, and put together what is small."""
    now = _Gathering()
    async for planned in ranges:
        for part in _cut(planned, piece_bytes):
            is_full = now.size_bytes + part.size_bytes > piece_bytes or len(now.ranges) >= PIECE_RANGES_MAX
            if now.ranges and is_full:
                yield tuple(now.ranges)
                now = _Gathering()
            now.ranges.append(part)
            now.size_bytes += part.size_bytes
    if now.ranges:
        yield tuple(now.ranges)
