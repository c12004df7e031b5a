"""The store over ZooKeeper, by way of kazoo.

kazoo answers in its own threads; this module passes every answer and event to the event loop. `ResolvingStore` finds out
what an attempt that lost its connection has done (rule 42); `kazoo_session` knows until when the session certainly lives
(rule 46).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, Self, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import TransactionRequest
from kazoo.exceptions import KazooException
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.connection import PURESASL_AVAILABLE
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import ACL

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.metadata.store.gathered import GatheredRequests
from daybook.metadata.store.kazoo_session import SessionClient
from daybook.metadata.store.resolving import OPERATION_TIMEOUT_S, READS_IN_REQUEST_MAX, ResolvingStore
from daybook.metadata.store.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
    Session,
    SessionExpiredError,
    StoreClosedError,
    StoreError,
    Versioned,
)
from daybook.metadata.store.transport import ConnectionLostError, Node, Transport, each_of
from daybook.runtime.clock import monotonic_s
from daybook.runtime.logs import get_logger

T = TypeVar("T")

SESSION_TIMEOUT_S: Final = 5.0
_RECONNECT_PAUSE_S_MAX: Final = 1.0
PUTS_IN_REQUEST_MAX: Final = 128
PUT_BYTES_MAX: Final = 500_000
"""A server takes no request of more than 1 MiB."""
_LOST: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionExpiredError,  # also ConnectionClosedError
    kazoo_errors.SessionMovedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.ThrottledOpError,
)
_ERRORS: Final[Mapping[type[Exception], type[StoreError]]] = {
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.BadVersionError: BadVersionError,
    kazoo_errors.NotEmptyError: NotEmptyError,
}

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """How to reach and use ZooKeeper; times in seconds.

    `auth` are (scheme, credential) pairs, `sasl` the options of the pure-sasl library, `acl` the access rights of new nodes
    (kazoo's ACL objects; None: open to all). The connection uses TLS if `tls` is true; an empty file name means "none".
    """

    session_timeout_s: float = SESSION_TIMEOUT_S
    operation_timeout_s: float = OPERATION_TIMEOUT_S
    connect_timeout_s: float = 10.0
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    check_hostname: bool = True
    sasl: Mapping[str, str] | None = field(default=None, repr=False)
    auth: Sequence[tuple[str, str]] = field(default=(), repr=False)
    acl: Sequence[ACL] | None = None

    def anonymous(self) -> "ZooKeeperOptions":
        """The same without credentials, for servers that must not receive them."""
        return replace(self, cert_file="", key_file="", key_password="", sasl=None, auth=(), acl=None)


class ZooKeeperTransport(Transport):
    """Attempts through a kazoo client; `connect` it on the event loop that uses it."""

    def __init__(self, hosts: str, options: ZooKeeperOptions) -> None:
        """Prepare; `connect` sends the first request. Raises MetadataError if SASL is configured and not installed."""
        if options.sasl is not None and not PURESASL_AVAILABLE:
            msg = "SASL needs the pure-sasl package: install it, or leave the SASL options out"
            raise MetadataError(msg)
        self.on_change = lambda _path: None
        self._hosts = hosts
        self._loop = asyncio.get_running_loop()
        self._pending: set[asyncio.Future[Any]] = set()
        self._closed = ""
        self._is_watching_tree = False
        self._seen = (0, False)
        self._event = asyncio.Event()
        self._client = SessionClient(
            hosts=hosts,
            timeout=options.session_timeout_s,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=_RECONNECT_PAUSE_S_MAX),
            auth_data=list(options.auth),
            sasl_options=None if options.sasl is None else dict(options.sasl),
            default_acl=None if options.acl is None else list(options.acl),
            use_ssl=options.tls,
            ca=options.ca_file or None,
            certfile=options.cert_file or None,
            keyfile=options.key_file or None,
            keyfile_password=options.key_password or None,
            check_hostname=options.tls and options.check_hostname,
        )
        self._client.add_listener(self._on_state)
        self._reads = GatheredRequests(self._read_each, count_max=READS_IN_REQUEST_MAX)
        self._puts = GatheredRequests(
            self._put_each,
            count_max=PUTS_IN_REQUEST_MAX,
            size_of=lambda put: len(put.data),
            bytes_max=PUT_BYTES_MAX,
        )

    async def connect(self, timeout_s: float) -> None:
        """Connect, and wait for the first session. Raises MetadataUnavailableError."""
        self._client.start_async()
        try:
            async with asyncio.timeout(timeout_s):
                while not (now := self.session).connected:
                    await self.session_changed(now)
        except BaseException as error:
            await self.close()
            if not isinstance(error, TimeoutError):
                raise
            msg = (
                f"no ZooKeeper answers at {self._hosts} within {timeout_s:g} s: "
                "check the address, that a server runs there, and TLS settings"
            )
            raise MetadataUnavailableError(msg) from error

    # Attempts.

    async def get(self, path: str, *, watched: bool = False) -> Node:
        """See Transport. Reads that come at one time, and watch nothing, go in one request."""
        if watched:
            return await self._get(path, watched=True)
        return await self._reads.answer(path)

    async def _read_each(self, paths: Sequence[str]) -> Sequence[Node | Exception]:
        """As `get_each`; what is refused as a whole is read one by one, since it may be for one node's sake."""
        if len(paths) > 1:
            try:
                return await self.get_each(paths)
            except StoreError:
                log.debug("nodes that were asked for together are read one by one", nodes=len(paths))
        return await each_of(map(self._get, paths))

    async def _get(self, path: str, *, watched: bool = False) -> Node:
        watch = self._on_watch if watched else None
        while True:
            try:
                data, stat = await self._ask(path, lambda: self._client.get_async(path, watch=watch))
                return Node(data, stat.version, stat.ephemeralOwner, stat.ctime)
            except NoNodeError:
                if (
                    not watched
                    or await self._ask(path, lambda: self._client.exists_async(path, watch=watch)) is None
                ):
                    raise

    async def get_each(self, paths: Sequence[str]) -> list[Node | StoreError]:
        """See Transport. Servers before ZooKeeper 3.6 lack the request; the nodes are read one by one there."""
        try:
            answers = await self._ask(paths[0], lambda: self._client.get_each_async(paths))
        except StoreError as error:
            if not isinstance(error.__cause__, kazoo_errors.UnimplementedError):
                raise
            return await each_of(self._get(path) for path in paths)
        return [
            _error_for(path, found) if isinstance(found, KazooException) else Node(*found)
            for path, found in zip(paths, answers, strict=True)
        ]

    async def children(self, path: str, *, watched: bool = False) -> Versioned[tuple[str, ...]]:
        """See Transport."""
        watch = self._on_watch if watched else None
        while True:
            try:
                names, stat = await self._ask(
                    path, lambda: self._client.get_children_async(path, watch=watch, include_data=True)
                )
                return Versioned(tuple(sorted(names)), stat.cversion)
            except NoNodeError:
                if (
                    not watched
                    or await self._ask(path, lambda: self._client.exists_async(path, watch=watch)) is None
                ):
                    raise

    async def watch_tree(self, path: str) -> None:
        """See Transport."""
        self._is_watching_tree = True
        self._client.on_tree_change = lambda changed: self._to_loop(self._notify, changed)
        await self._ask(path, lambda: self._client.watch_tree_async(path))

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool, sequence: bool, pinned: int | None
    ) -> str:
        """See Transport."""
        created: str = await self._ask(
            path,
            lambda: self._client.create_async(path, data, ephemeral=ephemeral, sequence=sequence),
            pinned,
        )
        return created

    async def put(self, path: str, data: bytes, version: int | None) -> int:
        """See Transport. Changes that come at one time go in one request."""
        return await self._puts.answer(Put(path, data, version))

    async def _put(self, put: Put) -> int:
        version = _any_if_none(put.version)
        stat = await self._ask(put.path, lambda: self._client.set_async(put.path, put.data, version))
        changed: int = stat.version
        return changed

    async def _put_each(self, puts: Sequence[Put]) -> Sequence[int | Exception]:
        """The new version of each node, or why it is not known to be changed. Raises ConnectionLostError."""
        if len(puts) > 1:
            try:
                return [stat.version for stat in await self._commit(puts)]
            except StoreError:
                log.debug("changes that were sent together are sent one by one", nodes=len(puts))
        answers = await asyncio.gather(*map(self._put, puts), return_exceptions=True)
        return [each for each in answers if isinstance(each, int | Exception)]

    async def delete(self, path: str, version: int | None, *, pinned: int | None) -> None:
        """See Transport."""
        await self._ask(path, lambda: self._client.delete_async(path, _any_if_none(version)), pinned)

    async def multi(self, operations: Sequence[Operation], *, pinned: int | None) -> None:
        """See Transport."""
        await self._commit(operations, pinned)

    async def _commit(self, operations: Sequence[Operation], pinned: int | None = None) -> Sequence[Any]:
        """Do all of it or nothing; what kazoo returns for each operation."""

        def commit() -> IAsyncResult:
            transaction = self._client.transaction()
            for operation in operations:
                _add_to(transaction, operation)
            return transaction.commit_async()

        results: Sequence[Any] = await self._ask(operations[0].path, commit, pinned)
        errors = [
            (operation, result)
            for operation, result in zip(operations, results, strict=False)
            if isinstance(result, Exception)
        ]
        bystanders = kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency
        for operation, error in errors:
            if not isinstance(error, bystanders):
                _raise_for(operation.path, error)
        assert not errors, f"a multi that failed names no operation that did: {errors}"
        return results

    async def sync(self, path: str) -> None:
        """See Transport."""
        await self._ask(path, lambda: self._client.sync_async(path))

    async def _ask(self, path: str, send: Callable[[], IAsyncResult], pinned: int | None = None) -> Any:
        """Send one request and wait for its answer on the loop."""
        if self._closed:
            self._refuse_closed()
        future: asyncio.Future[Any] = self._loop.create_future()
        client = self._client
        with client.session_lock:
            session_id = client.granted_id
            if pinned is not None and pinned != session_id:
                msg = f"session {pinned:#x} ended before the change of {path}"
                raise SessionExpiredError(msg)
            sent = monotonic_s()
            result = send()

        def answered(result: IAsyncResult) -> None:  # in kazoo's thread
            if result.successful():
                client.answered(session_id, sent)
            self._to_loop(_settle, future, result)

        self._pending.add(future)
        try:
            result.rawlink(answered)
            return await future
        except _LOST as error:
            raise ConnectionLostError(str(error) or type(error).__name__) from error
        except KazooException as error:
            _raise_for(path, error)
        finally:
            self._pending.discard(future)

    # From kazoo's threads to the loop.

    def _to_loop(self, call: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _on_watch(self, event: WatchedEvent) -> None:
        self._to_loop(self._notify, event.path)

    def _notify(self, path: str | None) -> None:
        self.on_change(path)

    def _on_state(self, state: KazooState) -> None:
        failed = (
            "ZooKeeper refused the credentials"
            if self._client.client_state == KeeperState.AUTH_FAILED
            else ""
        )
        seen = (self._client.granted_id, state == KazooState.CONNECTED)
        self._to_loop(self._see, seen, failed)

    def _see(self, seen: tuple[int, bool], failed: str) -> None:
        """Copy the session's id and connection from kazoo."""
        if not self._closed:
            log.info("zookeeper session", session=f"{seen[0]:#x}", connected=seen[1], hosts=self._hosts)
            self._seen = seen
            self._closed = failed
            if self._is_watching_tree and not seen[1]:
                self._is_watching_tree = False
                self._client.on_tree_change = lambda _path: None
                self._notify(None)
            self._wake()

    def _wake(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    # Session.

    @property
    def session(self) -> Session:
        """See Transport."""
        session_id, connected = self._seen
        with self._client.session_lock:
            current = session_id == self._client.granted_id and not self._closed
            return Session(session_id, connected, self._client.alive_until if current else 0.0)

    async def session_changed(self, seen: Session) -> None:
        """See Transport."""
        while not self._closed and self._seen == (seen.session_id, seen.connected):
            await self._event.wait()
        if self._closed:
            self._refuse_closed()

    async def close(self) -> None:
        """See Transport. Waits for kazoo's threads, for up to a few seconds while no server answers."""
        if self._closed == _CLOSED:
            return
        self._closed = _CLOSED
        self._seen = (self._seen[0], False)
        self._wake()
        for future in self._pending:
            if not future.done():
                future.set_exception(StoreClosedError(_CLOSED))
        try:
            await asyncio.to_thread(self._client.stop)
            self._client.close()
        except kazoo_errors.WriterNotClosedException as error:
            log.warning("zookeeper client did not stop in time", hosts=self._hosts, error=str(error))

    def _refuse_closed(self) -> NoReturn:
        raise StoreClosedError(self._closed)


_CLOSED: Final = "the metadata store is closed"


class ZooKeeperStore(ResolvingStore):
    """The store over ZooKeeper; `open` creates it."""

    @classmethod
    async def open(cls, hosts: str, options: ZooKeeperOptions | None = None) -> Self:
        """Connect to `hosts` ("host:port,host:port/chroot") and wait for a session.

        Raises MetadataUnavailableError if there is none within the connect time-out.
        """
        options = options or ZooKeeperOptions()
        transport = ZooKeeperTransport(hosts, options)
        await transport.connect(options.connect_timeout_s)
        return cls(transport, operation_timeout_s=options.operation_timeout_s)


def _settle(future: asyncio.Future[Any], result: IAsyncResult) -> None:
    if future.done():  # timed out, cancelled or closed meanwhile
        return
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _any_if_none(version: int | None) -> int:
    return -1 if version is None else version


def _add_to(transaction: TransactionRequest, operation: Operation) -> None:
    match operation:
        case Create(path, data, ephemeral):
            transaction.create(path, data, ephemeral=ephemeral)
        case Put(path, data, version):
            transaction.set_data(path, data, _any_if_none(version))
        case Delete(path, version):
            transaction.delete(path, _any_if_none(version))
        case Check(path, version):
            transaction.check(path, version)


def _raise_for(path: str, error: Exception) -> NoReturn:
    """Raise the store's error for kazoo's `error` about `path`."""
    raise _error_for(path, error) from error


def _error_for(path: str, error: Exception) -> StoreError:
    kind = _ERRORS.get(type(error))
    return (
        kind(path)
        if kind
        else StoreError(path, f"ZooKeeper refused: {type(error).__name__} {error}".rstrip())
    )
