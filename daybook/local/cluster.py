"""A cluster on this machine: a real ZooKeeper and real bookie processes in racks, for first steps, tests and benchmarks."""

import asyncio
import fcntl
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from daybook.local.bookie_process import (
    SETTINGS_FILE,
    erase,
    hold_ports,
    is_running,
    processes_with,
    reap,
    send,
    start_bookie,
    stop_bookies,
    wait_for_exit,
    write_settings,
)
from daybook.local.cluster_file import CLUSTER_FILE, BookieEntry, ClusterError, ClusterFile
from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.runtime.clock import unix_ms
from daybook.runtime.ports import HeldPort

CLUSTER_NAME: Final = "local"
KILL_TIMEOUT_MS: Final = 10_000


class LocalCluster:
    """Bookies and their ZooKeeper under one directory; `with` starts and stops them.

    Data stays in the directory: a cluster that starts there again has its ledgers, and starts all bookies that were there
    before. One cluster at a time runs in a directory. A running cluster holds its ports, also those of a stopped bookie.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 3,
        racks: Sequence[str] = (),
        settings: dict[str, object] | None = None,
    ) -> None:
        """`racks` are assigned to the bookies in turn; `settings` override those of every bookie."""
        if bookies < 1:
            msg = f"a cluster of {bookies} bookies: start at least 1"
            raise ClusterError(msg)
        self.directory = directory.resolve()
        known = sum(1 for _ in self.directory.glob(f"bookie-*/{SETTINGS_FILE}"))
        names = [f"bookie-{n}" for n in range(max(bookies, known))]
        self._racks = {name: racks[n % len(racks)] if racks else f"rack-{n}" for n, name in enumerate(names)}
        self._settings = settings or {}
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

    def start(self) -> None:
        """Start everything and return once it serves. Raises ClusterError, after it has stopped what it started."""
        self._take_directory()
        try:
            self._stop_leftovers()
            self.zookeeper.start()
            asyncio.run(_format(self.zookeeper.connect_string))
            entries = self._start_all()
        except BaseException:
            self._let_go()
            raise
        ClusterFile(self.zookeeper.connect_string, CLUSTER_NAME, entries).write(self.directory)

    def _start_all(self) -> tuple[BookieEntry, ...]:
        """Start every bookie at once; if one does not serve, stop the others."""
        with ThreadPoolExecutor(len(self._racks)) as pool:
            starting = [pool.submit(self._start, bookie_id) for bookie_id in self._racks]
        failures = [failure for future in starting if (failure := future.exception())]
        if failures:
            stop_bookies(tuple(future.result() for future in starting if not future.exception()))
            raise failures[0]
        return tuple(future.result() for future in starting)

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
        settings = [str(file) for file in self.directory.glob(f"*/{SETTINGS_FILE}")]
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

    def zookeeper_of(self, bookie_id: str) -> str:  # noqa: ARG002 - chaos gives each bookie its own address
        """The address of ZooKeeper for this bookie."""
        return self.zookeeper.connect_string

    def stop(self) -> None:
        """Stop everything gracefully: first the bookies, which flush, then ZooKeeper."""
        try:
            stop_bookies(self.bookies)
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


async def _format(zookeeper: str) -> None:
    store = await ZooKeeperStore.open(zookeeper)
    try:
        await ensure_cluster(store, Layout(CLUSTER_NAME), created_at_ms=unix_ms())
    finally:
        await store.close()
