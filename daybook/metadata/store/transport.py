"""One attempt at a time: what a server must offer so that `ResolvingStore` can make a dependable store of it.

An attempt either answers or ends in ConnectionLostError, after which nobody knows whether it was applied. The line is
drawn here so that the resolution of unknown outcomes (rule 42) is written once, and tested with faults that a real
server cannot be made to produce on demand.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from daybook.metadata.store.store import Operation, Session, Versioned


class ConnectionLostError(Exception):
    """The connection or the session ended before the answer: the attempt was applied, or not, or will be."""


class Node(NamedTuple):
    """A node as the server has it; `owner` is the session id of an ephemeral node, else 0.

    `created_at_ms` is wall-clock time of the servers.
    """

    data: bytes
    version: int
    owner: int
    created_at_ms: int


class Transport(ABC):
    """Attempts raise StoreErrors and ConnectionLostError. `pinned` names the session they must happen in, or not at all.

    An attempt that is pinned to another session than the present one raises SessionExpiredError and does nothing.
    """

    on_change: Callable[[str | None], None]
    """Called on the event loop with each watched path that may have changed; None: any of them."""

    @abstractmethod
    async def get(self, path: str, *, watched: bool = False) -> Node:
        """The node. A watched read of a node that is not there watches for it to appear."""

    @abstractmethod
    async def children(self, path: str, *, watched: bool = False) -> Versioned[tuple[str, ...]]:
        """The children's names in order, and a version that rises with each child made or deleted."""

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
        """Return when id or connection differ from `seen`. Raises StoreClosedError once closed."""

    @abstractmethod
    async def close(self) -> None:
        """End the session and fail all attempts that wait."""
