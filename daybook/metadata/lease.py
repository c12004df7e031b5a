"""Ephemeral nodes with an owner: locks, leadership.

Rule 34: a lease may be over as soon as its session may have ended, by this process's own clock, and the owner must stop
by then, whether or not it was notified. Each node carries a token, which distinguishes two owners in one session as well.
"""

import asyncio
import json
import math
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from daybook.core.errors import DaybookError
from daybook.metadata.store.store import (
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    StoreClosedError,
)
from daybook.runtime.clock import monotonic_s
from daybook.runtime.shielded import shielded

WITHDRAW_TIMEOUT_S: Final = 5.0
"""How long to wait for the answer of a cancelled creation, to undo it."""


class Lease:
    """An ephemeral node that this process created, with its session. Leaving `async with` releases it."""

    def __init__(self, store: MetadataStore, path: str, session_id: int, data: bytes) -> None:
        """Wrap the node at `path` with `data`, which the caller created within `session_id`."""
        self.path = path
        self._data = data
        self._store = store
        self._session_id = session_id
        self._ended = False

    @property
    def alive_until(self) -> float:
        """The instant of `monotonic_s()` until which no other process can hold the lease; 0 once it ended."""
        session = self._store.session
        if self._ended or session.session_id != self._session_id:
            return 0.0
        return session.alive_until

    @property
    def is_certain(self) -> bool:
        """Whether this process certainly holds the lease now. Check it right before each step that depends on it."""
        return monotonic_s() < self.alive_until

    async def lost(self) -> None:
        """Return when the lease may be over: at that monotonic instant, or when its node is gone.

        From then on it counts as over, even if the session turns out to live.
        """
        with suppress(StoreClosedError):
            await first_of(self._store.session_may_have_ended(self._session_id), self._gone())
        self._ended = True

    async def _gone(self) -> None:
        watch = self._store.watch()
        try:
            while await watch.get(self.path) is not None:
                await watch.changed()
        finally:
            watch.close()

    async def release(self, *, timeout_s: float | None = None) -> None:
        """Delete the node if it is still this lease's own; after a lost reply its token says so (rule 42).

        Raises MetadataUnavailableError if no answer comes: the node then stays until the session ends. A caller that
        would then wait for its own node passes `timeout_s=math.inf`.
        """
        self._ended = True
        with suppress(NoNodeError, SessionExpiredError):
            await self._store.delete(
                self.path, data=self._data, session_id=self._session_id, timeout_s=timeout_s
            )

    async def __aenter__(self) -> Self:
        """The lease."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release it."""
        await self.release()


async def acquire(store: MetadataStore, path: str, holder: str) -> Lease | None:
    """Take the lock at `path`, or return None if another process holds it. `holder` names this one, for people.

    Waits while the store is unavailable: the caller must know whether it has the lock; otherwise nobody would release it.
    """
    while True:
        session = store.session
        try:
            return await create_lease(store, path, holder, session.session_id)
        except NodeExistsError:
            return None
        except SessionExpiredError:
            if not store.session.connected:
                await store.session_changed(store.session)


async def create_lease(
    store: MetadataStore, path: str, holder: str, session_id: int, *, sequence: bool = False
) -> Lease:
    """Create the node of a lease. Waits while the store is unavailable. Raises NodeExistsError, SessionExpiredError.

    A cancelled call must not leave a node that blocks every other process for the rest of the session: it waits a little
    longer for the answer, and deletes the node.
    """
    data = lease_data(holder)
    creating = asyncio.ensure_future(
        store.create(
            path,
            data,
            ephemeral=True,
            sequence=sequence,
            parents=True,
            session_id=session_id,
            timeout_s=math.inf,
        )
    )
    try:
        return Lease(store, await shielded(creating), session_id, data)
    except asyncio.CancelledError:
        with suppress(TimeoutError, DaybookError):  # the node goes with the session then
            node = await asyncio.wait_for(creating, WITHDRAW_TIMEOUT_S)
            await Lease(store, node, session_id, data).release()
        raise


def lease_data(holder: str) -> bytes:
    """The data of a lease's node: the name of its holder, and a token that no other lease has (rule 42)."""
    return json.dumps({"holder": holder, "token": uuid.uuid4().hex}).encode()


def holder_of(data: bytes) -> str:
    """The name of a lease's holder, from the data of its node."""
    return str(json.loads(data)["holder"])


async def first_of(*waits: Coroutine[Any, Any, None]) -> None:
    """Return when the first of `waits` does, and cancel the others; raise what it raises."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
