"""A process of a local cluster, a bookie's or a broker's: its settings in a file, its start, its end by its process id.

The file is on its command line, so that a process is found again, and not mistaken for another that has its id by now.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from daybook.local.cluster_file import ClusterError
from daybook.runtime.allocator import ALLOCATOR
from daybook.runtime.ports import HeldPort, parse_address

START_TIMEOUT_MS: Final = 60_000
STOP_TIMEOUT_MS: Final = 30_000
ANY_PORT: Final = "127.0.0.1:0"
_READY_POLL_MS: Final = 20
_LOG_TAIL_BYTES: Final = 2000


class Child(NamedTuple):
    """A process by its id and the settings on its command line."""

    pid: int
    settings: Path

    def is_running(self) -> bool:
        """Whether it runs and is still that process (the system reuses process ids)."""
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return False
        return str(self.settings).encode() in command.split(b"\0")

    def send(self, number: signal.Signals) -> None:
        """Send a signal if it runs."""
        if self.is_running():
            os.kill(self.pid, number)


def write_settings(
    file: Path, defaults: Mapping[str, object], values: Mapping[str, object]
) -> dict[str, Any]:
    """Write the settings of a process, and return them.

    A process that already has settings keeps them, except for `values`; `defaults` are for a new one.
    """
    if file.exists():
        known = tomllib.loads(file.read_text(encoding="utf-8"))
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        known = dict(defaults)
    merged = {**known, **values}
    _write(file, merged)
    return merged


def hold_ports(file: Path, names: Iterable[str]) -> list[HeldPort]:
    """Hold the ports that the settings in `file` have under `names`, and return them.

    If a port is not chosen yet, or another process has taken it meanwhile, the settings get a new one: clients find
    bookies and brokers by their registrations.
    """
    known = tomllib.loads(file.read_text(encoding="utf-8"))
    held = []
    for name in names:
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


def spawn(module: str, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A process that runs `python -m module` with these arguments, in a session of its own."""
    with log.open("ab") as out:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**ALLOCATOR, **os.environ},
        )


def start(
    spawn_program: Callable[[Sequence[str], Path], subprocess.Popen[bytes]],
    name: str,
    settings: Path,
    zookeeper: str,
) -> tuple[int, dict[str, Any]]:
    """Start the program whose settings are in the file `settings`, with its log beside them; its process id and its report once it serves.

    Raises ClusterError.
    """
    ready, log = settings.with_name("ready.json"), settings.with_suffix(".log")
    ready.unlink(missing_ok=True)
    arguments = ("--config", str(settings), "--zookeeper", zookeeper, "--ready-file", str(ready))
    process = spawn_program(["start", *arguments], log)
    return process.pid, _await_ready(process, name, ready, log)


def _await_ready(process: subprocess.Popen[bytes], name: str, ready: Path, log: Path) -> dict[str, Any]:
    """Wait until the process reports that it serves, or until it ends; its report. Raises ClusterError."""
    for _ in range(START_TIMEOUT_MS // _READY_POLL_MS):
        if ready.exists():
            report: dict[str, Any] = json.loads(ready.read_text(encoding="utf-8"))
            return report
        if wait_for_exit(process.pid, _READY_POLL_MS):
            process.wait()
            msg = f"{name} ended with exit code {process.returncode} instead of serving: {last_words(log)}"
            raise ClusterError(msg)
    process.kill()
    process.wait()
    msg = f"{name} did not serve within {START_TIMEOUT_MS} ms: {last_words(log)}"
    raise ClusterError(msg)


def last_words(log: Path) -> str:
    """The reason of a process's end, from its log, and the path of the log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        end = file.read().decode(errors="replace").strip()
    for line in reversed(end.splitlines()):
        try:
            return f"{json.loads(line)['reason']} (its log is {log})"
        except (ValueError, KeyError, TypeError):
            continue
    return f"its log {log} ends with:\n{end}"


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


def stop_all(children: Iterable[Child]) -> None:
    """Stop processes gracefully, all at once; kill those that do not stop in time."""
    running = [child for child in children if child.is_running()]
    for child in running:
        child.send(signal.SIGTERM)
    for child in running:
        if not wait_for_exit(child.pid, STOP_TIMEOUT_MS):
            child.send(signal.SIGKILL)
            wait_for_exit(child.pid, STOP_TIMEOUT_MS)
    reap()


def reap() -> None:
    """Collect the exit codes of children that ended, so that their process ids are free."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
