"""The entry point of the ZooKeeper image: a server's configuration from variables, the server itself, and its health.

It is one file of the standard library alone, because the image has nothing else of Daybook. The server's own admin
endpoint needs libraries that the image does not have, so this process asks it by four-letter words, and answers the
kubelet over HTTP: /livez as soon as the server speaks (never dependent on a quorum: a lost quorum must not restart
those who are left), /readyz when it serves, /metrics with what `mntr` tells.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

HERE: Final = Path(__file__).resolve().parent
MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
EXIT_WRONG_SETTINGS: Final = 2
ANSWER_BYTES_MAX: Final = 1 << 20
ANSWER_TIMEOUT_S: Final = 2.0
TLS_LOOK_S: Final = 30.0
"""How often the files of TLS are looked at: whoever renews a certificate replaces them."""

_ORDINAL: Final = re.compile(r"-(\d+)$")
_SERVER: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class WrongSettingsError(Exception):
    """A variable is missing or cannot be used; the message says which, and what is allowed."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the variables ZOOKEEPER_… say."""

    servers: tuple[str, ...] = ()
    """Hosts of all servers, by ordinal; none or one: a server alone."""
    ordinal: int = 0
    data_dir: Path = Path("/data")
    run_dir: Path = Path("/tmp/zookeeper")  # noqa: S108 - the image's only writable place beside the data
    tick_ms: int = 500
    client_port: int = 2181
    quorum_port: int = 2888
    election_port: int = 3888
    health_port: int = 8080
    heap_mb: int = 256
    tls_dir: Path | None = None
    tls_port: int = 2281

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """Raises WrongSettingsError."""
        servers = tuple(
            name.strip() for name in variables.get("ZOOKEEPER_SERVERS", "").split(",") if name.strip()
        )
        for server in servers:
            if not _SERVER.fullmatch(server):
                msg = f"ZOOKEEPER_SERVERS: {server!r} is no host name; give host,host,… in the order of their ordinals"
                raise WrongSettingsError(msg)
        ordinal = 0
        if len(servers) > 1:
            found = _ORDINAL.search(variables.get("HOSTNAME", ""))
            if found is None or int(found[1]) >= len(servers):
                msg = (
                    f"HOSTNAME={variables.get('HOSTNAME', '')!r} ends with no ordinal below {len(servers)}, the number of "
                    "ZOOKEEPER_SERVERS: run the servers in a StatefulSet, and list one host for each of its pods"
                )
                raise WrongSettingsError(msg)
            ordinal = int(found[1])
        numbers = {
            name: _number(variables, f"ZOOKEEPER_{name.upper()}", low, high)
            for name, low, high in (
                ("tick_ms", 100, 60_000),
                ("heap_mb", 64, 65_536),
                *((f"{port}_port", 1, 65_535) for port in ("client", "quorum", "election", "health", "tls")),
            )
        }
        places = {
            name: Path(variables[variable])
            for name in ("data_dir", "run_dir", "tls_dir")
            if variables.get(variable := f"ZOOKEEPER_{name.upper()}")
        }
        given: dict[str, Any] = {
            **{name: value for name, value in numbers.items() if value is not None},
            **places,
        }
        return cls(servers=servers, ordinal=ordinal, **given)


def _number(variables: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    text = variables.get(name)
    if not text:
        return None
    if not text.isdecimal() or not low <= int(text) <= high:
        msg = f"{name}={text!r}: give a number from {low} to {high}"
        raise WrongSettingsError(msg)
    return int(text)


def zoo_cfg(settings: ServerSettings) -> str:
    """The server's configuration. Sessions may last from 2 to 20 ticks: 1 to 10 seconds by default."""
    lines = {
        "tickTime": settings.tick_ms,
        "initLimit": 60,  # ticks: a server that comes back may have much to read
        "syncLimit": 10,
        "dataDir": settings.data_dir,
        "clientPort": settings.client_port,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "ruok,srvr,mntr",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
    }
    if settings.tls_dir is not None:
        lines |= _tls_lines(settings, settings.tls_dir)
    if len(settings.servers) > 1:
        lines["standaloneEnabled"] = "false"
        lines["reconfigEnabled"] = "false"
        lines["quorumListenOnAllIPs"] = "true"  # a pod's name may lead to no address yet, or to its last one
        ports = f"{settings.quorum_port}:{settings.election_port}"
        lines |= {f"server.{number}": f"{host}:{ports}" for number, host in enumerate(settings.servers, 1)}
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _tls_lines(settings: ServerSettings, tls_dir: Path) -> dict[str, Any]:
    """Servers speak TLS to each other, and to clients on a port of its own; certificates are of one CA."""
    stores = {
        "keyStore.location": settings.run_dir / "keystore.pem",
        "trustStore.location": settings.run_dir / "truststore.pem",
    }
    assert tls_dir != settings.run_dir
    return {
        "secureClientPort": settings.tls_port,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.clientAuth": "need",
        "sslQuorum": "true",
        "sslQuorumReloadCertFiles": "true",
        "client.certReload": "true",
        **{f"ssl.{name}": path for name, path in stores.items()},
        **{f"ssl.quorum.{name}": path for name, path in stores.items()},
    }


def write_stores(settings: ServerSettings) -> None:
    """Make the two PEM files that ZooKeeper reads of a Secret's three. Raises WrongSettingsError."""
    assert settings.tls_dir is not None
    try:
        parts = {name: (settings.tls_dir / name).read_text() for name in ("tls.key", "tls.crt", "ca.crt")}
    except OSError as error:
        msg = (
            f"ZOOKEEPER_TLS_DIR: {error.filename}: {error.strerror}; it must hold tls.key, tls.crt and ca.crt"
        )
        raise WrongSettingsError(msg) from error
    if "BEGIN PRIVATE KEY" not in parts["tls.key"]:
        msg = "tls.key is not in PKCS#8, the one form that ZooKeeper reads: set privateKey.encoding: PKCS8"
        raise WrongSettingsError(msg)
    contents = {"keystore.pem": parts["tls.key"] + parts["tls.crt"], "truststore.pem": parts["ca.crt"]}
    for name, content in contents.items():
        path = settings.run_dir / name
        if path.exists() and path.read_text() == content:
            continue
        partial = path.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_text(content)
        partial.replace(path)


def command(settings: ServerSettings, variables: Mapping[str, str]) -> list[str]:
    """The server's command line."""
    jars = ":".join(str(jar) for jar in sorted((HERE / "jars").glob("*.jar")))
    return [
        variables.get("ZOOKEEPER_JAVA") or str(HERE / "java" / "bin" / "java"),
        "-cp",
        variables.get("ZOOKEEPER_CLASS_PATH") or jars,
        f"-Xmx{settings.heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",  # it would write outside of /tmp's volume
        "-Dsun.net.inetaddr.ttl=5",  # a pod that moved has a new address
        "-Dsun.net.inetaddr.negative.ttl=1",
        "-Dorg.apache.logging.log4j.level=INFO",
        "-Dzookeeper.preAllocSize=4096",
        MAIN,
        str(settings.run_dir / "zoo.cfg"),
    ]


def prepare(settings: ServerSettings) -> None:
    """Write what the server reads at its start."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    (settings.data_dir / "myid").write_text(f"{settings.ordinal + 1}\n")
    (settings.run_dir / "zoo.cfg").write_text(zoo_cfg(settings))
    if settings.tls_dir is not None:
        write_stores(settings)


# -- health --------------------------------------------------------------------------------------------------------


def ask(port: int, word: str) -> str:
    """What the server on this machine answers to a four-letter word; raises OSError when it does not."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as connection:
        connection.sendall(word.encode())
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (chunk := connection.recv(65_536)):
            answer += chunk
    return answer.decode(errors="replace")


def health(path: str, question: Callable[[str], str]) -> tuple[int, str]:
    """HTTP status and text for a probe's path."""
    word = {"/livez": "ruok", "/readyz": "srvr", "/metrics": "mntr"}.get(path)
    if word is None:
        return 404, "there are /livez, /readyz and /metrics\n"
    try:
        answer = question(word)
    except OSError as error:
        return 503, f"the server does not answer: {error}\n"
    if word == "mntr":
        return 200, metrics(answer)
    if word == "srvr":
        mode = re.search(r"^Mode: (\w+)$", answer, re.MULTILINE)
        return (200, f"{mode[1]}\n") if mode else (503, "the server serves nobody yet: is there a quorum?\n")
    return (200, "imok\n") if answer == "imok" else (503, f"the server answered {answer[:80]!r}\n")


def metrics(answer: str) -> str:
    """Prometheus text of `mntr`: each figure under ZooKeeper's own name, without those that are no number."""
    lines = []
    for line in answer.splitlines():
        name, _, value = line.partition("\t")
        plain, brace, labels = name.partition("{")
        try:
            float(value)
        except ValueError:
            continue
        lines.append(f"{plain}{brace}{labels} {value}\n")
    state = re.search(r"^zk_server_state\t(\w+)$", answer, re.MULTILINE)
    if state:
        lines.append(f'zk_server_state{{state="{state[1]}"}} 1\n')
    return "".join(lines)


def serve_health(settings: ServerSettings) -> ThreadingHTTPServer:
    """Answer probes in a thread of their own."""

    class Handler(BaseHTTPRequestHandler):
        """One probe."""

        def do_GET(self) -> None:
            """Answer it."""
            status, text = health(self.path, lambda word: ask(settings.client_port, word))
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - http.server's name
            """Probes come every few seconds: they are not logged."""

    server = ThreadingHTTPServer(("", settings.health_port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server


def _renew_stores(settings: ServerSettings) -> None:
    """Take renewed certificates; files that cannot be used are told, and the server goes on with those it has."""
    try:
        write_stores(settings)
    except WrongSettingsError as error:
        print(f"zookeeper: {error}", file=sys.stderr)


def main() -> int:
    """Run the server until it ends or a signal asks for it; the server's exit code, 0 after SIGTERM."""
    try:
        settings = ServerSettings.from_variables(os.environ)
        prepare(settings)
    except WrongSettingsError as error:
        print(f"zookeeper: {error}", file=sys.stderr)
        return EXIT_WRONG_SETTINGS
    stopping = threading.Event()
    process = subprocess.Popen(command(settings, os.environ))  # noqa: S603 - our own command, no shell

    def stop(*_: object) -> None:
        stopping.set()
        process.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    probes = serve_health(settings)
    while True:
        try:
            code = process.wait(TLS_LOOK_S)
        except subprocess.TimeoutExpired:
            if settings.tls_dir is not None:
                _renew_stores(settings)
            continue
        probes.shutdown()
        return 0 if stopping.is_set() else code or 1


if __name__ == "__main__":
    sys.exit(main())
