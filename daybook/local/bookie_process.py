"""A bookie as a process of this machine: started, awaited, stopped or killed by its process id.

A file beside its data holds its settings, so that it always starts in the same way.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from daybook.local.cluster_file import BookieEntry, ClusterError
from daybook.runtime.allocator import ALLOCATOR
from daybook.runtime.ports import HeldPort, parse_address

SETTINGS_FILE: Final = "bookie.toml"
ADDRESSES: Final = ("address", "health_address", "metrics_address")
START_TIMEOUT_MS: Final = 60_000
STOP_TIMEOUT_MS: Final = 30_000
_READY_POLL_MS: Final = 20
_LOG_TAIL_BYTES: Final = 2000


def write_settings(
    directory: Path, defaults: Mapping[str, object], values: Mapping[str, object]
) -> dict[str, object]:
    """Write a bookie's settings under `directory` and return them.

    A bookie that already has settings keeps them, except for `values`; `defaults` and the ports are for a new bookie.
    """
    file = directory / SETTINGS_FILE
    if file.exists():
        known = tomllib.loads(file.read_text(encoding="utf-8"))
    else:
        directory.mkdir(parents=True, exist_ok=True)
        directories = {"journal_dir": str(directory / "journal"), "store_dir": str(directory / "store")}
        known = {**dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **directories, **defaults}
    merged = {**known, **values}
    _write(file, merged)
    return merged


def hold_ports(directory: Path) -> list[HeldPort]:
    """Hold the ports of the bookie whose settings are in `directory`, and return them.

    If a port is not chosen yet, or another process has taken it meanwhile, the settings get a new one: clients find a
    bookie by its registration.
    """
    file = directory / SETTINGS_FILE
    known = tomllib.loads(file.read_text(encoding="utf-8"))
    held = []
    for name in ADDRESSES:
        host, port = parse_address(known[name])
        held.append(HeldPort(host, wanted=port))
        known[name] = str(held[-1].address)
    _write(file, known)
    return held


def _write(file: Path, settings: Mapping[str, object]) -> None:
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    partial = file.with_suffix(".tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def start_bookie(bookie_id: str, rack: str, directory: Path, zookeeper: str) -> BookieEntry:
    """Start the bookie whose settings are under `directory` and return once it serves. Raises ClusterError."""
    ready = directory / "ready.json"
    ready.unlink(missing_ok=True)
    config = ("--config", str(directory / SETTINGS_FILE))
    process = spawn(
        ["start", *config, "--zookeeper", zookeeper, "--ready-file", str(ready)], directory / "bookie.log"
    )
    _await_ready(process, bookie_id, ready, directory / "bookie.log")
    record = json.loads(ready.read_text(encoding="utf-8"))
    return BookieEntry(
        id=bookie_id,
        address=record["address"],
        pid=process.pid,
        rack=rack,
        dir=str(directory),
        health_address=record["health_address"],
        metrics_address=record["metrics_address"],
    )


def spawn(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A process that runs `daybook-bookie` with these arguments, in a session of its own."""
    with log.open("ab") as out:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "daybook_bookie", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**ALLOCATOR, **os.environ},
        )


def _await_ready(process: subprocess.Popen[bytes], bookie_id: str, ready: Path, log: Path) -> None:
    """Wait until the bookie reports that it serves, or until it ends."""
    for _ in range(START_TIMEOUT_MS // _READY_POLL_MS):
        if ready.exists():
            return
        if wait_for_exit(process.pid, _READY_POLL_MS):
            process.wait()
            msg = f"bookie {bookie_id} ended with exit code {process.returncode} instead of serving: {last_words(log)}"
            raise ClusterError(msg)
    process.kill()
    process.wait()
    msg = f"bookie {bookie_id} did not serve within {START_TIMEOUT_MS} ms: {last_words(log)}"
    raise ClusterError(msg)


def last_words(log: Path) -> str:
    """The reason of a bookie's end, from its log, and the path of the log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        end = file.read().decode(errors="replace").strip()
    for line in reversed(end.splitlines()):
        try:
            return f"{json.loads(line)['reason']} (its log is {log})"
        except (ValueError, KeyError, TypeError):
            continue
    return f"its log {log} ends with:\n{end}"


def is_running(entry: BookieEntry) -> bool:
    """Whether the process of `entry` runs and is still that bookie (the system reuses process ids)."""
    try:
        command = Path(f"/proc/{entry.pid}/cmdline").read_bytes()
    except OSError:
        return False
    return f"{entry.dir}/{SETTINGS_FILE}".encode() in command.split(b"\0")


def processes_with(arguments: Collection[str]) -> list[int]:
    """The processes of this machine that have one of `arguments` on their command line."""
    wanted = {argument.encode() for argument in arguments}
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if not wanted.isdisjoint(command.read_bytes().split(b"\0")):
                found.append(int(command.parent.name))
        except OSError:
            continue  # the process ended meanwhile
    return found


def wait_for_exit(pid: int, timeout_ms: int) -> bool:
    """Wait until the process is gone, at most `timeout_ms`; return whether it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_ms))
    finally:
        os.close(descriptor)


def send(entry: BookieEntry, number: signal.Signals) -> None:
    """Send a signal to the bookie if it runs."""
    if is_running(entry):
        os.kill(entry.pid, number)


def stop_bookies(entries: tuple[BookieEntry, ...]) -> None:
    """Stop bookies gracefully, all at once; kill those that do not stop in time."""
    running = [entry for entry in entries if is_running(entry)]
    for entry in running:
        send(entry, signal.SIGTERM)
    for entry in running:
        if not wait_for_exit(entry.pid, STOP_TIMEOUT_MS):
            send(entry, signal.SIGKILL)
            wait_for_exit(entry.pid, STOP_TIMEOUT_MS)
    reap()


def reap() -> None:
    """Collect the exit codes of children that ended, so that their process ids are free."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def erase(entry: BookieEntry) -> None:
    """Delete the journal and the store of a stopped bookie, to simulate a lost disk. Raises ClusterError."""
    if is_running(entry):
        msg = f"bookie {entry.id} runs: stop it before its data is erased"
        raise ClusterError(msg)
    for part in ("journal", "store"):
        shutil.rmtree(Path(entry.dir) / part, ignore_errors=True)
