"""Lets a bookie that is younger than an export start again after the restore, with its disks (rule 68).

ZooKeeper lacks its cookie, so the bookie refuses to start (rule 29); and a cookie alone would not be enough. Ledgers that began after the export
may lie on its disks, so that no other ledger may get their ids: a readmission takes the counter of ids away, in the transaction
that creates the cookie, and puts it back above all that the bookie holds once the bookie was asked. That proves something only if no ledger
has begun since the restore; else the readmission is refused, and the metadata unchanged. And a writer may have moved to the bookie after the export:
every ledger that waits for its recovery names it among those that are asked before the close (`daybook.core.recovery.elsewhere`).

Every step may be repeated: one that was interrupted leaves no counter, and the same command continues.
"""

from contextlib import aclosing
from dataclasses import dataclass, replace

from daybook.core.errors import MetadataError
from daybook.core.ids import BookieId, LedgerId, check_bookie_id
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.bookies import DIRECTORIES, BookieDirectory, Cookie
from daybook.metadata.creation import read_counter
from daybook.metadata.hold import CollectionHold, begin_ids, read_hold
from daybook.metadata.instance import read_instance
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Versioned,
)


class ReadmissionRefusedError(MetadataError):
    """The bookie must not start with its disks, or need not be readmitted. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Readmission:
    """What is to be done. `counter` is None if it was taken away already; `unclosed` are the ledgers that do not name the bookie yet."""

    cookie: Cookie
    next_id: LedgerId
    counter: Versioned[LedgerId] | None
    unclosed: tuple[LedgerId, ...]


class Readmissions:
    """The readmissions of one cluster. All methods raise MetadataUnavailableError."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """In `store`, below `layout`."""
        self._store = store
        self._layout = layout
        self._bookies = BookieDirectory(store, layout)
        self._ledgers = LedgerManager(store, layout)

    async def check(self, cookie: Cookie) -> Readmission:
        """What the readmission of the bookie with this cookie on its disks does; it changes nothing.

        Raises ReadmissionRefusedError, MetadataError.
        """
        bookie = check_bookie_id(cookie.bookie)
        next_id = self._first_id(bookie, await read_hold(self._store, self._layout))
        await self._store.sync(self._layout.root)
        registered = await self._bookies.cookie(bookie)
        if registered is not None and registered.value != cookie:
            msg = (
                f"ZooKeeper has a cookie of {bookie} with incarnation {registered.value.incarnation}: the bookie was replaced after the export, and "
                f"its disks lack ledgers that the restored metadata names it for; `daybook bookie replace {bookie}` lets it start without them"
            )
            raise ReadmissionRefusedError(msg)
        counter = await self._counter()
        if counter is not None and registered is not None:
            msg = f"{bookie} has this cookie in ZooKeeper: it needs no readmission, start it"
            raise ReadmissionRefusedError(msg)
        if counter is None and registered is None:
            msg = "the restored cluster has no counter of ledger ids: another readmission, or the import, has to end first"
            raise ReadmissionRefusedError(msg)
        if counter is not None and counter.value != next_id:
            raise ReadmissionRefusedError(_ids_were_given_out(bookie, next_id, counter.value))
        unclosed = await self._unclosed_without(bookie, may_be_named=counter is None)
        return Readmission(cookie, next_id, counter, unclosed)

    async def cookie_of(self, bookie: BookieId, incarnation: str, pool_uid: str) -> Cookie:
        """The cookie that the bookie's directories have. Raises UnknownClusterError, MetadataError."""
        instance = await read_instance(self._store, self._layout)
        return Cookie(bookie, instance.instance_id, incarnation, DIRECTORIES, pool_uid)

    async def begin(self, planned: Readmission) -> None:
        """Give the bookie its cookie; no ledger begins from here on until `end` or `give_up`.

        Raises ReadmissionRefusedError if a ledger began meanwhile.
        """
        path, bookie = self._layout.cookie(planned.cookie.bookie), planned.cookie.bookie
        if planned.counter is not None:
            try:
                await self._store.multi(
                    [
                        Delete(self._layout.idgen, planned.counter.version),
                        Create(path, planned.cookie.to_json()),
                    ]
                )
            except (BadVersionError, NoNodeError, NodeExistsError) as error:
                msg = f"ledgers began meanwhile, or somebody else readmits {bookie}: nothing was changed, check again"
                raise ReadmissionRefusedError(msg) from error
        for ledger_id in planned.unclosed:
            await self._ask_before_the_close(ledger_id, bookie)

    async def end(self, planned: Readmission, *, highest_held: LedgerId) -> LedgerId:
        """Have ledgers begin again above `highest_held`, the highest that the bookie has something of; the next id."""
        next_id = max(planned.next_id, highest_held + 1)
        await begin_ids(self._store, self._layout, next_id)
        return next_id

    async def give_up(self, planned: Readmission) -> None:
        """Take the cookie of a bookie that did not start away again, and have ledgers begin as before.

        Raises BookieStillRegisteredError if it runs, ReadmissionRefusedError if a ledger names it by now.
        """
        bookie = planned.cookie.bookie
        await self._bookies.refuse_if_registered(bookie)
        await self._unclosed_without(bookie, may_be_named=False)
        await begin_ids(
            self._store, self._layout, planned.next_id, also=[Delete(self._layout.cookie(bookie), None)]
        )

    @staticmethod
    def _first_id(bookie: BookieId, hold: CollectionHold | None) -> LedgerId:
        if hold is None or not hold.is_held:
            msg = (
                "the metadata was not restored, or the restore is confirmed, so that other bookies may have deleted what began after "
                f"the export: `daybook bookie replace {bookie}` lets it start without its data"
            )
            raise ReadmissionRefusedError(msg)
        if hold.next_id is None:
            msg = "the import has not ended, or was made by an earlier release: import again with --overwrite"
            raise ReadmissionRefusedError(msg)
        return hold.next_id

    async def _counter(self) -> Versioned[LedgerId] | None:
        try:
            return await read_counter(self._store, self._layout)
        except NoNodeError:
            return None

    async def _unclosed_without(self, bookie: BookieId, *, may_be_named: bool) -> tuple[LedgerId, ...]:
        """The restored ledgers whose recovery does not ask the bookie yet. A recovery may name one that serves already."""
        found = []
        async with aclosing(self._ledgers.read_all()) as ledgers:
            async for each in ledgers:
                metadata = each.value
                if bookie in metadata.bookies() and not may_be_named:
                    msg = (
                        f"ledger {metadata.ledger_id} names {bookie}, which had no cookie in the export: its disks may lack what the bookie owes; "
                        f"`daybook bookie replace {bookie}` lets it start in limbo"
                    )
                    raise ReadmissionRefusedError(msg)
                if _is_to_ask(metadata, bookie):
                    found.append(metadata.ledger_id)
        return tuple(found)

    async def _ask_before_the_close(self, ledger_id: LedgerId, bookie: BookieId) -> None:
        while True:
            current = await self._ledgers.read(ledger_id)
            if not _is_to_ask(current.value, bookie):
                return  # closed meanwhile
            among = tuple(sorted({*current.value.restored_among, bookie}))
            try:
                await self._ledgers.cas(current, replace(current.value, restored_among=among))
            except BadVersionError:
                continue
            return


def _is_to_ask(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    return bool(metadata.restored_among) and bookie not in metadata.restored_among


def _ids_were_given_out(bookie: BookieId, first: LedgerId, now: LedgerId) -> str:
    return (
        f"{now - first} ledgers began since the restore (from {first} on), and {bookie} may have others of the same ids: its disks cannot be told from "
        f"theirs any more. Stop all writers, import again with --overwrite and readmit {bookie} before anything begins, which gives those ledgers "
        f"up; or `daybook bookie replace {bookie}`, which gives up what the bookie has"
    )
