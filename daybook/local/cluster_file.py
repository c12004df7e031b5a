"""`cluster.json`: the running processes, for programs and people who use, kill or restart them.

The format is fixed (docs/operations/start-and-stop.md): tests, benchmarks and users depend on it.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

CLUSTER_FILE = "cluster.json"


class ClusterError(Exception):
    """The local cluster cannot perform the request; the message says what to do."""


@dataclass(frozen=True, slots=True)
class BookieEntry:
    """One bookie of the local cluster; addresses are host:port, `dir` holds its journal, store, settings and log."""

    id: str
    address: str
    pid: int
    rack: str
    dir: str
    health_address: str
    metrics_address: str


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """One broker of the local cluster; clients of Pulsar connect to `service_url`."""

    id: str
    service_url: str
    admin_url: str
    pid: int
    health_address: str
    metrics_address: str


E = TypeVar("E", BookieEntry, BrokerEntry)


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A running local cluster."""

    zookeeper: str
    cluster: str
    bookies: tuple[BookieEntry, ...] = ()
    brokers: tuple[BrokerEntry, ...] = ()

    def bookie(self, bookie_id: str) -> BookieEntry:
        """The bookie with this id. Raises ClusterError."""
        return _one_of(self.bookies, bookie_id, "bookie")

    def broker(self, broker_id: str) -> BrokerEntry:
        """The broker with this id. Raises ClusterError."""
        return _one_of(self.brokers, broker_id, "broker")

    def with_entry(self, entry: BookieEntry | BrokerEntry) -> Self:
        """A copy in which `entry` replaces the one with the same id, or is added."""
        if isinstance(entry, BookieEntry):
            return replace(self, bookies=_with(self.bookies, entry))
        return replace(self, brokers=_with(self.brokers, entry))

    def write(self, directory: Path) -> None:
        """Write the file atomically: a reader gets the old content or the new one."""
        path = directory / CLUSTER_FILE
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def note(cls, directory: Path, entry: BookieEntry | BrokerEntry) -> None:
        """Put `entry` into the file; other processes may do the same at the same time. Raises ClusterError."""
        with (directory / f"{CLUSTER_FILE}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            cls.read(directory).with_entry(entry).write(directory)

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the file of the cluster in `directory`. Raises ClusterError if none runs there."""
        path = directory / CLUSTER_FILE
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                record["zookeeper"],
                record["cluster"],
                tuple(BookieEntry(**bookie) for bookie in record["bookies"]),
                tuple(BrokerEntry(**broker) for broker in record["brokers"]),
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            msg = f"no cluster runs in {directory}: start one with `daybook up --dir {directory}`"
            raise ClusterError(msg) from error
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{path} is not a cluster file: give the directory of a `daybook up`, or delete the file"
            raise ClusterError(msg) from error


def _one_of(entries: Sequence[E], wanted: str, kind: str) -> E:
    for entry in entries:
        if entry.id == wanted:
            return entry
    known = ", ".join(entry.id for entry in entries) or "none"
    msg = f"there is no {kind} {wanted!r} in this cluster (there are: {known})"
    raise ClusterError(msg)


def _with(entries: Sequence[E], entry: E) -> tuple[E, ...]:
    known = {each.id: each for each in entries}
    known[entry.id] = entry
    return tuple(known[each] for each in sorted(known))
