"""A cluster on this machine: a real ZooKeeper and real bookie processes in racks, for trying out, tests and benches."""

import asyncio
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from daybook.cli.bookie_process import (
    erase,
    is_running,
    reap,
    send,
    start_bookie,
    stop_bookies,
    wait_for_exit,
    write_settings,
)
from daybook.cli.cluster_file import BookieEntry, ClusterError, ClusterFile
from daybook.cli.zookeeper import EmbeddedZooKeeper
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.zookeeper import ZooKeeperStore
from daybook.runtime.clock import unix_ms

CLUSTER_NAME: Final = "local"
KILL_TIMEOUT_MS: Final = 10_000


class LocalCluster:
    """Bookies and their ZooKeeper under one directory; `with` starts and stops them.

    Data stays in the directory: a cluster that is started there again finds its ledgers.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 3,
        racks: Sequence[str] = (),
        settings: dict[str, object] | None = None,
    ) -> None:
        """`racks` are given to the bookies in turn; `settings` override those of every bookie."""
        if bookies < 1:
            msg = f"a cluster of {bookies} bookies: start at least 1"
            raise ClusterError(msg)
        self.directory = directory.resolve()
        self._racks = {f"bookie-{n}": racks[n % len(racks)] if racks else f"rack-{n}" for n in range(bookies)}
        self._settings = settings or {}
        self.zookeeper = EmbeddedZooKeeper(self.directory / "zookeeper")

    @property
    def file(self) -> ClusterFile:
        """What runs, as `cluster.json` says it."""
        return ClusterFile.read(self.directory)

    @property
    def bookies(self) -> tuple[BookieEntry, ...]:
        """The bookies, running or not."""
        return self.file.bookies

    def start(self) -> None:
        """Start everything and return once it serves. Raises ClusterError; what was started is stopped then."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._refuse_second()
        self.zookeeper.start()
        try:
            asyncio.run(_format(self.zookeeper.connect_string))
            entries = self._start_all()
        except BaseException:
            self.zookeeper.stop()
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

    def _refuse_second(self) -> None:
        try:
            running = [bookie for bookie in self.bookies if is_running(bookie)]
        except ClusterError:
            return
        if running:
            msg = f"a cluster runs in {self.directory} already (bookie {running[0].id} is process {running[0].pid})"
            raise ClusterError(msg)

    def _start(self, bookie_id: str) -> BookieEntry:
        directory = self.directory / bookie_id
        rack = self._racks[bookie_id]
        write_settings(
            directory, {"bookie_id": bookie_id, "cluster": CLUSTER_NAME, "rack": rack, **self._settings}
        )
        return start_bookie(bookie_id, rack, directory, self.zookeeper.connect_string)

    def stop(self) -> None:
        """Stop everything gracefully: bookies flush, ZooKeeper last."""
        try:
            stop_bookies(self.bookies)
        finally:
            self.zookeeper.stop()
            (self.directory / "cluster.json").unlink(missing_ok=True)

    def start_bookie(self, bookie_id: str) -> BookieEntry:
        """Start a bookie that does not run; see `start_one`."""
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
        """Delete the data of a bookie that does not run: a lost disk."""
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
    """Start a bookie of the cluster in `directory` again and note it in `cluster.json`. Raises ClusterError."""
    file = ClusterFile.read(directory)
    known = file.bookie(bookie_id)
    if is_running(known):
        msg = f"bookie {bookie_id} runs already, as process {known.pid}"
        raise ClusterError(msg)
    entry = start_bookie(bookie_id, known.rack, Path(known.dir), file.zookeeper)
    ClusterFile.read(directory).with_bookie(entry).write(directory)
    return entry


async def _format(zookeeper: str) -> None:
    store = await ZooKeeperStore.open(zookeeper)
    try:
        await ensure_cluster(store, Layout(CLUSTER_NAME), created_at_ms=unix_ms())
    finally:
        await store.close()
