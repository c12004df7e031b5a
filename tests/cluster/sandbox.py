"""The private world of a cluster of nodes: network, mount and PID namespaces of its own, below one process.

Whatever a node starts (daemons, containers, mounts, interfaces, firewall rules) lives in there, so killing that one
process ends all of it, and nothing outside was ever changed but some cgroups, which are removed by name.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.05
_TIMEOUT_S: Final = 60.0
NETNS: Final = "/run/netns"
COVERED: Final = ("/var/lib", "/var/log")
"""Where kubelets, network plugins and containers write by fixed names: in here they write into the sandbox's directory."""


class SandboxError(Exception):
    """A command in the sandbox failed, or there is no sandbox; the message says which and what to do."""


class Sandbox:
    """The namespaces below the process whose id is in `directory`/init.json."""

    def __init__(self, directory: Path) -> None:
        """Use the sandbox of `directory`, which may not have been made yet."""
        self.directory = directory
        self._file = directory / "init.json"

    @property
    def pid(self) -> int | None:
        """The first process of the sandbox, while it lives; its start time tells it from one that came later."""
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return int(known["pid"]) if _started_at(known["pid"]) == known["startedAt"] else None

    def create(self) -> None:
        """Make the namespaces. Raises SandboxError if one is alive already."""
        if self.pid is not None:
            raise SandboxError(f"a cluster runs already in {self.directory}: take it down first")
        self.directory.mkdir(parents=True, exist_ok=True)
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.directory / "init.log").open("ab") as log:
            outer = subprocess.Popen(
                [*command, sys.executable, "-m", "tests.cluster.sandbox"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        inner = _only_child(outer.pid)
        known = {"pid": inner, "startedAt": _started_at(inner)}
        self._file.write_text(json.dumps(known), encoding="utf-8")
        self.run("mount", "-t", "tmpfs", "none", "/run")  # sockets and locks of the daemons are no one else's
        self.run("mkdir", "-p", NETNS, "/run/lock")
        for path in COVERED:
            self._cover(path)
        self.run("ip", "link", "set", "lo", "up")

    def _cover(self, path: str) -> None:
        """Let what is written below `path` go into the directory, and nothing onto the machine."""
        folders = [
            self.directory / "covers" / path.replace("/", "-").strip("-") / kind for kind in ("upper", "work")
        ]
        for folder in folders:
            folder.mkdir(parents=True)
        upper, work = folders
        layers = f"lowerdir={path},upperdir={upper},workdir={work}"
        self.run("mount", "-t", "overlay", "none", "-o", layers, path)

    def destroy(self) -> None:
        """Kill the first process, and with it everything that was ever started in here."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            _wait_for_end(pid)
        self._file.unlink(missing_ok=True)

    def enter(self, node: str | None = None) -> tuple[str, ...]:
        """What to put before a command so that it runs in here, in the network of `node` if one is given."""
        pid = self.pid
        if pid is None:
            raise SandboxError(f"no cluster runs in {self.directory}: bring it up first")
        # not `ip netns exec`: that remounts /sys, and hides the cgroups from the kubelet
        net = f"--net=/proc/{pid}/root{NETNS}/{node}" if node else "--net"
        return ("nsenter", f"--target={pid}", "--mount", "--pid", net)

    def run(self, *command: str, node: str | None = None) -> str:
        """Run a command in here and return what it prints. Raises SandboxError."""
        done = subprocess.run(
            [*self.enter(node), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SandboxError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def start(self, name: str, command: Sequence[str], *, node: str | None = None) -> None:
        """Start a daemon, with its log in log/<name>.log and its process id in pid/<name>."""
        logs, pids = self.directory / "log", self.directory / "pid"
        logs.mkdir(exist_ok=True)
        pids.mkdir(exist_ok=True)
        with (logs / f"{name}.log").open("ab") as log:
            outer = subprocess.Popen(
                [*self.enter(node), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (pids / name).write_text(str(_only_child(outer.pid)), encoding="utf-8")

    def kill(self, name: str) -> None:
        """Kill a daemon as a power cut would; nothing happens if it has ended."""
        path = self.directory / "pid" / name
        if path.exists():
            kill(int(path.read_text(encoding="utf-8")))
            path.unlink()


def kill(pid: int) -> None:
    """Kill a process and wait until it is gone; nothing happens if it is."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    _wait_for_end(pid)


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while _started_at(pid) is not None and not _is_zombie(pid):
        if time.monotonic() > deadline:
            raise SandboxError(f"process {pid} does not end, although it was killed")
        time.sleep(_POLL_S)


def _only_child(pid: int) -> int:
    """The child that `unshare` or `nsenter` forks into the new PID namespace."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        except FileNotFoundError:
            break
        if children:
            return int(children[0])
        time.sleep(_POLL_S)
    raise SandboxError(
        "a process of the sandbox ended as it started: are you root, and may namespaces be made?"
    )


def _started_at(pid: int) -> str | None:
    """When the process started, in the kernel's ticks; None if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _be_first() -> None:
    """The first process of the sandbox: it buries orphans until it is killed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            continue  # none is left


if __name__ == "__main__":
    _be_first()
