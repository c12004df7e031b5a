"""The metadata store for a process made of threads: an event loop in a thread of its own, and calls that wait for it.

It also keeps the bookie's own nodes in ZooKeeper: the registration follows the bookie's state and is restored after a
session expiry, unless another process has become the bookie meanwhile (rule 57). No entry waits for ZooKeeper: a bookie
continues to serve while ZooKeeper is unavailable (rule 46); only what the protocol decides by metadata waits (rule 20,
rule 28, rule 29).
"""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import Any, Final, TypeVar

from daybook.core.errors import DaybookError, MetadataUnavailableError, NoSuchLedgerError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.claim import Claim, SupersededError
from daybook.metadata.hold import CollectionHold, read_hold
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.registration import Registration
from daybook.metadata.store.store import MetadataStore, Versioned
from daybook.runtime.logs import get_logger
from daybook_bookie.identity.epoch import DiskEpoch

T = TypeVar("T")

_LOG: Final = get_logger(__name__)
CALL_TIMEOUT_S: Final = 20.0
"""A little more than the store's own time-out: this one only guards against a stuck loop."""


class MetadataLink:
    """A store on a loop of its own. Calls raise what the store raises; MetadataUnavailableError without an answer."""

    def __init__(
        self, open_store: Callable[[], Awaitable[MetadataStore]], cluster: str, bookie: BookieId
    ) -> None:
        """Open the store; raises what `open_store` raises."""
        self.layout = Layout(cluster)
        self.on_superseded: Callable[[str], None] = lambda _: None
        """Called once another process is the bookie, with the evidence; this process must stop."""
        self.disk_epoch: DiskEpoch | None = None
        """The epoch of the disks; set once they are open."""
        self.disk_notice = ""
        """What is wrong with that epoch (rule 58); empty: nothing."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="metadata", daemon=True)
        self._thread.start()
        self._keeper: Future[None] | None = None
        self._registration: Registration | None = None
        self._wanted: BookieInfo | None = None
        self._updates: set[asyncio.Task[None]] = set()  # a loop keeps no strong reference to its tasks
        self._closed = False
        try:
            self.store: MetadataStore = self.run(_await(open_store), timeout_s=None)
        except BaseException:
            self._stop_loop()
            raise
        self.ledgers = LedgerManager(self.store, self.layout)
        self.bookies = BookieDirectory(self.store, self.layout)
        self.claim = Claim(self.store, self.layout, bookie, uuid.uuid4().hex)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = CALL_TIMEOUT_S) -> T:
        """Run `work` on the loop and wait for it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except FutureTimeoutError as error:
            if future.done():
                raise
            future.cancel()
            msg = f"the metadata store gave no answer within {timeout_s} s"
            raise MetadataUnavailableError(msg) from error

    # Ledgers

    def read_ledger(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """The metadata after a sync (rule 20); None if the ledger certainly does not exist.

        Raises SupersededError if this process is no longer the bookie.
        """
        found = self.read_version(ledger_id)
        return None if found is None else found.value

    def read_version(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        """The metadata with its version, after a sync; None if the ledger does not exist."""
        try:
            return self.run(self._read_as_the_bookie(ledger_id))
        except NoSuchLedgerError:
            return None

    def read_ledgers(self, ledger_ids: Sequence[LedgerId]) -> list[LedgerMetadata | DaybookError | None]:
        """What `read_ledger` would return for each of `ledger_ids`, or the error that it would raise for this ledger alone.

        One sync serves them all, since it begins after they asked (rule 20), and so does one read of the claim.
        """
        found = self.run(self._read_each_as_the_bookie(ledger_ids))
        return [
            None
            if isinstance(each, NoSuchLedgerError)
            else each
            if isinstance(each, DaybookError)
            else each.value
            for each in found
        ]

    async def _read_as_the_bookie(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        """Read the metadata before the claim: a process that takes the claim later finds this ledger (rule 57)."""
        found = await self.ledgers.read(ledger_id, sync=True)
        await self._check_claim()
        return found

    async def _read_each_as_the_bookie(
        self, ledger_ids: Sequence[LedgerId]
    ) -> list[Versioned[LedgerMetadata] | DaybookError]:
        found = await self.ledgers.read_each(ledger_ids, sync=True)
        await self._check_claim()
        return found

    async def _check_claim(self) -> None:
        try:
            await self.claim.check()
        except SupersededError as error:
            self._superseded(error)
            raise

    def raise_version(self, current: Versioned[LedgerMetadata]) -> int:
        """Write the same metadata back at its version; the new version (rule 47). Raises BadVersionError.

        The value has a token of this attempt: if two bookies raise the same version and an answer is lost, each must know
        whose write succeeded, which equal bytes would not show.
        """
        token = {"raisedBy": uuid.uuid4().hex}
        raised = replace(current.value, unknown_fields={**current.value.unknown_fields, **token})
        return self.run(self.ledgers.cas(current, raised)).version

    def next_ledger_id(self) -> LedgerId:
        """The id that the next ledger gets, after a sync (rule 62)."""
        return self.run(self.ledgers.next_id())

    def collection_hold(self) -> CollectionHold | None:
        """What holds the collection, or held it last; None if nothing ever did (rule 68). Raises DaybookError."""
        return self.run(read_hold(self.store, self.layout))

    def ledger_ids(self) -> frozenset[LedgerId]:
        """All ledgers that exist. An error is raised, never a shorter answer (rule 28)."""

        async def collect() -> frozenset[LedgerId]:
            await self.store.sync(self.layout.root)
            return frozenset([ledger_id async for ledger_id in self.ledgers.ids()])

        return self.run(collect(), timeout_s=None)

    def ledgers_where(self, holds: Callable[[LedgerMetadata], bool]) -> list[LedgerId]:
        """All ledgers of whose metadata `holds` is true, read after a sync (rule 29)."""

        async def collect() -> list[LedgerId]:
            await self.store.sync(self.layout.root)
            return [found.value.ledger_id async for found in self.ledgers.read_all() if holds(found.value)]

        return self.run(collect(), timeout_s=None)

    # Registration

    def raise_epoch(self, epoch: int) -> None:
        """Publish the epoch of the disks (rule 58). Raises DaybookError."""
        try:
            self.run(self.claim.raise_epoch(epoch))
        except SupersededError as error:
            self._superseded(error)
            raise

    def take_claim(self) -> None:
        """Wait until no other process is the bookie, and keep the others out; see `Claim.take`."""
        self.run(self.claim.take(), timeout_s=None)

    def register(
        self, info: BookieInfo, *, wait_for_topology: bool, on_registered: Callable[[], None]
    ) -> None:
        """Register in the background, and stay registered; `on_registered` is called once, when it is done."""
        self._wanted = info
        self._keeper = asyncio.run_coroutine_threadsafe(
            self._register(wait_for_topology=wait_for_topology, on_registered=on_registered), self._loop
        )
        self._keeper.add_done_callback(_log_why_it_ended)

    def update(self, info: BookieInfo) -> None:
        """Change the registration; does not wait for the store."""
        self._wanted = info
        if not self._closed:
            self._loop.call_soon_threadsafe(self._spawn_update)

    @property
    def is_registered(self) -> bool:
        """Whether the first registration is done (if the session expired since, it is being restored)."""
        return self._registration is not None

    @property
    def is_listed(self) -> bool:
        """Whether clients can find the bookie now, as far as this process knows."""
        return self._registration is not None and self.store.session.connected

    @property
    def is_connected(self) -> bool:
        """Whether ZooKeeper is connected, as far as this process knows."""
        return self.store.session.connected

    async def _register(self, *, wait_for_topology: bool, on_registered: Callable[[], None]) -> None:
        assert self._wanted is not None
        if wait_for_topology:
            await _first(self.bookies.watch_location(self._wanted.bookie))
        while self._registration is None:
            try:
                self._registration = await Registration.register(
                    self.store, self.layout, self._wanted, self.claim, on_superseded=self._superseded
                )
            except SupersededError as error:
                self._superseded(error)
                return
            except DaybookError as error:
                _LOG.warning("not registered yet", reason=str(error))
                await asyncio.sleep(1)
        on_registered()
        await self._update()

    def _superseded(self, error: SupersededError) -> None:
        self.on_superseded(str(error))

    def _spawn_update(self) -> None:
        task = self._loop.create_task(self._update())
        self._updates.add(task)
        task.add_done_callback(self._updates.discard)

    async def _update(self) -> None:
        """Change the registration to what is wanted now."""
        registration = self._registration
        if registration is None or self._wanted is None or registration.info == self._wanted:
            return
        try:
            await registration.update(self._wanted)
        except DaybookError as error:
            _LOG.warning("the registration could not be changed yet", reason=str(error))

    def unregister(self) -> None:
        """Remove the registration, so that no new ensemble names the bookie."""
        if self._keeper is not None:
            self._keeper.cancel()
        registration, self._registration = self._registration, None
        if registration is not None:
            try:
                self.run(registration.close())
            except DaybookError as error:
                _LOG.warning("the registration stays until its session ends", reason=str(error))

    def close(self) -> None:
        """End the session and the loop."""
        self._closed = True
        try:
            self.run(self.store.close())
        except DaybookError as error:
            _LOG.warning("the session ends by itself", reason=str(error))
        self._stop_loop()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _await(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


async def _first(places: AsyncIterator[object | None]) -> None:
    """Wait for the first value that is not None."""
    async for place in places:
        if place is not None:
            return


def _log_why_it_ended(registering: Future[None]) -> None:
    """Log the error of a task whose result no caller awaits."""
    if not registering.cancelled() and (error := registering.exception()) is not None:
        _LOG.error("the registration ended with an error", exc_info=error)
