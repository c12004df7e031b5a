"""A broker as a process of this machine: started, awaited, stopped or killed by its process id.

A broker keeps no data. Its directory holds its settings, with its ports, so that it starts again where its clients found it, and its log.
"""

import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from daybook.local import child
from daybook.local.child import ANY_PORT, Child, stop_all
from daybook.local.cluster_file import BrokerEntry, ClusterError
from daybook.runtime.ports import HeldPort

SETTINGS_FILE: Final = "broker.toml"
ADDRESSES: Final = ("address", "admin_address", "health_address", "metrics_address")
PACKAGE: Final = "daybook_broker"
"""The library never imports it: a broker is a program of its own."""


def write_settings(
    directory: Path, defaults: Mapping[str, object], values: Mapping[str, object]
) -> dict[str, Any]:
    """Write a broker's settings under `directory` and return them; see `child.write_settings`."""
    new = {**dict.fromkeys(ADDRESSES, ANY_PORT), **defaults}
    return child.write_settings(directory / SETTINGS_FILE, new, values)


def hold_ports(directory: Path) -> list[HeldPort]:
    """Hold the ports of the broker whose settings are in `directory`, and return them; see `child.hold_ports`."""
    return child.hold_ports(directory / SETTINGS_FILE, ADDRESSES)


def start_broker(broker_id: str, directory: Path, zookeeper: str) -> BrokerEntry:
    """Start the broker whose settings are under `directory` and return once it serves. Raises ClusterError."""
    if find_spec(PACKAGE) is None:
        msg = f"the package {PACKAGE} is not installed: run `uv sync --inexact --extra local` (or `pip install '.[local]'`) in a checkout"
        raise ClusterError(msg)
    pid, record = child.start(spawn, f"broker {broker_id}", directory / SETTINGS_FILE, zookeeper)
    return BrokerEntry(
        id=broker_id,
        service_url=record["service_url"],
        admin_url=record["admin_url"],
        pid=pid,
        health_address=record["health_address"],
        metrics_address=record["metrics_address"],
    )


def spawn(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A process that runs `daybook-broker` with these arguments, in a session of its own."""
    return child.spawn(PACKAGE, arguments, log)


def is_running(directory: Path, entry: BrokerEntry) -> bool:
    """Whether the process of `entry` runs and is still that broker; `directory` is the cluster's."""
    return _child(directory, entry).is_running()


def send(directory: Path, entry: BrokerEntry, number: signal.Signals) -> None:
    """Send a signal to the broker if it runs."""
    _child(directory, entry).send(number)


def stop_brokers(directory: Path, entries: Iterable[BrokerEntry]) -> None:
    """Stop brokers gracefully, all at once; kill those that do not stop in time."""
    stop_all(_child(directory, entry) for entry in entries)


def _child(directory: Path, entry: BrokerEntry) -> Child:
    return Child(entry.pid, directory.resolve() / entry.id / SETTINGS_FILE)
