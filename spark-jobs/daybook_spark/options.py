"""Every option of reading and writing, in one typed place.

Spark logs options and shows them in its UI, so none of them may be a secret: passwords come from files and from the environment, and
an option that looks like one is refused without showing its value. A name that does not exist is refused with the nearest one that
does, because a misspelt `endTime` that nobody notices reads everything.
"""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from daybook.core.errors import DaybookError
from daybook.core.topics.ledger_list import Position

T = TypeVar("T")

PARTITION_BYTES: Final = 64 * 1024 * 1024
"""How much one task reads unless the user sets another size."""


class OptionError(DaybookError, ValueError):
    """An option that does not exist, has a value that it cannot have, or lacks another one."""


class Kind(NamedTuple):
    """An option: for whom it is, and how its text is read."""

    parse: Callable[[str], Any]
    reads: bool = True
    streams: bool = True
    writes: bool = False


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            msg = f"at least {least}"
            raise ValueError(msg)
        return value

    return parse


def _size(text: str) -> int:
    """Bytes, also as 64k, 64m or 1g."""
    factor = {"k": 2**10, "m": 2**20, "g": 2**30}.get(text[-1:].lower(), 1)
    return _whole(1)(text[:-1] if factor > 1 else text) * factor


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(" or ".join(names))
        return text.lower()

    return parse


def _time_ms(text: str) -> int:
    """Milliseconds since 1970, or a date and time of ISO 8601, in UTC unless it says otherwise."""
    if text.lstrip("-").isdigit():
        return int(text)
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise ValueError("at least one name")
    return found


def _ledgers(text: str) -> tuple[int, ...]:
    return tuple(sorted({_whole(0)(part) for part in _names(text)}))


OPTIONS: Final[Mapping[str, Kind]] = {
    "zookeeper": Kind(str, writes=True),
    "cluster": Kind(str, writes=True),
    "tlsCa": Kind(Path, writes=True),
    "tlsCertificate": Kind(Path, writes=True),
    "tlsKey": Kind(Path, writes=True),
    "ledger": Kind(_ledgers, streams=False),
    "topic": Kind(_names, writes=True),
    "namespace": Kind(_names),
    "mode": Kind(_one_of("fail", "permissive")),
    "partitionBytes": Kind(_size),
    "pushdown": Kind(_flag, streams=False),
    "startTime": Kind(_time_ms),
    "endTime": Kind(_time_ms, streams=False),
    "start": Kind(Position.parse, streams=False),
    "end": Kind(Position.parse, streams=False),
    "startingPosition": Kind(_one_of("earliest", "latest"), reads=False),
    "maxBytesPerTrigger": Kind(_size, reads=False),
    "maxEntriesPerTrigger": Kind(_whole(1), reads=False),
    "failOnDataLoss": Kind(_flag, reads=False),
    "subscription": Kind(str, reads=False),
    "manifest": Kind(str, streams=False, writes=True),
    "ensembleSize": Kind(_whole(1), reads=False, streams=False, writes=True),
    "writeQuorum": Kind(_whole(1), reads=False, streams=False, writes=True),
    "ackQuorum": Kind(_whole(1), reads=False, streams=False, writes=True),
    "serviceUrl": Kind(str, reads=False, streams=False, writes=True),
}
"""By their names; upper and lower case do not matter."""

_SECRET: Final = ("password", "token", "secret", "credential", "digest")


@dataclass(frozen=True, slots=True)
class Where:
    """A cluster, and the files with which its processes are reached."""

    zookeeper: str
    cluster: str = "daybook"
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a query reads. Exactly one of `ledgers`, `manifest`, `topics` and `namespaces` is not empty."""

    where: Where
    ledgers: tuple[int, ...] = ()
    manifest: str = ""
    """The name of what jobs wrote."""
    topics: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    is_permissive: bool = False
    """Whether an entry that is no message becomes a row that says why, instead of an error."""
    partition_bytes: int = PARTITION_BYTES
    pushdown: bool = False
    """Whether the reader takes Spark's filters, which the session has to allow as well."""
    start_time_ms: int | None = None
    """Of publishing: messages from then on."""
    end_time_ms: int | None = None
    """Messages before then."""
    start: Position | None = None
    end: Position | None = None
    """Entries before it."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a streaming query has beside `ReadOptions`."""

    read: ReadOptions
    is_from_latest: bool = False
    bytes_max: int | None = None
    entries_max: int | None = None
    fails_on_data_loss: bool = True
    subscription: str = ""


class Password:
    """The password of ledgers, from the file that DAYBOOK_PASSWORD_FILE names, else from DAYBOOK_PASSWORD."""

    @staticmethod
    def read() -> bytes:
        """The password; empty for none. Raises OptionError for a file that cannot be read."""
        file = os.environ.get("DAYBOOK_PASSWORD_FILE")
        if not file:
            return os.environ.get("DAYBOOK_PASSWORD", "").encode()
        try:
            return Path(file).read_bytes().rstrip(b"\r\n")
        except OSError as error:
            msg = f"the file {file} that DAYBOOK_PASSWORD_FILE names cannot be read: {error.strerror}"
            raise OptionError(msg) from error


@dataclass(slots=True)
class _Given:
    """The options of one call."""

    values: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: T) -> T:
        found: T = self.values.get(name, default)
        return found


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.read`. Raises OptionError."""
    return _read_options(_given(options, "spark.read", lambda kind: kind.reads))


def parse_stream(options: Mapping[str, str]) -> StreamOptions:
    """The options of `spark.readStream`. Raises OptionError."""
    given = _given(options, "spark.readStream", lambda kind: kind.streams)
    if given.values.keys() >= {"startTime", "startingPosition"}:
        msg = "startTime and startingPosition both say where a query begins: give one of them"
        raise OptionError(msg)
    return StreamOptions(
        _read_options(given),
        is_from_latest=given.get("startingPosition", "earliest") == "latest",
        bytes_max=given.get("maxBytesPerTrigger", None),
        entries_max=given.get("maxEntriesPerTrigger", None),
        fails_on_data_loss=given.get("failOnDataLoss", True),
        subscription=given.get("subscription", ""),
    )


def _read_options(given: _Given) -> ReadOptions:
    sources = [name for name in ("ledger", "manifest", "topic", "namespace") if name in given.values]
    if len(sources) != 1:
        found = " and ".join(sources) or "none of them"
        msg = f"what to read? Give one of the options topic, namespace, ledger and manifest (found: {found})"
        raise OptionError(msg)
    of_messages = [name for name in ("startTime", "endTime", "mode") if name in given.values]
    if of_messages and sources[0] in ("ledger", "manifest"):
        msg = f"option {of_messages[0]} is for messages, and {sources[0]} reads entries as they are stored: leave it out, or read the topic"
        raise OptionError(msg)
    return ReadOptions(
        where_of(given.values),
        ledgers=given.get("ledger", ()),
        manifest=given.get("manifest", ""),
        topics=given.get("topic", ()),
        namespaces=given.get("namespace", ()),
        is_permissive=given.get("mode", "fail") == "permissive",
        partition_bytes=given.get("partitionBytes", PARTITION_BYTES),
        pushdown=given.get("pushdown", False),
        start_time_ms=given.get("startTime", None),
        end_time_ms=given.get("endTime", None),
        start=given.get("start", None),
        end=given.get("end", None),
    )


def where_of(values: Mapping[str, Any]) -> Where:
    """The cluster that parsed options name, else the environment. Raises OptionError."""

    def path(name: str, variable: str) -> Path | None:
        found = values.get(name)
        text = os.environ.get(variable, "")
        return found or (Path(text) if text else None)

    zookeeper = values.get("zookeeper") or os.environ.get("DAYBOOK_ZOOKEEPER")
    if not zookeeper:
        msg = "which cluster? Give the option zookeeper, host:port[,host:port…], or set DAYBOOK_ZOOKEEPER"
        raise OptionError(msg)
    cluster = values.get("cluster") or os.environ.get("DAYBOOK_CLUSTER") or "daybook"
    return Where(
        zookeeper,
        cluster,
        path("tlsCa", "DAYBOOK_TLS_CA"),
        path("tlsCertificate", "DAYBOOK_TLS_CERTIFICATE"),
        path("tlsKey", "DAYBOOK_TLS_KEY"),
    )


def parse_all(options: Mapping[str, str], purpose: str, fits: Callable[[Kind], bool]) -> dict[str, Any]:
    """The values of `options` by the names of OPTIONS. Raises OptionError, also for an option that does not fit the purpose."""
    return _given(options, purpose, fits).values


def _given(options: Mapping[str, str], purpose: str, fits: Callable[[Kind], bool]) -> _Given:
    by_lower = {name.lower(): name for name in OPTIONS}
    given = _Given()
    for key, text in options.items():
        name = by_lower.get(key.lower())
        if name is None or not fits(OPTIONS[name]):
            raise _unknown(key, purpose, [each for each, kind in OPTIONS.items() if fits(kind)])
        try:
            given.values[name] = OPTIONS[name].parse(text)
        except ValueError as error:
            msg = f"option {name} = {text[:200]!r}: {error}"
            raise OptionError(msg) from error
    return given


def _unknown(key: str, purpose: str, names: list[str]) -> OptionError:
    if any(word in key.lower() for word in _SECRET):
        return OptionError(
            f"option {key}: Spark logs options, so secrets are none. Set DAYBOOK_PASSWORD or DAYBOOK_PASSWORD_FILE, "
            "DAYBOOK_TOKEN or DAYBOOK_TOKEN_FILE, and DAYBOOK_ZOOKEEPER_* in the environment of driver and executors"
        )
    near = difflib.get_close_matches(key.lower(), [name.lower() for name in names], n=1, cutoff=0.5)
    nearest = next((name for name in names if near and name.lower() == near[0]), "")
    hint = f"did you mean {nearest}?" if nearest else f"use {', '.join(names)}"
    return OptionError(f"{purpose} has no option {key}: {hint}")
