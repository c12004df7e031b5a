"""A ledger open for writing: appends in, acknowledgements out, in order.

The protocol is `daybook.core.writer.writer`; here are the futures of those who wait and the back-pressure, which keeps the
order of the calls (rule 60). Entries that are appended in one turn of the event loop leave together, and so does
everything that gathers while the ensemble is busy.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from daybook.client.driver.driver import MachineDriver
from daybook.client.events import LedgerClosed, LedgerDegraded, LedgerEvent, LedgerWhole, OnEvent, end_of
from daybook.client.reader import Reader, ReaderSurroundings
from daybook.core.effects import (
    Closed,
    Complete,
    Degraded,
    EnsembleChanged,
    Fail,
    Forced,
    HandleEnded,
    Quarantined,
    WriterEffect,
)
from daybook.core.errors import (
    DaybookError,
    LedgerClosedError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from daybook.core.events import (
    AppendRequested,
    BookiesChanged,
    CloseRequested,
    Event,
    FlushRequested,
    ForceRequested,
    MetadataConnection,
    Tick,
)
from daybook.core.format.frame import Buffer, check_payloads
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.writer.writer import LedgerWriter
from daybook.metadata.store.store import Versioned
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

PENDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Back-pressure: an append waits while this much of its ledger is not yet on every bookie that should have it.

Above `WriterPolicy.lag_bytes_max`, so that a bookie that stands still is given up before it blocks the writer."""

Waiter: TypeAlias = asyncio.Future[Any]


@dataclass(eq=False, slots=True)
class _Waiting:
    """An append that was called when there was no room; `admitted` gets the future of its ids."""

    entries: Sequence[Buffer]
    entry_ids: Sequence[EntryId] | None
    admitted: asyncio.Future[Waiter]


class Ledger:
    """The one writer of a ledger. Use as `async with`; leaving it closes the ledger."""

    def __init__(
        self,
        writer: LedgerWriter,
        key: str,
        *,
        surroundings: ReaderSurroundings,
        on_end: Callable[["Ledger"], None],
        on_quarantine: Callable[[BookieId, int], None],
        on_event: OnEvent | None = None,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> None:
        """Made by `Client.create_ledger` and `Client.attach_ledger`."""
        self._writer = writer
        self._surroundings = surroundings
        self._channels = surroundings.channels
        self._on_end = on_end
        self._on_quarantine = on_quarantine
        self._on_event = on_event
        self.pending_bytes_max = pending_bytes_max
        self._token = 0
        self._waiters: dict[int, Waiter] = {}
        self._waiting: deque[_Waiting] = deque()
        self._is_admitting = False
        self._conditions: list[tuple[Callable[[], bool], Waiter]] = []
        self._closing: Waiter | None = None
        self._ended: DaybookError | None = None
        self._missing: tuple[BookieId, ...] = ()
        self.is_over = False
        """Whether nothing more is done through this handle, not even a close."""
        self._driver = MachineDriver(
            writer,
            writer.metadata.ledger_id,
            key,
            recovery=False,
            is_deferred=writer.is_deferred,
            channels=surroundings.channels,
            ledgers=surroundings.ledgers,
            handle=self._handle,
            current=Versioned(writer.metadata, writer.version),
            after_step=self._after_step,
            crashed=self._end,
        )
        self.ensemble_changes = 0
        """How often the ensemble changed while this handle wrote."""

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self._writer.metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this writer knows it."""
        return self._writer.metadata

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry that is acknowledged together with all before it; −1 when there is none."""
        return self._writer.last_add_confirmed

    @property
    def length(self) -> int:
        """The payload bytes up to `last_add_confirmed`."""
        return self._writer.length_at_lac

    @property
    def pending_bytes(self) -> int:
        """Payload bytes that some bookie does not have yet; appends wait while it is over `pending_bytes_max`."""
        return self._writer.pending_bytes

    @property
    def is_degraded(self) -> bool:
        """Whether a bookie is missing and no spare exists (rule 45)."""
        return self._writer.is_degraded

    @property
    def missing(self) -> tuple[BookieId, ...]:
        """The missing bookies that the writer continues without (rule 45): meanwhile each of its entries has fewer copies."""
        return self._missing

    @property
    def error(self) -> DaybookError | None:
        """Why nothing more can be appended through this handle; None for as long as something can.

        A handle ends when its ledger is fenced or closed, and when its ensemble would change more often than
        `WriterPolicy.ensemble_changes_max` (rule 21). Then write to a new ledger.
        """
        return self._ended

    async def append(self, data: Buffer, *, entry_id: EntryId | None = None) -> EntryId:
        """Append an entry; return its id once it is acknowledged.

        `entry_id` only for a ledger with `explicit_ids`. Raises EntryTooLargeError (nothing was written, and the handle
        stays open), LedgerFencedError (the outcome is unknown), LedgerClosedError, NotEnoughReplicasError.
        """
        ids = None if entry_id is None else (entry_id,)
        first, _ = await (await self._submit((data,), ids))
        return int(first)

    async def append_many(
        self, entries: Sequence[Buffer], *, entry_ids: Sequence[EntryId] | None = None
    ) -> tuple[EntryId, EntryId]:
        """Append entries; return the first and the last id once all are acknowledged. Raises as `append`."""
        first, last = await (await self._submit(entries, entry_ids))
        return first, last

    async def submit(self, entries: Sequence[Buffer]) -> asyncio.Future[tuple[EntryId, EntryId]]:
        """Append entries and return, once there is room for them, a future of the first and the last id.

        The way to keep many appends under way from one task: their order is the order of the calls.
        """
        return await self._submit(entries)

    async def force(self) -> EntryId:
        """Make everything appended so far durable on every bookie of the ensemble; return the LAC (rule 22).

        Raises ForceFailedError if a bookie fails or restarted meanwhile: what was appended is then not confirmed.
        """
        self._admit(all_at_once=True)
        return int(await self._request(ForceRequested))

    async def replicated(self) -> None:
        """Wait until every bookie that should have them has all entries so far, not only Qa of them.

        For a process that ends after it: it spares a repair. Use a time-out, since a bookie may be slow. Raises
        LedgerFencedError and the like if the handle ended.
        """
        await self._until(lambda: self._ended is not None or not self._writer.pending_bytes)
        if self._ended is not None:
            raise self._ended

    def reader(self) -> Reader:
        """A reader of this ledger that learns its LAC and its ensembles from this handle, and asks nobody for them."""
        return Reader(self.metadata, self._surroundings, self)

    async def risen(self, above: EntryId) -> None:
        """Wait until `last_add_confirmed` is higher than `above`, or until `is_over`."""
        await self._until(lambda: self.is_over or self._writer.last_add_confirmed > above)

    async def close(self) -> LedgerMetadata:
        """Close the ledger at its last confirmed entry and return the final metadata. Closing twice is harmless.

        It waits for everything that was appended before, also for what had no room yet. A handle that ended by itself closes its ledger
        if that is its part: then this waits for that close. A ledger that is another client's to close is closed by it, or
        not yet: then this returns its end (rule 11), or raises why the handle ended, as it does after `abandon`.
        """
        if self._ended is not None and self.metadata.is_closed:
            return self.metadata
        if self._closing is None:
            if self.is_over and self._ended is not None:
                return await self._closed_by_another(self._ended)
            self._admit(all_at_once=True)
            self._closing = self._ask(CloseRequested)
        metadata = await asyncio.shield(self._closing)  # who gives up must not take it from the others
        assert isinstance(metadata, LedgerMetadata)
        return metadata

    async def _closed_by_another(self, ended: DaybookError) -> LedgerMetadata:
        """The metadata of a ledger that this handle closes no more, if it is closed; otherwise raise `ended`."""
        try:
            found = await self._surroundings.ledgers.read(self.id, sync=True)
        except (NoSuchLedgerError, MetadataUnavailableError):
            raise ended from None
        if not found.value.is_closed:
            raise ended
        return found.value

    async def abandon(self) -> None:
        """Stop writing without closing: the ledger stays open until somebody recovers it.

        What is under way fails with LedgerClosedError, and may be in the ledger all the same.
        """
        msg = f"the handle of ledger {self.id} was abandoned: what it had under way may be in the ledger, or not"
        self._end(LedgerClosedError(msg))

    async def __aenter__(self) -> Self:
        """The ledger itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the ledger; after an error that ended the handle there is nothing to close."""
        if self._ended is None:
            await self.close()

    # What the client reports to every writer.

    def ensemble(self) -> tuple[BookieId, ...]:
        """The bookies that the next frame goes to."""
        return self._writer.metadata.last_fragment.bookies

    def flush(self) -> None:
        """Seal what gathered into frames and send them."""
        self._driver.step(FlushRequested())

    def tick(self, now_ms: int) -> None:
        """Let time pass."""
        if self._writer.pass_time(now_ms):
            self._driver.step(Tick(now_ms))

    def bookies_changed(self, event: BookiesChanged) -> None:
        """Which bookies are registered now."""
        self._driver.step(event)

    def metadata_connection(self, event: MetadataConnection) -> None:
        """Whether the metadata store answers now."""
        self._driver.step(event)

    # Requests

    async def _submit(self, entries: Sequence[Buffer], entry_ids: Sequence[EntryId] | None = None) -> Waiter:
        """Hand `entries` to the writer once there is room; the result is a future of (first id, last id)."""
        if not entries:
            msg = "there is nothing to append: give at least one entry"
            raise ValueError(msg)
        check_payloads(entries)
        if not self._waiting and self._has_room:
            return self._append(entries, entry_ids)
        waiting = _Waiting(entries, entry_ids, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._admit()
        try:
            return await waiting.admitted
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif not waiting.admitted.cancelled() and waiting.admitted.exception() is None:
                waiting.admitted.result().cancel()  # it was let in a moment ago, and nobody will ask for its ids
            raise

    @property
    def _has_room(self) -> bool:
        return self._writer.pending_bytes < self.pending_bytes_max

    def _append(self, entries: Sequence[Buffer], entry_ids: Sequence[EntryId] | None) -> Waiter:
        return self._request(lambda token: AppendRequested(token, entries, entry_ids))

    def _admit(self, *, all_at_once: bool = False) -> None:
        """Hand those who wait to the writer, in the order of their calls (rule 60), as far as there is room.

        Nobody else's append can come between, because no task has to run for it. After the end of the handle all are passed on, so that each fails with its reason.
        """
        if self._is_admitting:  # an append's own step leads here, too
            return
        self._is_admitting = True
        while self._waiting:
            if all_at_once or self._ended is not None or self._has_room:
                waiting = self._waiting.popleft()
            elif (filler := self._fills_the_gap()) is not None:
                waiting = filler
                self._waiting.remove(waiting)
            else:
                break
            if waiting.admitted.done():  # cancelled, and its task has not run since
                continue
            try:
                waiting.admitted.set_result(self._append(waiting.entries, waiting.entry_ids))
            except DaybookError as error:
                waiting.admitted.set_exception(error)
        self._is_admitting = False

    def _fills_the_gap(self) -> _Waiting | None:
        """Who brings the entry that all others wait for: for it there is always room, or there would never be any (rule 55)."""
        missing = self._writer.missing_entry
        if missing is None:
            return None
        fillers = (waiting for waiting in self._waiting if missing in (waiting.entry_ids or ()))
        return next(fillers, None)

    def _request(self, make: Callable[[int], Event]) -> Waiter:
        if self._ended is not None:
            raise self._ended
        return self._ask(make)

    def _ask(self, make: Callable[[int], Event]) -> Waiter:
        self._token += 1
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters[self._token] = waiter
        self._driver.step(make(self._token))
        return waiter

    def _after_step(self) -> None:
        if self._ended is not None and self._writer.is_done:
            self._end(self._ended)
        if self._writer.has_unsealed:
            self._channels.unsealed.add(self)
        if self._waiting:
            self._admit()
        if self._conditions:
            self._check_conditions()

    async def _until(self, is_met: Callable[[], bool]) -> None:
        """Wait for a state of the handle; `is_met` is asked after each step."""
        if not is_met():
            waiter: Waiter = asyncio.get_running_loop().create_future()
            self._conditions.append((is_met, waiter))
            await waiter

    def _check_conditions(self) -> None:
        for is_met, waiter in self._conditions:
            if not waiter.done() and is_met():
                waiter.set_result(None)
        self._conditions = [each for each in self._conditions if not each[1].done()]

    # Results

    def _handle(self, effect: WriterEffect) -> None:
        match effect:
            case Complete(token, first, last):
                self._resolve(token, (first, last))
            case Fail(token, error):
                self._reject(token, self._channels.connection_errors.explain(error))
            case Forced(token, lac):
                self._resolve(token, lac)
            case Closed(token, metadata):
                if token is not None:
                    self._resolve(token, metadata)
                self._report(LedgerClosed(metadata))
                self._end(LedgerClosedError(f"ledger {self.id} is closed: create a new one to write on"))
            case HandleEnded(error):
                explained = self._channels.connection_errors.explain(error)
                log.warning("ledger handle ended", ledger_id=self.id, why=str(explained))
                self._refuse(explained)
            case Degraded(missing):
                self._missing = missing
                log.warning(
                    "ledger degraded" if missing else "ledger no longer degraded",
                    ledger_id=self.id,
                    missing=missing,
                )
                self._report(LedgerDegraded(missing) if missing else LedgerWhole())
            case Quarantined(bookie, until_ms):
                log.warning("bookie in quarantine", ledger_id=self.id, bookie=bookie)
                self._on_quarantine(bookie, until_ms)
            case EnsembleChanged(first_entry, bookies):
                self.ensemble_changes += 1
                log.info("ensemble changed", ledger_id=self.id, first_entry=first_entry, bookies=bookies)
            case _:
                msg = f"{effect!r} is no effect of a writer: this is a bug, please report it"
                raise AssertionError(msg)

    def _report(self, event: LedgerEvent) -> None:
        """Report `event` in the event loop's next turn: a listener may use the handle, and its errors are not the machine's."""
        if self._on_event is not None:
            asyncio.get_running_loop().call_soon(self._on_event, event)

    def _resolve(self, token: int, value: object) -> None:
        waiter = self._waiters.pop(token)
        if not waiter.done():
            waiter.set_result(value)

    def _reject(self, token: int, error: DaybookError) -> None:
        waiter = self._waiters.pop(token)
        if not waiter.done():
            waiter.set_exception(error)

    def _refuse(self, error: DaybookError) -> None:
        """Nothing more can be written through this handle; a close that is under way still ends (rule 11)."""
        if self._ended is None:
            self._ended = error
            if not self.metadata.is_closed:
                self._report(end_of(error))
        self._admit()
        self._check_conditions()

    def _end(self, error: DaybookError) -> None:
        """Nothing more is done through this handle."""
        if self.is_over:
            return
        self.is_over = True
        self._driver.stop()
        self._refuse(error)
        for token in list(self._waiters):
            self._reject(token, error)
        self._on_end(self)
