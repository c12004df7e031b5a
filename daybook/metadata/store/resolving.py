"""A dependable store over attempts that may lose their answer: retries, time-outs, and the resolution of unknown outcomes.

Rule 42: after a lost connection a retry must distinguish its own change from another client's; own_changes.py recognises it.
The retry makes the outcome known: if it succeeds, an attempt that is still in flight can no longer take effect, because the
version or the name is used up.
"""

import asyncio
import math
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from daybook.core.errors import MetadataUnavailableError
from daybook.metadata.store.own_changes import OwnChanges
from daybook.metadata.store.shared import SharedRequest
from daybook.metadata.store.store import (
    NODE_BYTES_MAX,
    BadVersionError,
    Create,
    MetadataStore,
    NodeExistsError,
    NodeTooLargeError,
    NoNodeError,
    Operation,
    OutcomeUnknownError,
    Put,
    Session,
    SessionExpiredError,
    StoreError,
    Versioned,
    Watch,
    parent_of,
)
from daybook.metadata.store.transport import ConnectionLostError, Transport
from daybook.metadata.store.tree_watch import TreeWatch

T = TypeVar("T")

OPERATION_TIMEOUT_S: Final = 10.0
READS_IN_REQUEST_MAX: Final = 128
"""The largest number of nodes in one read: pings wait behind its answer (rule 37), and a process has to hold it."""
_RETRY_PAUSE = wait_random_exponential(multiplier=0.01, max=0.5)


class ResolvingStore(MetadataStore):
    """The store's contract over a Transport. All methods belong to the event loop that the transport lives on."""

    def __init__(self, transport: Transport, *, operation_timeout_s: float = OPERATION_TIMEOUT_S) -> None:
        """Take over `transport`; closing the store closes it."""
        self._transport = transport
        self._own = OwnChanges(transport)
        self.operation_timeout_s = operation_timeout_s
        self._watches: _Watches = defaultdict(dict)
        self._tree_watches: list[TreeWatch] = []
        transport.on_change = self._on_change
        self._sync = SharedRequest(lambda: self._read("/", lambda: transport.sync("/")))

    # Reads: safe to repeat.

    async def get(self, path: str) -> Versioned[bytes]:
        """See MetadataStore."""
        node = await self._read(path, lambda: self._transport.get(path))
        return Versioned(node.data, node.version)

    async def get_each(self, paths: Sequence[str]) -> list[Versioned[bytes] | StoreError]:
        """See MetadataStore."""
        found: list[Versioned[bytes] | StoreError] = []
        for begin in range(0, len(paths), READS_IN_REQUEST_MAX):
            some = paths[begin : begin + READS_IN_REQUEST_MAX]
            nodes = await self._read(some[0], partial(self._transport.get_each, some))
            found += [
                node if isinstance(node, StoreError) else Versioned(node.data, node.version) for node in nodes
            ]
        return found

    async def exists(self, path: str) -> int | None:
        """See MetadataStore."""
        try:
            return (await self.get(path)).version
        except NoNodeError:
            return None

    async def created_at_ms(self, path: str) -> int:
        """See MetadataStore."""
        return (await self._read(path, lambda: self._transport.get(path))).created_at_ms

    async def children(self, path: str) -> tuple[str, ...]:
        """See MetadataStore."""
        return (await self._read(path, lambda: self._transport.children(path))).value

    async def sync(self, path: str = "/") -> None:  # noqa: ARG002 - a server brings its whole tree up to date
        """See MetadataStore. Those who call at one time share a request."""
        await self._sync.answer()

    # Writes: each attempt after a lost one first checks whether the lost one was applied.

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
        """See MetadataStore."""
        _check_size(path, data)
        name = f"{path}{secrets.token_hex(8)}-" if sequence else path

        async def attempt(pinned: int | None, lost: bool) -> str:
            if lost and sequence:
                found = await self._own.sequence_node(name)
                if found:
                    return found
            try:
                return await self._transport.create(
                    name, data, ephemeral=ephemeral, sequence=sequence, pinned=pinned
                )
            except NodeExistsError:
                if lost and await self._own.was_created(path, data, ephemeral=ephemeral):
                    return path
                raise

        async def with_parents(pinned: int | None, lost: bool) -> str:
            try:
                return await attempt(pinned, lost)
            except NoNodeError:
                if not parents:
                    raise
            await self._make_node(parent_of(path))
            return await attempt(pinned, lost)

        return await self._until_answered(
            path, with_parents, timeout_s, session_id=session_id, in_session=ephemeral
        )

    async def put(
        self, path: str, data: bytes, version: int | None, *, timeout_s: float | None = None
    ) -> int:
        """See MetadataStore."""
        _check_size(path, data)

        async def attempt(_pinned: int | None, lost: bool) -> int:
            try:
                return await self._transport.put(path, data, version)
            except BadVersionError:
                if lost and version is not None and await self._own.was_put(path, data, version):
                    return version + 1
                raise

        return await self._until_answered(path, attempt, timeout_s)

    async def delete(
        self,
        path: str,
        version: int | None = None,
        *,
        data: bytes | None = None,
        session_id: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """See MetadataStore."""

        async def attempt(pinned: int | None, lost: bool) -> None:
            if lost and data is not None and await self._own.was_replaced(path, data):
                if version is not None:
                    raise BadVersionError(path)
                return
            try:
                await self._transport.delete(path, version, pinned=pinned)
            except NoNodeError:
                if not lost:
                    raise

        await self._until_answered(path, attempt, timeout_s, session_id=session_id)

    async def multi(
        self,
        operations: Sequence[Operation],
        *,
        session_id: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """See MetadataStore."""
        for operation in operations:
            if isinstance(operation, Create | Put):
                _check_size(operation.path, operation.data)
        ephemeral = any(isinstance(operation, Create) and operation.ephemeral for operation in operations)

        async def attempt(pinned: int | None, lost: bool) -> None:
            try:
                await self._transport.multi(operations, pinned=pinned)
            except StoreError:
                if not (lost and await self._own.was_applied(operations)):
                    raise

        path = operations[0].path
        await self._until_answered(path, attempt, timeout_s, session_id=session_id, in_session=ephemeral)

    async def _make_node(self, path: str) -> None:
        """Create an empty node and its missing parents; it does not matter which client created them."""
        try:
            await self._transport.create(path, b"", ephemeral=False, sequence=False, pinned=None)
        except NodeExistsError:
            return
        except NoNodeError:
            if path == "/":
                raise  # the connect string names a root node whose parent is missing
            await self._make_node(parent_of(path))
            await self._make_node(path)

    # Attempts.

    async def _read(self, path: str, read: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        async def attempt(_pinned: int | None, _lost: bool) -> T:
            return await read()

        return await self._until_answered(path, attempt, timeout_s, changes=False)

    async def _until_answered(
        self,
        path: str,
        attempt: Callable[[int | None, bool], Awaitable[T]],
        timeout_s: float | None,
        *,
        session_id: int | None = None,
        in_session: bool = False,
        changes: bool = True,
    ) -> T:
        """Make attempts until one is answered. `in_session` binds all attempts to the session of the first one.

        `changes`: whether one without an answer may have changed something.
        """
        limit_s = self.operation_timeout_s if timeout_s is None else timeout_s
        sent = False

        async def once() -> T:
            nonlocal sent, session_id
            await self._connected()
            now_id = self._transport.session.session_id
            if in_session and session_id is None:
                session_id = now_id
            if session_id is not None and session_id != now_id:
                _refuse_session(path, session_id)
            lost, sent = sent, True
            return await attempt(session_id, lost)

        try:
            async with asyncio.timeout(None if limit_s == math.inf else limit_s):
                with suppress(ConnectionLostError):
                    return await once()  # nearly all end here, without the cost of the retries' state
                async for trial in AsyncRetrying(
                    retry=retry_if_exception_type(ConnectionLostError), wait=_RETRY_PAUSE
                ):
                    with trial:
                        return await once()
        except TimeoutError as error:
            is_unknown = sent and changes
            kind = OutcomeUnknownError if is_unknown else MetadataUnavailableError
            msg = (
                f"ZooKeeper did not answer for {path} within {limit_s:g} s"
                f"{'; whether it was applied is not known' if is_unknown else ''}: check that the servers run"
            )
            raise kind(msg) from error
        raise AssertionError("retries never stop by themselves")

    async def _connected(self) -> None:
        while not (now := self._transport.session).connected:
            await self._transport.session_changed(now)

    # Watches and session.

    def watch(self) -> Watch:
        """See MetadataStore."""
        return _StoreWatch(self._transport, self._read, self._watches)

    async def watch_tree(self, path: str) -> TreeWatch:
        """See MetadataStore."""
        watch = TreeWatch(path)
        self._tree_watches.append(watch)
        try:
            await self._read(path, lambda: self._transport.watch_tree(path))
        except BaseException:
            self.forget_tree(watch)
            raise
        return watch

    def forget_tree(self, watch: TreeWatch) -> None:
        """See MetadataStore."""
        self._tree_watches.remove(watch)

    def _on_change(self, path: str | None) -> None:
        for tree in self._tree_watches:
            tree.notice(path)
        if path is None:
            for watches in self._watches.values():
                for watch in watches:
                    watch.dirty.set()
        else:
            for watch in self._watches.get(path, ()):
                watch.dirty.set()

    @property
    def session(self) -> Session:
        """See MetadataStore."""
        return self._transport.session

    async def session_changed(self, seen: Session) -> None:
        """See MetadataStore."""
        await self._transport.session_changed(seen)

    async def close(self) -> None:
        """See MetadataStore."""
        await self._transport.close()
        self._on_change(None)


class _Read(Protocol):
    """`ResolvingStore._read`, which a watch reads through."""

    def __call__(
        self, path: str, read: Callable[[], Awaitable[T]], timeout_s: float | None
    ) -> Awaitable[T]: ...


class _StoreWatch(Watch):
    """The paths that were read, and those with a reported change since `changed` last returned."""

    def __init__(self, transport: Transport, read: _Read, watches: "_Watches") -> None:
        self.dirty = asyncio.Event()
        self._transport = transport
        self._read = read
        self._watches = watches
        self._paths: set[str] = set()

    async def get(self, path: str, *, timeout_s: float | None = math.inf) -> Versioned[bytes] | None:
        self._listen(path)
        try:
            node = await self._read(path, lambda: self._transport.get(path, watched=True), timeout_s)
        except NoNodeError:
            return None
        return Versioned(node.data, node.version)

    async def children(
        self, path: str, *, timeout_s: float | None = math.inf
    ) -> Versioned[tuple[str, ...]] | None:
        self._listen(path)
        try:
            return await self._read(path, lambda: self._transport.children(path, watched=True), timeout_s)
        except NoNodeError:
            return None

    async def changed(self) -> None:
        await self.dirty.wait()
        self.dirty.clear()

    def close(self) -> None:
        for path in self._paths:
            watches = self._watches[path]
            watches.pop(self, None)
            if not watches:
                del self._watches[path]
        self._paths.clear()

    def _listen(self, path: str) -> None:
        self._paths.add(path)
        self._watches[path][self] = None


_Watches: TypeAlias = defaultdict[str, dict[_StoreWatch, None]]
"""By path, in the order of registration: they are notified in this order, so that a history repeats exactly."""


def _check_size(path: str, data: bytes) -> None:
    if len(data) > NODE_BYTES_MAX:
        raise NodeTooLargeError(path, f"{len(data)} bytes")


def _refuse_session(path: str, session_id: int) -> None:
    msg = f"session {session_id:#x} ended before the change of {path}: its ephemeral nodes are gone"
    raise SessionExpiredError(msg)
