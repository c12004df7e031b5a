"""A bookie as a process of this machine: started, awaited, stopped or killed by its process id.

A file beside its data holds its settings, so that it always starts in the same way.
"""

import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from daybook.local import child
from daybook.local.child import ANY_PORT, Child, stop_all
from daybook.local.cluster_file import BookieEntry, ClusterError
from daybook.runtime.ports import HeldPort

SETTINGS_FILE: Final = "bookie.toml"
ADDRESSES: Final = ("address", "health_address", "metrics_address")


def write_settings(
    directory: Path, defaults: Mapping[str, object], values: Mapping[str, object]
) -> dict[str, Any]:
    """Write a bookie's settings under `directory` and return them; see `child.write_settings`."""
    parts = {"journal_dir": str(directory / "journal"), "store_dir": str(directory / "store")}
    new = {**dict.fromkeys(ADDRESSES, ANY_PORT), **parts, **defaults}
    return child.write_settings(directory / SETTINGS_FILE, new, values)


def hold_ports(directory: Path) -> list[HeldPort]:
    """Hold the ports of the bookie whose settings are in `directory`, and return them; see `child.hold_ports`."""
    return child.hold_ports(directory / SETTINGS_FILE, ADDRESSES)


def start_bookie(bookie_id: str, rack: str, directory: Path, zookeeper: str) -> BookieEntry:
    """Start the bookie whose settings are under `directory` and return once it serves. Raises ClusterError."""
    pid, record = child.start(spawn, f"bookie {bookie_id}", directory / SETTINGS_FILE, zookeeper)
    return BookieEntry(
        id=bookie_id,
        address=record["address"],
        pid=pid,
        rack=rack,
        dir=str(directory),
        health_address=record["health_address"],
        metrics_address=record["metrics_address"],
    )


def spawn(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A process that runs `daybook-bookie` with these arguments, in a session of its own."""
    return child.spawn("daybook_bookie", arguments, log)


def is_running(entry: BookieEntry) -> bool:
    """Whether the process of `entry` runs and is still that bookie."""
    return _child(entry).is_running()


def send(entry: BookieEntry, number: signal.Signals) -> None:
    """Send a signal to the bookie if it runs."""
    _child(entry).send(number)


def stop_bookies(entries: Iterable[BookieEntry]) -> None:
    """Stop bookies gracefully, all at once; kill those that do not stop in time."""
    stop_all(map(_child, entries))


def erase(entry: BookieEntry) -> None:
    """Delete the journal and the store of a stopped bookie, to simulate a lost disk. Raises ClusterError."""
    if is_running(entry):
        msg = f"bookie {entry.id} runs: stop it before its data is erased"
        raise ClusterError(msg)
    for part in ("journal", "store"):
        shutil.rmtree(Path(entry.dir) / part, ignore_errors=True)


def _child(entry: BookieEntry) -> Child:
    return Child(entry.pid, Path(entry.dir) / SETTINGS_FILE)
