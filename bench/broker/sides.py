"""The brokers that are compared: each is started once, and serves until the end of the bench.

All replicate what they store three times with fsync on, and acknowledge it after two copies (E=3, Qw=3, Qa=2).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from bench.bookkeeper import MissingToolError, wait_for_port
from bench.broker.workloads import NULL, OURS, PEER
from bench.sides import run_client, signal_and_wait
from daybook.local.cluster import LocalCluster
from daybook.runtime.ports import HeldPort

PEER_POM: Final = Path(__file__).parent / "peer" / "pom.xml"
BROKERS: Final = 2
PROBE_TIMEOUT_S: Final = 120
PROBE_PAUSE_S: Final = 1.0
PULSAR_MEMORY: Final = ("-Xmx2g", "-XX:MaxDirectMemorySize=3g")
PULSAR_OPENS: Final = (
    "java.base/sun.net",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
)
PULSAR_SETTINGS: Final = """\
zookeeperServers=
configurationStoreServers=
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
clusterName=standalone
managedLedgerDefaultEnsembleSize=3
managedLedgerDefaultWriteQuorum=3
managedLedgerDefaultAckQuorum=2
managedLedgerMaxEntriesPerLedger=50000
journalMaxGroupWaitMSec=1
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
httpServerEnabled=false
allowAutoTopicCreation=true
webSocketServiceEnabled=false
systemTopicEnabled=false
topicLevelPoliciesEnabled=false
loadBalancerEnabled=false
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_writeCacheMaxSizeMb=128
dbStorage_readAheadCacheMaxSizeMb=64
bookkeeperUseV2WireProtocol=true
"""
"""Those that Pulsar's brokers and bookies have in production where a default is for a laptop: fsync on, a group wait of 1 ms."""


class BrokerSide(Protocol):
    """Brokers under load."""

    @property
    def name(self) -> str:
        """As reports have it."""

    @property
    def url(self) -> str:
        """Where clients connect."""

    def start(self) -> None:
        """Start everything."""

    def stop(self) -> None:
        """Stop everything."""

    def broker_pids(self) -> Sequence[int]:
        """The processes of the brokers."""


class NullSide:
    """One that does nothing."""

    name = NULL

    def __init__(self) -> None:
        self._port = HeldPort()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"pulsar://127.0.0.1:{self._port.port}"

    def start(self) -> None:
        """Start it."""
        command = [sys.executable, "-m", "bench.broker.null_broker", str(self._port.port)]
        self._process = subprocess.Popen(command)
        wait_for_port(self._port.port, self._process)

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            signal_and_wait([self._process], signal.SIGKILL)
        self._port.close()

    def broker_pids(self) -> Sequence[int]:
        """Its process."""
        return [] if self._process is None else [self._process.pid]


class DaybookSide:
    """This project: ZooKeeper, three bookies and two brokers, with the settings that they have by default."""

    name = OURS

    def __init__(self, directory: Path) -> None:
        """Keep data under `directory`."""
        self._cluster = LocalCluster(directory / "daybook", brokers=BROKERS)
        self._is_started = False

    @property
    def url(self) -> str:
        """Where clients connect: to one of them, which sends them to the owner of a topic."""
        return self._cluster.file.brokers[0].service_url

    def start(self) -> None:
        """Start the cluster."""
        self._cluster.start()
        self._is_started = True

    def stop(self) -> None:
        """Stop the cluster; one that did not start has stopped by itself."""
        if self._is_started:
            self._cluster.stop()

    def broker_pids(self) -> Sequence[int]:
        """The processes of the brokers."""
        return [broker.pid for broker in self._cluster.file.brokers]


class PulsarSide:
    """Apache Pulsar, the version that peer/pom.xml names: one JVM with a broker, its metadata and three bookies."""

    name = PEER

    def __init__(self, directory: Path, cache: Path) -> None:
        """Keep data under `directory` and jars under `cache`. Raises MissingToolError."""
        missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
        if missing:
            msg = f"{', '.join(missing)} not found: install Java 17 or newer and Maven, or leave Pulsar out with --no-peer"
            raise MissingToolError(msg)
        self._directory = directory / "pulsar"
        self._jars = _fetch(cache / "pulsar")
        self._process: subprocess.Popen[bytes] | None = None
        self._held = [HeldPort() for _ in range(3)]

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"pulsar://127.0.0.1:{self._held[0].port}"

    def start(self) -> None:
        """Start the JVM."""
        self._directory.mkdir(parents=True)
        broker, web, bookies = (held.port for held in self._held)
        config = self._directory / "standalone.conf"
        config.write_text(
            f"{PULSAR_SETTINGS}brokerServicePort={broker}\nwebServicePort={web}\n"
            f"journalDirectory={self._directory / 'journal'}\n"
        )
        opens = [part for module in PULSAR_OPENS for part in ("--add-opens", f"{module}=ALL-UNNAMED")]
        data = ["--metadata-dir", str(self._directory / "metadata")]
        data += ["--bookkeeper-dir", str(self._directory / "bookies"), "--bookkeeper-port", str(bookies)]
        program = ["org.apache.pulsar.PulsarStandaloneStarter", "-c", str(config), "--num-bookies", "3"]
        with (self._directory / "pulsar.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    *PULSAR_MEMORY,
                    *opens,
                    "-Dio.netty.tryReflectionSetAccessible=true",
                    *("-cp", f"{self._jars}/*", *program, "-nss", "-nfw", *data),
                ],
                cwd=self._directory,
                stdout=log,
                stderr=log,
            )
        wait_for_port(broker, self._process)

    def stop(self) -> None:
        """Stop it; its data is thrown away."""
        if self._process is not None:
            signal_and_wait([self._process], signal.SIGKILL)
        for held in self._held:
            held.close()

    def broker_pids(self) -> Sequence[int]:
        """The JVM, which is the bookies as well."""
        return [] if self._process is None else [self._process.pid]


def _fetch(cache: Path) -> Path:
    """Fetch the jars once; where they are."""
    library = cache / "lib"
    if not library.exists():
        partial = cache / "lib.partial"
        shutil.rmtree(partial, ignore_errors=True)
        empty = cache / "empty"
        empty.mkdir(parents=True, exist_ok=True)
        settings = cache / "settings.xml"  # Pulsar's own file names repositories beside Maven Central
        settings.write_text(
            "<settings><mirrors><mirror><id>none</id><mirrorOf>*,!central</mirrorOf>"
            f"<url>{empty.resolve().as_uri()}</url></mirror></mirrors></settings>"
        )
        shutil.copy(PEER_POM, cache / "pom.xml")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial.resolve()}"]
        command = ["mvn", "-q", "-B", "-s", str(settings), "-f", str(cache / "pom.xml"), *goal]
        subprocess.run(command, check=True)
        partial.rename(library)
    return library.resolve()


def run_load(side: BrokerSide, **job: Any) -> dict[str, float]:
    """Run one workload of load.py against `side`. Raises WorkloadError."""
    command = [sys.executable, "-m", "bench.broker.load", side.url, json.dumps(job)]
    return run_client(command)


def wait_until_it_serves(side: BrokerSide) -> None:
    """A broker that listens may still be starting: return once it has taken a message. Raises WorkloadError."""
    deadline = time.monotonic() + PROBE_TIMEOUT_S
    job = json.dumps({"work": "probe", "topic": f"probe-{os.getpid()}"})
    command = [sys.executable, "-m", "bench.broker.load", side.url, job]
    while subprocess.run(command, capture_output=True).returncode:
        if time.monotonic() > deadline:
            run_client(command)  # once more, so that its output is seen
        time.sleep(PROBE_PAUSE_S)
