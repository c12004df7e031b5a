"""The store over a real ZooKeeper that is paused, killed, cut off, or ends a session (rule 42, rule 46)."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kazoo.exceptions import MarshallingError
from kazoo.interfaces import IAsyncResult
from kazoo.security import make_digest_acl

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.placement.policy import BookieInfo
from daybook.local.zookeeper import START_TIMEOUT_S, EmbeddedZooKeeper
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.lease import acquire
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store import kazoo_session
from daybook.metadata.store.kazoo_session import SessionClient, SessionConnection
from daybook.metadata.store.multi_read import MultiRead
from daybook.metadata.store.store import NoNodeError, Session, StoreError, Versioned
from daybook.metadata.store.zookeeper import ZooKeeperOptions, ZooKeeperStore
from daybook.runtime.clock import monotonic_s
from tests.fixtures.zookeeper import expire_session
from tests.unit.metadata.harness import (
    LAYOUT,
    following,
    formatted,
    ledger,
    register,
    soon,
    stores,
    zookeeper_opener,
)

PING_ANSWER = {4: struct.pack(">i", 16), 16: struct.pack(">iqi", -2, 0, 0)}
"""What a server sends after a ping, by the lengths in which it is read: size, then header (xid −2)."""


class Wire:
    """A TCP forwarder that can fall silent: both ends keep their connection, nothing passes."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        self._open.clear()

    def close(self) -> None:
        self._open.set()
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target_port))
            self._sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._open.wait()
                sink.sendall(data)
        except OSError:
            return


@pytest.fixture
def wire(zookeeper_server: EmbeddedZooKeeper) -> Iterator[Wire]:
    forwarder = Wire(zookeeper_server.port)
    yield forwarder
    forwarder.close()


def test_rule_46_a_session_is_certain_from_when_the_answered_request_was_sent() -> None:
    client = SessionClient(hosts="127.0.0.1:1", sasl_options=None)
    client.session_granted(session_id=1, granted_s=5.0, sent=100.0)
    assert client.alive_until == 104.5, "the time-out less a tenth, from the sending of the handshake"
    client.answered(1, sent=102.0)
    assert client.alive_until == 106.5
    client.answered(1, sent=101.0)
    assert client.alive_until == 106.5, "an answer to something older takes nothing away"
    client.answered(2, sent=200.0)
    assert client.alive_until == 106.5, "another session's answer proves nothing about this one"
    client.session_granted(session_id=3, granted_s=2.0, sent=103.0)
    assert client.alive_until == pytest.approx(104.8), (
        "a new session begins anew, with what the server granted"
    )


def test_rule_46_an_answered_ping_proves_no_more_than_its_own_sending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SessionClient(hosts="127.0.0.1:1", sasl_options=None)
    client.session_granted(session_id=1, granted_s=10.0, sent=0.0)
    connection = client._connection
    monkeypatch.setattr(connection, "_submit", lambda *_arguments: None)
    monkeypatch.setattr(connection, "_read", lambda length, _timeout: PING_ANSWER[length])
    for now in (1.0, 2.0):
        monkeypatch.setattr(kazoo_session, "monotonic_s", lambda now=now: now)
        connection._send_ping(1.0)
    monkeypatch.setattr(kazoo_session, "monotonic_s", lambda: 3.0)
    connection._read_socket(1.0)
    assert client.alive_until == 10.0, "the answer to the first ping, though a second was sent"
    connection._send_ping(1.0)
    connection._read_socket(1.0)
    assert client.alive_until == 11.0
    connection._read_socket(1.0)
    assert client.alive_until == 12.0


@pytest.mark.integration
async def test_rule_46_a_cut_off_owner_is_in_doubt_before_others_see_its_node_go(
    wire: Wire, zookeeper: str
) -> None:
    chroot = zookeeper.partition("/")[2]
    owner = await ZooKeeperStore.open(f"127.0.0.1:{wire.port}/{chroot}")
    async with stores(zookeeper_opener(zookeeper), 1) as (observer,):
        lease = await acquire(owner, "/owner", "me")
        assert lease is not None
        wire.fall_silent()
        in_doubt = asyncio.create_task(lease.lost())
        seen: list[Versioned[bytes] | None] = []
        await soon(following(observer.watch_node("/owner"), seen, lambda: seen[-1] is None), 60.0)
        assert in_doubt.done(), "the owner knew before anybody else could"
        assert not lease.is_certain
    wire.close()
    await owner.close()


@pytest.mark.integration
async def test_rule_46_a_pause_shorter_than_the_session_delays_writes_and_loses_nothing(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    opener = zookeeper_opener(own_zookeeper.connect_string, session_timeout_s=30.0)
    async with stores(opener, 1) as (store,):
        await store.create("/n", b"0")
        await store.sync()
        before = store.session
        own_zookeeper.pause()
        writing = asyncio.create_task(store.put("/n", b"1", 0))
        await asyncio.sleep(2.5)
        assert not writing.done()
        paused = store.session
        assert paused.alive_until <= before.alive_until + 0.5, "no answer, no longer life"
        assert monotonic_s() < paused.alive_until, "still certain after 2.5 s"
        own_zookeeper.resume()
        assert await soon(writing) == 1
        assert store.session.session_id == before.session_id
        await store.sync()
        assert store.session.alive_until > paused.alive_until


@pytest.mark.integration
async def test_rule_46_a_pause_longer_than_the_session_ends_leases_in_time_and_bookies_come_back(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    opener = zookeeper_opener(own_zookeeper.connect_string, session_timeout_s=2.0)
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        info = BookieInfo("b1", boot_id="boot")
        await register(one, info)
        lease = await acquire(one, "/lock", "me")
        assert lease is not None
        seen: list[object] = []
        values = BookieDirectory(two, LAYOUT).watch_bookies()
        assert await anext(values) == {"b1": info}
        before = one.session
        own_zookeeper.pause()
        await soon(lease.lost(), 5.0)
        assert monotonic_s() >= before.alive_until - 0.01
        news = asyncio.ensure_future(anext(values))
        await asyncio.sleep(1.5)
        assert not news.done(), "no news while nobody answers"
        own_zookeeper.resume()
        bookies = BookieDirectory(two, LAYOUT).watch_bookies()
        await soon(following(bookies, seen, lambda: seen[-1] == {"b1": info}))
        node = await one.get(LAYOUT.registration("b1", writable=True))
        assert node.version == 0
        assert not lease.is_certain
        news.cancel()
        await lease.release()


@pytest.mark.integration
async def test_rule_42_a_killed_and_restarted_server_loses_no_acknowledged_write(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    opener = zookeeper_opener(own_zookeeper.connect_string, operation_timeout_s=START_TIMEOUT_S)
    async with stores(opener, 2) as (one, two):
        manager = LedgerManager(one, await formatted(one))
        made: list[int] = []
        under_way = asyncio.Event()

        async def create_ledgers(number: int) -> None:
            for _ in range(number):
                created = await manager.create_ledger(ledger)
                made.append(created.value.ledger_id)
                if len(made) == number // 3:
                    under_way.set()

        values = two.watch_node("/news")
        assert await anext(values) is None
        creating = asyncio.create_task(create_ledgers(150))
        await soon(under_way.wait(), START_TIMEOUT_S)
        own_zookeeper.kill()
        news = asyncio.ensure_future(anext(values))
        await asyncio.to_thread(own_zookeeper.start)
        await soon(creating, 2 * START_TIMEOUT_S)
        assert made == list(range(150)), "each creation is counted once, also the one whose reply was lost"
        assert [ledger_id async for ledger_id in manager.ids()] == made
        await one.create("/news", b"watches survive a restart")
        assert await soon(news) == Versioned(b"watches survive a restart", 0)


@pytest.mark.integration
async def test_rule_42_an_expired_session_is_not_a_crash(zookeeper: str) -> None:
    async with stores(zookeeper_opener(zookeeper), 2) as (one, two):
        assert isinstance(one, ZooKeeperStore)
        await formatted(one)
        info = BookieInfo("b1", boot_id="boot")
        await register(one, info)
        lease = await acquire(one, "/lock", "me")
        assert lease is not None
        before = one.session
        events: list[Session] = []
        await asyncio.to_thread(expire_session, zookeeper, one)
        await soon(lease.lost())
        await soon(
            following(
                one.session_events(),
                events,
                lambda: events[-1].connected and events[-1].session_id != before.session_id,
            )
        )
        seen: list[object] = []
        bookies = BookieDirectory(two, LAYOUT).watch_bookies()
        await soon(following(bookies, seen, lambda: seen[-1] == {"b1": info}))
        await lease.release()
        assert await one.exists("/lock") is None
        await one.put(LAYOUT.idgen, b'{"next":0}', 0)


@pytest.mark.integration
async def test_an_address_without_a_server_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        hosts = f"127.0.0.1:{deaf.getsockname()[1]}"
        options = ZooKeeperOptions(connect_timeout_s=0.2, session_timeout_s=1.0)
        with pytest.raises(MetadataUnavailableError, match=f"no ZooKeeper answers at {hosts}"):
            await ZooKeeperStore.open(hosts, options)


async def test_sasl_without_its_package_is_a_clear_error() -> None:
    with pytest.raises(MetadataError, match="pure-sasl"):
        await ZooKeeperStore.open("127.0.0.1:1", ZooKeeperOptions(sasl={"mechanism": "DIGEST-MD5"}))


@pytest.mark.integration
async def test_acls_exclude_other_users(zookeeper: str) -> None:
    acl = [make_digest_acl("daybook", "secret", all=True)]
    credentials = [("digest", "daybook:secret")]
    owner = await ZooKeeperStore.open(zookeeper, ZooKeeperOptions(acl=acl, auth=credentials))
    stranger = await ZooKeeperStore.open(zookeeper)
    try:
        await owner.create("/a/b", b"guarded", parents=True)
        assert (await owner.get("/a/b")).value == b"guarded"
        with pytest.raises(StoreError, match="NoAuthError"):
            await stranger.get("/a/b")
        await stranger.create("/open", b"to all")
        guarded, free = await stranger.get_each(["/a/b", "/open"])
        assert "NoAuthError" in str(guarded)
        assert free == Versioned(b"to all", 0)
    finally:
        await owner.close()
        await stranger.close()


class OldConnection(SessionConnection):
    """A connection to a server of before 3.6, which does not know the request."""

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        super()._submit(Unknown() if isinstance(request, MultiRead) else request, timeout, xid)


class Unknown:
    """A request that no server knows."""

    type = 9999

    @staticmethod
    def serialize() -> bytes:
        return b""


@pytest.mark.integration
async def test_nodes_are_read_one_by_one_from_a_server_that_reads_no_many(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kazoo_session, "SessionConnection", OldConnection)
    async with stores(zookeeper_opener(zookeeper), 1) as (store,):
        await store.create("/a", b"1")
        there, missing = await soon(store.get_each(["/a", "/b"]))
        assert there == Versioned(b"1", 0)
        assert isinstance(missing, NoNodeError)


@pytest.mark.integration
async def test_a_read_of_many_nodes_that_is_refused_as_a_whole_is_an_error(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SessionClient, paths: Sequence[str]) -> IAsyncResult:
        result = self.handler.async_result()
        result.set_exception(MarshallingError())
        return result

    monkeypatch.setattr(SessionClient, "get_each_async", refuse)
    async with stores(zookeeper_opener(zookeeper), 1) as (store,):
        with pytest.raises(StoreError, match="MarshallingError"):
            await store.get_each(["/a"])


@pytest.mark.integration
async def test_reads_and_changes_at_one_time_share_requests(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    call = SessionClient._call

    def count(self: SessionClient, request: Any, answer: Any) -> Any:
        sent.append(type(request).__name__)
        return call(self, request, answer)

    async with stores(zookeeper_opener(zookeeper), 1) as (store,):
        paths = [f"/{n}" for n in range(50)]
        await asyncio.gather(*(store.create(path) for path in paths))
        monkeypatch.setattr(SessionClient, "_call", count)
        await asyncio.gather(*map(store.get, paths))
        await asyncio.gather(*(store.put(path, b"1", 0) for path in paths))
        assert await store.put(paths[0], b"2", 1) == 2
        assert await store.get(paths[0]) == Versioned(b"2", 2)
        assert sent == ["MultiRead", "Transaction", "SetData", "GetData"]


@pytest.mark.integration
async def test_gathered_reads_that_are_refused_as_a_whole_are_made_one_by_one(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SessionClient, paths: Sequence[str]) -> IAsyncResult:
        result = self.handler.async_result()
        result.set_exception(MarshallingError())
        return result

    monkeypatch.setattr(SessionClient, "get_each_async", refuse)
    async with stores(zookeeper_opener(zookeeper), 1) as (store,):
        await store.create("/a", b"1")
        there, missing = await asyncio.gather(store.get("/a"), store.get("/b"), return_exceptions=True)
        assert there == Versioned(b"1", 0)
        assert isinstance(missing, NoNodeError)


@pytest.mark.integration
async def test_rule_37_a_listing_of_many_ledgers_does_not_starve_the_session(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = SessionClient.answered
    sent_s: list[float] = []

    def noting(self: SessionClient, session_id: int, sent: float) -> None:
        answered(self, session_id, sent)
        sent_s.append(sent)

    monkeypatch.setattr(SessionClient, "answered", noting)
    async with stores(zookeeper_opener(zookeeper), 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await store.create(LAYOUT.ledger(0), ledger(0).to_json(), parents=True)
        for first in range(1, 1500, 100):
            await asyncio.gather(
                *(store.create(LAYOUT.ledger(n), ledger(n).to_json()) for n in range(first, first + 100))
            )
        events: list[Session] = []
        watching = asyncio.create_task(following(store.session_events(), events, lambda: False))
        count = 0
        sent_s.clear()
        async for found in manager.read_all():
            assert found.value.ledger_id == count
            count += 1
            if sent_s:
                assert store.session.alive_until >= sent_s[-1] + 4.5, "every answer proves the session anew"
        watching.cancel()
        assert count == 1501
        assert len(sent_s) > 10, "a listing is many requests"
        assert len(events) == 1
