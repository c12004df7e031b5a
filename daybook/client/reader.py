"""A ledger open for reading: the reader gives entries in order, checked, and never one that may still be lost.

The protocol is `daybook.core.reader.reader` (ranges) and `daybook.core.reader.lac` (how far one may read), joined by what the reader
knows of its ledger (`daybook.core.reader.view`, rule 59). This module turns them into asynchronous iterators. A reader reads ahead
until its consumer has too much that it has not taken yet.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol, TypeVar

from daybook.client.driver.run import Running, Surroundings
from daybook.client.transport.calls import ReadKey
from daybook.core.effects import Deliver, EffectT, LacKnown, MetadataKnown, ReadFailed, SendRead
from daybook.core.errors import Code, DaybookError, NoSuchEntryError
from daybook.core.events import Consumed, ReadAnswered
from daybook.core.format.entries import Entry
from daybook.core.format.frame import FRAME_ENTRIES_MAX
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import Machine
from daybook.core.reader.batch import fitting
from daybook.core.reader.lac import LacReader
from daybook.core.reader.reader import Rank, ReadPolicy
from daybook.core.reader.suspects import Suspects
from daybook.core.reader.view import LedgerView, OwnWriter
from daybook.runtime.clock import monotonic_ms

T = TypeVar("T")

BATCH_BYTES: Final = 1024 * 1024
"""How much payload `read_batch` returns unless its caller sets another limit."""
SPECULATE_MS: Final = ReadPolicy().speculate_ms
"""How long `read_batch` waits for one bookie before the other replicas are asked as well."""


class ReaderSurroundings(Surroundings, Protocol):
    """What a reader needs around it: the client."""

    @property
    def suspects(self) -> Suspects:
        """The bookies that failed lately, known to all readers (rule 63)."""

    def rank(self) -> Rank:
        """Which bookies are near."""


class OwnHandle(OwnWriter, Protocol):
    """The handle of the ledger's writer, if it is in this process."""

    async def risen(self, above: EntryId) -> None:
        """Wait until `last_add_confirmed` is higher than `above`, or nothing more is done through the handle."""


class Reader:
    """Reads a ledger. Made by `Client.open_ledger` and `Ledger.reader`; holds nothing that must be closed."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        surroundings: ReaderSurroundings,
        own: OwnHandle | None = None,
        *,
        last_add_confirmed: EntryId = NO_ENTRY,
    ) -> None:
        """The reader knows what `metadata` says, and what `own` knows; `begin` and `refresh` ask the bookies.

        `last_add_confirmed`: the LAC that another reader of the ledger has found.
        """
        self._view = LedgerView(metadata, own, surroundings.suspects)
        self._view.learn(LacKnown(last_add_confirmed))
        self._own = own
        self._surroundings = surroundings

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self.metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this reader knows it; final once the ledger is closed."""
        self._view.follow_writer()
        return self._view.metadata

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry that may be read, −1 when there is none; it never goes back."""
        self._view.follow_writer()
        return self._view.last_add_confirmed

    async def begin(self) -> EntryId:
        """As `refresh`, of a reader that was made with metadata that was read just now."""
        return await self._ask(self._view.refresh(lenient=True, is_new=True, now_ms=monotonic_ms()))

    async def refresh(self, *, lenient: bool = True) -> EntryId:
        """Read the metadata again, ask the bookies for the LAC of a ledger that is still written, and return it (rule 59).

        `lenient`: any bookie's answer is sufficient, and so are the bookies that are known while metadata cannot be read;
        the LAC may then be too low. Otherwise the refresh needs the answers of a quorum (NotEnoughReplicasError) of the
        current ensemble (MetadataUnavailableError). Raises UnauthorizedError, NoSuchLedgerError once it was deleted.
        A reader of `Ledger.reader` asks nobody for as long as that handle is in use.
        """
        if self._view.follow_writer():
            return self._view.last_add_confirmed
        return await self._ask(self._view.refresh(lenient=lenient, now_ms=monotonic_ms()))

    async def _ask(self, machine: LacReader) -> EntryId:
        with self._running(machine) as running:
            async for effect in running.results():
                match effect:
                    case MetadataKnown() | LacKnown():
                        self._view.learn(effect)
                    case ReadFailed(error):
                        raise self._explained(error)
        return self.last_add_confirmed

    def read(self, first: EntryId = 0, last: EntryId | None = None) -> AsyncGenerator[Entry, None]:
        """The entries first … last (default: all that are confirmed), each exactly once; see `read_batches`."""
        return _flatten(self.read_batches(first, last))

    def read_batches(
        self, first: EntryId = 0, last: EntryId | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """As `read`, in the batches in which entries arrive; this is the fastest way to read many.

        A batch, and any slice of one, holds the memory of the whole answer that it is of, some MiB; an entry's data is a copy.
        Raises NoSuchEntryError beyond `last_add_confirmed`, CorruptEntryError, NotEnoughReplicasError.
        """
        end = self.last_add_confirmed if last is None else last
        if last is None and first > end:
            return _nothing()
        return self._read(first, end, unconfirmed=False)

    async def read_batch(
        self,
        first: EntryId,
        last: EntryId | None = None,
        *,
        entries_max: int = FRAME_ENTRIES_MAX,
        bytes_max: int = BATCH_BYTES,
    ) -> Sequence[Entry]:
        """The entries from `first` on that fit: at least one, and at most up to `last` (default: all that are confirmed).

        The way to serve few entries at a time: mostly one request. It may return fewer entries than would fit; the next
        call continues. Limits are in entries and in bytes of payload. Raises as `read_batches`, also NoSuchEntryError where
        nothing is confirmed from `first` on, and ValueError for a limit below 1.
        """
        if entries_max < 1 or bytes_max < 1:
            msg = f"a batch of {entries_max} entries and {bytes_max} bytes: both must be at least 1"
            raise ValueError(msg)
        end = self.last_add_confirmed if last is None else last
        last = min(end, first + entries_max - 1)
        ask = self._view.ask_batch(
            first, last, bytes_max, rank=self._surroundings.rank(), now_ms=monotonic_ms()
        )
        return (ask and await self._ask_one(ask)) or await self._read_fitting(first, last, bytes_max)

    async def _ask_one(self, ask: SendRead) -> Sequence[Entry]:
        """What one bookie gives at once; nothing if that is not enough, or takes too long."""
        calls = self._surroundings.channels.calls(ask.bookie)
        answer = ReadAnswered(ask.bookie, ask.request_id, Code.CONNECTION_LOST)
        if calls is not None:
            key = ReadKey(self.id, self.metadata.password_hash)
            try:
                async with asyncio.timeout(SPECULATE_MS / 1000):
                    answer = await _not_cut_off(calls.read(key, ask), self.id)
            except TimeoutError:
                answer = ReadAnswered(ask.bookie, ask.request_id, Code.TIMEOUT)
        return self._view.take_batch(ask, answer, monotonic_ms())

    async def _read_fitting(self, first: EntryId, last: EntryId, bytes_max: int) -> Sequence[Entry]:
        """The same by the machine, which has more ways to come by an entry; an error counts if it is the first entry's."""
        policy = ReadPolicy(piece_bytes=bytes_max, read_ahead_bytes=bytes_max)
        batch: list[Entry] = []
        async with aclosing(self._read(first, last, unconfirmed=False, policy=policy)) as runs:
            try:
                async for run in runs:
                    batch += run
                    if sum([len(data) for _, data in batch]) >= bytes_max:
                        break
            except DaybookError:
                if not batch:
                    raise
        return fitting(batch, bytes_max)

    def read_unconfirmed(self, first: EntryId, last: EntryId) -> AsyncGenerator[Entry, None]:
        """As `read`, also past the last confirmed entry: such an entry may be lost or replaced until it is confirmed."""
        return _flatten(self._read(first, last, unconfirmed=True))

    async def tail(self, from_entry: EntryId = 0) -> AsyncGenerator[Entry, None]:
        """The entries from `from_entry` on, as they are confirmed; the iterator ends once the ledger is closed and read to its end."""
        following = from_entry
        async with aclosing(self._follow()) as rises:
            async for _ in rises:
                while following <= self.last_add_confirmed:
                    async with aclosing(self.read_batches(following, self.last_add_confirmed)) as batches:
                        async for batch in batches:
                            for entry in batch:
                                yield entry
                            following = batch[-1].entry_id + 1

    # Machines

    async def _read(
        self, first: EntryId, last: EntryId, *, unconfirmed: bool, policy: ReadPolicy | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        if first < 0 or first > last:
            msg = f"entries {first} to {last}: the first must be at least 0 and not beyond the last"
            raise NoSuchEntryError(msg)
        self._view.follow_writer()
        machine = self._view.read(
            first,
            last,
            unconfirmed=unconfirmed,
            rank=self._surroundings.rank(),
            policy=policy,
            now_ms=monotonic_ms(),
        )
        with self._running(machine, machine.pass_time) as running:
            async for effect in running.results():
                match effect:
                    case Deliver(entries, size_bytes):
                        yield entries
                        running.step(Consumed(size_bytes))
                    case MetadataKnown():
                        self._view.learn(effect)
                    case ReadFailed(error):
                        raise self._explained(error)

    async def _follow(self) -> AsyncGenerator[None, None]:
        """Yield at once, and then whenever the LAC has risen; end at the close."""
        yield
        while self._own is not None and self._view.follow_writer() and not self._view.metadata.is_closed:
            known = self._view.last_add_confirmed
            await self._own.risen(known)
            if self.last_add_confirmed > known:
                yield
        machine = self._view.follow(rank=self._surroundings.rank(), now_ms=monotonic_ms())
        with self._running(machine) as running:
            async for effect in running.results():
                match effect:
                    case MetadataKnown():
                        self._view.learn(effect)
                    case LacKnown():
                        self._view.learn(effect)
                        yield
                    case ReadFailed(error):
                        raise self._explained(error)

    def _running(
        self, machine: Machine[Any, EffectT], pass_time: Callable[[int], None] | None = None
    ) -> Running[EffectT]:
        key = self.metadata.password_hash
        return Running(machine, self.id, key, self._surroundings, pass_time=pass_time)

    def _explained(self, error: DaybookError) -> DaybookError:
        return self._surroundings.channels.connection_errors.explain(error)


async def _not_cut_off(call: Coroutine[Any, Any, T], ledger_id: LedgerId) -> T:
    """The result of `call`, which gRPC cancels when the client is closed: its caller was not cancelled, and gets an error."""
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        msg = f"the client was closed while it read ledger {ledger_id}: open another one"
        raise DaybookError(msg) from None


async def _flatten(batches: AsyncGenerator[Sequence[Entry], None]) -> AsyncGenerator[Entry, None]:
    async with aclosing(batches):  # a consumer that stops early ends the reads under way at once
        async for batch in batches:
            for entry in batch:
                yield entry


async def _nothing() -> AsyncGenerator[Sequence[Entry], None]:
    none: tuple[Sequence[Entry], ...] = ()
    for batch in none:
        yield batch
