"""Keeps a bookie registered: through session expiries, changes of mode, and a predecessor that is not gone yet.

Session expiry is not a crash (rule 42): the bookie goes on and its node is made again in the new session. A node that
somebody else holds is waited for, never removed: only its session's end proves that its process stopped.
"""

import asyncio
import math
from contextlib import suppress
from dataclasses import replace

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.placement import BookieInfo
from daybook.metadata.bookies import info_from_json, info_to_json
from daybook.metadata.layout import Layout
from daybook.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    StoreClosedError,
    StoreError,
)
from daybook.runtime.logs import get_logger

log = get_logger(__name__)


class RegisteredElsewhereError(MetadataError):
    """Another process is registered under the bookie's id and does not go away."""


class Registration:
    """A bookie's ephemeral node. Made by `register`; `close` takes the bookie off the list."""

    def __init__(self, store: MetadataStore, layout: Layout, info: BookieInfo) -> None:
        """Use `register`."""
        assert info.boot_id, "a registration is told from others by its boot id"
        self._store = store
        self._layout = layout
        self._info = info
        self._changing = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    async def register(
        cls, store: MetadataStore, layout: Layout, info: BookieInfo, *, wait_s: float = 30.0
    ) -> "Registration":
        """Register, once a predecessor's node is gone, and stay registered.

        `info.boot_id` must differ from start to start. Raises RegisteredElsewhereError if the predecessor's node stays
        for `wait_s`: longer than a session lasts, so that it means a second process.
        """
        registration = cls(store, layout, info)
        try:
            async with asyncio.timeout(wait_s):
                await registration._make_node()
        except TimeoutError as error:
            msg = (
                f"bookie {info.bookie} is still registered by another process after {wait_s:g} s: "
                "does it run twice? Stop the other one, or give this one an id of its own"
            )
            raise RegisteredElsewhereError(msg) from error
        registration._keeper = asyncio.create_task(registration._keep())
        return registration

    @property
    def info(self) -> BookieInfo:
        """What the bookie says of itself now."""
        return self._info

    async def update(self, info: BookieInfo) -> None:
        """Say something new: another free space, or writable and read-only in turn, which moves the node at one instant.

        Waits while the store is away; what is said while the session changes is said again in the new one.
        """
        async with self._changing:
            before = self._info
            self._info = replace(info, bookie=before.bookie, boot_id=before.boot_id)
            old, new = self._path(before), self._path(self._info)
            data = info_to_json(self._info)
            try:
                if old == new:
                    await self._store.put(new, data, None, timeout_s=math.inf)
                else:
                    moved: list[Operation] = [Delete(old, None), Create(new, data, ephemeral=True)]
                    await self._store.multi(moved, timeout_s=math.inf)
            except (NoNodeError, NodeExistsError, SessionExpiredError):
                log.info("bookie is registered anew with the change", bookie=self._info.bookie)

    async def close(self) -> None:
        """Take the bookie off the list. With the store away, that happens when the session ends."""
        if self._keeper:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        with suppress(NoNodeError, MetadataUnavailableError):
            if await self._is_own(self._path(self._info)):
                await self._store.delete(self._path(self._info), session_id=self._store.session.session_id)

    async def _keep(self) -> None:
        """Make the node again whenever it is gone."""
        while True:
            try:
                watch = self._store.watch()
                try:
                    while await watch.get(self._path(self._info)) is not None:
                        await watch.changed()
                finally:
                    watch.close()
                await self._make_node()
            except StoreClosedError:
                return
            except (MetadataUnavailableError, StoreError) as error:
                log.warning(
                    "bookie is not registered; trying again", bookie=self._info.bookie, error=str(error)
                )

    async def _make_node(self) -> None:
        """Create the node, waiting until neither directory holds one of another process."""
        watch = self._store.watch()
        try:
            while True:
                others = [
                    path
                    for path in (
                        self._layout.registration(self._info.bookie, writable=writable)
                        for writable in (True, False)
                    )
                    if await watch.get(path) is not None and not await self._is_own(path)
                ]
                if others:
                    log.info("waiting for the former registration to end", paths=others)
                    await watch.changed()
                    continue
                async with self._changing:
                    path = self._path(self._info)
                    try:
                        await self._store.create(path, info_to_json(self._info), ephemeral=True)
                    except NodeExistsError:
                        if not await self._is_own(path):
                            continue
                    except SessionExpiredError:
                        continue
                    log.info("bookie registered", bookie=self._info.bookie, writable=self._info.writable)
                    return
        finally:
            watch.close()

    async def _is_own(self, path: str) -> bool:
        """Whether the node at `path` is of this start of this bookie."""
        try:
            node = await self._store.get(path)
        except NoNodeError:
            return False
        found = info_from_json(self._info.bookie, node.value, writable=True)
        return found.boot_id == self._info.boot_id

    def _path(self, info: BookieInfo) -> str:
        return self._layout.registration(info.bookie, writable=info.writable)
