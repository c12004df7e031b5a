"""Reads every copy of a ledger and compares them: it proves that each bookie that metadata names has its entries, intact and the same.

The copies of a range of entries are checked in windows, so that what is remembered of them is bounded: of each entry its size and a
hash, never its bytes. `daybook.core.repair` judges what bookies list; here they have to show it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

from daybook.client.client import Client
from daybook.client.transport.calls import BookieCalls, ReadKey
from daybook.core.effects import SendRead
from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import Quorum, Stripe, stripe_of

WINDOW_ENTRIES: Final = 8192
READ_BYTES: Final = 4 * 1024 * 1024
TRIES: Final = 3
"""How often a bookie is asked that does not answer: a connection that a restart broke is there again at the next try."""
_SILENT: Final = frozenset({Code.TIMEOUT, Code.UNAVAILABLE, Code.CONNECTION_LOST})

OnRead = Callable[[BookieId, int], Awaitable[None]]
"""Called with a bookie and the bytes of payload that it just gave, before it is asked for more."""


class HasCalls(Protocol):
    """A `ChannelPool`."""

    def calls(self, bookie: BookieId) -> BookieCalls | None:
        """See `ChannelPool.calls`."""


@dataclass(frozen=True, slots=True)
class CopyRange:
    """The entries `first` … `last` of one fragment, and the `bookies` that owe them. The ledger's key is never shown."""

    ledger_id: LedgerId
    key: str = field(repr=False)
    quorum: Quorum
    bookies: tuple[BookieId, ...]
    first: EntryId
    last: EntryId

    def windows(self, entries_max: int = WINDOW_ENTRIES) -> Iterator["CopyRange"]:
        """The same in ranges of at most `entries_max` entries."""
        for first in range(self.first, self.last + 1, entries_max):
            yield replace(self, first=first, last=min(first + entries_max - 1, self.last))


@dataclass(slots=True)
class CopyReport:
    """What one bookie has of the entries that it owes. `differing` entries are intact, but another bookie's copies differ.

    `unread` entries are those that the bookie gave no answer for, because of `error`: they prove nothing (rule 6).
    """

    bookie: BookieId
    owed: int = 0
    found: int = 0
    unread: int = 0
    missing: list[EntryId] = field(default_factory=list)
    damaged: list[EntryId] = field(default_factory=list)
    differing: list[EntryId] = field(default_factory=list)
    error: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the bookie has every entry that it owes, intact and as the other bookies have it."""
        return self.found == self.owed and not self.differing

    def add(self, other: "CopyReport") -> None:
        """Add what was found in another range."""
        self.owed += other.owed
        self.found += other.found
        self.unread += other.unread
        self.missing += other.missing
        self.damaged += other.damaged
        self.differing += other.differing
        self.error = self.error or other.error


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
    silent: dict[BookieId, str] = {}
    for part in copy_ranges(metadata, last):
        for window in part.windows():
            for found in await check_copies(client.channels, window, silent):
                copies[found.bookie].add(found)
            on_progress(window.last + 1, last + 1)
    return LedgerReport(ledger_id, last, list(copies.values()))


def copy_ranges(metadata: LedgerMetadata, last: EntryId) -> Iterator[CopyRange]:
    """The entries from 0 to `last`, one range for each fragment that has some."""
    for index, fragment in enumerate(metadata.fragments):
        end = metadata.fragment_end(index)
        until = last if end is None else min(last, end)
        if fragment.first_entry <= until:
            yield CopyRange(
                metadata.ledger_id,
                metadata.password_hash,
                metadata.quorum,
                fragment.bookies,
                fragment.first_entry,
                until,
            )


async def _at_any_pace(_bookie: BookieId, _size_bytes: int) -> None:
    return


async def check_copies(
    channels: HasCalls, window: CopyRange, silent: dict[BookieId, str], on_read: OnRead = _at_any_pace
) -> list[CopyReport]:
    """Read the entries of `window` from every bookie that owes them, and compare: a report for each bookie.

    Who is `silent` is not asked; who does not answer is added, with the reason, so that a bookie that hangs costs one
    time-out and not one for every window. A bookie that refuses is asked for the next window: it may lack this ledger alone, which was deleted.
    """
    seen: dict[EntryId, tuple[int, int]] = {}
    copies = [CopyReport(bookie) for bookie in window.bookies]
    await asyncio.gather(
        *(
            _check(channels, window, copy, stripe_of(window.quorum, position), seen, silent, on_read)
            for position, copy in enumerate(copies)
        )
    )
    return copies


async def _check(
    channels: HasCalls,
    window: CopyRange,
    copy: CopyReport,
    stripe: Stripe,
    seen: dict[EntryId, tuple[int, int]],
    silent: dict[BookieId, str],
    on_read: OnRead,
) -> None:
    """Compare what one bookie has of a range with what it owes, and with the entries that other bookies gave (`seen`)."""
    owed = [entry for entry in range(window.first, window.last + 1) if stripe.holds(entry)]
    copy.owed = len(owed)
    there: set[EntryId] = set()
    damaged: set[EntryId] = set()
    cursor = window.first
    error = silent.get(copy.bookie, "")
    while cursor <= window.last and not error:
        answer = await _read(channels, window, copy.bookie, cursor)
        if answer is None or answer.code is not Code.OK:
            error = "not registered" if answer is None else answer.code.name
            if answer is None or answer.code in _SILENT:
                silent[copy.bookie] = error
            break
        for entry in answer.entries:
            there.add(entry.entry_id)
            content = len(entry.data), hash(entry.data)
            if seen.setdefault(entry.entry_id, content) != content:
                copy.differing.append(entry.entry_id)
        damaged.update(answer.damaged)
        cursor = max(answer.through, cursor) + 1
        await on_read(copy.bookie, sum(len(entry.data) for entry in answer.entries))
    copy.found = len(there.intersection(owed))
    copy.damaged = sorted(damaged.intersection(owed))
    copy.missing = [e for e in owed if e < cursor and e not in there and e not in damaged]
    copy.unread = sum(entry >= cursor for entry in owed)
    copy.error = error if copy.unread else ""


async def _read(
    channels: HasCalls, window: CopyRange, bookie: BookieId, first: EntryId
) -> ReadAnswered | None:
    """What `bookie` answers for the entries from `first` on, the last of all tries; None: it is not registered."""
    answer = None
    for _ in range(TRIES):
        calls = channels.calls(bookie)
        if calls is None:
            break
        request = SendRead(bookie, 0, first, window.last, READ_BYTES)
        answer = await calls.read(ReadKey(window.ledger_id, window.key), request)
        if answer.code not in _SILENT:
            break
    return answer
