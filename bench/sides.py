"""The two sides of the comparison: a cluster of each, and how a workload runs against it.

Both restart their bookies after every write that is read back, and both count the drain of their store: the time that
stopping the bookies takes beyond what stopping idle ones takes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from daybook_bookie.disk.watch import SpaceLimits, file_system

from bench.workloads import IDLE_S, Workload
from daybook.local.child import reap
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime.allocator import missing_settings

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "daybook" / "bench"
PEER: Final = Path(__file__).parent / "peer"
WORKLOAD_TIMEOUT_S: Final = 1200


class WorkloadError(Exception):
    """A workload gave no figure: its client failed, and the message has the end of what it printed, or the disk became too full."""


def check_room(directory: Path) -> None:
    """Raise WorkloadError where the disk has become so full that bookies, of whichever side, may have refused writes meanwhile.

    That is where Daybook's bookies begin to warn.
    """
    used_ratio = file_system("data", str(directory)).ratio
    if used_ratio > SpaceLimits().warn:
        msg = (
            f"the disk of {directory} is {used_ratio:.0%} full, and bookies may refuse writes: make room, "
            "or run fewer rounds, or name a folder on another disk with --data"
        )
        raise WorkloadError(msg)


class Side(ABC):
    """A system under test with `bookies` bookie processes."""

    name: str

    @abstractmethod
    def start(self, bookies: int) -> None:
        """Start everything."""

    @abstractmethod
    def stop(self) -> None:
        """Stop everything."""

    @abstractmethod
    def stop_bookies(self) -> float:
        """Stop the bookies gracefully; the seconds it took."""

    @abstractmethod
    def start_bookies(self) -> None:
        """Start the bookies again."""

    @abstractmethod
    def write(self, work: Workload) -> dict[str, Any]:
        """Run the writes of `work` in a client process."""

    @abstractmethod
    def read(self, ledger: int, work: Workload) -> dict[str, Any]:
        """Read the ledger back in a client process."""

    @abstractmethod
    def recover(self, ledger: int) -> dict[str, Any]:
        """Recover a ledger that was left open, in a client process."""

    @abstractmethod
    def create(self, work: Workload) -> dict[str, Any]:
        """Create many ledgers in a client process."""

    @abstractmethod
    def leave_open(self, work: Workload) -> dict[str, Any]:
        """Write entries into many ledgers, in a client process that ends without closing them."""

    @abstractmethod
    def recover_many(self, ledgers: Sequence[int], work: Workload) -> dict[str, Any]:
        """Recover ledgers that were left open, in a client process."""

    @abstractmethod
    def hold_open(self, work: Workload) -> dict[str, Any]:
        """Hold many ledgers open in a client process that does nothing else."""

    @abstractmethod
    def bookie_pids(self) -> list[int]:
        """The processes of the bookies."""


class DaybookSide(Side):
    """This project."""

    name = "Daybook"

    def __init__(self, directory: Path) -> None:
        """Keep data under `directory`."""
        self._directory = directory
        self._cluster: LocalCluster | None = None

    @property
    def cluster(self) -> LocalCluster:
        """The running cluster."""
        assert self._cluster is not None
        return self._cluster

    def start(self, bookies: int) -> None:
        """Start ZooKeeper and the bookies on empty directories, with the settings they have by default."""
        directory = self._directory / f"daybook-{bookies}"
        shutil.rmtree(directory, ignore_errors=True)
        self._cluster = LocalCluster(directory, bookies=bookies)
        self._cluster.start()

    def stop(self) -> None:
        """Stop the cluster."""
        self.cluster.stop()

    def stop_bookies(self) -> float:
        """Stop the bookies: they drain their write caches into the store."""
        begin = time.perf_counter()
        self.cluster.stop_bookies()
        return time.perf_counter() - begin

    def start_bookies(self) -> None:
        """Start them again, on the same data."""
        for bookie in self.cluster.bookies:
            self.cluster.start_bookie(bookie.id)

    def write(self, work: Workload) -> dict[str, Any]:
        """See bench/worker.py."""
        return self._run(
            work="write",
            size=work.entry_bytes,
            count=work.count,
            window=work.window,
            rate=work.rate_per_s,
            ledgers=work.ledgers,
            quorums=list(asdict(work.quorums).values()),
            close=work.close,
            api=work.api,
        )

    def read(self, ledger: int, work: Workload) -> dict[str, Any]:
        """See bench/worker.py."""
        return self._run(work="read", ledger_id=ledger, count=work.count)

    def recover(self, ledger: int) -> dict[str, Any]:
        """See bench/worker.py."""
        return self._run(work="recover", ledger_id=ledger)

    def create(self, work: Workload) -> dict[str, Any]:
        """See bench/many.py."""
        return self._run(work="create", ledgers=work.ledgers, quorums=list(asdict(work.quorums).values()))

    def leave_open(self, work: Workload) -> dict[str, Any]:
        """See bench/many.py."""
        quorums = list(asdict(work.quorums).values())
        return self._run(work="leave_open", ledgers=work.ledgers, entries=work.count, quorums=quorums)

    def recover_many(self, ledgers: Sequence[int], work: Workload) -> dict[str, Any]:
        """See bench/many.py."""
        return self._run(work="recover_each", ledgers=list(ledgers), entries=work.count)

    def hold_open(self, work: Workload) -> dict[str, Any]:
        """See bench/many.py."""
        return self._run(
            work="hold_open",
            ledgers=work.ledgers,
            seconds=IDLE_S,
            quorums=list(asdict(work.quorums).values()),
            bookie_pids=self.bookie_pids(),
        )

    def bookie_pids(self) -> list[int]:
        """The processes of the bookies."""
        return [bookie.pid for bookie in self.cluster.bookies]

    def _run(self, **job: Any) -> dict[str, Any]:
        zookeeper = self.cluster.zookeeper.connect_string
        command = [sys.executable, "-m", "bench.worker", zookeeper, CLUSTER_NAME, json.dumps(job)]
        # as docs/operations/settings.md advises programs that move much data; the peer's client has its own settings of memory
        return run_client(command, missing_settings())


def run_client(command: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a client process with these variables more; its last line of JSON is its result (the peer logs to the same stream)."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        timeout=WORKLOAD_TIMEOUT_S,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        tail = done.stdout.decode(errors="replace")[-2000:]
        msg = f"{' '.join(command)[:500]} ended with exit code {done.returncode}:\n{tail}"
        raise WorkloadError(msg)
    result: dict[str, Any] = json.loads(
        [line for line in done.stdout.splitlines() if line.startswith(b"{")][-1]
    )
    return result


def signal_and_wait(processes: Sequence[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    """Send a signal to processes and wait until they are gone."""
    for process in processes:
        process.send_signal(number)
    for process in processes:
        process.wait(WORKLOAD_TIMEOUT_S)
    reap()


def rss_anon_mib(pids: Sequence[int]) -> float:
    """The largest anonymous memory of the processes."""
    largest = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        largest = max(
            [largest, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))]
        )
    return largest / 1024
