"""A ledger open for writing: appends in, acknowledgements out, in order.

The protocol is `daybook.core.writer.writer`; here are the futures of those who wait and the back-pressure, which keeps the
order of the calls (rule 60). Entries that are appended in one turn of the event loop leave together, and so does
everything that gathers while the ensemble is busy.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from daybook.client.admission import Admission, Waiter
from daybook.client.driver.callbacks import OnDone
from daybook.client.driver.conditions import Conditions
from daybook.client.driver.driver import MachineDriver
from daybook.client.driver.shared import Shared
from daybook.client.driver.timers import Alarm
from daybook.client.ends import closed_by_another
from daybook.client.events import LedgerClosed, LedgerDegraded, LedgerEvent, LedgerWhole, OnEvent, end_of
from daybook.client.pending import PENDING_BYTES_MAX
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
from daybook.core.errors import DaybookError, LedgerClosedError
from daybook.core.events import (
    BookiesChanged,
    CloseRequested,
    Event,
    ForceRequested,
    MetadataConnection,
)
from daybook.core.format.frame import Buffer
from daybook.core.format.payloads import payload_bytes
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.writer.writer import LedgerWriter
from daybook.metadata.store.store import Versioned
from daybook.runtime.logs import get_logger
from daybook.runtime.shielded import shielded

log = get_logger(__name__)

Soon: TypeAlias = tuple[EntryId, OnDone]
"""An entry of `append_soon`, or the last one of a run, and who waits for it."""


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
        shared: Shared,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> None:
        """Made by `Client.create_ledger` and `Client.attach_ledger`."""
        self._writer = writer
        self._surroundings = surroundings
        self._channels = surroundings.channels
        self._on_end = on_end
        self._on_quarantine = on_quarantine
        self._on_event = on_event
        self._callbacks = shared.callbacks
        self._admission = Admission(
            writer,
            self._append,
            lambda: self._ended is not None,
            pending_bytes_max=pending_bytes_max,
            client=shared.pending,
        )
        self._token = 0
        self._waiters: dict[int, Waiter | Soon] = {}
        self._conditions = Conditions()
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
            writer=writer,
            timers=shared.timers,
            after_step=self._after_step,
            crashed=self._end,
        )
        self._alarm = Alarm(shared.timers, writer, partial(self._driver.take, writer.tick))
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
        """Payload bytes that some bookie does not have yet."""
        return self._writer.pending_bytes

    @property
    def pending_bytes_max(self) -> int:
        """The bound of `pending_bytes`: an append waits while they reach it. It may be changed at any time."""
        return self._admission.pending_bytes_max

    @pending_bytes_max.setter
    def pending_bytes_max(self, bound_bytes: int) -> None:
        self._admission.pending_bytes_max = bound_bytes

    @property
    def has_room(self) -> bool:
        """Whether an append would not wait: the ledger and the whole client are below their bounds of pending bytes.

        Who uses `append_soon` pauses while it is False; `call_when_room` says when to go on. With explicit ids, the entry
        after the last acknowledged one must not pause: without it there may never be room again (rule 55).
        """
        return self._admission.has_room

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from the event loop, as soon as there is room or the handle has ended (see `error`)."""
        self._admission.call_when_room(callback)

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
        stays open), LedgerFencedError (the outcome is unknown), LedgerClosedError, NotEnoughBookiesError.
        """
        ids = None if entry_id is None else (entry_id,)
        first, _ = await (await self._admission.submit((data,), ids))
        return int(first)

    async def append_many(
        self, entries: Sequence[Buffer], *, entry_ids: Sequence[EntryId] | None = None
    ) -> tuple[EntryId, EntryId]:
        """Append entries; return the first and the last id once all are acknowledged. Raises as `append`."""
        first, last = await (await self._admission.submit(entries, entry_ids))
        return first, last

    async def submit(self, entries: Sequence[Buffer]) -> asyncio.Future[tuple[EntryId, EntryId]]:
        """Append entries and return, once there is room for them, a future of the first and the last id.

        The way to keep many appends under way from one task: their order is the order of the calls.
        """
        return await self._admission.submit(entries, None)

    def append_soon(self, data: Buffer, on_done: OnDone, *, entry_id: EntryId | None = None) -> EntryId:
        """Append an entry without waiting for anything; return its id, which no other entry of this handle gets.

        `on_done(entry_id, error)` is called from the event loop, in the order of the entries: with None once the entry is
        acknowledged, or with the reason why the handle ended before. Then the outcome is unknown until the ledger is closed
        (rule 13). Costs no task and no future; `data` must not change until then. The order of the calls counts, also beside
        appends that wait for room (rule 60).

        Raises BacklogFullError beyond twice the bounds of pending bytes (see `has_room`), EntryTooLargeError, EntryIdError,
        and like `append` once the handle takes nothing more. What it raises for was not taken. With explicit ids the entry
        after the last acknowledged one is taken beyond all bounds if a later one is pending, which waits for it (rule 55).
        """
        return self._append_soon((data,), None if entry_id is None else (entry_id,), on_done)

    def append_run_soon(self, entries: Sequence[Buffer], on_done: OnDone) -> EntryId:
        """As `append_soon` for entries that follow each other, at the price of one; return the id of the last of them.

        `on_done(last_id, error)` is called once, with None when all of them are acknowledged. Raises as `append_soon`; then none was taken.
        ValueError for no entries: there is none whose id could be returned.
        """
        if not entries:
            msg = "there is nothing to append: give at least one entry"
            raise ValueError(msg)
        return self._append_soon(entries, None, on_done)

    async def force(self) -> EntryId:
        """Make everything appended so far durable on every bookie of the ensemble; return the LAC (rule 22).

        Raises ForceFailedError if a bookie fails or restarted meanwhile: what was appended is then not confirmed.
        """
        self._admission.admit(all_at_once=True)
        return int(await self._request(ForceRequested))

    async def replicated(self) -> None:
        """Wait until every bookie that should have them has all entries so far, not only Qa of them.

        For a process that ends after it: it spares a repair. Use a time-out, since a bookie may be slow. Raises
        LedgerFencedError and the like if the handle ended.
        """
        await self._conditions.until(lambda: self._ended is not None or self._writer.is_replicated)
        if self._ended is not None:
            raise self._ended

    def reader(self) -> Reader:
        """A reader of this ledger that learns its LAC and its ensembles from this handle, and asks nobody for them."""
        return Reader(self.metadata, self._surroundings, self)

    async def risen(self, above: EntryId) -> None:
        """Wait until `last_add_confirmed` is higher than `above`, or until `is_over`."""
        await self._conditions.until(lambda: self.is_over or self._writer.last_add_confirmed > above)

    async def close(self) -> LedgerMetadata:
        """Close the ledger at its last confirmed entry and return the final metadata. Closing twice is harmless.

        It waits for everything that was appended before, also for what had no room yet. A handle that ended by itself closes its ledger
        if that is its part: then this waits for that close. A ledger that is another client's to close is closed by it, or
        not yet: then this returns its end (rule 11), or raises why the handle ended, as it does after `abandon`.
        """
        if self._ended is not None and self.metadata.is_closed:
            return self.metadata
        if self.is_over and self._ended is not None:
            return await closed_by_another(self.id, self._surroundings.ledgers, self._ended)
        if self._closing is None:
            self._admission.admit(all_at_once=True)
            self._closing = self._ask(CloseRequested)
        metadata = await shielded(self._closing)
        assert isinstance(metadata, LedgerMetadata)
        return metadata

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
        """Close the ledger, or wait until a handle that ended by itself has closed it (rule 21): its error is known already."""
        if self._ended is None:
            await self.close()
        elif not self.is_over:
            with suppress(DaybookError):
                await self.close()

    # What the client reports to every writer.

    def ensemble(self) -> tuple[BookieId, ...]:
        """The bookies that the next frame goes to."""
        return self._writer.ensemble

    def flush(self) -> None:
        """Seal what gathered into frames and send them."""
        if self._writer.has_unsealed:
            self._driver.take(self._writer.flush)

    def bookies_changed(self, event: BookiesChanged) -> None:
        """Which bookies are registered now."""
        self._driver.step(event)

    def metadata_connection(self, event: MetadataConnection) -> None:
        """Whether the metadata store answers now."""
        self._driver.step(event)

    # Requests

    def _append_soon(
        self, entries: Sequence[Buffer], entry_ids: Sequence[EntryId] | None, on_done: OnDone
    ) -> EntryId:
        if self._ended is not None:
            raise self._ended
        self._admission.make_room(payload_bytes(entries), entry_ids)
        self._writer.check_append(entries, entry_ids)
        last_id = self._writer.last_add_pushed + len(entries) if entry_ids is None else entry_ids[-1]
        self._token = token = self._token + 1
        self._waiters[token] = last_id, on_done
        self._driver.take(self._writer.append, token, entries, entry_ids)
        self._writer.promise_ids()
        return last_id

    def _append(self, entries: Sequence[Buffer], entry_ids: Sequence[EntryId] | None) -> Waiter:
        if self._ended is not None:
            raise self._ended
        self._writer.check_append(entries, entry_ids)
        waiter = self._wait()
        self._driver.take(self._writer.append, self._token, entries, entry_ids)
        return waiter

    def _request(self, make: Callable[[int], Event]) -> Waiter:
        if self._ended is not None:
            raise self._ended
        return self._ask(make)

    def _ask(self, make: Callable[[int], Event]) -> Waiter:
        waiter = self._wait()
        self._driver.step(make(self._token))
        return waiter

    def _wait(self) -> Waiter:
        """The future of the next request; `_token` is its token."""
        self._token += 1
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters[self._token] = waiter
        return waiter

    def _after_step(self) -> None:
        if self._ended is not None and self._writer.is_done:
            self._end(self._ended)
        if self._writer.has_unsealed:
            self._channels.unsealed.add(self)
        if self._writer.next_tick_ms is not None:
            self._alarm.set()
        if self.is_over:
            return
        self._admission.stepped()
        if self._conditions.waiting:
            self._conditions.check()

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
        if isinstance(waiter, tuple):
            entry_id, on_done = waiter
            self._callbacks.add(on_done, entry_id, None)
        elif not waiter.done():
            waiter.set_result(value)

    def _reject(self, token: int, error: DaybookError) -> None:
        waiter = self._waiters.pop(token)
        if isinstance(waiter, tuple):
            entry_id, on_done = waiter
            self._callbacks.add(on_done, entry_id, error)
        elif not waiter.done():
            waiter.set_exception(error)

    def _refuse(self, error: DaybookError) -> None:
        """Nothing more can be written through this handle; a close that is under way still ends (rule 11)."""
        if self._ended is None:
            self._ended = error
            if not self.metadata.is_closed:
                self._report(end_of(error))
        self._admission.admit()
        self._conditions.check()

    def _end(self, error: DaybookError) -> None:
        """Nothing more is done through this handle."""
        if self.is_over:
            return
        self.is_over = True
        self._driver.stop()
        self._alarm.stop()
        self._admission.end()
        self._refuse(error)
        for token in list(self._waiters):
            self._reject(token, error)
        self._on_end(self)
