"""A cluster on this machine: a real ZooKeeper, bookies in racks and brokers, all of them processes, for first steps, tests and benchmarks."""

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, TypeVar

from daybook.local import broker_process
from daybook.local.bookie_process import (
    SETTINGS_FILE,
    erase,
    hold_ports,
    is_running,
    send,
    start_bookie,
    stop_bookies,
    write_settings,
)
from daybook.local.broker_process import start_broker, stop_brokers
from daybook.local.child import processes_with, reap, wait_for_exit
from daybook.local.cluster_file import CLUSTER_FILE, BookieEntry, BrokerEntry, ClusterError, ClusterFile
from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.runtime.clock import unix_ms
from daybook.runtime.ports import HeldPort

CLUSTER_NAME: Final = "local"
KILL_TIMEOUT_MS: Final = 10_000

T = TypeVar("T")


class LocalCluster:
    """Bookies, brokers and their ZooKeeper under one directory; `with` starts and stops them.

    Data stays in the directory: a cluster that starts there again has its ledgers, and starts all bookies that were there
    before; brokers keep no data, so as many start as are asked for. One cluster at a time runs in a directory. A running cluster holds its ports, also those of a stopped process.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 3,
        racks: Sequence[str] = (),
        settings: dict[str, object] | None = None,
        brokers: int = 0,
        broker_settings: dict[str, object] | None = None,
    ) -> None:
        """`racks` are assigned to the bookies in turn; the settings override those of every bookie, and of every broker."""
        if bookies < 1:
            msg = f"a cluster of {bookies} bookies: start at least 1"
            raise ClusterError(msg)
        self.directory = directory.resolve()
        known = sum(1 for _ in self.directory.glob(f"bookie-*/{SETTINGS_FILE}"))
        names = [f"bookie-{n}" for n in range(max(bookies, known))]
        self._racks = {name: racks[n % len(racks)] if racks else f"rack-{n}" for n, name in enumerate(names)}
        self._settings = settings or {}
        self._brokers = tuple(f"broker-{n}" for n in range(brokers))
        self._broker_settings = broker_settings or {}
        self._lock: BinaryIO | None = None
        self._ports: dict[str, list[HeldPort]] = {}
        self.zookeeper = EmbeddedZooKeeper(self.directory / "zookeeper")

    @property
    def file(self) -> ClusterFile:
        """The content of `cluster.json`."""
        return ClusterFile.read(self.directory)

    @property
    def bookies(self) -> tuple[BookieEntry, ...]:
        """The bookies, running or not."""
        return self.file.bookies

    @property
    def brokers(self) -> tuple[BrokerEntry, ...]:
        """The brokers, running or not."""
        return self.file.brokers

    def start(self) -> None:
        """Start everything and return once it serves. Raises ClusterError, after it has stopped what it started."""
        self._take_directory()
        try:
            self._stop_leftovers()
            self.zookeeper.start()
            asyncio.run(_format(self.zookeeper.connect_string))
            bookies = _start_all(self._racks, self._start, stop_bookies)
            try:
                brokers = _start_all(self._brokers, self._start_broker, self._stop_brokers)
            except BaseException:
                stop_bookies(bookies)
                raise
        except BaseException:
            self._let_go()
            raise
        ClusterFile(self.zookeeper.connect_string, CLUSTER_NAME, bookies, brokers).write(self.directory)

    def _take_directory(self) -> None:
        """Refuse a second cluster in the directory for as long as this process lives."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = (self.directory / "lock").open("ab")
        except (FileExistsError, NotADirectoryError) as error:
            msg = f"{self.directory} is not a directory: give a directory, which may be new"
            raise ClusterError(msg) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            msg = f"a cluster runs in {self.directory} already: use it, or stop it first, or give another directory"
            raise ClusterError(msg) from error
        self._lock = lock

    def _let_go(self) -> None:
        """Release the directory and the ports, after ZooKeeper has ended."""
        self.zookeeper.close()
        (self.directory / CLUSTER_FILE).unlink(missing_ok=True)
        for port in chain.from_iterable(self._ports.values()):
            port.close()
        self._ports.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _stop_leftovers(self) -> None:
        """End the processes of an earlier cluster whose main process was killed."""
        names = (SETTINGS_FILE, broker_process.SETTINGS_FILE)
        settings = [str(file) for name in names for file in self.directory.glob(f"*/{name}")]
        for pid in processes_with([*settings, str(self.directory / "zookeeper" / "zoo.cfg")]):
            os.kill(pid, signal.SIGTERM)
            if not wait_for_exit(pid, KILL_TIMEOUT_MS):
                os.kill(pid, signal.SIGKILL)
                wait_for_exit(pid, KILL_TIMEOUT_MS)

    def _start(self, bookie_id: str) -> BookieEntry:
        directory = self.directory / bookie_id
        defaults = {"bookie_id": bookie_id, "cluster": CLUSTER_NAME, "rack": self._racks[bookie_id]}
        settings = write_settings(directory, defaults, self._settings)
        self._ports[bookie_id] = hold_ports(directory)
        return start_bookie(bookie_id, str(settings["rack"]), directory, self.zookeeper_of(bookie_id))

    def _start_broker(self, broker_id: str) -> BrokerEntry:
        directory = self.directory / broker_id
        defaults = {"broker_id": broker_id, "cluster": CLUSTER_NAME}
        broker_process.write_settings(directory, defaults, self._broker_settings)
        if broker_id not in self._ports:
            self._ports[broker_id] = broker_process.hold_ports(directory)
        return start_broker(broker_id, directory, self.zookeeper_of(broker_id))

    def _stop_brokers(self, entries: Iterable[BrokerEntry]) -> None:
        stop_brokers(self.directory, entries)

    def zookeeper_of(self, process_id: str) -> str:  # noqa: ARG002 - chaos gives each process its own address
        """The address of ZooKeeper for this bookie or broker."""
        return self.zookeeper.connect_string

    def stop(self) -> None:
        """Stop everything gracefully: first the brokers, which unload, then the bookies, which flush, then ZooKeeper."""
        try:
            file = self.file
            self._stop_brokers(file.brokers)
            stop_bookies(file.bookies)
        finally:
            self._let_go()

    def start_bookie(self, bookie_id: str) -> BookieEntry:
        """Start a stopped bookie; see `start_one`."""
        return start_one(self.directory, bookie_id)

    def stop_bookies(self, *bookie_ids: str) -> None:
        """Stop bookies gracefully; all of them if none is named."""
        stop_bookies(tuple(bookie for bookie in self.bookies if not bookie_ids or bookie.id in bookie_ids))

    def kill_bookie(self, bookie_id: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a bookie; after SIGKILL return once it is gone."""
        entry = self.file.bookie(bookie_id)
        send(entry, number)
        if number == signal.SIGKILL:
            wait_for_exit(entry.pid, KILL_TIMEOUT_MS)
            reap()

    def erase_bookie(self, bookie_id: str) -> None:
        """Delete the data of a stopped bookie, to simulate a lost disk."""
        erase(self.file.bookie(bookie_id))

    def start_broker(self, broker_id: str) -> BrokerEntry:
        """Start a broker: one that was stopped, or a new one. Raises ClusterError."""
        if any(entry.id == broker_id for entry in self.brokers):
            return start_one_broker(self.directory, broker_id)
        entry = self._start_broker(broker_id)
        ClusterFile.note(self.directory, entry)
        return entry

    def start_brokers(self, *broker_ids: str) -> tuple[BrokerEntry, ...]:
        """Start brokers at once; see `start_broker`."""
        return _start_all(broker_ids, self.start_broker, self._stop_brokers)

    def stop_brokers(self, *broker_ids: str) -> None:
        """Stop brokers gracefully; all of them if none is named."""
        self._stop_brokers(entry for entry in self.brokers if not broker_ids or entry.id in broker_ids)

    def signal_broker(self, broker_id: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a broker; after SIGKILL return once it is gone."""
        entry = self.file.broker(broker_id)
        broker_process.send(self.directory, entry, number)
        if number == signal.SIGKILL:
            wait_for_exit(entry.pid, KILL_TIMEOUT_MS)
            reap()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


def start_one(directory: Path, bookie_id: str) -> BookieEntry:
    """Start a bookie of the cluster in `directory` again and record it in `cluster.json`. Raises ClusterError."""
    file = ClusterFile.read(directory)
    known = file.bookie(bookie_id)
    if is_running(known):
        msg = f"bookie {bookie_id} runs already, as process {known.pid}"
        raise ClusterError(msg)
    entry = start_bookie(bookie_id, known.rack, Path(known.dir), file.zookeeper)
    ClusterFile.note(directory, entry)
    return entry


def start_one_broker(directory: Path, broker_id: str) -> BrokerEntry:
    """Start a broker of the cluster in `directory` again and record it in `cluster.json`. Raises ClusterError."""
    file = ClusterFile.read(directory)
    known = file.broker(broker_id)
    if broker_process.is_running(directory, known):
        msg = f"broker {broker_id} runs already, as process {known.pid}"
        raise ClusterError(msg)
    entry = start_broker(broker_id, directory.resolve() / broker_id, file.zookeeper)
    ClusterFile.note(directory, entry)
    return entry


def _start_all(
    ids: Iterable[str], start: Callable[[str], T], stop: Callable[[Sequence[T]], None]
) -> tuple[T, ...]:
    """Start processes at once; if one does not serve, stop the others."""
    wanted = list(ids)
    if not wanted:
        return ()
    with ThreadPoolExecutor(len(wanted)) as pool:
        starting = [pool.submit(start, each) for each in wanted]
    failures = [failure for future in starting if (failure := future.exception())]
    if failures:
        stop([future.result() for future in starting if not future.exception()])
        raise failures[0]
    return tuple(future.result() for future in starting)


async def _format(zookeeper: str) -> None:
    store = await ZooKeeperStore.open(zookeeper)
    try:
        await ensure_cluster(store, Layout(CLUSTER_NAME), created_at_ms=unix_ms())
    finally:
        await store.close()
