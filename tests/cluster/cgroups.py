"""The cgroups (version 1) of nodes: one for each, under every controller, by which its containers are found and counted."""

import time
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "daybook-"
_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05


def are_version_1() -> bool:
    """Whether this machine has cgroups of version 1."""
    return (_ROOT / "memory").is_dir()


def name_of(node: str) -> str:
    """The cgroup of a node."""
    return _PREFIX + node


def create(name: str) -> None:
    """Make the cgroup under every controller."""
    for controller in _ROOT.iterdir():
        if (controller / "cgroup.procs").exists():
            (controller / name).mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):  # empty at first, and then nothing can run there
        whole = (_ROOT / "cpuset" / file).read_text(encoding="utf-8")
        (_ROOT / "cpuset" / name / file).write_text(whole, encoding="utf-8")


def processes(name: str) -> set[int]:
    """The processes in a cgroup and below it."""
    found: set[int] = set()
    for path in (_ROOT / "memory" / name).rglob("cgroup.procs"):
        try:
            found |= set(map(int, path.read_text(encoding="utf-8").split()))
        except OSError:
            continue  # the cgroup went away as its last process did
    return found


def processes_of_pod(name: str, uid: str) -> set[int]:
    """The processes of the pod with this UID on the node whose cgroup is `name`."""
    top = _ROOT / "memory"
    pods = (top / name).rglob(f"*{uid}")
    return set().union(*(processes(str(folder.relative_to(top))) for folder in pods))


def shims(socket: str) -> list[int]:
    """The processes that stand between a node's containerd, which listens on `socket`, and its containers."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdecimal() else []
        except OSError:
            continue  # it ended as we looked
        if words and "containerd-shim" in words[0] and socket in words:
            found.append(int(entry.name))
    return found


def remove(name: str) -> None:
    """Remove the cgroup, and those below it, under every controller."""
    for top in _ROOT.glob(f"*/{name}"):
        below = sorted((folder for folder in top.rglob("*") if folder.is_dir()), reverse=True)
        for folder in (*below, top):
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove one; its processes, which were killed, may take a moment to leave it."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return
