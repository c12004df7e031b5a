"""The interface of a single attempt, on which `ResolvingStore` builds a dependable store.

An attempt either returns an answer or raises ConnectionLostError, after which it is unknown whether it was applied. This
interface separates the two, so that the resolution of unknown outcomes (rule 42) is written once, and tested with faults
that no test can cause in a real server.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from daybook.metadata.store.store import Operation, Session, StoreError, Versioned

T = TypeVar("T")


class ConnectionLostError(Exception):
    """The connection or the session ended before the answer: the attempt was applied, was not, or will be."""


class Node(NamedTuple):
    """A node on the server; `owner` is the session id of an ephemeral node, else 0.

    `created_at_ms` is the servers' wall-clock time.
    """

    data: bytes
    version: int
    owner: int
    created_at_ms: int


async def each_of(attempts: Iterable[Awaitable[T]]) -> list[T | StoreError]:
    """What comes of each of `attempts`, side by side. Raises what is no StoreError."""
    found: list[T | StoreError] = []
    for each in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(each, BaseException) and not isinstance(each, StoreError):
            raise each
        found.append(each)
    return found


class Transport(ABC):
    """Attempts raise StoreErrors and ConnectionLostError. `pinned` is the only session in which an attempt may happen.

    An attempt that is pinned to another session than the present one raises SessionExpiredError and does nothing.
    """

    on_change: Callable[[str | None], None]
    """Called on the event loop with each watched path that may have changed; None: any of them."""

    @abstractmethod
    async def get(self, path: str, *, watched: bool = False) -> Node:
        """The node. A watched read of a missing node watches for its creation."""

    async def get_each(self, paths: Sequence[str]) -> list[Node | StoreError]:
        """The node at each of `paths`, or its error; reads side by side, where a server has no request for many."""
        return await each_of(map(self.get, paths))

    @abstractmethod
    async def children(self, path: str, *, watched: bool = False) -> Versioned[tuple[str, ...]]:
        """The children's names in order, and a version that rises with each created or deleted child."""

    async def watch_tree(self, path: str) -> None:
        """From now on report each change at or below `path` through `on_change`, and None once the connection is lost."""
        raise StoreError(path, "the server has no watch of a whole tree")

    @abstractmethod
    async def create(
        self, path: str, data: bytes, *, ephemeral: bool, sequence: bool, pinned: int | None
    ) -> str:
        """Create the node and return its path."""

    @abstractmethod
    async def put(self, path: str, data: bytes, version: int | None) -> int:
        """Replace the data at `version` (None: any); return the new version."""

    @abstractmethod
    async def delete(self, path: str, version: int | None, *, pinned: int | None) -> None:
        """Delete the node at `version` (None: any)."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation], *, pinned: int | None) -> None:
        """All operations or none."""

    @abstractmethod
    async def sync(self, path: str) -> None:
        """Bring the server that answers this client up to date with all earlier writes."""

    @property
    @abstractmethod
    def session(self) -> Session:
        """The session now."""

    @abstractmethod
    async def session_changed(self, seen: Session) -> None:
        """Return when the id or the connection differs from `seen`. Raises StoreClosedError once closed."""

    @abstractmethod
    async def close(self) -> None:
        """End the session and fail all waiting attempts."""
