"""Reads of ledgers for all topics of a broker: its readers, how much they read at a time, and what becomes of their errors.

A ledger that this broker writes is read through its handle, which knows its end; a closed one needs its metadata alone. Neither asks
a bookie for anything but entries. A read that nobody waits for only begins while there is room for it; one that a consumer waits
for takes its turn (`ReadAhead` has the bound).

A ledger whose replicas are gone is read from its file (rule 70), and one that was restored after that from its copy (rule 72).

Two errors leave this module. Either the ledger is gone, and the topic's list says what that means: it was trimmed, or its replicas were
given up, or it is missing. Or its entries cannot be read now: they can later, and nothing is skipped.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.client.reader import Reader
from daybook.core.errors import DaybookError, NoSuchLedgerError
from daybook.core.format.entries import Entry
from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.offload.record import Offload, Restored
from daybook.offload.errors import OffloadError
from daybook.runtime.shielded import shielded
from daybook.wire.pulsar.message_count import count_messages
from daybook_broker.topics.offloaded_files import OffloadedFiles, OffloadedReader
from daybook_broker.topics.read_ahead import ReadAhead, Run
from daybook_broker.topics.tail_cache import TailCache, as_entry, as_position
from daybook_broker.totals import Totals

READ_ENTRIES_MAX: Final = 1_024
"""Of a run: each becomes objects in one turn of the event loop."""
READ_BYTES_MAX: Final = 1024 * 1024
"""A larger run gains nothing and makes others wait."""
READ_BYTES_MIN: Final = 64 * 1024
"""The smallest run: a request costs as much as the transport of some hundred KiB."""
READ_AHEAD_BYTES: Final = 64 * 1024 * 1024
"""The bound of all runs of a broker unless its settings have another."""
READERS_MAX: Final = 1_000
"""Readers that are kept; each has the metadata of its ledger."""

OwnHandles = Callable[[LedgerId], Ledger | Offload | Restored | None]
"""The handle of a ledger that this broker writes, the file of one without replicas, or the copy of one that was restored; None for any other."""


class LedgerGoneError(DaybookError):
    """A ledger does not exist any more; only the topic's list says why."""


class ReadDelayedError(DaybookError):
    """Entries cannot be read now, and nothing is lost: try again after a pause."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """A run that is to be read: of `first` to at most `last`, about `ask_bytes`."""

    ledger_id: LedgerId
    first: EntryId
    last: EntryId
    ask_bytes: int
    own: OwnHandles


class LedgerReads:
    """One for a broker; `TopicReads` asks it."""

    def __init__(
        self,
        client: Client,
        cache: TailCache,
        totals: Totals | None = None,
        *,
        bytes_max: int = READ_AHEAD_BYTES,
        readers_max: int = READERS_MAX,
        files: OffloadedFiles | None = None,
    ) -> None:
        """`cache`, `totals` and `files` are the broker's."""
        self.cache = cache
        self.totals = totals or Totals()
        self.ahead = ReadAhead(bytes_max)
        self.reads = 0
        """How many runs were read from bookies."""
        self.files = files or OffloadedFiles()
        self._client = client
        self._readers: OrderedDict[LedgerId, Reader | OffloadedReader] = OrderedDict()
        self._readers_max = readers_max
        self._waiting: deque[tuple[_Wish, asyncio.Future[Run]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(
        self, ledger_id: LedgerId, first: EntryId, last: EntryId, ask_bytes: int, own: OwnHandles
    ) -> Run:
        """The run that has the entry `first`. Raises LedgerGoneError, ReadDelayedError."""
        while True:
            run = self.ahead.at(ledger_id, first)
            if run is None:
                wish = _Wish(ledger_id, first, last, ask_bytes, own)
                run = self._begin(wish) if self.ahead.has_room(ask_bytes) else await self._in_turn(wish)
            if run.reading is not None:
                await shielded(run.reading)
            if first <= run.last:
                return run

    def read_ahead(
        self, ledger_id: LedgerId, first: EntryId, last: EntryId, ask_bytes: int, own: OwnHandles
    ) -> None:
        """Begin to read what is likely to be needed next, if nobody has it and there is room."""
        if (
            not self._waiting
            and self.ahead.has_spare_room(ask_bytes)
            and self.ahead.at(ledger_id, first) is None
            and not self.cache.has(ledger_id, first)
        ):
            self._begin(_Wish(ledger_id, first, last, ask_bytes, own))

    def forget(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Nobody reads these ledgers any more: they were trimmed, or their topic is served elsewhere."""
        for ledger_id in ledger_ids:
            self._readers.pop(ledger_id, None)
            self.ahead.forget(ledger_id)

    async def close(self) -> None:
        """End the reads under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.files.close()

    # Taking turns

    async def _in_turn(self, wish: _Wish) -> Run:
        """The run of a read for which there is no room yet."""
        begun: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._waiting.append((wish, begun))
        return await begun

    def _begin(self, wish: _Wish) -> Run:
        run = self.ahead.begin(wish.ledger_id, wish.first, wish.last, wish.ask_bytes)
        self.reads += 1
        run.reading = asyncio.create_task(self._fetch(run, wish.own))
        self._tasks.add(run.reading)
        run.reading.add_done_callback(partial(self._ended, run))
        return run

    def _ended(self, run: Run, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:  # whoever waits for the entries has the error
            self.ahead.failed(run)
        while self._waiting and self.ahead.has_room(self._waiting[0][0].ask_bytes):
            wish, begun = self._waiting.popleft()
            if not begun.done():
                begun.set_result(self.ahead.at(wish.ledger_id, wish.first) or self._begin(wish))

    # Reading

    async def _fetch(self, run: Run, own: OwnHandles) -> None:
        entries = await self._read(run, own)
        self.totals.cache_misses += len(entries)
        ledger_id = run.ledger_id
        self.ahead.arrived(
            run,
            [
                as_entry((as_position((ledger_id, entry_id)), data, count_messages(data)))
                for entry_id, data in entries
            ],
        )

    async def _read(self, run: Run, own: OwnHandles) -> Sequence[Entry]:
        """A reader may be older than what happened to its ledger, so an error counts if a new reader has it as well."""
        try:
            return await self._read_once(run, own)
        except DaybookError:
            self._readers.pop(run.ledger_id, None)
        try:
            return await self._read_once(run, own)
        except DaybookError as error:
            self._readers.pop(run.ledger_id, None)
            raise await self._explained(run.ledger_id, error, own) from error

    async def _read_once(self, run: Run, own: OwnHandles) -> Sequence[Entry]:
        reader = await self._reader(run.ledger_id, own)
        last = max(run.first, min(run.last, reader.last_add_confirmed))
        return await reader.read_batch(run.first, last, entries_max=READ_ENTRIES_MAX, bytes_max=run.ask_bytes)

    async def _reader(self, ledger_id: LedgerId, own: OwnHandles) -> Reader | OffloadedReader:
        reader = self._readers.get(ledger_id)
        if reader is None:
            found = own(ledger_id)
            if found is None:
                reader = await self._open(ledger_id)
            elif isinstance(found, Offload):
                reader = OffloadedReader(self.files, found.place, ledger_id, found.entries)
            elif isinstance(found, Restored):
                assert found.stored_as is not None, "a copy is another ledger"
                reader = await self._open(found.stored_as)
            else:
                reader = found.reader()
            self._readers[ledger_id] = reader
            if len(self._readers) > self._readers_max:
                self._readers.popitem(last=False)
        else:
            self._readers.move_to_end(ledger_id)
        return reader

    async def _open(self, ledger_id: LedgerId) -> Reader:
        """A reader of a ledger without a handle here. A closed one has its end in its metadata, so nobody is asked for it."""
        found = await self._client.ledgers.read(ledger_id)
        if found.value.is_closed:
            return Reader(found.value, self._client)
        return await self._client.open_ledger(ledger_id, recover=False)

    async def _explained(self, ledger_id: LedgerId, error: DaybookError, own: OwnHandles) -> DaybookError:
        if isinstance(error, OffloadError):
            msg = f"ledger {ledger_id} is offloaded, and cannot be read from its file: {error}"
            return ReadDelayedError(msg)
        if isinstance(found := own(ledger_id), Restored):  # the ledger itself has been gone for long
            msg = f"ledger {ledger_id} was restored, and its copy in ledger {found.stored_as} cannot be read now ({error}): its entries are delivered once its bookies answer"
            return ReadDelayedError(msg)
        try:
            await self._client.ledgers.read(ledger_id)
        except NoSuchLedgerError:
            msg = f"ledger {ledger_id} does not exist any more: read its topic's list for the reason"
            return LedgerGoneError(msg)
        except DaybookError as unknown:
            error = unknown
        msg = f"ledger {ledger_id} cannot be read now ({error}): its entries are delivered once its bookies answer"
        return ReadDelayedError(msg)
