"""The transport beneath `ResolvingStore`: connections to simulated ZooKeeper servers that break, and sessions that end.

A request or an answer that is lost takes its connection along, as on TCP; what was under way on it may have been carried
out, or may be yet, until the next connection says otherwise. How long the session certainly lives is counted as
`kazoo_session` counts it: from when an answered request was sent (rule 46).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from daybook.metadata.store.kazoo_session import SESSION_MARGIN
from daybook.metadata.store.store import (
    Create,
    Delete,
    NoNodeError,
    Operation,
    Put,
    Session,
    SessionExpiredError,
    StoreClosedError,
    StoreError,
    Versioned,
)
from daybook.metadata.store.transport import ConnectionLostError, Node, Transport
from tests.model.sim.metadata_model import SESSION_TIMEOUT_US
from tests.model.sim.shipped.loop import SCALE
from tests.model.sim.shipped.zookeeper import ClientSession, Server, TreeStore
from tests.model.sim.world import MS, Process

T = TypeVar("T")

_DELAY_MIN_US: Final = 150
_DELAY_SPREAD_US: Final = 800
_SLOW_US: Final = 60 * MS
_SLOW_REPLY_US: Final = 120 * MS
_LATE_US: Final = 80 * MS
_NOTICE_US: Final = 20 * MS
_PING_US: Final = SESSION_TIMEOUT_US // 3
_SILENCE_US: Final = SESSION_TIMEOUT_US * 2 // 3
_REDIAL_US: Final = 8 * MS
_LOSS_SHARE: Final = 0.3
"""A client that ships asks more often than a machine alone, and every loss costs it a connection."""

TIMEOUT_S: Final = SESSION_TIMEOUT_US * SCALE / 1_000_000


class Connection:
    """One connection of a client to one server: messages in order each way, until one is lost."""

    def __init__(self, transport: "SimTransport", store: TreeStore) -> None:
        self.is_broken = False
        """Nothing that is sent from now on arrives."""
        self.is_replaced = False
        """The session continues over another one: what is still under way on this one is dropped."""
        self._transport = transport
        self._store = store
        self._rng = transport.rng
        self._up_us = self._down_us = 0

    def up(self, serve: Callable[..., None], *args: Any) -> None:
        """To the server."""
        if self.is_broken:
            return
        world, swarm = self._store.world, self._store.swarm
        arrival_us = max(self._up_us, world.now_us + self._delay_us(swarm.zk_slow, _SLOW_US))
        if self._is_lost(swarm.zk_request_loss):
            world.tally.fault("ZooKeeper request lost")
            if self._store.swarm.zk_late and self._rng.random() < swarm.zk_late:
                world.tally.fault("ZooKeeper request late")
                late_us = arrival_us + int(_LATE_US * self._rng.random())
                world.at(late_us, None, self._arrived, serve, args)
            self.lose()
            return
        self._up_us = arrival_us
        world.at(arrival_us, None, self._arrived, serve, args)

    def _arrived(self, serve: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.is_replaced:
            return
        if self._store.is_unavailable:
            self.lose()
        else:
            serve(self, *args)

    def down(self, kind: str, *args: Any) -> None:
        """To the client."""
        if self.is_broken:
            return
        world, swarm = self._store.world, self._store.swarm
        if self._is_lost(swarm.zk_reply_loss):
            world.tally.fault("ZooKeeper reply lost")
            self.lose()
            return
        delay_us = self._delay_us(swarm.zk_slow_reply, _SLOW_REPLY_US)
        if delay_us > _SLOW_US:
            world.tally.fault("ZooKeeper reply slow")
        self._down_us = max(self._down_us, world.now_us + delay_us)
        world.at(self._down_us, self._transport.process, self._transport.received, self, kind, args)

    def lose(self) -> None:
        """Break; the client learns of it some time later."""
        if not self.is_broken:
            self.is_broken = True
            world = self._store.world
            notice_us = world.now_us + int(_NOTICE_US * self._rng.random())
            world.at(notice_us, self._transport.process, self._transport.lost, self)

    def _delay_us(self, slow: float, most_us: int) -> int:
        delay_us = _DELAY_MIN_US + int(_DELAY_SPREAD_US * self._rng.random())
        if self._store.is_faulty and slow and self._rng.random() < slow:
            delay_us += int(most_us * self._rng.random())
        return delay_us

    def _is_lost(self, ratio: float) -> bool:
        faulty = self._store.is_faulty and ratio
        return bool(faulty) and self._rng.random() < ratio * _LOSS_SHARE


class SimTransport(Transport):
    """Attempts of one process. Made by `open`, on its loop."""

    def __init__(self, process: Process, store: TreeStore) -> None:
        self.on_change = lambda _path: None
        self.process = process
        self.rng = process.world.rng(f"{process.name}/zookeeper")
        self.server_session: ClientSession | None = None
        self._store = store
        self._link: Connection | None = None
        self._closed = False
        self._connected = False
        self._session_id = 0
        self._alive_until = 0.0
        self._received_us = 0
        self._asked: dict[int, tuple[asyncio.Future[Any], float]] = {}
        self._numbers = 0
        self._unanswered: set[str] = set()
        """Where a change was made whose answer cannot come any more."""
        self._event = asyncio.Event()

    async def open(self) -> None:
        """Connect, however long that takes."""
        self._dial()
        while not self._connected:
            await self._event.wait()

    # The connection

    def _is_over(self, link: Connection) -> bool:
        return self._link is not link or self._closed or not self.process.alive

    def _dial(self) -> None:
        if self._closed or not self.process.alive:
            return
        link = self._link = Connection(self, self._store)
        self._received_us = self.process.world.now_us
        session = self.server_session
        if session is not None and session.cut_until_us > self.process.world.now_us:
            link.lose()
            return
        link.up(self._shake_hands, session, self._now_s())
        self._watch_silence(link)

    def _shake_hands(self, link: Connection, session: ClientSession | None, sent_s: float) -> None:
        """At a server: continue the session, or begin one."""
        if session is not None and session.expired:
            link.down("expired")
            return
        if session is None:
            session = self._store.open_session(self.process)
        elif session.link is not None:
            session.link.is_broken = session.link.is_replaced = True
        session.forget_requests()
        session.server = self.rng.choice(self._store.servers)
        session.link, session.received_us = link, self._store.world.now_us
        session.server.when_applied(len(self._store.log), partial(link.down, "granted", session, sent_s))

    def _watch_silence(self, link: Connection) -> None:
        """Give a connection up on which nothing is received, and ping meanwhile."""
        if self._is_over(link):
            return
        if self.process.world.now_us - self._received_us > _SILENCE_US:
            link.is_broken = True
            self.lost(link)
            return
        if self._connected:
            link.up(self._pong, self.server_session, self._now_s())
        self.process.later(_PING_US, self._watch_silence, link)

    @staticmethod
    def _pong(link: Connection, session: ClientSession, sent_s: float) -> None:
        if not session.expired:
            session.received_us = session.owner.world.now_us
            link.down("pong", sent_s)

    def received(self, link: Connection, kind: str, args: tuple[Any, ...]) -> None:
        """A message has come."""
        if self._is_over(link):
            return
        self._received_us = self.process.world.now_us
        match kind:
            case "granted":
                self._granted(*args)
            case "expired":
                self.process.note("learns that its session has expired")
                self.server_session, self._session_id, self._alive_until = None, 0, 0.0
                self._moved()
                self._dial()
            case "pong":
                self._certain(*args)
            case "watch":
                self.on_change(*args)
            case _:
                self._answered(*args)

    def _granted(self, session: ClientSession, sent_s: float) -> None:
        if self._session_id != session.number:
            self._alive_until = 0.0
        self.server_session, self._session_id, self._connected = session, session.number, True
        self._certain(sent_s)
        self.process.note(f"is connected to ZooKeeper in session {session.number}")
        self._moved()

    def _certain(self, sent_s: float) -> None:
        self._alive_until = max(self._alive_until, sent_s + TIMEOUT_S * (1 - SESSION_MARGIN))

    def lost(self, link: Connection) -> None:
        """The connection is gone: what was asked on it is unknown."""
        if self._is_over(link):
            return
        self._link, self._connected = None, False
        self.process.note("has lost its connection to ZooKeeper")
        asked, self._asked = self._asked, {}
        for future, _ in asked.values():
            if not future.done():
                future.set_exception(ConnectionLostError())
        self._moved()
        self.on_change(None)
        self.process.later(int(_REDIAL_US * (0.5 + self.rng.random())), self._dial)

    def _moved(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    def _now_s(self) -> float:
        return self.process.world.now_us * SCALE / 1_000_000

    # Attempts

    async def _ask(
        self, serve: Callable[[ClientSession, Callable[[Any], None]], None], pinned: int | None
    ) -> Any:
        """Send one request and wait for its answer."""
        if self._closed or not self.process.alive:
            _refuse_closed()
        if pinned is not None and pinned != self._session_id:
            msg = f"session {pinned:#x} ended before the change"
            raise SessionExpiredError(msg)
        link, session = self._link, self.server_session
        if link is None or session is None or not self._connected:
            raise ConnectionLostError
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = (future, self._now_s())
        link.up(self._serve, session, number, serve)
        try:
            return await future
        finally:
            self._asked.pop(number, None)

    def _serve(
        self,
        link: Connection,
        session: ClientSession,
        number: int,
        serve: Callable[[ClientSession, Callable[[Any], None]], None],
    ) -> None:
        """At the server: carry it out behind what the session asked before."""
        session.received_us = session.owner.world.now_us

        def work(done: Callable[[], None]) -> None:
            def respond(answer: Any) -> None:
                link.down("answer", number, answer)
                done()

            if not session.expired:
                serve(session, respond)

        if not session.expired:
            session.submit(work)

    def _answered(self, number: int, answer: Any) -> None:
        asked = self._asked.get(number)
        if asked is None:
            return
        future, sent_s = asked
        self._certain(sent_s)
        if future.done():
            return
        if isinstance(answer, StoreError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    async def _read(self, read: Callable[[Server], T], path: str, *, watched: bool) -> T:
        def serve(session: ClientSession, respond: Callable[[Any], None]) -> None:
            server = session.server
            try:
                answer: T | StoreError = read(server)
            except NoNodeError as error:
                answer = error
            if watched:
                server.watch(path, session)
            respond(answer)

        answered: T = await self._ask(serve, None)
        return answered

    async def _write(self, path: str, write: Callable[[ClientSession], T], pinned: int | None) -> T:
        def serve(session: ClientSession, respond: Callable[[Any], None]) -> None:
            try:
                answer: T | StoreError = write(session)
            except StoreError as error:
                answer = error
            if isinstance(answer, StoreError) and path in self._unanswered:
                self._store.world.tally.state("met its own change")
            session.server.when_applied(len(self._store.log), partial(notify, session, respond, answer))

        def notify(session: ClientSession, respond: Callable[[Any], None], answer: Any) -> None:
            respond(answer)
            if not isinstance(answer, StoreError) and (session.link is None or session.link.is_broken):
                self._unanswered.add(path)

        answered: T = await self._ask(serve, pinned)
        return answered

    async def get(self, path: str, *, watched: bool = False) -> Node:
        return await self._read(lambda server: server.tree.read(path), path, watched=watched)

    async def children(self, path: str, *, watched: bool = False) -> Versioned[tuple[str, ...]]:
        return await self._read(lambda server: server.tree.list(path), path, watched=watched)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool, sequence: bool, pinned: int | None
    ) -> str:
        """See Transport."""

        def write(session: ClientSession) -> str:
            if sequence:
                return self._store.create_sequence(path, data, ephemeral=ephemeral, session=session)
            self._store.write([Create(path, data, ephemeral)], session)
            return path

        return await self._write(path, write, pinned)

    async def put(self, path: str, data: bytes, version: int | None) -> int:
        put = Put(path, data, version)
        return await self._write(path, lambda session: self._store.write([put], session), None)

    async def delete(self, path: str, version: int | None, *, pinned: int | None) -> None:
        await self._write(path, lambda session: self._store.write([Delete(path, version)], session), pinned)

    async def multi(self, operations: Sequence[Operation], *, pinned: int | None) -> None:
        await self._write(operations[0].path, lambda session: self._store.write(operations, session), pinned)

    async def sync(self, path: str) -> None:
        """See Transport."""

        def serve(session: ClientSession, respond: Callable[[Any], None]) -> None:
            session.server.when_applied(len(self._store.log), partial(respond, None))

        await self._ask(serve, None)

    # Session

    @property
    def session(self) -> Session:
        return Session(self._session_id, self._connected, self._alive_until)

    async def session_changed(self, seen: Session) -> None:
        while not self._closed and (self._session_id, self._connected) == (seen.session_id, seen.connected):
            await self._event.wait()
        if self._closed:
            _refuse_closed()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._connected = False
        for future, _ in self._asked.values():
            if not future.done():
                future.set_exception(StoreClosedError("the metadata store is closed"))
        link, session = self._link, self.server_session
        if link is not None and session is not None and self.process.alive:
            link.up(lambda _link: None if session.expired else self._store.end(session))
        self._moved()


def _refuse_closed() -> NoReturn:
    msg = "the metadata store is closed"
    raise StoreClosedError(msg)
