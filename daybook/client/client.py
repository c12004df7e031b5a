"""The client: one process's connection to a cluster, and everything that can be done to ledgers through it."""

import asyncio
import random
import secrets
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Final, Self

import grpc

from daybook.client.counts import ClientCounts
from daybook.client.deletion import delete_recovered, delete_without_recovery
from daybook.client.driver.shared import Shared
from daybook.client.events import OnEvent
from daybook.client.ledger import Ledger
from daybook.client.pending import CLIENT_PENDING_BYTES_MAX
from daybook.client.preconditions import check_password, check_version, deadline
from daybook.client.reader import Reader
from daybook.client.recovery import RECOVERIES_RUNNING_MAX, RecoveryQueue, recover_ledger
from daybook.client.transport.channels import ChannelPool
from daybook.core.errors import DaybookError, MetadataUnavailableError
from daybook.core.events import BookiesChanged, MetadataConnection
from daybook.core.ids import NO_ENTRY, BookieId, LedgerId
from daybook.core.ledger.metadata import (
    Fragment,
    LedgerMetadata,
    check_custom_metadata,
    hash_password,
    pool_in,
)
from daybook.core.placement.among import among_named, in_pool
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, can_place
from daybook.core.quorum import Quorum, check_quorum
from daybook.core.reader.reader import Rank, nearness
from daybook.core.reader.suspects import Suspects
from daybook.core.recovery.deletion import DeletionPolicy
from daybook.core.writer.policy import WriterPolicy
from daybook.core.writer.replacement import Quarantine
from daybook.core.writer.writer import LedgerWriter
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.instance import await_instance
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore, Versioned
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger
from daybook.wire.channel import open_aio_channel
from daybook.wire.service import OpenChannel

log = get_logger(__name__)

TICK_S: Final = 0.05
WATCH_PAUSE_S: Final = 1.0
"""Before the bookies are listed again after an error."""


class Client:
    """A connection to one cluster. Made by `connect`; `async with` opens and closes it."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[MetadataStore]],
        *,
        cluster: str,
        placement: PlacementPolicy,
        writer_policy: WriterPolicy,
        credentials: Callable[[], grpc.ChannelCredentials | None],
        zone: str,
        rack: str,
        name: str,
        open_channel: OpenChannel = open_aio_channel,
        pending_bytes_max: int = CLIENT_PENDING_BYTES_MAX,
        recoveries_max: int = RECOVERIES_RUNNING_MAX,
        await_cluster_s: float = 0.0,
    ) -> None:
        """See `connect`; tests pass a store of their own, and the simulator channels to bookies as well."""
        self._open_store = open_store
        self._await_cluster_s = await_cluster_s
        self.layout = Layout(cluster)
        self.placement = placement
        self._writer_policy = writer_policy
        self.rng = random.Random(secrets.randbits(64))
        self._place = (zone, rack)
        self.channels = ChannelPool(name, credentials, open_channel)
        self.suspects = Suspects()
        self._bookies: Mapping[BookieId, BookieInfo] = {}
        self._quarantine = Quarantine()
        self._recoveries = RecoveryQueue(recoveries_max)
        self.counts: ClientCounts[Ledger] = ClientCounts(self._recoveries, self.channels.round_trips)
        self._writers = self.counts.open_ledgers
        self._shared = Shared(monotonic_ms(), pending_bytes_max)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Connect. Raises MetadataUnavailableError, UnknownClusterError, MetadataError if the bookies are not readable."""
        self.store = await self._open_store()
        try:
            await await_instance(self.store, self.layout, self._await_cluster_s)
            self.ledgers = LedgerManager(self.store, self.layout)
            self.directory = BookieDirectory(self.store, self.layout)
            self.channels.read_registration = self.directory.registered
            known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._tasks = [
                asyncio.create_task(self._watch_bookies(known), name="watch-bookies"),
                asyncio.create_task(self._watch_session(), name="watch-session"),
                asyncio.create_task(self._tick(), name="tick"),
            ]
            for task in self._tasks:
                task.add_done_callback(_tell_why_it_ended)
            await known
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client; see `close`."""
        await self.close()

    async def close(self) -> None:
        """End every handle without closing its ledger, and disconnect."""
        for writer in list(self._writers):
            await writer.abandon()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.channels.close()
        await self.store.close()
        self.counts.hide()

    # Ledgers

    async def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        above: LedgerId = NO_ENTRY,
        policy: WriterPolicy | None = None,
        placement: PlacementPolicy | None = None,
        allowed_bookies: Collection[BookieId] | None = None,
        explicit_ids: bool = False,
        deferred_sync: bool = False,
        on_event: OnEvent | None = None,
    ) -> Ledger:
        """Create a ledger and open it for writing; `on_event` is called with what happens to it (`daybook.client.events`).

        Calls side by side share transactions, so thousands take seconds. The id is above that of every ledger that was
        created before. `above` is one that the caller relies on, such as the last of a topic's list, and makes sure of it:
        MetadataError if the id would not be above it, for example after ZooKeeper went back in time (rule 62). Raises
        QuorumError, NotEnoughBookiesError (with what is missing), MetadataError for custom metadata that is too large,
        MetadataUnavailableError.

        `policy` (the period of LACs, whether to continue without a spare, …) and `placement` are the client's own unless
        they are given for this ledger. `allowed_bookies` bounds its ensemble, and the replacements by this writer;
        the pool that `custom_metadata` names under `POOL_KEY` bounds all that is ever done to the ledger (rule 69).
        """
        chooser = self._placement_of(placement, allowed_bookies)
        created = await self.create_unattached(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password,
            custom_metadata=custom_metadata,
            above=above,
            placement=chooser,
            writer_token=uuid.uuid4().hex,
        )
        return self._open_for_writing(
            created,
            policy=policy,
            placement=chooser,
            explicit_ids=explicit_ids,
            deferred_sync=deferred_sync,
            on_event=on_event,
        )

    async def create_unattached(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        above: LedgerId = NO_ENTRY,
        placement: PlacementPolicy | None = None,
        allowed_bookies: Collection[BookieId] | None = None,
        writer_token: str | None = None,
        request_uid: str | None = None,
    ) -> Versioned[LedgerMetadata]:
        """Create a ledger for another process to attach to; see `create_ledger` and `attach_ledger`."""
        quorum = check_quorum(ensemble_size, write_quorum, ack_quorum)
        custom = check_custom_metadata(custom_metadata or {})
        stored_hash = hash_password(password, secrets.token_bytes(16))
        chooser = in_pool(pool_in(custom), self._placement_of(placement, allowed_bookies))
        bookies = chooser.choose(quorum, self._bookies, self.rng, avoid=self._avoided())
        created_at_ms = unix_ms()
        created = await self.ledgers.create_ledger(
            lambda ledger_id: LedgerMetadata(
                ledger_id,
                quorum,
                (Fragment(0, 0, bookies),),
                password_hash=stored_hash,
                writer_token=writer_token,
                custom_metadata=custom,
                created_at_ms=created_at_ms,
            ),
            above=above,
            request_uid=request_uid,
        )
        self.counts.created += 1
        return created

    async def attach_ledger(
        self,
        ledger_id: LedgerId,
        *,
        password: bytes = b"",
        policy: WriterPolicy | None = None,
        placement: PlacementPolicy | None = None,
        allowed_bookies: Collection[BookieId] | None = None,
        explicit_ids: bool = False,
        deferred_sync: bool = False,
        on_event: OnEvent | None = None,
    ) -> Ledger:
        """Open a ledger that was created without a writer; possible once (rule 53). `on_event` as in `create_ledger`.

        Raises AlreadyAttachedError, NoSuchLedgerError, UnauthorizedError.
        """
        check_password((await self.ledgers.read(ledger_id)).value, password)
        attached = await self.ledgers.attach(ledger_id, uuid.uuid4().hex)
        return self._open_for_writing(
            attached,
            policy=policy,
            placement=self._placement_of(placement, allowed_bookies),
            explicit_ids=explicit_ids,
            deferred_sync=deferred_sync,
            on_event=on_event,
        )

    async def open_ledger(
        self,
        ledger_id: LedgerId,
        *,
        recover: bool = True,
        password: bytes = b"",
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Reader:
        """Open a ledger for reading.

        With `recover` a ledger that is not closed is fenced, recovered and closed first: its writer can write no more.
        Without, the reader sees what is confirmed while the writer continues. `version` and `timeout_ms` as with `recover`.
        Raises NoSuchLedgerError, UnauthorizedError, LedgerChangedError, DeadlineExceededError, TooManyRecoveriesError,
        RecoveryFailedError (nothing is lost: try again later).
        """
        async with deadline(timeout_ms, f"opening ledger {ledger_id}"):
            found = await self.ledgers.read(ledger_id, sync=True)
            check_version(found, version)
            check_password(found.value, password)
            metadata = found.value
            if recover and not metadata.is_closed:
                metadata = await self.recover(metadata, version=version)
            reader = Reader(metadata, self)
            await reader.begin()
            return reader

    async def open_ledger_unguarded(self, ledger_id: LedgerId) -> Reader:
        """Open a ledger for reading as it is, without its password: for those who can read metadata anyway."""
        reader = Reader((await self.ledgers.read(ledger_id, sync=True)).value, self)
        await reader.begin()
        return reader

    async def recover(
        self, metadata: LedgerMetadata, *, version: int | None = None, timeout_ms: int | None = None
    ) -> LedgerMetadata:
        """Fence, recover and close a ledger; return its final metadata. Asks for no password: metadata is guarded.

        A bounded number of recoveries runs at a time (`connect`); others wait for their turn. `version`: of the metadata
        that the call is meant for; if it has changed, nothing is done (rule 56). `timeout_ms`, which includes the wait: the
        call ends then, and a later one continues what this one began. Raises NoSuchLedgerError, LedgerChangedError,
        DeadlineExceededError, TooManyRecoveriesError, RecoveryFailedError (nothing is lost: try again later).
        """
        ledger_id = metadata.ledger_id
        async with deadline(timeout_ms, f"the recovery of ledger {ledger_id}"), self._recoveries.turn():
            with self.counts.recovery():
                return await recover_ledger(
                    ledger_id,
                    metadata.password_hash,
                    self,
                    placement=self.placement,
                    rng=self.rng,
                    expected_version=version,
                )

    async def delete_ledger(
        self,
        ledger_id: LedgerId,
        *,
        password: bytes = b"",
        version: int | None = None,
        without_recovery: bool = False,
        force: bool = False,
    ) -> tuple[BookieId, ...]:
        """Delete a ledger; one that is not closed is recovered first, so that its writer notices (rule 20).

        Its bookies free the space at their next garbage collection. `version`: of the metadata that the call is meant for;
        if it has changed, nothing is done (rule 56). `without_recovery`, which takes no `version`, gives up whatever is in it, for a
        ledger whose disks are lost: its bookies are fenced, and those that cannot be must have been away for the
        cluster's delay of lost bookies, which is waited for; they are what is returned (rule 61). `force` only with
        it: also if a topic names the ledger. Raises NoSuchLedgerError, UnauthorizedError, LedgerChangedError,
        RecoveryFailedError, DeletionRefusedError.
        """
        if version is not None and without_recovery:
            msg = "a deletion without recovery gives up whatever the ledger has become: leave `version` out"
            raise ValueError(msg)
        check_password((await self.ledgers.read(ledger_id, sync=True)).value, password)
        if not without_recovery:
            await delete_recovered(
                ledger_id,
                self,
                lambda metadata, expected: self.recover(metadata, version=expected),
                version=version,
            )
            return ()
        delay_s = await RepairTasks(self.store, self.layout).lost_bookie_delay_s()
        return await delete_without_recovery(
            ledger_id, self, policy=DeletionPolicy(round(1000 * delay_s)), force=force
        )

    def list_ledgers(self) -> AsyncGenerator[Versioned[LedgerMetadata], None]:
        """Every ledger with its metadata, in order of id."""
        return self.ledgers.read_all()

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        """The bookies that are registered now, writable and read-only."""
        return self._bookies

    def can_place(self, quorum: Quorum, pool: str = "") -> bool:
        """Whether a ledger could be created now, by the client's own placement policy; among the bookies of `pool` alone if it is given."""
        return can_place(in_pool(pool, self.placement), quorum, self._bookies, self.rng, self._avoided())

    def rank(self) -> Rank:
        """How near each bookie is to this process."""
        return nearness(*self._place, self._bookies)

    # What runs in the background

    def _open_for_writing(
        self,
        created: Versioned[LedgerMetadata],
        *,
        policy: WriterPolicy | None,
        placement: PlacementPolicy,
        explicit_ids: bool,
        deferred_sync: bool,
        on_event: OnEvent | None,
    ) -> Ledger:
        writer = LedgerWriter(
            created.value,
            created.version,
            policy=policy or self._writer_policy,
            placement=placement,
            rng=self.rng,
            bookies=self._bookies,
            now_ms=self._shared.timers.now_ms,
            explicit_ids=explicit_ids,
            deferred_sync=deferred_sync,
        )
        ledger = Ledger(
            writer,
            created.value.password_hash,
            surroundings=self,
            on_end=self._forget,
            on_quarantine=self._quarantined,
            shared=self._shared,
            on_event=on_event,
        )
        self._writers[ledger] = None
        return ledger

    def _placement_of(
        self, placement: PlacementPolicy | None, allowed: Collection[BookieId] | None
    ) -> PlacementPolicy:
        """Where a ledger's copies go."""
        chosen = placement or self.placement
        return chosen if allowed is None else among_named(allowed, chosen)

    def _forget(self, ledger: Ledger) -> None:
        self.counts.ended(ledger)

    def _quarantined(self, bookie: BookieId, until_ms: int) -> None:
        boot_id = self._bookies[bookie].boot_id if bookie in self._bookies else ""
        self._quarantine.add(bookie, until_ms, boot_id)

    def _avoided(self) -> frozenset[BookieId]:
        """The bookies that new ledgers do without, unless they restarted since they failed."""
        self._quarantine.release(self._bookies, monotonic_ms())
        return self._quarantine.bookies

    async def _watch_bookies(self, known: asyncio.Future[None]) -> None:
        while True:
            session = self.store.session
            try:
                async for bookies in self.directory.watch_bookies():
                    self._bookies = bookies
                    self.channels.bookies_changed(bookies)
                    event = BookiesChanged(bookies)
                    for writer in list(self._writers):
                        writer.bookies_changed(event)
                    if not known.done():
                        known.set_result(None)
            except MetadataUnavailableError:
                log.warning("bookies cannot be listed while the metadata store does not answer")
                if not session.connected:
                    await self.store.session_changed(session)
                else:
                    await asyncio.sleep(WATCH_PAUSE_S)
            except DaybookError as error:
                if not known.done():
                    known.set_exception(error)
                    return
                log.error("bookies cannot be listed; what was known of them stays", why=str(error))
                await asyncio.sleep(WATCH_PAUSE_S)

    async def _watch_session(self) -> None:
        async for session in self.store.session_events():
            event = MetadataConnection(session.connected)
            for writer in list(self._writers):
                writer.metadata_connection(event)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._shared.timers.tick(monotonic_ms())


def _tell_why_it_ended(task: asyncio.Task[None]) -> None:
    """An error that nobody waits for would go unheard."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a part of the client ended with an error", part=task.get_name(), exc_info=error)
