"""What bookies hold beside what the metadata names: the ledgers that began after an export that was restored (rule 68).

Both sides list ledgers in order of id, so they are compared as they come, page by page, and neither side is ever in memory as
a whole. A bookie also lists ledgers of which it has no more than a fence; so it is asked for its entries before it counts.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from daybook.client.client import Client
from daybook.core.errors import NoSuchLedgerError
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.store.store import Versioned
from daybook.wire import bookie_pb2 as pb

PAGE_LEDGERS: Final = 10_000


class Bookies(Protocol):
    """Asks bookies. Both raise DaybookError when one does not answer."""

    async def list_ledgers(self, bookie: BookieId, request: pb.ListLedgersRequest) -> pb.ListLedgersResponse:
        """A page of the ledgers of `bookie`."""

    async def intervals(
        self, bookie: BookieId, request: pb.EntryIntervalsRequest
    ) -> pb.EntryIntervalsResponse:
        """The entries that `bookie` has of a ledger."""


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A ledger of which bookies have entries that the metadata does not place on them."""

    ledger_id: LedgerId
    is_in_metadata: bool
    """Whether the metadata has the ledger, and names other bookies."""
    first_entry: EntryId
    last_entry: EntryId
    bookies: tuple[BookieId, ...]


class _Held:
    """The ledgers of one bookie, in order, as far as they were asked for."""

    def __init__(self, asked: Bookies, bookie: BookieId) -> None:
        self._asked = asked
        self.bookie = bookie
        self._page: list[LedgerId] = []
        self._after: LedgerId = -1
        self._more = True

    async def next_id(self) -> LedgerId | None:
        """The lowest that was not taken yet; None at the end."""
        while not self._page and self._more:
            request = pb.ListLedgersRequest(after_ledger=self._after, limit=PAGE_LEDGERS)
            answer = await self._asked.list_ledgers(self.bookie, request)
            self._page, self._more = list(reversed(answer.ledger_ids)), answer.more
            self._after = self._page[0] if self._page else self._after
        return self._page[-1] if self._page else None

    def take(self) -> None:
        """Go on behind it."""
        self._page.pop()


async def unnamed_ledgers(
    client: Client, asked: Bookies, bookies: Collection[BookieId]
) -> AsyncIterator[Unnamed]:
    """In order of id, what `bookies` have entries of without being named for it by the metadata.

    Raises DaybookError if one of them does not answer, or the metadata cannot be read: a list is complete, or an error.
    """
    held = [_Held(asked, bookie) for bookie in sorted(bookies)]
    async with aclosing(client.list_ledgers()) as named:
        metadata: Versioned[LedgerMetadata] | None = await anext(named, None)
        while True:
            nexts = {each.bookie: found for each in held if (found := await each.next_id()) is not None}
            if not nexts:
                return
            ledger_id = min(nexts.values())
            while metadata is not None and metadata.value.ledger_id < ledger_id:
                metadata = await anext(named, None)
            holders = [each for each in held if nexts.get(each.bookie) == ledger_id]
            is_named = metadata is not None and metadata.value.ledger_id == ledger_id
            owing = metadata.value.bookies() if is_named and metadata is not None else frozenset()
            others = [each.bookie for each in holders if each.bookie not in owing]
            for each in holders:
                each.take()
            if others:
                unnamed = await _judge(client, asked, ledger_id, others)
                if unnamed is not None:
                    yield unnamed


async def _judge(
    client: Client, asked: Bookies, ledger_id: LedgerId, candidates: list[BookieId]
) -> Unnamed | None:
    """What is so now: a ledger may have begun since it was listed."""
    try:
        owing = (await client.ledgers.read(ledger_id, sync=True)).value.bookies()
        is_in_metadata = True
    except NoSuchLedgerError:
        owing, is_in_metadata = frozenset(), False
    firsts, lasts, having = [], [], []
    for bookie in candidates:
        if bookie in owing:
            continue
        answer = await asked.intervals(bookie, pb.EntryIntervalsRequest(ledger_id=ledger_id))
        if answer.intervals:
            having.append(bookie)
            firsts.append(answer.intervals[0].first_entry)
            lasts.append(max(answer.intervals[-1].last_entry, answer.last_add_confirmed))
    if not having:
        return None
    return Unnamed(ledger_id, is_in_metadata, min(firsts), max(lasts), tuple(having))
