"""Keeps a bookie registered: through session expiries, changes of mode, and a predecessor that still holds the registration.

Session expiry is not a crash (rule 42): the bookie continues and creates its node again in the new session, together with
its claim, and only while ZooKeeper's cookie is its own (rule 57). It waits for a node of another process and never
changes or deletes it: only the end of that session proves that its process stopped. A successor's node has the same path,
so each change of a node is a transaction of the claim.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import info_to_json
from daybook.metadata.claim import TAKE_TIMEOUT_S, Claim, RegisteredElsewhereError, SupersededError
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    SessionExpiredError,
    StoreClosedError,
    Watch,
)
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

_PAUSE_S: Final = 0.1
"""The pause between failed attempts, so that a repeated failure is not a busy loop."""


class Registration:
    """A bookie's ephemeral node. `register` creates it; `close` removes the bookie from the list."""

    def __init__(
        self,
        store: MetadataStore,
        layout: Layout,
        info: BookieInfo,
        claim: Claim,
        on_superseded: Callable[[SupersededError], None],
    ) -> None:
        """Use `register`."""
        assert info.bookie == claim.bookie
        self._store = store
        self._layout = layout
        self._claim = claim
        self._on_superseded = on_superseded
        self._info = replace(info, boot_id=claim.boot_id)
        self._changing = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    async def register(
        cls,
        store: MetadataStore,
        layout: Layout,
        info: BookieInfo,
        claim: Claim,
        *,
        on_superseded: Callable[[SupersededError], None],
        wait_s: float = TAKE_TIMEOUT_S,
    ) -> "Registration":
        """Register, once a predecessor's node is gone, and stay registered until another process becomes the bookie.

        Then `on_superseded` is called. Raises RegisteredElsewhereError if the predecessor's node stays for `wait_s`, and
        SupersededError.
        """
        registration = cls(store, layout, info, claim, on_superseded)
        try:
            async with asyncio.timeout(wait_s):
                await registration._make_node()
        except TimeoutError as error:
            msg = (
                f"bookie {info.bookie} is still registered by another process after {wait_s:g} s: "
                "does it run twice? Stop the other process, or give this one its own id"
            )
            raise RegisteredElsewhereError(msg) from error
        registration._keeper = asyncio.create_task(registration._keep())
        return registration

    @property
    def info(self) -> BookieInfo:
        """The present record of the registration."""
        return self._info

    async def update(self, info: BookieInfo) -> None:
        """Change the record: another free space, or a change between writable and read-only, which moves the node atomically.

        Waits while the store is unavailable. Nothing is changed once the session has ended, because the node may be a
        successor's (rule 57); the change is then part of the next registration.
        """
        async with self._changing:
            before = self._info
            self._info = replace(info, bookie=before.bookie, boot_id=before.boot_id)
            old, new = self._path(before), self._path(self._info)
            data = info_to_json(self._info)
            changes: list[Operation] = (
                [Put(new, data, None)]
                if old == new
                else [Delete(old, None), Create(new, data, ephemeral=True)]
            )
            try:
                await self._claim.commit(changes, timeout_s=math.inf)
            except (NoNodeError, NodeExistsError, SessionExpiredError):
                log.info("bookie registers again with the change", bookie=self._info.bookie)

    async def close(self) -> None:
        """Remove the bookie from the list. If the store is unavailable, the end of the session removes it."""
        if self._keeper:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        with suppress(NoNodeError, MetadataUnavailableError):
            if await self._is_own(self._path(self._info)):
                await self._claim.release([Delete(self._path(self._info), None)])

    async def _keep(self) -> None:
        """Create the node again whenever it is gone, or that of another process."""
        while True:
            try:
                await self._until_lost()
                await self._make_node()
            except StoreClosedError:
                return
            except SupersededError as error:
                self._on_superseded(error)
                return
            except (MetadataUnavailableError, MetadataError) as error:
                log.warning(
                    "bookie is not registered; trying again", bookie=self._info.bookie, error=str(error)
                )
                await asyncio.sleep(_PAUSE_S)

    async def _until_lost(self) -> None:
        """Wait until this process has no node. A successor may have registered before it connected again (rule 57)."""
        watch = self._store.watch()
        try:
            while (node := await watch.get(self._path(self._info))) is not None:
                if not self._claim.is_own_registration(node.value):
                    return
                await watch.changed()
        finally:
            watch.close()

    async def _make_node(self) -> None:
        """Create the node, waiting until no other process has the claim or a node in either directory."""
        watch = self._store.watch()
        try:
            while True:
                async with self._changing:
                    is_made = await self._attempt(watch)
                if is_made:
                    log.info("bookie registered", bookie=self._info.bookie, writable=self._info.writable)
                    return
                if is_made is None:
                    await asyncio.sleep(_PAUSE_S)
                else:
                    await watch.changed()
        finally:
            watch.close()

    async def _attempt(self, watch: Watch) -> bool | None:
        """Whether the node was created; False while another process has the claim, None if something changed meanwhile."""
        node = Create(self._path(self._info), info_to_json(self._info), ephemeral=True)
        try:
            return await self._claim.register(watch, [node])
        except NodeExistsError:
            if not await self._is_own(node.path):
                return None
            await self._claim.adopt()
            return True
        except (SessionExpiredError, BadVersionError, NoNodeError):
            return None

    async def _is_own(self, path: str) -> bool:
        """Whether this process of the bookie created the node at `path`."""
        try:
            node = await self._store.get(path)
        except NoNodeError:
            return False
        return self._claim.is_own_registration(node.value)

    def _path(self, info: BookieInfo) -> str:
        return self._layout.registration(info.bookie, writable=info.writable)
