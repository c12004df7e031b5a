"""The entry point of the ZooKeeper image: a server's configuration from variables, the server itself, and its health.

This module and `zookeeper_ensemble` use the standard library alone, because the image contains nothing else of Daybook. The
server's own admin endpoint needs libraries that the image lacks, so this process queries the server by four-letter words,
and answers the kubelet over HTTP: /livez as soon as the server answers (independent of a quorum: the loss of the quorum
must not restart the remaining servers), /readyz when it serves, /metrics with the figures of `mntr`.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from daybook.runtime.zookeeper_ensemble import (
    ADOPT,
    ANSWER_TIMEOUT_S,
    Answer,
    ServerSettings,
    WrongSettingsError,
    ask_server,
    has_data,
    record,
    recorded,
    servers_to_ask,
    wait_for_others,
)

HERE: Final = Path(__file__).resolve().parent
MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
EXIT_WRONG_SETTINGS: Final = 2
ANSWER_BYTES_MAX: Final = 1 << 20
TLS_LOOK_S: Final = 30.0
"""The interval between checks of the TLS files, which a renewal of the certificate replaces."""


def zoo_cfg(settings: ServerSettings) -> str:
    """The server's configuration. Sessions may last from 2 to 20 ticks: 1 to 10 seconds by default."""
    lines = {
        "tickTime": settings.tick_ms,
        "initLimit": 60,  # ticks: a server that restarts may have much to read
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
        lines["quorumListenOnAllIPs"] = (
            "true"  # a pod's name may have no address yet, or still its previous one
        )
        ports = f"{settings.quorum_port}:{settings.election_port}"
        lines |= {f"server.{number}": f"{host}:{ports}" for number, host in enumerate(settings.servers, 1)}
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _tls_lines(settings: ServerSettings, tls_dir: Path) -> dict[str, Any]:
    """Servers use TLS among each other, and for clients on a separate port; one CA signs all certificates."""
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
    """Write the two PEM files that ZooKeeper reads, from the three of a Secret. Raises WrongSettingsError."""
    assert settings.tls_dir is not None
    try:
        parts = {name: (settings.tls_dir / name).read_text() for name in ("tls.key", "tls.crt", "ca.crt")}
    except OSError as error:
        msg = f"ZOOKEEPER_TLS_DIR: {error.filename}: {error.strerror}; it must contain tls.key, tls.crt and ca.crt"
        raise WrongSettingsError(msg) from error
    if "BEGIN PRIVATE KEY" not in parts["tls.key"]:
        msg = "tls.key is not in PKCS#8, the only form that ZooKeeper reads: set privateKey.encoding: PKCS8"
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
        "-XX:-UsePerfData",  # it would write outside the volume of /tmp
        "-Dsun.net.inetaddr.ttl=5",  # a pod that has moved has a new address
        "-Dsun.net.inetaddr.negative.ttl=1",
        "-Dorg.apache.logging.log4j.level=INFO",
        "-Dzookeeper.preAllocSize=4096",
        MAIN,
        str(settings.run_dir / "zoo.cfg"),
    ]


def prepare(settings: ServerSettings) -> None:
    """Write the files that the server reads at its start."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    (settings.data_dir / "myid").write_text(f"{settings.ordinal + 1}\n")
    (settings.run_dir / "zoo.cfg").write_text(zoo_cfg(settings))
    if settings.tls_dir is not None:
        write_stores(settings)


# -- health --------------------------------------------------------------------------------------------------------


def ask(port: int, word: str) -> str:
    """The answer of the server on this machine to a four-letter word. Raises OSError if there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as connection:
        connection.sendall(word.encode())
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (chunk := connection.recv(65_536)):
            answer += chunk
    return answer.decode(errors="replace")


def health(path: str, question: Callable[[str], str]) -> tuple[int, str]:
    """HTTP status and text for the path of a probe."""
    word = {"/livez": "ruok", "/readyz": "srvr", "/metrics": "mntr"}.get(path)
    if word is None:
        return 404, "the paths are /livez, /readyz, /metrics and /ensemble\n"
    try:
        answer = question(word)
    except OSError as error:
        return 503, f"the server does not answer: {error}\n"
    if word == "mntr":
        return 200, metrics(answer)
    if word == "srvr":
        mode = re.search(r"^Mode: (\w+)$", answer, re.MULTILINE)
        return (200, f"{mode[1]}\n") if mode else (503, "the server does not serve yet: is there a quorum?\n")
    return (200, "imok\n") if answer == "imok" else (503, f"the server answered {answer[:80]!r}\n")


def metrics(answer: str) -> str:
    """Prometheus text of `mntr`: each number under ZooKeeper's own name, without values that are not numbers."""
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


@dataclass(slots=True)
class Standing:
    """The state of this server, for probes and other servers. `waits`: what it waits for before it starts."""

    servers: int
    waits: str = ""
    has_data: Callable[[], bool] = lambda: False


def answer(
    path: str,
    standing: Standing,
    question: Callable[[str], str],
    others: Callable[[], Sequence[Answer | None]] = tuple,
) -> tuple[int, str]:
    """HTTP status and text for a path. `others` queries the other servers."""
    if path == "/ensemble":
        serves = not standing.waits and health("/readyz", question)[0] == HTTPStatus.OK
        return 200, Answer(standing.servers, bool(standing.waits), serves, standing.has_data()).to_json()
    if standing.waits and path in {"/livez", "/readyz"}:
        return (200 if path == "/livez" else 503), f"{standing.waits}\n"
    status, text = health(path, question)
    if path == "/readyz" and status != HTTPStatus.OK:
        fewer = [each for each in others() if each is not None and each.servers == standing.servers - 1]
        if fewer:  # it serves once a majority has the new number, and a roll continues only when this server is ready
            return (
                HTTPStatus.OK,
                f"it waits for {len(fewer)} servers that do not have the number {standing.servers} yet\n",
            )
    return status, text


def serve_health(settings: ServerSettings, standing: Standing) -> ThreadingHTTPServer:
    """Answer probes in a separate thread."""

    class Handler(BaseHTTPRequestHandler):
        """One probe."""

        def do_GET(self) -> None:
            """Answer it."""
            status, text = answer(
                self.path,
                standing,
                lambda word: ask(settings.client_port, word),
                lambda: [
                    ask_server(host, settings.health_port)
                    for ordinal, host in enumerate(settings.servers)
                    if ordinal != settings.ordinal
                ],
            )
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - http.server's name
            """Log nothing: probes come every few seconds."""

    server = ThreadingHTTPServer(("", settings.health_port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server


def _renew_stores(settings: ServerSettings) -> None:
    """Use renewed certificates; report unusable files, and keep the present ones then."""
    try:
        write_stores(settings)
    except WrongSettingsError as error:
        print(f"zookeeper: {error}", file=sys.stderr)


def main(arguments: Sequence[str] = ()) -> int:
    """Run the server until it ends or a signal stops it; return its exit code, 0 after SIGTERM."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        settings = ServerSettings.from_variables(os.environ)
        if list(arguments) == [ADOPT]:
            record(settings)
            return 0
        before = recorded(settings)
        waits = "it starts" if servers_to_ask(settings, before) else ""
        known = settings.size if before is None else before
        standing = Standing(known, waits, lambda: has_data(settings))
        probes = serve_health(settings, standing)
        if not _begin(settings, before, standing, stopping):
            return 0
    except WrongSettingsError as error:
        print(f"zookeeper: {error}", file=sys.stderr)
        return EXIT_WRONG_SETTINGS
    return _run(settings, probes, stopping)


def _begin(
    settings: ServerSettings, before: int | None, standing: Standing, stopping: threading.Event
) -> bool:
    """Everything before the start of the server; False if this process must stop."""

    def said(words: str) -> None:
        standing.waits = words
        print(f"zookeeper: {words}", file=sys.stderr, flush=True)

    if not wait_for_others(settings, before, ask_server, stopping, said):
        return False
    record(settings)
    prepare(settings)
    standing.servers, standing.waits = settings.size, ""
    return True


def _run(settings: ServerSettings, probes: ThreadingHTTPServer, stopping: threading.Event) -> int:
    process = subprocess.Popen(command(settings, os.environ))  # noqa: S603 - our own command, no shell

    def stop(*_: object) -> None:
        stopping.set()
        process.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if stopping.is_set():
        process.terminate()
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
    sys.exit(main(sys.argv[1:]))
