"""Apache BookKeeper as a side of the comparison: its jars from Maven Central, one ZooKeeper, bookies with fsync on.

The settings are those of a fair opponent: DbLedgerStorage (what Pulsar runs), a journal group wait of 1 ms, 128 MiB
caches, 1 GiB of heap and as much direct memory for each bookie.
"""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.sides import PEER, Side, run_client, signal_and_wait
from bench.workloads import IDLE_S, Workload
from daybook.runtime.ports import HeldPort

START_TIMEOUT_S: Final = 90
ADDS_IN_PROGRESS_MAX: Final = 8000
"""Where a bookie stops reading more from its clients. With Qa < Qw the window does not bound what the slowest bookie is
sent, and at 10,000 waiting adds a bookie refuses; the client, with no spare bookie, then gives the ledger up.
"""
HEAP: Final = ("-Xmx1g", "-XX:MaxDirectMemorySize=1g")


class MissingToolError(Exception):
    """The peer cannot run here; the message says what to install."""


class BookKeeperSide(Side):
    """Apache BookKeeper, the version that bench/peer/pom.xml names."""

    name = "BookKeeper"

    def __init__(self, directory: Path, cache: Path) -> None:
        """Keep data under `directory`, jars and classes under `cache`. Raises MissingToolError."""
        missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
        if missing:
            msg = f"{', '.join(missing)} not found: install a JDK 17 or newer and Maven to measure against BookKeeper"
            raise MissingToolError(msg)
        self._directory = directory / "bookkeeper"
        self._jars = self._build(cache)
        self._zookeeper: subprocess.Popen[bytes] | None = None
        self._bookies: list[subprocess.Popen[bytes]] = []
        self._held: list[HeldPort] = []
        self._ports: list[int] = []

    def _build(self, cache: Path) -> str:
        """Fetch the jars and compile the client, once; the class path."""
        library = cache / "lib"
        if not library.exists():
            partial = cache / "lib.partial"
            shutil.rmtree(partial, ignore_errors=True)
            cache.mkdir(parents=True, exist_ok=True)
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial.resolve()}"]
            subprocess.run(["mvn", "-q", "-B", "-f", str(PEER / "pom.xml"), *goal], check=True)
            partial.rename(library)
        subprocess.run(
            ["javac", "-cp", f"{library}/*", "-d", str(cache), str(PEER / "PeerBench.java")], check=True
        )
        return f"{library}/*:{cache}"

    def start(self, bookies: int) -> None:
        """Start ZooKeeper, format it, start the bookies on empty directories."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._held = [HeldPort() for _ in range(1 + bookies)]
        zookeeper_port, *self._ports = (held.port for held in self._held)
        self._address = f"127.0.0.1:{zookeeper_port}"
        config = self._directory / "zoo.cfg"
        config.write_text(
            f"tickTime=2000\ndataDir={self._directory / 'zk'}\nclientPort={zookeeper_port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._zookeeper = self._java("zookeeper", "-Xmx256m", main, str(config))
        wait_for_port(zookeeper_port, self._zookeeper)
        for number, port in enumerate(self._ports):
            self._configure(number, port)
        shell = [
            "org.apache.bookkeeper.bookie.BookieShell",
            "-conf",
            str(self._config(0)),
            "metaformat",
            "-n",
            "-f",
        ]
        with (self._directory / "format.log").open("wb") as log:
            subprocess.run(["java", "-cp", self._jars, *shell], stdout=log, stderr=log, check=True)
        self.start_bookies()

    def _config(self, number: int) -> Path:
        return self._directory / f"bookie-{number}.conf"

    def _configure(self, number: int, port: int) -> None:
        data = self._directory / f"bookie-{number}"
        settings = {
            "bookiePort": port,
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "advertisedAddress": "127.0.0.1",
            "metadataServiceUri": f"zk+hierarchical://{self._address}/ledgers",
            "journalDirectories": data / "journal",
            "ledgerDirectories": data / "ledgers",
            "indexDirectories": data / "ledgers",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "journalMaxGroupWaitMSec": 1,
            "dbStorage_writeCacheMaxSizeMb": 128,
            "dbStorage_readAheadCacheMaxSizeMb": 128,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "maxAddsInProgressLimit": ADDS_IN_PROGRESS_MAX,
            "httpServerEnabled": "false",
        }
        self._config(number).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def start_bookies(self) -> None:
        """Start the bookies and wait until they listen."""
        main = "org.apache.bookkeeper.server.Main"
        self._bookies = [
            self._java(f"bookie-{number}", *HEAP, main, "-c", str(self._config(number)))
            for number in range(len(self._ports))
        ]
        for port, process in zip(self._ports, self._bookies, strict=True):
            wait_for_port(port, process)

    def stop_bookies(self) -> float:
        """Stop the bookies: they flush their ledger storage."""
        begin = time.perf_counter()
        signal_and_wait(self._bookies, signal.SIGTERM)
        return time.perf_counter() - begin

    def stop(self) -> None:
        """Stop bookies and ZooKeeper."""
        assert self._zookeeper is not None
        signal_and_wait([bookie for bookie in self._bookies if bookie.poll() is None], signal.SIGTERM)
        signal_and_wait([self._zookeeper], signal.SIGTERM)
        while self._held:
            self._held.pop().close()

    def write(self, work: Workload) -> dict[str, Any]:
        """See bench/peer/PeerBench.java."""
        numbers = (work.entry_bytes, work.count, work.window, work.rate_per_s, work.ledgers)
        return self._client("write", *map(str, numbers), *work.quorums.args(), "1" if work.close else "0")

    def read(self, ledger: int, work: Workload) -> dict[str, Any]:
        """See bench/peer/PeerBench.java."""
        return self._client("read", str(ledger), str(work.count))

    def recover(self, ledger: int) -> dict[str, Any]:
        """See bench/peer/PeerBench.java."""
        return self._client("recover", str(ledger))

    def create(self, work: Workload) -> dict[str, Any]:
        """See bench/peer/PeerBench.java."""
        return self._client("create", str(work.ledgers), *work.quorums.args())

    def leave_open(self, work: Workload) -> dict[str, Any]:
        """See bench/peer/PeerBench.java."""
        return self._client("leave_open", str(work.ledgers), str(work.count), *work.quorums.args())

    def recover_many(self, ledgers: Sequence[int], work: Workload) -> dict[str, Any]:
        """See bench/peer/PeerBench.java."""
        return self._client("recover_each", ",".join(map(str, ledgers)), str(work.count))

    def hold_open(self, work: Workload) -> dict[str, Any]:
        """See bench/peer/PeerBench.java."""
        pids = ",".join(map(str, self.bookie_pids()))
        return self._client("hold_open", str(work.ledgers), str(int(IDLE_S)), *work.quorums.args(), pids)

    def bookie_pids(self) -> list[int]:
        """The processes of the bookies."""
        return [bookie.pid for bookie in self._bookies]

    def _client(self, work: str, *args: str) -> dict[str, Any]:
        return run_client(["java", *HEAP, "-cp", self._jars, "PeerBench", work, self._address, *args])

    def _java(self, name: str, *args: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(["java", "-cp", self._jars, *args], stdout=log, stderr=log)


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return once somebody listens on `port`; raise RuntimeError if `process` ends or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    msg = f"nothing listens on port {port} (process {process.args!r}, exit code {process.poll()})"
    raise RuntimeError(msg)
