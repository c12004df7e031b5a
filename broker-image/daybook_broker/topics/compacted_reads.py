"""Reads of a topic's compacted ledgers, for consumers and for the next compaction.

Entries are in the order of their positions, so the first one from a position on is found by a binary search, and the next one without.
The ledgers may be replaced at any time: a reader continues in the new ones at the same position. It misses nothing, because a key whose
last message is before that position had it there before, too. A ledger that the list still names and that does not exist is an error, and
not the end of anything (rule 41).
"""

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple, Protocol

from daybook.client.by_time import last_published_before
from daybook.core.format.frame import Buffer
from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.compaction.record import CompactedEntry, decode_compacted
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.dispatch.events import CompactedPart
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import (
    NO_POSITION,
    CompactedLedger,
    Compaction,
    LedgerList,
    ListedLedger,
    Position,
)
from daybook.core.topics.name import TopicName
from daybook_broker.topics.ledger_reads import (
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    LedgerGoneError,
    ReadDelayedError,
)
from daybook_broker.topics.services import TopicServices


class LastMessage(NamedTuple):
    """The last entry that a consumer can receive."""

    entry: TopicEntry
    left: tuple[int, ...] = ()
    """The words of what is left of a batch; () for all of it."""


class _Place(NamedTuple):
    """Where a reader continues: the entry `next` of the ledger is the first one from `position` on."""

    ledger_id: LedgerId
    next: EntryId
    position: Position


class ReadTopic(Protocol):
    """A topic, as far as its readers need it."""

    name: TopicName
    services: TopicServices
    ledger_list: LedgerList
    """As it is now."""

    async def confirm_owner(self) -> None:
        """Read the list again. Raises NotReadyError if the topic is another broker's, ReadDelayedError if nobody knows."""


class CompactedReads:
    """One for a reader, which goes forwards most of the time."""

    def __init__(self, topic: ReadTopic) -> None:
        self._topic = topic
        self._reads = topic.services.reads
        self._place = _Place(-1, 0, NO_POSITION)

    def horizon(self) -> Position:
        """Up to where the topic is compacted."""
        compaction = self._topic.ledger_list.compaction
        return NO_POSITION if compaction is None else compaction.horizon

    async def read(
        self, position: Position, entries_max: int, bytes_max: int
    ) -> tuple[list[TopicEntry], CompactedPart]:
        """Entries from `position` on, as the topic had them; none if the rest was removed.

        Raises ReadDelayedError, NotReadyError, CompactionError.
        """
        while True:
            compaction = self._topic.ledger_list.compaction
            if compaction is None or compaction.horizon < position:
                return [], CompactedPart(position.before, {})
            try:
                return await self._read(compaction, position, entries_max, bytes_max)
            except LedgerGoneError as error:
                await self._check_gone(compaction, error)

    async def _check_gone(self, compaction: Compaction, error: LedgerGoneError) -> None:
        """Raise unless the ledgers were replaced meanwhile."""
        if self._topic.ledger_list.compaction == compaction:
            await self._topic.confirm_owner()
        if self._topic.ledger_list.compaction == compaction:
            msg = f"a compacted ledger of {self._topic.name} is missing ({error}): compact the topic again if it still has the messages"
            raise ReadDelayedError(msg) from error

    async def _read(
        self, compaction: Compaction, position: Position, entries_max: int, bytes_max: int
    ) -> tuple[list[TopicEntry], CompactedPart]:
        for ledger in compaction.ledgers:
            if ledger.through < position:
                continue
            index = await self._first_from(ledger, position)
            if index < ledger.entries:
                last = min(index + entries_max, ledger.entries) - 1
                found = await self._entries(ledger, index, last, bytes_max)
                return self._part(compaction, ledger, index, found)
        return [], CompactedPart(compaction.horizon, {})

    def _part(
        self, compaction: Compaction, ledger: CompactedLedger, index: EntryId, found: list[TopicEntry]
    ) -> tuple[list[TopicEntry], CompactedPart]:
        opened = [decode_compacted(entry.data) for entry in found]
        entries = [
            TopicEntry(each.position, each.data, entry.messages)
            for each, entry in zip(opened, found, strict=True)
        ]
        through, end = opened[-1].position, index + len(found)
        if end == ledger.entries:
            through = compaction.horizon if ledger is compaction.ledgers[-1] else ledger.through
        self._place = _Place(ledger.ledger_id, end, through.behind)
        return entries, CompactedPart(through, {each.position: each.left for each in opened if each.left})

    async def last(self) -> LastMessage | None:
        """The last entry that a compaction left; None if there is none. Raises as `read`."""
        while True:
            compaction = self._topic.ledger_list.compaction
            if compaction is None or not compaction.ledgers:
                return None
            ledger = compaction.ledgers[-1]
            try:
                (found,) = await self._entries(ledger, ledger.entries - 1, ledger.entries - 1, 1)
            except LedgerGoneError as error:
                await self._check_gone(compaction, error)
            else:
                opened = decode_compacted(found.data)
                return LastMessage(TopicEntry(opened.position, opened.data, found.messages), opened.left)

    async def last_before(self, unix_ms: int) -> Position:
        """The last entry that was published before `unix_ms`, publish times taken as rising; NO_POSITION if there is none.

        An entry whose metadata cannot be read counts as those before it. Raises as `read`.
        """
        while True:
            compaction = self._topic.ledger_list.compaction
            try:
                return NO_POSITION if compaction is None else await self._last_before(compaction, unix_ms)
            except LedgerGoneError as error:
                assert compaction is not None
                await self._check_gone(compaction, error)

    async def _last_before(self, compaction: Compaction, unix_ms: int) -> Position:
        starts = list(accumulate((each.entries for each in compaction.ledgers), initial=0))

        async def nth(number: int) -> CompactedEntry:
            index = bisect_right(starts, number) - 1
            return await self._at(compaction.ledgers[index], number - starts[index])

        async def read(place: Position) -> Buffer:
            return (await nth(place.entry_id)).data

        _, last = await last_published_before(_numbered(starts[-1]), read, unix_ms)
        return NO_POSITION if last < 0 else (await nth(last)).position

    async def ends(self, ledger: CompactedLedger) -> tuple[Position, Position]:
        """The positions of the first and the last entry of a ledger. Raises ReadDelayedError, CompactionError, LedgerGoneError."""
        return (await self._at(ledger, 0)).position, (await self._at(ledger, ledger.entries - 1)).position

    async def _first_from(self, ledger: CompactedLedger, position: Position) -> EntryId:
        """The index of the first entry from `position` on."""
        if (ledger.ledger_id, position) == (self._place.ledger_id, self._place.position):
            return self._place.next
        low, high = 0, ledger.entries
        middle = 0  # most readers begin with the first one
        while low < high:
            if (await self._at(ledger, middle)).position < position:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    async def _at(self, ledger: CompactedLedger, index: EntryId) -> CompactedEntry:
        (found,) = await self._entries(ledger, index, index, 1)
        return decode_compacted(found.data)

    async def _entries(
        self, ledger: CompactedLedger, first: EntryId, last: EntryId, bytes_max: int
    ) -> list[TopicEntry]:
        """Entries as they are stored, at least one and as many as fit."""
        ask_bytes = min(max(bytes_max, READ_BYTES_MIN), READ_BYTES_MAX)
        run = await self._reads.run(ledger.ledger_id, first, ledger.entries - 1, ask_bytes, _of_another)
        self._reads.ahead.use(run)
        return run.part(first, min(last, run.last), bytes_max)


def _of_another(_: LedgerId) -> None:
    """A compacted ledger is closed before anybody reads it."""


def _numbered(entries: int) -> TopicExtent:
    """So many compacted entries as those of one ledger, since only their order counts for a search."""
    ledger = ListedLedger(0, 0, entries, closed_at_ms=0)
    return TopicExtent(LedgerList(ledgers=(ledger,), last_confirmed=ledger.last_position))
