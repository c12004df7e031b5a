"""The bookies of a run: started under the preloaded library, stopped in their tracks, killed, and listened to."""

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from daybook_bookie.settings import LANE_OFF

from daybook.local.bookie_process import SETTINGS_FILE, is_running, start_bookie, write_settings
from daybook.local.child import processes_with, reap, wait_for_exit
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.local.cluster_file import BookieEntry, ClusterError
from daybook.local.zookeeper import EmbeddedZooKeeper
from tests.process.chaos.powercut.disk import WatchedDirectory
from tests.process.chaos.powercut.shim import preloaded

PARTS: Final = ("journal", "store")
EXIT_WAIT_MS: Final = 10_000
SETTINGS: Final[dict[str, object]] = {
    "flush_interval_ms": 150,
    "flush_bytes": 1 << 20,
    "gc_interval_ms": 300,
    "disk_check_ms": 300,
    "drain_ms": 1000,
    "journal_file_bytes": 32 << 20,
    "store_map_bytes": 256 << 20,
    "store_page_cache_bytes": 4 << 20,
    "session_timeout_ms": 1500,
    "log_format": "json",
}
"""Much happens in little time: flushes, new journal files, collections."""
BAD_WORDS: Final = ("corrupt", "damaged")


def has_lane(seed: int, number: int) -> bool:
    """Whether bookie `number` of a run serves append streams over a lane: of three seeds one has no lane, one has some, one has all."""
    return (True, False, number % 2 == 0)[seed % 3]


class _Cluster(LocalCluster):
    """A cluster whose bookies may each have an address of their own for ZooKeeper."""

    zookeeper_hosts: Mapping[str, str] = MappingProxyType({})
    """By bookie; empty where all use the same."""

    def zookeeper_of(self, process_id: str) -> str:
        """What this bookie connects to."""
        host = self.zookeeper_hosts.get(process_id)
        return f"{host}:{self.zookeeper.port}" if host else super().zookeeper_of(process_id)


class Bookies:
    """All bookies of a cluster whose directories are watched."""

    def __init__(
        self,
        directory: Path,
        library: Path,
        count: int,
        *,
        seed: int,
        hosts: Sequence[str] = (),
        zookeeper_hosts: Sequence[str] = (),
    ) -> None:
        """Nothing runs before `running`. `hosts`: where each bookie listens, and `zookeeper_hosts`: where it reaches ZooKeeper, if not all alike.

        The seed draws which of them have a lane.
        """
        self.names = [f"bookie-{n}" for n in range(count)]
        self.cluster = _Cluster(directory, bookies=count, racks=["a", "b", "c"], settings=SETTINGS)
        self.without_lane = sum(not has_lane(seed, number) for number in range(count))
        for number, name in enumerate(self.names):
            host = hosts[number] if hosts else "127.0.0.1"
            identity = {"bookie_id": name, "cluster": CLUSTER_NAME, "rack": "abc"[number % 3]}
            lane = {} if has_lane(seed, number) else {"lane_address": LANE_OFF}
            write_settings(directory / name, {**identity, "address": f"{host}:0"}, {**SETTINGS, **lane})
        if zookeeper_hosts:
            self.cluster.zookeeper_hosts = dict(zip(self.names, zookeeper_hosts, strict=True))
            self.cluster.zookeeper = EmbeddedZooKeeper(
                self.cluster.zookeeper.directory,
                listen_on="0.0.0.0",  # of a namespace that has the loopback device alone
            )
        self._library = library
        self.disks = {
            (name, part): WatchedDirectory(directory / name / part) for name in self.names for part in PARTS
        }
        self._heard = dict.fromkeys(self.names, 0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start everything; at the end stop everything."""
        for disk in self.disks.values():
            disk.directory.parent.mkdir(parents=True, exist_ok=True)
            disk.prepare()
        with preloaded(self._library, [disk.directory for disk in self.disks.values()]):
            self.cluster.start()
            try:
                yield
            finally:
                if self.cluster.zookeeper.pid is not None:
                    self.cluster.zookeeper.resume()
                self.signal(signal.SIGCONT)
                self.kill()
                self.cluster.stop()

    def pids(self, names: Sequence[str] = ()) -> list[int]:
        """The processes of these bookies (default: all), also those that have not begun to serve."""
        root = self.cluster.directory
        return processes_with([str(root / name / SETTINGS_FILE) for name in names or self.names])

    def signal(self, number: signal.Signals, names: Sequence[str] = ()) -> None:
        """Send a signal to these bookies, as nearly at once as it goes."""
        for pid in self.pids(names):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # it ended by itself

    def kill(self, names: Sequence[str] = ()) -> None:
        """SIGKILL, after all of them stood still; returns once they are gone."""
        self.signal(signal.SIGSTOP, names)
        pids = self.pids(names)
        self.signal(signal.SIGKILL, names)
        for pid in pids:
            assert wait_for_exit(pid, EXIT_WAIT_MS), f"process {pid} survived SIGKILL"
        reap()

    def start(self, names: Sequence[str] = ()) -> None:
        """Start those of them that do not run, all at once. Raises ClusterError with what each says."""
        entries = [entry for entry in self.cluster.bookies if not is_running(entry)]
        entries = [entry for entry in entries if not names or entry.id in names]
        if not entries:
            return
        with ThreadPoolExecutor(len(entries)) as pool:
            starting = [pool.submit(self._start, entry) for entry in entries]
        file = self.cluster.file
        failures = []
        for future in starting:
            failure = future.exception()
            if failure is None:
                file = file.with_entry(future.result())
            else:
                failures.append(str(failure))
        file.write(self.cluster.directory)
        if failures:
            raise ClusterError("\n".join(failures))

    def _start(self, entry: BookieEntry) -> BookieEntry:
        return start_bookie(entry.id, entry.rack, Path(entry.dir), self.cluster.zookeeper_of(entry.id))

    def complaints(self) -> list[str]:
        """What bookies have said of corruption since the last time they were asked."""
        found = []
        for name in self.names:
            log = self.cluster.directory / name / "bookie.log"
            with log.open("rb") as file:
                file.seek(self._heard[name])
                text = file.read()
                self._heard[name] = file.tell()
            found += [
                f"{name}: {line}" for line in text.decode(errors="replace").splitlines() if _is_bad(line)
            ]
        return found


def _is_bad(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return "AssertionError" in line
    if not isinstance(record, dict) or record.get("level") not in ("error", "critical"):
        return False
    return any(word in line.lower() for word in BAD_WORDS)
