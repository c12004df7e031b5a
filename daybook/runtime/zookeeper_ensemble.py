"""Which ensemble a ZooKeeper server belongs to, and when it may start as one of it. For the ZooKeeper image.

The number of servers is part of what a majority is: of servers that disagree about it two majorities could decide apart.
So each one keeps the number beside its data and does not start with another, but for one server more: majorities of n
and of n + 1 servers always share one. The new server comes first, once all others serve, and so have everything that was
decided so far; then the others take the new number. A server whose disk is empty starts only once all others have told
how many they know, and whoever of them has data serves: of three, two empty ones would outvote one that still reads its
snapshot. They ask each other over HTTP, by /ensemble. Of the standard library alone, as all of that image.
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
"""The command that a person gives a server in place of the answers of others, which it would wait for in vain."""
RECORD: Final = "ensemble.json"

_ORDINAL: Final = re.compile(r"-(\d+)$")
_SERVER: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class WrongSettingsError(Exception):
    """A variable is missing or cannot be used; the message says which, and what is allowed."""


class OtherEnsembleError(WrongSettingsError):
    """The server belongs to an ensemble of another number of servers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server says of itself: how many servers it knows, whether it has not started yet, whether it serves.

    `has_data`: it knows something that was decided, and empty servers must not outvote it.
    """

    servers: int
    waits: bool = False
    serves: bool = False
    has_data: bool = False

    def to_json(self) -> str:
        """For /ensemble."""
        return json.dumps(asdict(self))


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
    """A StatefulSet of one server that is scaled up would have more servers alone, each with metadata of its own."""
    name, found = server.partition(".")[0], _ORDINAL.search(hostname)
    if found is not None and int(found[1]) > 0 and name == f"{hostname[: found.start()]}-0":
        msg = f"{hostname} is not among ZOOKEEPER_SERVERS, which is {server} alone: set the number of pods to 1 again"
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
    """The number of servers that this one's data belongs to; None: it has no data. Raises WrongSettingsError.

    Data of a release that kept no record belongs to the number that is configured.
    """
    path = settings.data_dir / RECORD
    try:
        return int(json.loads(path.read_text())["servers"])
    except FileNotFoundError:
        return settings.size if (settings.data_dir / "version-2").exists() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{path} cannot be read ({error}): the command `{ADOPT}` writes it anew, for the number that is configured"
        raise WrongSettingsError(msg) from error


def record(settings: ServerSettings) -> None:
    """Keep, durably, that this server's data belongs to the number of servers that is configured."""
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
    """Whether anything was ever decided with this server; files that cannot be read count as data.

    A server that was in a quorum has an epoch; one that was alone has none, but a log, and a restored one a snapshot.
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


def whom_to_ask(settings: ServerSettings, before: int | None) -> tuple[int, ...]:
    """The ordinals of the servers that must agree before this one starts. Raises OtherEnsembleError if it must not at all."""
    size = settings.size
    if before == size:
        return ()
    if before is not None and size != before + 1:
        msg = (
            f"this server's data belongs to an ensemble of {before} servers, and {size} are configured: two majorities could "
            f"decide apart. Set the number to {before} again; an ensemble grows by one server at a time, and does not shrink"
        )
        raise OtherEnsembleError(msg)
    return tuple(ordinal for ordinal in range(size) if ordinal != settings.ordinal)


def who_is_missing(settings: ServerSettings, before: int | None, said: Mapping[int, Answer | None]) -> str:
    """Which of the others do not agree yet, in words; "" if all do. `said`: by ordinal, None for no answer."""
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


def ask_other(host: str, port: int) -> Answer | None:
    """What another server says; None: no answer."""
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
    """Wait until this server may start; False: it is to stop. Raises OtherEnsembleError.

    A person may end the wait by the command `adopt`, which writes the record.
    """
    ordinals = whom_to_ask(settings, before)
    last = ""
    while ordinals and not stopping.is_set():
        if recorded(settings) == settings.size:
            return True
        said = {o: ask(settings.servers[o], settings.health_port) for o in ordinals}
        missing = who_is_missing(settings, before, said)
        if not missing:
            return True
        if missing != last:
            last = missing
            what = (
                "has an empty disk"
                if before is None
                else f"is to go from {before} to {settings.size} servers"
            )
            tell(f"this server {what} and waits for others: {missing}")
        stopping.wait(ASK_AGAIN_S)
    return not stopping.is_set()
