"""The thin store that all metadata goes through, so that the protocol never depends on one server's client library.

A tree of small nodes with versions, as ZooKeeper has it: compare-and-set by version (rule 11, rule 53, rule 56), ephemeral and
sequence nodes, watches that deliver fresh values, and a session whose certain life is told by this process's own
monotonic clock (rule 46). Every implementation passes the same contract suite, tests/unit/metadata/test_contract.py.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.runtime.clock import monotonic_s, timeout_at

T = TypeVar("T")

NODE_BYTES_MAX: Final = 1_000_000
"""The largest node: ZooKeeper's default limit of 1 MiB is for a whole request."""


class Versioned(NamedTuple, Generic[T]):
    """A value and the version that a compare-and-set of it must name."""

    value: T
    version: int


class StoreError(MetadataError):
    """A node is not as an operation needs it; `path` is the node."""

    what = "is not as the operation needs it"

    def __init__(self, path: str, detail: str = "") -> None:
        """Name the node at `path`."""
        super().__init__(f"metadata node {path} {self.what}{f': {detail}' if detail else ''}")
        self.path = path


class NoNodeError(StoreError):
    """The node, or for a create its parent, is not there."""

    what = "does not exist"


class NodeExistsError(StoreError):
    """The node is there already, and somebody else made it."""

    what = "exists already"


class BadVersionError(StoreError):
    """The node changed since it was read: read it again and decide anew.

    After a lost reply this may hide a put that was applied and then overwritten; who must know looks for a token of
    his own in the data.
    """

    what = "was changed by somebody else since it was read"


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

    After that instant it may have ended, and its ephemeral nodes with it; it may also live on (rule 46). `session_id`
    is 0 before the first session and from the server's word that one expired until the next begins. `connected` says
    whether there is a connection now.
    """

    session_id: int
    connected: bool
    alive_until: float


class Watch(ABC):
    """Reads that remember what they read: `changed` returns once any of it may be different.

    Reads wait as long as it takes for an answer; StoreClosedError is all they raise. A lost connection counts as a
    change, since watches are lost with it. Close a watch that is no longer needed.
    """

    @abstractmethod
    async def get(self, path: str) -> Versioned[bytes] | None:
        """The node, or None if it is not there."""

    @abstractmethod
    async def children(self, path: str) -> Versioned[tuple[str, ...]] | None:
        """The node's children in order, with a version that rises with each child made or deleted; None: no node."""

    @abstractmethod
    async def changed(self) -> None:
        """Return when something read through this watch may have changed; then read all of it again."""

    @abstractmethod
    def close(self) -> None:
        """Forget what was read."""


class MetadataStore(ABC):
    """A tree of versioned nodes. Paths are absolute, `/a/b`; data is bytes; a new node has version 0.

    Every method that asks the server raises MetadataUnavailableError when there is no answer within the store's
    time-out; a write then raises OutcomeUnknownError if it was sent. `timeout_s` replaces the time-out for one call;
    `math.inf` waits as long as it takes, and the outcome is then always known.
    """

    @abstractmethod
    async def get(self, path: str) -> Versioned[bytes]:
        """Data and version. Raises NoNodeError."""

    @abstractmethod
    async def exists(self, path: str) -> int | None:
        """The version, or None if there is no such node."""

    @abstractmethod
    async def created_at_ms(self, path: str) -> int:
        """When the node was made, by the clock of the servers and no client's. Raises NoNodeError."""

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

        A create whose reply was lost is recognised afterwards by its bytes and its owner (rule 42): where two clients
        could create the same path with the same bytes, put a token of your own into `data`. With `sequence` the
        name becomes `<path><token>-<10 digits>`; order such nodes by their last ten characters. An ephemeral create
        happens within `session_id`, or the session that its first attempt finds, or not at all: SessionExpiredError.
        """

    @abstractmethod
    async def put(
        self, path: str, data: bytes, version: int | None, *, timeout_s: float | None = None
    ) -> int:
        """Replace the data if the node is at `version` (None: whatever it is); return the new version.

        Raises BadVersionError, NoNodeError, NodeTooLargeError. A put whose reply was lost is recognised by the next
        version with the same bytes; where two writers could write the same bytes from the same version and only one
        may win, put a token of your own into `data`.
        """

    @abstractmethod
    async def delete(
        self,
        path: str,
        version: int | None = None,
        *,
        session_id: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete the node. Raises NoNodeError, BadVersionError, NotEmptyError.

        After a lost reply a node that is gone counts as deleted by this call. With `session_id` the delete happens
        within that session or not at all (SessionExpiredError), so that an owner who lost his ephemeral node never
        deletes that of his successor.
        """

    @abstractmethod
    async def multi(
        self,
        operations: Sequence[Operation],
        *,
        session_id: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Do all operations at one instant, or none. Raises what the first that does not hold would raise alone.

        After a lost reply it is recognised by the nodes it creates and puts, as with `create` and `put`. With
        `session_id`, or an ephemeral create in it, it happens within one session or not at all (SessionExpiredError).
        """

    @abstractmethod
    async def sync(self, path: str = "/") -> None:
        """Return when later reads see everything that was written anywhere before this call (rule 46)."""

    @abstractmethod
    def watch(self) -> Watch:
        """A new, empty watch."""

    @property
    @abstractmethod
    def session(self) -> Session:
        """The session as it is now; its `alive_until` moves on with every answer of the server."""

    @abstractmethod
    async def session_changed(self, seen: Session) -> None:
        """Return when the session's id or connection differs from `seen` (not when only `alive_until` moved)."""

    @abstractmethod
    async def close(self) -> None:
        """End the session: its ephemeral nodes go. Calls that still wait raise MetadataUnavailableError."""

    # What follows from the above, the same in every store.

    async def session_events(self) -> AsyncIterator[Session]:
        """The session now, and again whenever its id or its connection changes."""
        while True:
            seen = self.session
            yield seen
            await self.session_changed(seen)

    async def session_doubtful(self, session_id: int) -> None:
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
        """The node now (None: not there), and each time it has changed. States in between may be skipped."""
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
        """The children now (None: no such node), and each time one was made or deleted."""
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
