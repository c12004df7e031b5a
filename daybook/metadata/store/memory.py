"""The store in memory, with injected network faults.

For tests and simulations: a `MemoryServer` is the tree that several stores share, each with its own session. The faults
are those that no test can cause in a real server at a chosen point: an answer is lost after the operation was applied,
a request is lost before, an operation is delayed, a session expires between two steps (rule 42).
"""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Final, NoReturn, TypeVar

from daybook.metadata.store.memory_tree import MemoryTree
from daybook.metadata.store.resolving import OPERATION_TIMEOUT_S, ResolvingStore
from daybook.metadata.store.store import (
    Create,
    Delete,
    Operation,
    Put,
    Session,
    SessionExpiredError,
    StoreClosedError,
    Versioned,
)
from daybook.metadata.store.transport import ConnectionLostError, Node, Transport
from daybook.runtime.clock import monotonic_s

T = TypeVar("T")

SESSION_TIMEOUT_S: Final = 5.0


class FaultKind(Enum):
    """The fault of one attempt."""

    REFUSE = "the request is lost: not applied, and the client loses its connection"
    DROP_REPLY = "the answer is lost: applied, and the client loses its connection"
    HOLD = "the request waits until `MemoryServer.release` is called, then is applied and answered"


@dataclass(slots=True)
class Fault:
    """One fault: for attempts of `operation` ("get", "put", "multi" …) under `path`, `times` times.

    `then` runs after the attempt was applied or lost, before the client notices: it does what other clients do meanwhile.
    """

    kind: FaultKind
    operation: str
    path: str = "/"
    times: float = 1
    then: Callable[[], None] | None = None


class MemoryServer(MemoryTree):
    """The tree that stores share. Everything happens on one event loop."""

    def __init__(self) -> None:
        """An empty tree: the root node alone."""
        super().__init__(self._notify)
        self._transports: set[MemoryTransport] = set()
        self._session_ids = count(1)
        self._faults: list[Fault] = []
        self._released = asyncio.Event()
        self.in_flight = 0
        self.in_flight_max = 0

    # Faults.

    def inject(self, *faults: Fault) -> None:
        """Apply each of `faults` to the next attempts that it matches."""
        self._faults.extend(faults)

    def release(self) -> None:
        """Continue every attempt that a HOLD fault stopped."""
        self._released.set()
        self._released = asyncio.Event()

    def suspend(self) -> None:
        """Disconnect every store; sessions stay alive."""
        for transport in self._transports:
            transport.connection_changed(connected=False)

    def resume(self) -> None:
        """Reconnect every store to its session."""
        for transport in self._transports:
            transport.connection_changed(connected=True)

    def backup(self) -> Callable[[], None]:
        """Take a snapshot; a call of the result restores it, and the server loses all later changes (rule 62)."""
        nodes = copy.deepcopy(self._nodes)

        def restore() -> None:
            self._nodes = copy.deepcopy(nodes)

        return restore

    def expire(self, session_id: int) -> None:
        """End a session: this deletes its ephemeral nodes, and its store gets a new session."""
        self.end_session(session_id)
        for transport in self._transports:
            if transport.session.session_id == session_id:
                transport.session_expired()

    # Used by the transports.

    def open_session(self, transport: "MemoryTransport") -> int:
        """A new session id for `transport`."""
        self._transports.add(transport)
        return next(self._session_ids)

    def close_session(self, transport: "MemoryTransport") -> None:
        """Forget `transport` and end its session."""
        self._transports.discard(transport)
        self.end_session(transport.session.session_id)

    def fault_for(self, operation: str, path: str) -> Fault | None:
        """The fault of this attempt, if any; count it down."""
        for fault in self._faults:
            if fault.operation == operation and path.startswith(fault.path) and fault.times > 0:
                fault.times -= 1
                return fault
        return None

    async def wait_released(self) -> None:
        """Wait for `release`."""
        await self._released.wait()

    def _notify(self, path: str) -> None:
        for transport in self._transports:
            transport.notify(path)


class MemoryTransport(Transport):
    """One client's attempts on a MemoryServer."""

    def __init__(self, server: MemoryServer, *, session_timeout_s: float = SESSION_TIMEOUT_S) -> None:
        """A new session of `server`."""
        self.on_change = lambda _path: None
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._session_timeout_s = session_timeout_s
        self._closed = False
        self._event = asyncio.Event()
        self._alive_until = 0.0
        self._session_id = server.open_session(self)
        self._connected = True

    async def _attempt(
        self, operation: str, path: str, apply: Callable[[], T], pinned: int | None = None
    ) -> T:
        """Make one attempt, with its fault if there is one."""
        if self._closed:
            _refuse_closed()
        if not self._connected:
            raise ConnectionLostError
        self._check_session(path, pinned)
        server = self._server
        fault = server.fault_for(operation, path)
        server.in_flight += 1
        server.in_flight_max = max(server.in_flight_max, server.in_flight)
        try:
            await asyncio.sleep(0)  # no server answers before other tasks could run
            if fault and fault.kind is FaultKind.HOLD:
                await server.wait_released()
        finally:
            server.in_flight -= 1
        self._check_session(path, pinned)
        answer = None if fault and fault.kind is FaultKind.REFUSE else apply()
        if fault and fault.then:
            fault.then()
        if (fault and fault.kind is not FaultKind.HOLD) or not self._connected:
            raise ConnectionLostError
        return answer  # type: ignore[return-value]  # None only where the fault has raised

    def _check_session(self, path: str, pinned: int | None) -> None:
        if pinned is not None and pinned != self._session_id:
            msg = f"session {pinned:#x} ended before the change of {path}"
            raise SessionExpiredError(msg)

    async def get(self, path: str, *, watched: bool = False) -> Node:  # noqa: ARG002 - all changes are reported
        """See Transport."""
        return await self._attempt("get", path, lambda: self._server.read(path))

    async def children(
        self,
        path: str,
        *,
        watched: bool = False,  # noqa: ARG002 - all changes are reported
    ) -> Versioned[tuple[str, ...]]:
        """See Transport."""
        return await self._attempt("children", path, lambda: self._server.list(path))

    async def watch_tree(self, path: str) -> None:
        """See Transport. All changes are reported."""
        await self._attempt("watch_tree", path, lambda: None)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool, sequence: bool, pinned: int | None
    ) -> str:
        """See Transport."""

        def apply() -> str:
            name = self._server.next_sequence(path) if sequence else path
            self._server.apply([Create(name, data, ephemeral)], self._session_id)
            return name

        return await self._attempt("create", path, apply, pinned)

    async def put(self, path: str, data: bytes, version: int | None) -> int:
        """See Transport."""

        def apply() -> int:
            self._server.apply([Put(path, data, version)], self._session_id)
            return self._server.read(path).version

        return await self._attempt("put", path, apply)

    async def delete(self, path: str, version: int | None, *, pinned: int | None) -> None:
        """See Transport."""
        await self._attempt(
            "delete", path, lambda: self._server.apply([Delete(path, version)], self._session_id), pinned
        )

    async def multi(self, operations: Sequence[Operation], *, pinned: int | None) -> None:
        """See Transport."""
        await self._attempt(
            "multi", operations[0].path, lambda: self._server.apply(operations, self._session_id), pinned
        )

    async def sync(self, path: str) -> None:
        """See Transport."""
        await self._attempt("sync", path, lambda: None)

    def notify(self, path: str | None) -> None:
        """Report a change, perhaps by a store on another event loop, in another thread."""
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self.on_change(path)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.on_change, path)

    # Session.

    @property
    def session(self) -> Session:
        """See Transport. While connected, the server has always answered just now."""
        alive_until = monotonic_s() + self._session_timeout_s if self._connected else self._alive_until
        return Session(self._session_id, self._connected, alive_until)

    async def session_changed(self, seen: Session) -> None:
        """See Transport."""
        while not self._closed and (self._session_id, self._connected) == (seen.session_id, seen.connected):
            await self._event.wait()
        if self._closed:
            _refuse_closed()

    def connection_changed(self, *, connected: bool) -> None:
        """Lose the connection or get it back."""
        self._alive_until = monotonic_s() + self._session_timeout_s
        self._connected = connected
        self._session_moved()

    def session_expired(self) -> None:
        """Continue with a new session."""
        self._session_id = self._server.open_session(self)
        self._session_moved()

    def _session_moved(self) -> None:
        self._event.set()
        self._event = asyncio.Event()
        self.on_change(None)

    async def close(self) -> None:
        """See Transport."""
        if not self._closed:
            self._closed = True
            self._server.close_session(self)
            self._connected = False
            self._alive_until = 0.0
            self._session_moved()
            self._server.release()


class MemoryStore(ResolvingStore):
    """A store on a MemoryServer."""

    def __init__(
        self,
        server: MemoryServer,
        *,
        operation_timeout_s: float = OPERATION_TIMEOUT_S,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> None:
        """A client of `server` with a session of its own."""
        super().__init__(
            MemoryTransport(server, session_timeout_s=session_timeout_s),
            operation_timeout_s=operation_timeout_s,
        )


def _refuse_closed() -> NoReturn:
    msg = "the metadata store is closed"
    raise StoreClosedError(msg)
