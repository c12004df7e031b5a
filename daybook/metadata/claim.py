"""One process at a time is a bookie: its claim on the bookie's id (rule 57).

The claim is an ephemeral node. A process holds it for as long as it is registered; a process without its predecessor's data
takes it before it lists the ledgers that it may have lost entries of. The holder prevents every other process of that id from
registering and from accepting a ledger's first frame, so that nothing is written to an old process after that list was
read. A process that held the claim once and finds that another process holds it, or that the cookie has changed, was
replaced: it must stop.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.ids import BookieId
from daybook.metadata.bookies import BookieDirectory, info_from_json
from daybook.metadata.epoch_node import EpochNode
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    Watch,
    parent_of,
)
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

TAKE_TIMEOUT_S: Final = 30.0
"""Longer than a session lasts: a predecessor that is still registered after this time is running."""


class SupersededError(MetadataError):
    """Another process is the bookie now, or ZooKeeper has another cookie of it: this process must stop (rule 57)."""


class RegisteredElsewhereError(MetadataError):
    """Another process is registered under the bookie's id and stays registered."""


class Claim:
    """The claim of one process, `boot_id`, on the bookie's id."""

    def __init__(self, store: MetadataStore, layout: Layout, bookie: BookieId, boot_id: str) -> None:
        """Nothing is claimed yet. The process sets `incarnation` once it has read the cookies of its directories."""
        self._store = store
        self._layout = layout
        self._directory = BookieDirectory(store, layout)
        self._path = layout.claim(bookie)
        self._data = json.dumps({"formatVersion": 1, "bootId": boot_id}).encode()
        self._session_id = 0
        self.disks = EpochNode(store, layout, bookie, boot_id)
        self.bookie: Final = bookie
        self.boot_id: Final = boot_id
        self.incarnation = ""
        self.was_held = False
        """Whether this process ever held the claim: another holder then came later."""

    async def take(self, *, wait_s: float = TAKE_TIMEOUT_S) -> None:
        """Take the claim, once no other process holds it or is registered.

        Raises RegisteredElsewhereError if one still is after `wait_s`, and MetadataUnavailableError.
        """
        watch = self._store.watch()
        try:
            async with asyncio.timeout(wait_s):
                while not await self._try_to_take(watch):
                    await watch.changed()
        except TimeoutError as error:
            msg = (
                f"bookie {self.bookie} is still registered by another process after {wait_s:g} s: "
                "does it run twice? Stop the other process, or give this one its own id"
            )
            raise RegisteredElsewhereError(msg) from error
        finally:
            watch.close()

    async def taken_at_ms(self) -> int | None:
        """When this process took the claim, by the clock of ZooKeeper; None while it does not hold it."""
        try:
            return await self._store.created_at_ms(self._path) if self.was_held else None
        except NoNodeError:
            return None

    async def _try_to_take(self, watch: Watch) -> bool:
        session_id = self._store.session.session_id
        try:
            await self._store.create(
                self._path, self._data, ephemeral=True, parents=True, session_id=session_id
            )
        except NodeExistsError:
            node = await watch.get(self._path)
            if node is None or node.value != self._data:
                log.info("waiting for the former process to end", path=self._path)
                return node is None and await self._try_to_take(watch)
        except SessionExpiredError:
            return await self._try_to_take(watch)
        self._hold(session_id)
        return not await self._is_registered_elsewhere(watch)

    async def _is_registered_elsewhere(self, watch: Watch) -> bool:
        """Whether another process is registered: one that is about to stop, or one of a release without claims."""
        for writable in (True, False):
            path = self._layout.registration(self.bookie, writable=writable)
            node = await watch.get(path)
            if node is not None and not self.is_own_registration(node.value):
                log.info("waiting for the former registration to end", path=path)
                return True
        return False

    def is_own_registration(self, data: bytes) -> bool:
        """Whether `data` is the registration of this process. Raises MetadataError if it is not a registration."""
        return info_from_json(self.bookie, data, writable=True).boot_id == self.boot_id

    def _hold(self, session_id: int) -> None:
        self._session_id = session_id
        self.was_held = True

    async def commit(self, operations: Sequence[Operation], *, timeout_s: float | None = None) -> None:
        """Perform `operations` in one transaction, only if this process has held the claim without a break since `take`.

        Raises SessionExpiredError and NoNodeError if it has not, and what the operations raise.
        """
        under_claim = [Check(self._path, 0), *operations]
        await self._store.multi(under_claim, session_id=self._session_id, timeout_s=timeout_s)

    async def register(self, watch: Watch, operations: Sequence[Operation]) -> bool:
        """Perform `operations` and take the claim in one transaction; return False while another process holds the claim.

        `watch` then notices the end of that process. The transaction also deletes an unused authorisation of a replacement,
        because its reason, that the process is dead, was wrong. Raises SupersededError; raises NodeExistsError, NoNodeError,
        BadVersionError or SessionExpiredError if something changed meanwhile, so that another attempt may succeed.
        """
        session_id = self._store.session.session_id
        cookie_version = await self.check_cookie()
        node = await watch.get(self._path)
        if node is not None and node.value != self._data:
            self._refuse_if_superseded()
            log.info("waiting for the former process to end", path=self._path)
            return False
        if await self._is_registered_elsewhere(watch):
            return False
        if node is None:
            await self._make_directory()
        await self.disks.prepare()
        disks = self.disks.operation(self.incarnation)
        claim: Operation = (
            Create(self._path, self._data, ephemeral=True) if node is None else Check(self._path, 0)
        )
        leave = await self._directory.replacement(self.bookie)
        withdrawn = [] if leave is None else [Delete(self._layout.replacement(self.bookie), leave.version)]
        cookie = Check(self._layout.cookie(self.bookie), cookie_version)
        try:
            await self._store.multi([cookie, claim, disks, *withdrawn, *operations], session_id=session_id)
        except (BadVersionError, NodeExistsError, NoNodeError):
            await self._refuse_foreign_disks()
            raise
        self.disks.done()
        self._hold(session_id)
        if withdrawn:
            log.warning(
                "deleted the authorisation of a replacement, because the bookie is alive", bookie=self.bookie
            )
        return True

    async def adopt(self) -> None:
        """Adopt the result of an earlier `register` whose answer was lost. Raises SupersededError."""
        await self._refuse_foreign_disks()
        self._hold(self._store.session.session_id)

    async def raise_epoch(self, epoch: int) -> None:
        """Record in ZooKeeper that the disks durably have this epoch (rule 58). Raises SupersededError, MetadataUnavailableError."""
        if not await self.disks.raise_to(epoch, self.incarnation):
            await self._refuse_foreign_disks()

    async def commit_epoch(self) -> None:
        """Make this process the owner of the epoch's node, under the claim, so that no copy of its directories registers any more."""
        await self.disks.prepare()
        await self.commit([self.disks.operation(self.incarnation)])
        self.disks.done()

    async def _refuse_foreign_disks(self) -> None:
        if await self.disks.is_foreign():
            msg = (
                f"another process of bookie {self.bookie} has started on these directories, or a copy of them, since this "
                "one did: it stops"
            )
            raise SupersededError(msg)

    async def _make_directory(self) -> None:
        """Create the directory of claims, which a cluster of an earlier release lacks."""
        with suppress(NodeExistsError):
            await self._store.create(parent_of(self._path), parents=True)

    async def release(self, operations: Sequence[Operation]) -> None:
        """Perform `operations` and release the claim in one transaction. Raises NoNodeError, SessionExpiredError."""
        await self._store.multi([Delete(self._path, 0), *operations], session_id=self._session_id)

    async def check(self) -> None:
        """Make sure, after a read of a ledger's metadata, that no other process has listed its ledgers before that read.

        Either this process holds the claim, or nobody holds it and the cookie is still its own: a process that claims the
        bookie's id after this call lists that ledger. Raises SupersededError, MetadataUnavailableError.
        """
        try:
            node = await self._store.get(self._path)
        except NoNodeError:
            # after the read of the claim: a process that stamped the cookie meanwhile came later
            await self.check_cookie()
            return
        if node.value != self._data:
            self._refuse_if_superseded()
            msg = f"another process still holds the claim of bookie {self.bookie}: this process waits for its end"
            raise MetadataUnavailableError(msg)

    async def check_cookie(self) -> int:
        """The version of the bookie's cookie, which is this process's own. Raises SupersededError."""
        cookie = await self._directory.cookie(self.bookie)
        if cookie is None:
            msg = (
                f"ZooKeeper has no cookie of bookie {self.bookie} any more: it was taken out of the cluster while this "
                "process ran, which stops"
            )
            raise SupersededError(msg)
        if cookie.value.incarnation != self.incarnation:
            msg = (
                f"bookie {self.bookie} was replaced: ZooKeeper has the cookie of incarnation {cookie.value.incarnation}, "
                f"this process is incarnation {self.incarnation} and stops; its directories are not the bookie's any more"
            )
            raise SupersededError(msg)
        return cookie.version

    def _refuse_if_superseded(self) -> None:
        if self.was_held:
            msg = f"another process has become bookie {self.bookie}: this process stops"
            raise SupersededError(msg)
