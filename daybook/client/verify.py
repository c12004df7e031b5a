"""Reads every copy of a ledger and compares them: it proves that each bookie that metadata names has its entries, intact and the same."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from daybook.client.client import Client
from daybook.client.transport.calls import ReadKey
from daybook.core.effects import SendRead
from daybook.core.errors import Code
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.quorum import Stripe

WINDOW_ENTRIES: Final = 8192
READ_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True)
class CopyReport:
    """What one bookie has of the entries that it owes. `differing` entries are intact, but another bookie's copies differ."""

    bookie: BookieId
    owed: int = 0
    found: int = 0
    missing: list[EntryId] = field(default_factory=list)
    damaged: list[EntryId] = field(default_factory=list)
    differing: list[EntryId] = field(default_factory=list)
    error: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the bookie has every entry that it owes, intact and as the other bookies have it."""
        return self.found == self.owed and not self.differing


@dataclass(slots=True)
class LedgerReport:
    """All copies of a ledger, from entry 0 to `last_entry`."""

    ledger_id: LedgerId
    last_entry: EntryId
    copies: list[CopyReport]

    @property
    def is_whole(self) -> bool:
        """Whether every bookie has all the entries that it owes."""
        return all(copy.is_whole for copy in self.copies)

    def record(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        return asdict(self) | {"is_whole": self.is_whole}


async def verify_ledger(
    client: Client, ledger_id: LedgerId, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> LedgerReport:
    """Read every confirmed entry of `ledger_id` from every bookie that owes it.

    `on_progress(done, total)` counts entries. Raises NoSuchLedgerError.
    """
    reader = await client.open_ledger_unguarded(ledger_id)
    metadata, last = reader.metadata, reader.last_add_confirmed
    copies = {bookie: CopyReport(bookie) for bookie in sorted(metadata.bookies())}
    for first in range(0, last + 1, WINDOW_ENTRIES):
        end = min(first + WINDOW_ENTRIES - 1, last)
        seen: dict[EntryId, bytes] = {}
        for index, fragment in enumerate(metadata.fragments):
            fragment_end = metadata.fragment_end(index)
            begin = max(first, fragment.first_entry)
            until = end if fragment_end is None else min(end, fragment_end)
            owed = [
                (bookie, stripe)
                for bookie in fragment.bookies
                for start, _, stripe in metadata.stripes_of(bookie)
                if start == fragment.first_entry
            ]
            await asyncio.gather(
                *(
                    _check(
                        client,
                        metadata.password_hash,
                        ledger_id,
                        copies[bookie],
                        (begin, until),
                        stripe,
                        seen,
                    )
                    for bookie, stripe in owed
                    if begin <= until
                )
            )
        on_progress(end + 1, last + 1)
    return LedgerReport(ledger_id, last, list(copies.values()))


async def _check(
    client: Client,
    key: str,
    ledger_id: LedgerId,
    copy: CopyReport,
    entries: tuple[EntryId, EntryId],
    stripe: Stripe,
    seen: dict[EntryId, bytes],
) -> None:
    """Compare what one bookie has of a range with what it owes, and with the entries that other bookies gave (`seen`)."""
    first, last = entries
    owed = [entry for entry in range(first, last + 1) if stripe.holds(entry)]
    copy.owed += len(owed)
    there: set[EntryId] = set()
    damaged: set[EntryId] = set()
    calls = client.channels.calls(copy.bookie)
    cursor = first
    while cursor <= last:
        if calls is None:
            copy.error = "not registered"
            break
        answer = await calls.read(ReadKey(ledger_id, key), SendRead(copy.bookie, 0, cursor, last, READ_BYTES))
        if answer.code is not Code.OK:
            copy.error = answer.code.name
            break
        for entry in answer.entries:
            there.add(entry.entry_id)
            if seen.setdefault(entry.entry_id, entry.data) != entry.data:
                copy.differing.append(entry.entry_id)
        damaged.update(answer.damaged)
        cursor = max(answer.through, cursor) + 1
    copy.found += len(there.intersection(owed))
    copy.damaged += sorted(damaged.intersection(owed))
    copy.missing += [entry for entry in owed if entry not in there and entry not in damaged]
