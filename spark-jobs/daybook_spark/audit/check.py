"""What a task of the audit does: it reads the copies of its ranges, and makes a row for each range and bookie."""

from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeAlias

from daybook.client.verify import CopyReport, HasCalls, check_copies
from daybook.core.ids import BookieId, EntryId
from daybook_spark.audit.pace import Pace
from daybook_spark.audit.plan import AuditPiece, PlannedRange

COLUMNS: Final = (
    "ledger_id bigint",
    "closed boolean",
    "first_entry bigint",
    "last_entry bigint",
    "bookie string",
    "rack string",
    "placement string",
    "owed bigint",
    "found bigint",
    "missing bigint",
    "damaged bigint",
    "differing bigint",
    "unread bigint",
    "faults string",
    "error string",
)
SCHEMA: Final = ", ".join(COLUMNS)
FAULTS_MAX: Final = 100
"""How many ranges of entries a row names of each kind of fault; it counts all."""

Row: TypeAlias = tuple[int, bool, int, int, str, str, str, int, int, int, int, int, int, str, str]


async def check_piece(piece: AuditPiece, channels: HasCalls, pace: Pace) -> AsyncIterator[Row]:
    """The rows of `piece`, range by range."""
    silent: dict[BookieId, str] = {}
    for planned in piece.ranges:
        totals = [CopyReport(bookie) for bookie in planned.copies.bookies]
        if planned.error:
            for total in totals:
                total.unread, total.error = 1, planned.error
        else:
            for window in planned.copies.windows():
                found = await check_copies(channels, window, silent, pace.read)
                for total, copy in zip(totals, found, strict=True):
                    total.add(copy)
        for total in totals:
            info = piece.bookies.get(total.bookie)
            yield _row(planned, total, info.rack if info else "")


def _row(planned: PlannedRange, copy: CopyReport, rack: str) -> Row:
    faults = {"missing": copy.missing, "damaged": copy.damaged, "differing": copy.differing}
    return (
        planned.copies.ledger_id,
        planned.closed,
        planned.copies.first,
        planned.copies.last,
        copy.bookie,
        rack,
        planned.placement,
        copy.owed,
        copy.found,
        len(copy.missing),
        len(copy.damaged),
        len(copy.differing),
        copy.unread,
        "; ".join(f"{kind} {in_words(entries)}" for kind, entries in faults.items() if entries),
        copy.error,
    )


def in_words(entries: Iterable[EntryId]) -> str:
    """`3-7, 9` for rising entries: as ranges, the first `FAULTS_MAX` of them."""
    ranges: list[list[EntryId]] = []
    for entry in entries:
        if ranges and ranges[-1][1] + 1 == entry:
            ranges[-1][1] = entry
        else:
            ranges.append([entry, entry])
    words = [f"{a}-{b}" if a < b else str(a) for a, b in ranges[:FAULTS_MAX]]
    return ", ".join(words) + (f" and {len(ranges) - FAULTS_MAX} more" if len(ranges) > FAULTS_MAX else "")
