"""One process at a time is a bookie: its claim on the bookie's id (rule 57).

An ephemeral node that a process holds for as long as it is registered, and that a process without its predecessor's data
takes before it asks which ledgers it may have lost entries of. Whoever has it keeps every other process of that id from
registering and from taking a ledger's first frame, so that nothing is written to an old process after that question
was answered. A process that held the claim once and finds it, or the cookie, in other hands was replaced: it must stop.
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
from daybook.metadata.store.resolving import parent_of
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
)
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

TAKE_TIMEOUT_S: Final = 30.0
"""Longer than a session lasts, so that a predecessor that is still there then runs."""


class SupersededError(MetadataError):
    """Another process is the bookie now, or ZooKeeper has another cookie of it: this process must stop (rule 57)."""


class RegisteredElsewhereError(MetadataError):
    """Another process is registered under the bookie's id and does not go away."""


class Claim:
    """What one process of a bookie, `boot_id`, has of the bookie's id."""

    def __init__(self, store: MetadataStore, layout: Layout, bookie: BookieId, boot_id: str) -> None:
        """Nothing is claimed yet. `incarnation` is set once the process knows whose directories it has."""
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
        """Whether it ever was this process's: whoever has it then came later."""

    async def take(self, *, wait_s: float = TAKE_TIMEOUT_S) -> None:
        """Hold the claim, once no other process holds it or is registered.

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
                "does it run twice? Stop the other one, or give this one an id of its own"
            )
            raise RegisteredElsewhereError(msg) from error
        finally:
            watch.close()

    async def taken_at_ms(self) -> int | None:
        """When the claim was taken, by the clock of ZooKeeper; None while it is not held."""
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
        """Whether another process is in one of the two lists: one that goes, or of a release that claims nothing."""
        for writable in (True, False):
            path = self._layout.registration(self.bookie, writable=writable)
            node = await watch.get(path)
            if node is not None and not self.is_own_registration(node.value):
                log.info("waiting for the former registration to end", path=path)
                return True
        return False

    def is_own_registration(self, data: bytes) -> bool:
        """Whether `data` is what this process registered. Raises MetadataError if it is no registration."""
        return info_from_json(self.bookie, data, writable=True).boot_id == self.boot_id

    def _hold(self, session_id: int) -> None:
        self._session_id = session_id
        self.was_held = True

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Do `operations` at one instant while the claim is held, without a break since `take`, or nothing at all.

        Raises SessionExpiredError and NoNodeError when it is not, and what the operations raise.
        """
        await self._store.multi([Check(self._path, 0), *operations], session_id=self._session_id)

    async def register(self, watch: Watch, operations: Sequence[Operation]) -> bool:
        """Do `operations` and hold the claim from that instant on; False while another process holds it.

        Then `watch` tells of its end. A leave for a replacement that was not used ends: its reason, that the process is
        dead, was wrong. Raises SupersededError, and NodeExistsError, NoNodeError, BadVersionError or SessionExpiredError where
        something changed meanwhile, so that another attempt may go.
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
                "a replacement was authorised, and the bookie lives: not any more", bookie=self.bookie
            )
        return True

    async def adopt(self) -> None:
        """Take over what an earlier `register` did whose answer was lost. Raises SupersededError."""
        await self._refuse_foreign_disks()
        self._hold(self._store.session.session_id)

    async def raise_epoch(self, epoch: int) -> None:
        """Tell that the disks durably have this epoch (rule 58). Raises SupersededError, MetadataUnavailableError."""
        if not await self.disks.raise_to(epoch, self.incarnation):
            await self._refuse_foreign_disks()

    async def commit_epoch(self) -> None:
        """Make the node of the epoch this process's own, under the claim: no copy of its directories registers any more."""
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
        """Clusters that an earlier release formatted have none."""
        with suppress(NodeExistsError):
            await self._store.create(parent_of(self._path), parents=True)

    async def release(self, operations: Sequence[Operation]) -> None:
        """Do `operations` and let the claim go at one instant. Raises NoNodeError, SessionExpiredError."""
        await self._store.multi([Delete(self._path, 0), *operations], session_id=self._session_id)

    async def check(self) -> None:
        """Make sure, after a ledger's metadata was read, that no other process may have been asked about it before.

        Either this process has the claim, or nobody has it and the cookie is still its own: whoever claims the bookie's id
        after this lists that ledger. Raises SupersededError, MetadataUnavailableError.
        """
        try:
            node = await self._store.get(self._path)
        except NoNodeError:
            await self.check_cookie()  # after the look for a claim: one that stamped it meanwhile came later
            return
        if node.value != self._data:
            self._refuse_if_superseded()
            msg = f"another process still is bookie {self.bookie}: this one waits for its end"
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
            msg = f"another process has become bookie {self.bookie}: this one stops"
            raise SupersededError(msg)
