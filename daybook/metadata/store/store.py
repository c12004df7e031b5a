"""The thin store under all metadata, so that the protocol never depends on one server's client library.

A tree of small nodes with versions, as ZooKeeper has it: compare-and-set by version (rule 11, rule 53, rule 56), ephemeral and
sequence nodes, watches that deliver fresh values, and a session that reports until when it certainly lives by this
process's own monotonic clock (rule 46). Every implementation passes the same contract suite, tests/unit/metadata/test_contract.py.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.metadata.store.tree_watch import TreeWatch
from daybook.runtime.clock import monotonic_s, timeout_at

T = TypeVar("T")

NODE_BYTES_MAX: Final = 1_000_000
"""The largest node: ZooKeeper's default limit of 1 MiB is for a whole request."""


def parent_of(path: str) -> str:
    """The path of the parent of `path`."""
    return path.rpartition("/")[0] or "/"


class Versioned(NamedTuple, Generic[T]):
    """A value and its version, which a compare-and-set must name."""

    value: T
    version: int


class StoreError(MetadataError):
    """An operation failed because of the state of the node at `path`."""

    what = "is not as the operation needs it"

    def __init__(self, path: str, detail: str = "") -> None:
        """Name the node at `path`."""
        super().__init__(f"metadata node {path} {self.what}{f': {detail}' if detail else ''}")
        self.path = path


class NoNodeError(StoreError):
    """The node, or the parent of a node to create, does not exist."""

    what = "does not exist"


class NodeExistsError(StoreError):
    """The node exists, and another call created it."""

    what = "exists already"


class BadVersionError(StoreError):
    """The node changed since it was read: read it again and decide anew.

    After a lost reply this may hide a put that was applied and then overwritten; a caller that must know checks for
    its own token in the data.
    """

    what = "was changed by another client since it was read"


class NotEmptyError(StoreError):
    """The node has children and cannot be deleted."""

    what = "has children"


class NodeTooLargeError(StoreError):
    """The data is over NODE_BYTES_MAX."""

    what = f"would be over {NODE_BYTES_MAX} bytes"


class OutcomeUnknownError(MetadataUnavailableError):
    """A write was sent and no answer came: it may have been applied, or be applied later. `sync` and read to know."""


class SessionExpiredError(MetadataUnavailableError):
    """The session that an ephemeral node belongs to is over; the node is gone or will never be."""


class StoreClosedError(MetadataUnavailableError):
    """The store was closed, or the server refused its credentials for good."""


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a `multi`: create a node whose parent exists."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Part of a `multi`: replace the data of a node at `version` (None: whatever it is)."""

    path: str
    data: bytes
    version: int | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a `multi`: delete a node at `version` (None: whatever it is)."""

    path: str
    version: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a `multi`: the node is at `version`."""

    path: str
    version: int


Operation: TypeAlias = Create | Put | Delete | Check


@dataclass(frozen=True, slots=True)
class Session:
    """The store's session. It certainly lives until `alive_until`, an instant of `runtime.clock.monotonic_s()`.

    After that instant the session, with its ephemeral nodes, may have ended or may still live (rule 46). `session_id`
    is 0 before the first session, and after the server reported an expired session until the next one begins.
    `connected`: there is a connection now.
    """

    session_id: int
    connected: bool
    alive_until: float


class Watch(ABC):
    """Reads that remember their paths: `changed` returns once any of the nodes may have changed.

    Reads wait until there is an answer, and raise only StoreClosedError; with `timeout_s` None they raise
    MetadataUnavailableError as reads of the store do. A lost connection counts as a change, because
    the server forgets watches with it. Close a watch that is no longer needed.
    """

    @abstractmethod
    async def get(self, path: str, *, timeout_s: float | None = math.inf) -> Versioned[bytes] | None:
        """The node, or None if it does not exist."""

    @abstractmethod
    async def children(
        self, path: str, *, timeout_s: float | None = math.inf
    ) -> Versioned[tuple[str, ...]] | None:
        """The node's children in order, with a version that rises with each created or deleted child; None: no node."""

    @abstractmethod
    async def changed(self) -> None:
        """Return when a node that was read through this watch may have changed; then read all nodes again."""

    @abstractmethod
    def close(self) -> None:
        """Forget what was read."""


class MetadataStore(ABC):
    """A tree of versioned nodes. Paths are absolute, `/a/b`; data is bytes; a new node has version 0.

    Every method that sends a request raises MetadataUnavailableError when there is no answer within the store's
    time-out; a write that was sent raises OutcomeUnknownError instead. `timeout_s` replaces the time-out for one call;
    `math.inf` waits without limit, and the outcome is then always known.
    """

    operation_timeout_s: float
    """The store's time-out."""

    @abstractmethod
    async def get(self, path: str) -> Versioned[bytes]:
        """Data and version. Raises NoNodeError."""

    @abstractmethod
    async def get_each(self, paths: Sequence[str]) -> list[Versioned[bytes] | StoreError]:
        """For each of `paths` what `get` would return, or the error that it would raise, in as few requests as possible."""

    @abstractmethod
    async def exists(self, path: str) -> int | None:
        """The version, or None if there is no such node."""

    @abstractmethod
    async def created_at_ms(self, path: str) -> int:
        """When the node was created, by the clock of the servers. Raises NoNodeError."""

    @abstractmethod
    async def children(self, path: str) -> tuple[str, ...]:
        """The names of all children, in order. Raises NoNodeError; never returns fewer than there are (rule 28)."""

    @abstractmethod
    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
        session_id: int | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """Create a node and return its path. Raises NodeExistsError, NoNodeError (no parent), NodeTooLargeError.

        After a lost reply a create is recognised by its bytes and its owner (rule 42): where two clients could create the
        same path with the same bytes, put your own token into `data`. With `sequence` the
        name becomes `<path><token>-<10 digits>`; order such nodes by their last ten characters. An ephemeral create
        happens within `session_id`, or the session of its first attempt, or not at all: SessionExpiredError.
        """

    @abstractmethod
    async def put(
        self, path: str, data: bytes, version: int | None, *, timeout_s: float | None = None
    ) -> int:
        """Replace the data if the node is at `version` (None: any); return the new version.

        Raises BadVersionError, NoNodeError, NodeTooLargeError. After a lost reply a put is recognised by the next
        version with the same bytes; where two writers could write the same bytes from the same version and only one
        may win, put your own token into `data`.
        """

    @abstractmethod
    async def delete(
        self,
        path: str,
        version: int | None = None,
        *,
        data: bytes | None = None,
        session_id: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete the node. Raises NoNodeError, BadVersionError, NotEmptyError.

        After a lost reply a node that is gone counts as deleted by this call. `data` is what the caller knows that the node has:
        after a lost reply a node with other data, which another client may have made since, stays, and counts as gone; with `version`
        it is a BadVersionError, because the node may have been changed as well. With `session_id` the delete happens
        within that session or not at all (SessionExpiredError), so that an owner that lost its ephemeral node never
        deletes that of its successor.
        """

    @abstractmethod
    async def multi(
        self,
        operations: Sequence[Operation],
        *,
        session_id: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Perform all operations atomically, or none. Raises what the first failing operation would raise alone.

        After a lost reply the transaction is recognised by the nodes that it creates and puts, as with `create` and `put`.
        With `session_id`, or an ephemeral create in it, it happens within one session or not at all (SessionExpiredError).
        """

    @abstractmethod
    async def sync(self, path: str = "/") -> None:
        """Return when later reads see everything that any client wrote before this call (rule 46)."""

    @abstractmethod
    def watch(self) -> Watch:
        """A new, empty watch."""

    @abstractmethod
    async def watch_tree(self, path: str) -> TreeWatch:
        """Watch every node at or below `path` from now on, until the connection is lost or `forget_tree` is called.

        Raises StoreError where the server has no such watch (ZooKeeper before 3.6).
        """

    @abstractmethod
    def forget_tree(self, watch: TreeWatch) -> None:
        """End a watch that `watch_tree` made."""

    @property
    @abstractmethod
    def session(self) -> Session:
        """The present session; its `alive_until` rises with every answer of the server."""

    @abstractmethod
    async def session_changed(self, seen: Session) -> None:
        """Return when the session's id or connection differs from `seen` (not when only `alive_until` rose)."""

    @abstractmethod
    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes. Waiting calls raise MetadataUnavailableError."""

    # These follow from the methods above, equally in every store.

    async def session_events(self) -> AsyncIterator[Session]:
        """Yield the session now, and again whenever its id or its connection changes."""
        while True:
            seen = self.session
            yield seen
            await self.session_changed(seen)

    async def session_may_have_ended(self, session_id: int) -> None:
        """Return at the first instant at which the session may have ended (rule 34, rule 46), also by `close`."""
        while True:
            now = self.session
            if now.session_id != session_id or monotonic_s() >= now.alive_until:
                return
            try:
                async with timeout_at(now.alive_until):
                    await self.session_changed(now)
            except TimeoutError:
                continue
            except StoreClosedError:
                return

    async def watch_node(self, path: str) -> AsyncIterator[Versioned[bytes] | None]:
        """Yield the node now (None: it does not exist), and again after each change. Intermediate states may be skipped."""
        watch = self.watch()
        try:
            last = await watch.get(path)
            yield last
            while True:
                await watch.changed()
                value = await watch.get(path)
                if value != last:
                    last = value
                    yield value
        finally:
            watch.close()

    async def watch_children(self, path: str) -> AsyncIterator[tuple[str, ...] | None]:
        """Yield the children now (None: no such node), and again after each creation or deletion of one."""
        watch = self.watch()
        try:
            last = await watch.children(path)
            yield None if last is None else last.value
            while True:
                await watch.changed()
                listed = await watch.children(path)
                if listed != last:
                    last = listed
                    yield None if listed is None else listed.value
        finally:
            watch.close()
