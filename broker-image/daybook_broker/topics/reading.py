"""What a topic's consumers read: entries from memory where they are there, and else from bookies, ahead of who needs them.

Consumers who keep up find everything in the tail cache. Those who catch up read runs: the first is as large as they ask for, each
next one twice as large as the one before, up to a bound, and it is under way as soon as the one before is used. So a consumer of
one entry costs one small read, and a consumer of a backlog waits for no bookie.

A ledger that is gone is skipped if the topic's list does not name it any more, and only then. A list that names it may be that of an owner
that was superseded, and the ledger in a file by now, so the owner reads its list once more (rule 70).
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.offload.record import Offload, Restored
from daybook_broker.topics.ledger_reads import (
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    READ_ENTRIES_MAX,
    LedgerGoneError,
    LedgerReads,
    OwnHandles,
    ReadDelayedError,
)
from daybook_broker.topics.read_ahead import Run

EXACT_SPAN_ENTRIES: Final = 64
"""How far apart positions are at most that one read brings: what lies between them is read in vain."""


class Extent(Protocol):
    """What a topic has: the part of TopicExtent that reading needs."""

    def run(self, position: Position, entries_max: int) -> tuple[LedgerId, EntryId, EntryId] | None:
        """Readable entries of one ledger from `position`, or the next existing one, on; None: nothing yet."""

    def contains(self, position: Position) -> bool:
        """Whether the entry can be read."""


class TopicReads:
    """Reads the entries of one topic, for all its subscriptions."""

    def __init__(
        self,
        reads: LedgerReads,
        extent: Extent,
        own: OwnHandles,
        confirm_owner: Callable[[], Awaitable[None]],
    ) -> None:
        """`reads` are those of the broker; `own` gives the handle of a ledger that this topic writes.

        `confirm_owner` reads the topic's list again, and raises unless the topic is still this broker's.
        """
        self._reads = reads
        self._cache = reads.cache
        self._totals = reads.totals
        self._ahead = reads.ahead
        self._extent = extent
        self._own = own
        self._confirm_owner = confirm_owner

    def cached(self, position: Position, entries_max: int, bytes_max: int) -> list[TopicEntry] | None:
        """The entries from `position`, or the next existing one, on, if they are in memory; None if they are not, [] if there are none.

        They are of one ledger, at least one and as many as fit.
        """
        run = self._extent.run(position, entries_max)
        if run is None:
            return []
        ledger_id, first, last = run
        found = self._cache.find(ledger_id, first, last, bytes_max)
        if found is not None:
            self._totals.cache_hits += len(found)
        else:
            here = self._ahead.at(ledger_id, first)
            if here is None or here.reading is not None:
                return None
            found = self._part(here, first, last, bytes_max)
        return found

    async def read(self, position: Position, entries_max: int, bytes_max: int) -> list[TopicEntry]:
        """As `cached`, from bookies if need be; [] if nothing exists yet. Raises ReadDelayedError, NotReadyError."""
        while (found := self.cached(position, entries_max, bytes_max)) is None:
            run = self._extent.run(position, READ_ENTRIES_MAX)
            assert run is not None, "what was missing in memory exists"
            ledger_id, first, last = run
            ask_bytes = min(max(bytes_max, READ_BYTES_MIN), READ_BYTES_MAX)
            try:
                here = await self._reads.run(ledger_id, first, last, ask_bytes, self._own)
            except LedgerGoneError as error:
                await self._explain(Position(ledger_id, first), error)
            else:
                return self._part(here, first, min(last, first + entries_max - 1), bytes_max)
        return found

    async def read_exact(self, positions: Sequence[Position]) -> list[TopicEntry]:
        """These entries, in the order in which they are asked for; those that do not exist any more are left out.

        Raises ReadDelayedError, NotReadyError.
        """
        found: list[TopicEntry] = []
        for index, position in enumerate(positions):
            ledger_id, entry_id = position
            near = self._cache.find(ledger_id, entry_id, entry_id, 1)
            while near is None and self._extent.contains(position):
                last = _last_near(positions, index)
                try:
                    here = await self._reads.run(ledger_id, entry_id, last, READ_BYTES_MIN, self._own)
                except LedgerGoneError as error:
                    await self._explain(position, error)
                    continue
                self._ahead.use(here)
                near = here.part(entry_id, entry_id, 1)
            found += near or ()
        return found

    def forget(self, ledger_ids: Iterable[LedgerId]) -> None:
        """These ledgers were trimmed, or the topic is served elsewhere."""
        self._reads.forget(ledger_ids)

    async def _explain(self, position: Position, error: LedgerGoneError) -> None:
        """Return if the list says what to read instead of a ledger that is gone. Raises ReadDelayedError, NotReadyError."""
        if self._is_explained(position):
            return
        await self._confirm_owner()
        if not self._is_explained(position):
            msg = f"ledger {position.ledger_id} is missing, and its topic still has it: restore it, or seek each subscription past it"
            raise ReadDelayedError(msg) from error

    def _is_explained(self, position: Position) -> bool:
        """Whether the list, as it is known now, has trimmed the entry, or names a file or a copy to read it from."""
        return not self._extent.contains(position) or isinstance(
            self._own(position.ledger_id), Offload | Restored
        )

    def _part(self, run: Run, first: EntryId, last: EntryId, bytes_max: int) -> list[TopicEntry]:
        """A part of a run that is here; at its first use the next run begins."""
        if self._ahead.use(run):
            following = self._extent.run(Position(run.ledger_id, run.last + 1), READ_ENTRIES_MAX)
            if following is not None:
                ask_bytes = min(2 * run.ask_bytes, READ_BYTES_MAX)
                self._reads.read_ahead(*following, ask_bytes, self._own)
        return run.part(first, last, bytes_max)


def _last_near(positions: Sequence[Position], index: int) -> EntryId:
    """The last of the positions after `positions[index]` that one read brings as well."""
    ledger_id, last = positions[index]
    for other in positions[index + 1 :]:
        if other.ledger_id != ledger_id or not last < other.entry_id <= last + EXACT_SPAN_ENTRIES:
            break
        last = other.entry_id
    return last
