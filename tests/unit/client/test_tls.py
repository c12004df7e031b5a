"""TLS and mutual TLS between clients and bookie processes: it works, it fails with a reason, and it is renewed alive."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

import daybook
from daybook.client.reader import Reader
from daybook.client.transport import channels
from daybook.client.transport.calls import BookieCalls, HasKey
from daybook.client.transport.connection_errors import ConnectionErrors
from daybook.core.effects import SendLacRead
from daybook.core.errors import NotEnoughBookiesError
from daybook.core.events import LacAnswered
from daybook.core.writer.policy import WriterPolicy
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime import tls
from daybook.runtime.tls import TlsFiles, client_credentials
from daybook.wire import bookie_pb2 as pb
from daybook.wire.connection_failure import why_unreachable
from tests.fixtures.cluster import SETTINGS
from tests.unit.runtime.certificates import Authority, new_authority

pytestmark = pytest.mark.integration

AUTHORITY = new_authority()
STRANGER = new_authority("another CA")
IMPATIENT = dataclasses.replace(WriterPolicy(), quorum_wait_ms=1_000)
"""Of two bookies, the error names one whose connection has failed by then."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificates are."""
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def secure(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two bookies that want certificates of `AUTHORITY` from their clients."""
    files = AUTHORITY.issue(folder, "server")
    settings = {f"tls_{name}": str(getattr(files, name)) for name in ("certificate", "key", "ca")}
    directory = tmp_path_factory.mktemp("secure")
    with LocalCluster(directory, bookies=2, settings={**SETTINGS, **settings}) as started:
        yield started


def connect(
    cluster: LocalCluster, credentials: Callable[[], grpc.ChannelCredentials | None]
) -> daybook.Client:
    """A client that gives up soon."""
    return daybook.connect(
        cluster.zookeeper.connect_string,
        cluster=CLUSTER_NAME,
        credentials=credentials,
        writer_policy=IMPATIENT,
    )


async def write(client: daybook.Client, entries: list[bytes]) -> daybook.Ledger:
    """A ledger with `entries`, open."""
    ledger = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
    await ledger.append_many(entries)
    return ledger


async def read(client: daybook.Client, ledger_id: int) -> list[bytes]:
    """What is in the ledger, which is recovered if it is open."""
    reader = await client.open_ledger(ledger_id)
    return [entry.data async for entry in reader.read()]


async def written_and_read(cluster: LocalCluster, files: TlsFiles) -> list[bytes]:
    """What comes back of what is written with these certificates."""
    async with connect(cluster, client_credentials(files)) as client:
        ledger = await write(client, [b"a", b"b"])
        await ledger.abandon()
        return await read(client, ledger.id)


def test_mutual_tls_carries_writes_recovery_and_reads(secure: LocalCluster, folder: Path) -> None:
    assert asyncio.run(written_and_read(secure, AUTHORITY.issue(folder, "client"))) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("wrong", "explanation"),
    [
        (
            lambda folder: AUTHORITY.issue(folder, "wary", trusts=STRANGER),
            "certificate is refused .unable to get",
        ),
        (
            lambda folder: STRANGER.issue(folder, "stranger", trusts=AUTHORITY),
            "may require a client certificate",
        ),
        (
            lambda folder: AUTHORITY.issue(folder, "old", days_left=-1),
            "refuse this one because it is expired",
        ),
        (
            lambda folder: TlsFiles(ca=AUTHORITY.issue(folder, "anonymous").ca),
            "may require a client certificate",
        ),
        (lambda _: None, "may serve TLS only"),
    ],
    ids=["wrong CA", "certificate of a stranger", "expired", "no certificate", "no TLS"],
)
def test_the_error_of_a_write_that_tls_refuses_explains_it(
    secure: LocalCluster, folder: Path, wrong: Callable[[Path], TlsFiles | None], explanation: str
) -> None:
    files = wrong(folder)

    async def work() -> None:
        async with connect(secure, client_credentials(files) if files else lambda: None) as client:
            await write(client, [b"a"])

    with pytest.raises(daybook.NotEnoughBookiesError, match=f"last failure of bookie-0 at .*{explanation}"):
        asyncio.run(work())


async def test_the_errors_of_a_read_and_a_recovery_that_tls_refuses_explain_it(
    secure: LocalCluster, folder: Path
) -> None:
    async with connect(secure, client_credentials(AUTHORITY.issue(folder, "client"))) as client:
        ledger = await write(client, [b"a"])
        await ledger.abandon()
    async with connect(secure, lambda: None) as client:
        with pytest.raises(daybook.RecoveryFailedError, match="may serve TLS only"):
            await client.open_ledger(ledger.id)
        metadata = (await client.ledgers.read(ledger.id)).value
        unconfirmed = Reader(metadata, client).read_unconfirmed(0, 0)
        with pytest.raises(daybook.NotEnoughReplicasError, match="may serve TLS only"):
            await anext(unconfirmed)


@pytest.mark.parametrize(
    ("wrong", "explanation"),
    [
        ({"host": "elsewhere"}, "certificate is not for 127.0.0.1"),
        ({"days_left": -1}, "certificate is refused .certificate has expired"),
    ],
)
def test_a_bookie_with_a_wrong_certificate_is_not_written_to(
    secure: LocalCluster, folder: Path, wrong: dict[str, object], explanation: str
) -> None:
    """The bookies take the certificate without a restart, and a good one again after it."""

    async def work() -> None:
        async with connect(secure, client_credentials(AUTHORITY.issue(folder, "client"))) as client:
            await write(client, [b"a"])

    AUTHORITY.issue(folder, "server", **wrong)  # type: ignore[arg-type]  # of the test's own parameters
    try:
        with pytest.raises(daybook.NotEnoughBookiesError, match=explanation):
            asyncio.run(work())
    finally:
        AUTHORITY.issue(folder, "server")
    asyncio.run(work())


def test_a_new_authority_takes_over_under_a_client_that_goes_on(
    secure: LocalCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Server and client take new certificates of a new CA; open streams and calls go on, new ones use the new CA."""
    monkeypatch.setattr(tls, "RENEWAL_CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(channels, "RENEWAL_PAUSE_S", 0.0)
    old, new = AUTHORITY, new_authority("the next CA")

    async def work() -> None:
        async with connect(secure, client_credentials(old.issue(folder, "client"))) as client:
            ledger = await write(client, [b"before"])
            outdated = connect(secure, client_credentials(old.issue(folder, "outdated")))
            rotate(new)
            await ledger.append(b"on the open stream")
            assert ledger.ensemble_changes == 0
            await ledger.abandon()
            assert await read(client, ledger.id) == [b"before", b"on the open stream"]
            assert await read(client, (await write(client, [b"after"])).id) == [b"after"]
            async with outdated:
                with pytest.raises(daybook.NotEnoughBookiesError, match="certificate is refused"):
                    await write(outdated, [b"never"])

    def rotate(authority: Authority) -> None:
        authority.issue(folder, "server")
        authority.issue(folder, "client")

    try:
        asyncio.run(work())
    finally:
        rotate(old)


async def test_calls_under_way_survive_a_renewal(
    secure: LocalCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that waits for the next entry on a channel of the old certificate gets it."""
    monkeypatch.setattr(tls, "RENEWAL_CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(channels, "RENEWAL_PAUSE_S", 0.0)

    polling = asyncio.Event()
    read_lac = BookieCalls.read_lac

    async def noted(self: BookieCalls, of: HasKey, request: SendLacRead) -> LacAnswered:
        if request.wait_ms:
            asyncio.get_running_loop().call_soon(polling.set)
        return await read_lac(self, of, request)

    monkeypatch.setattr(BookieCalls, "read_lac", noted)
    async with (
        connect(secure, client_credentials(AUTHORITY.issue(folder, "client"))) as reading,
        connect(secure, client_credentials(AUTHORITY.issue(folder, "writer"))) as writing,
    ):
        ledger = await write(writing, [b"first"])
        tail = (await reading.open_ledger(ledger.id, recover=False)).tail()
        assert (await anext(tail)).data == b"first"
        following = asyncio.ensure_future(anext(tail))
        held = reading.channels.calls("bookie-0")
        await polling.wait()
        AUTHORITY.issue(folder, "client")
        assert await read(reading, (await write(writing, [b"another"])).id) == [b"another"]
        assert reading.channels.calls("bookie-0") is not held
        await ledger.append(b"second")
        assert (await following).data == b"second"
        assert held is not None
        answer = await held.stub.get_info(pb.GetInfoRequest(), timeout=40)
        assert answer.bookie_id == "bookie-0", "who has the old calls can go on with them"


def test_files_that_cannot_be_used_leave_the_old_credentials_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "RENEWAL_CHECK_INTERVAL_S", 0.0)
    files = AUTHORITY.issue(tmp_path, "client")
    current = client_credentials(files)
    first = current()
    assert current() is first
    assert files.certificate is not None
    files.certificate.write_bytes(b"half a certifica")
    assert current() is first
    AUTHORITY.issue(tmp_path, "client")
    assert current() is not first


def test_a_plain_lost_connection_is_told_as_grpc_tells_it() -> None:
    text = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused"
    assert (
        why_unreachable(text, "127.0.0.1:1", secure=True) == "UNKNOWN: ipv4:127.0.0.1:1: Connection refused"
    )
    assert why_unreachable("Socket closed", "127.0.0.1:1", secure=True) == "Socket closed"


def test_connection_errors_of_long_ago_or_that_ended_explain_nothing() -> None:
    now = 0
    connection_errors = ConnectionErrors(now_ms=lambda: now)
    error = NotEnoughBookiesError("too few bookies")
    connection_errors.note("a", "a:1", "Connection refused", secure=False)
    connection_errors.note("b", "b:1", "Connection refused", secure=False)
    assert (
        str(connection_errors.explain(error))
        == "too few bookies (last failure of a at a:1, b at b:1: Connection refused)"
    )
    connection_errors.note("a", "a:1", "", secure=False)
    assert (
        str(connection_errors.explain(error))
        == "too few bookies (last failure of b at b:1: Connection refused)"
    )
    now = 60_001
    assert connection_errors.explain(error) is error
