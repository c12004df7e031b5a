"""Which ensemble a ZooKeeper server belongs to, and when it may start as one of it. For the ZooKeeper image.

The number of servers defines what a majority is: if servers disagree about it, two majorities could decide independently.
So each server stores the number beside its data and does not start with another number, except with one server more:
majorities of n and of n + 1 servers always share a server. The new server starts first, once all others serve, and so have
everything that was decided so far; then the others adopt the new number. A server whose disk is empty starts only once all
others have reported their number, and each of them that has data serves: of three servers, two empty ones would outvote
one that still reads its snapshot. The servers ask each other over HTTP, at /ensemble. This module uses the standard library
alone, as everything in that image does.
"""

import json
import os
import re
import threading
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

ANSWER_TIMEOUT_S: Final = 2.0
ASK_AGAIN_S: Final = 1.0
ADOPT: Final = "adopt"
"""The command by which a person ends a server's wait for the answers of others."""
RECORD: Final = "ensemble.json"

_ORDINAL: Final = re.compile(r"-(\d+)$")
_SERVER: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class WrongSettingsError(Exception):
    """A variable is missing or invalid; the message names it and the allowed values."""


class OtherEnsembleError(WrongSettingsError):
    """The server's data belongs to an ensemble with another number of servers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server reports about itself: its number of servers, whether it waits to start, whether it serves.

    `has_data`: it has taken part in decisions, and empty servers must not outvote it.
    """

    servers: int
    waits: bool = False
    serves: bool = False
    has_data: bool = False

    def to_json(self) -> str:
        """The body of /ensemble."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The values of the variables ZOOKEEPER_…."""

    servers: tuple[str, ...] = ()
    """Hosts of all servers, by ordinal; none or one: a standalone server."""
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

    @property
    def size(self) -> int:
        """The number of servers of the ensemble."""
        return max(1, len(self.servers))

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """Raises WrongSettingsError."""
        servers = tuple(
            name.strip() for name in variables.get("ZOOKEEPER_SERVERS", "").split(",") if name.strip()
        )
        for server in servers:
            if not _SERVER.fullmatch(server):
                msg = f"ZOOKEEPER_SERVERS: {server!r} is not a host name; give host,host,… in the order of their ordinals"
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
        elif servers:
            _refuse_a_second(servers[0], variables.get("HOSTNAME", ""))
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


def _refuse_a_second(server: str, hostname: str) -> None:
    """Scaling up a StatefulSet of one standalone server would start more standalone servers, each with its own metadata."""
    name, found = server.partition(".")[0], _ORDINAL.search(hostname)
    if found is not None and int(found[1]) > 0 and name == f"{hostname[: found.start()]}-0":
        msg = f"{hostname} is not among ZOOKEEPER_SERVERS, which contains only {server}: set the number of pods to 1 again"
        raise WrongSettingsError(msg)


def _number(variables: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    text = variables.get(name)
    if not text:
        return None
    if not text.isdecimal() or not low <= int(text) <= high:
        msg = f"{name}={text!r}: give a number from {low} to {high}"
        raise WrongSettingsError(msg)
    return int(text)


def recorded(settings: ServerSettings) -> int | None:
    """The number of servers of the ensemble that this server's data belongs to; None: no data. Raises WrongSettingsError.

    Data of a release without records belongs to the configured number.
    """
    path = settings.data_dir / RECORD
    try:
        return int(json.loads(path.read_text())["servers"])
    except FileNotFoundError:
        return settings.size if (settings.data_dir / "version-2").exists() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{path} cannot be read ({error}): the command `{ADOPT}` writes it again, for the configured number"
        raise WrongSettingsError(msg) from error


def record(settings: ServerSettings) -> None:
    """Record durably that this server's data belongs to the configured number of servers."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    path = settings.data_dir / RECORD
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write(json.dumps({"formatVersion": 1, "servers": settings.size}))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(settings.data_dir, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def has_data(settings: ServerSettings) -> bool:
    """Whether this server ever took part in a decision; unreadable files count as data.

    A server that was in a quorum has an epoch; a standalone server has no epoch but a log, and a restored one a snapshot.
    """
    folder = settings.data_dir / "version-2"
    try:
        if int((folder / "currentEpoch").read_text()) > 0:
            return True
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        return True
    return any(any(folder.glob(pattern)) for pattern in ("log.*", "snapshot.[1-9a-f]*"))


def servers_to_ask(settings: ServerSettings, before: int | None) -> tuple[int, ...]:
    """The ordinals of the servers that must agree before this one starts. Raises OtherEnsembleError if it must not start."""
    size = settings.size
    if before == size:
        return ()
    if before is not None and size != before + 1:
        msg = (
            f"this server's data belongs to an ensemble of {before} servers, and {size} are configured: two majorities could "
            f"decide independently. Set the number to {before} again; an ensemble grows by one server at a time, and does not shrink"
        )
        raise OtherEnsembleError(msg)
    return tuple(ordinal for ordinal in range(size) if ordinal != settings.ordinal)


def missing_answers(settings: ServerSettings, before: int | None, said: Mapping[int, Answer | None]) -> str:
    """The other servers that do not agree yet, as text; "" if all do. `said`: by ordinal, None for no answer."""
    words = []
    for ordinal, answer in sorted(said.items()):
        if why := _why_not(settings, before, ordinal, answer):
            words.append(f"{settings.servers[ordinal]} {why}")
    return "; ".join(words)


def _why_not(settings: ServerSettings, before: int | None, ordinal: int, answer: Answer | None) -> str:
    size = settings.size
    if answer is None:
        return "does not answer"
    if before is None:
        if (answer.has_data or answer.servers == size - 1) and not answer.serves:
            return "has data and does not serve"
        return "" if answer.servers in {size, size - 1} else f"is one of {answer.servers}"
    if ordinal == size - 1:
        return "has not started" if answer.waits or answer.servers != size else ""
    return "" if answer.servers in {size, before} else f"is one of {answer.servers}"


def ask_server(host: str, port: int) -> Answer | None:
    """The report of another server; None: no answer."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/ensemble", timeout=ANSWER_TIMEOUT_S) as reply:
            found = json.loads(reply.read(1024))
            return Answer(
                int(found["servers"]),
                waits=bool(found["waits"]),
                serves=bool(found["serves"]),
                has_data=bool(found.get("has_data", False)),
            )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def wait_for_others(
    settings: ServerSettings,
    before: int | None,
    ask: Callable[[str, int], Answer | None],
    stopping: threading.Event,
    tell: Callable[[str], None],
) -> bool:
    """Wait until this server may start; False if it must stop. Raises OtherEnsembleError.

    A person can end the wait with the command `adopt`, which writes the record.
    """
    ordinals = servers_to_ask(settings, before)
    last = ""
    while ordinals and not stopping.is_set():
        if recorded(settings) == settings.size:
            return True
        said = {o: ask(settings.servers[o], settings.health_port) for o in ordinals}
        missing = missing_answers(settings, before, said)
        if not missing:
            return True
        if missing != last:
            last = missing
            what = (
                "has an empty disk"
                if before is None
                else f"will change from {before} to {settings.size} servers"
            )
            tell(f"this server {what} and waits for others: {missing}")
        stopping.wait(ASK_AGAIN_S)
    return not stopping.is_set()
