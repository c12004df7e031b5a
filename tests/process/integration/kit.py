"""What the tests of this folder do to a cluster: harm it, wait for what follows, and make it whole again."""

import asyncio
import json
import signal
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import daybook
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.worker import RepairWorker
from daybook.client.transport.calls import BookieCalls
from daybook.client.verify import CopyReport, verify_ledger
from daybook.core.placement.policy import BookieInfo
from daybook.core.writer.policy import WriterPolicy
from daybook.local.bookie_process import is_running, send, start_bookie
from daybook.local.cluster import LocalCluster
from daybook.local.cluster_file import BookieEntry, ClusterError
from daybook.runtime.clock import unix_ms
from daybook.wire import bookie_pb2 as pb
from tests.fixtures.cluster import connect_to, make_cluster

P = ParamSpec("P")
T = TypeVar("T")

BOOKIES: Final = ("bookie-0", "bookie-1", "bookie-2", "bookie-3")
PATIENCE_S: Final = 40.0
"""How long anything may take that must happen; on a free machine nothing takes a quarter of it."""
PATIENT: Final = WriterPolicy(
    quorum_wait_ms=10 * int(1000 * PATIENCE_S),
    lag_ms_max=int(1000 * PATIENCE_S),
    lag_bytes_ms=int(1000 * PATIENCE_S),
    quarantine_ms=10 * int(1000 * PATIENCE_S),
)
"""Of writers that wait for a quorum until it is back, and that no slow machine makes declare a bookie failed."""
SESSION_MS: Final = 2500
"""A bookie that is killed and started again registers only when its former session has ended."""
POLL_S: Final = 0.02


class OwnCluster:
    """A cluster that is harmed by one test after the other, and repaired or replaced in between."""

    def __init__(self, new_directory: Callable[[], Path]) -> None:
        """Nothing runs before `whole` is asked for."""
        self._new_directory = new_directory
        self._cluster: LocalCluster | None = None

    def whole(self) -> LocalCluster:
        """The cluster with everything running; another one if this one cannot be repaired."""
        if self._cluster is not None:
            try:
                restart(self._cluster)
            except ClusterError:
                self.stop()
        if self._cluster is None:
            cluster = make_cluster(self._new_directory(), settings={"session_timeout_ms": SESSION_MS})
            cluster.start()
            self._cluster = cluster
        return self._cluster

    def stop(self) -> None:
        """Stop whatever runs, also what was paused."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            wake(cluster)
            cluster.stop()


def wake(cluster: LocalCluster) -> None:
    """Let everything go on that was paused."""
    if cluster.zookeeper.pid is not None:
        cluster.zookeeper.resume()
    for entry in cluster.bookies:
        send(entry, signal.SIGCONT)


def restart(cluster: LocalCluster) -> None:
    """Start whatever does not run. Raises ClusterError."""
    wake(cluster)
    if cluster.zookeeper.pid is None:
        cluster.zookeeper.start()
    start_all(cluster)


def start_all(cluster: LocalCluster) -> None:
    """Start the bookies that do not run, all at once. Raises ClusterError."""
    entries = [entry for entry in cluster.bookies if not is_running(entry)]
    with ThreadPoolExecutor(len(BOOKIES)) as pool:
        starting = [pool.submit(_start, cluster, entry) for entry in entries]
    failures = [failure for future in starting if (failure := future.exception())]
    file = cluster.file
    for future in starting:
        if not future.exception():
            file = file.with_entry(future.result())
    file.write(cluster.directory)
    if failures:
        raise failures[0]


def _start(cluster: LocalCluster, entry: BookieEntry) -> BookieEntry:
    return start_bookie(entry.id, entry.rack, Path(entry.dir), cluster.zookeeper.connect_string)


def kill_all(cluster: LocalCluster, *bookies: str) -> None:
    """SIGKILL to these bookies (default: all), as nearly at once as it goes."""
    chosen = bookies or BOOKIES
    for bookie in chosen:
        cluster.kill_bookie(bookie, signal.SIGSTOP)
    for bookie in chosen:
        cluster.kill_bookie(bookie)


@asynccontextmanager
async def settings(cluster: LocalCluster, bookie: str, **changes: object) -> AsyncIterator[None]:
    """Run a bookie with other settings: it is started again with them, and stopped at the end."""
    file = Path(cluster.file.bookie(bookie).dir) / "bookie.toml"
    before = file.read_text(encoding="utf-8")
    changed = {**tomllib.loads(before), **changes}
    await off(cluster.stop_bookies, bookie)
    file.write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in changed.items()), encoding="utf-8"
    )
    try:
        await off(cluster.start_bookie, bookie)
        yield
    finally:
        file.write_text(before, encoding="utf-8")
        await off(cluster.stop_bookies, bookie)


async def off(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do what blocks beside the event loop, so that writers and readers go on meanwhile."""
    return await asyncio.to_thread(work, *args, **kwargs)


async def eventually(what: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until `what` is true. Raises TimeoutError."""
    async with asyncio.timeout(patience_s):
        while not what():  # noqa: ASYNC110 - what is waited for are views that have no event
            await asyncio.sleep(POLL_S)


async def until_bookies(
    client: daybook.Client, good: Callable[[Mapping[str, BookieInfo]], bool], patience_s: float = PATIENCE_S
) -> None:
    """Wait until the client's list of bookies is as it should be. Raises TimeoutError."""
    await eventually(lambda: good(client.bookies()), patience_s)


async def until_registered(client: daybook.Client, *bookies: str) -> None:
    """Wait until these bookies (default: all) are listed as writable."""
    wanted = bookies or BOOKIES
    await until_bookies(client, lambda now: all(each in now and now[each].writable for each in wanted))


async def until_gone(client: daybook.Client, *bookies: str) -> None:
    """Wait until none of these bookies is listed."""
    await until_bookies(client, lambda now: not set(bookies) & set(now))


async def persist(attempt: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """Try again as long as it fails for a reason that passes. Raises the last failure."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        try:
            return await attempt()
        except PASSING:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(POLL_S)


PASSING: Final = (
    daybook.MetadataUnavailableError,
    daybook.NotEnoughBookiesError,
    daybook.NotEnoughReplicasError,
    daybook.RecoveryFailedError,
)
"""Errors that say: nothing is lost, try again later."""


def calls(client: daybook.Client, bookie: str) -> BookieCalls:
    """The calls of a bookie that is, or was, registered."""
    found = client.channels.calls(bookie)
    assert found is not None, f"{bookie} was never registered"
    return found


async def info(client: daybook.Client, bookie: str) -> pb.GetInfoResponse:
    """What a bookie says of itself."""
    answer: pb.GetInfoResponse = await calls(client, bookie).stub.get_info(
        pb.GetInfoRequest(), timeout=PATIENCE_S
    )
    return answer


async def replace_bookie(cluster: LocalCluster, bookie: str) -> None:
    """Empty a bookie's directories, authorise that as `daybook bookie replace` does, and start it."""
    cluster.erase_bookie(bookie)
    async with connect_to(cluster) as client:
        await until_gone(client, bookie)
        await client.directory.authorise_replacement(bookie, by="a test", now_ms=unix_ms())
    await off(cluster.start_bookie, bookie)


async def ledger_on(
    client: daybook.Client, bookie: str, quorum: tuple[int, int, int] = (3, 3, 2)
) -> daybook.Ledger:
    """A new ledger whose ensemble has `bookie` in it; `quorum` is E, Qw and Qa."""
    ensemble, write, ack = quorum
    while True:
        ledger = await persist(
            partial(client.create_ledger, ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
        )
        if bookie in ledger.ensemble():
            return ledger
        await ledger.close()


async def copies(cluster: LocalCluster, ledger_id: int) -> dict[str, CopyReport]:
    """What every bookie has of a ledger, seen by a client that was not there before."""
    async with connect_to(cluster) as client:
        report = await verify_ledger(client, ledger_id)
    return {copy.bookie: copy for copy in report.copies}


async def repair(cluster: LocalCluster, *ledgers: int) -> None:
    """Repair as `daybook recover LEDGER…` does, and check that every copy is whole then."""
    async with connect_to(cluster) as client, asyncio.timeout(PATIENCE_S):
        report = await RepairWorker(client, AutoRecoverySettings(), name="a test").repair(
            ledgers, lost_delay_s=0
        )
        assert report.is_complete, report.record()
        for ledger_id in ledgers:
            checked = await verify_ledger(client, ledger_id)
            assert checked.is_whole, checked.record()
