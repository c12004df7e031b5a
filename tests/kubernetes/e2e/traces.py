"""What a run could leave behind on the machine: taken before and after, and compared.

Everything of a cluster is below one process, in namespaces of its own, but for its cgroups and its directory; so a
difference is a bug of the harness, and fails the run like any other.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, TypeAlias

Traces: TypeAlias = dict[str, frozenset[str]]
_PLACES: Final = (
    "/etc/cni",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
"""Where Kubernetes puts files unless it is configured otherwise, or in any case."""
_COMPANIONS: Final = (
    "tests.kubernetes.e2e.workload",
    "tests.kubernetes.e2e.topics",
    "tests.kubernetes.e2e.outside",
)
_COUNTERS: Final = re.compile(r" \[\d+:\d+\]$")


def traces(directory: Path, *, files: bool = True) -> Traces:
    """What is there now of each kind; of processes and mounts those that have to do with the cluster's `directory`."""
    return {
        "processes": frozenset(_processes(str(directory))),
        "mounts": frozenset(_mounts(str(directory))),
        "network namespaces": frozenset(_names(Path("/run/netns"))),
        "network interfaces": frozenset(_names(Path("/sys/class/net"))),
        "firewall rules": frozenset(_rules()),
        "cgroups": frozenset(map(str, Path("/sys/fs/cgroup").glob("*/daybook-*"))),
        "files": frozenset(_files([*map(Path, _PLACES), *([directory] if files else [])])),
    }


def left_behind(before: Traces, after: Traces) -> list[str]:
    """What is there now and was not, in words."""
    return [f"{kind}: {name}" for kind, names in after.items() for name in sorted(names - before[kind])]


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()] if folder.is_dir() else []


def _files(places: list[Path]) -> list[str]:
    """The places that there are, and what is directly or one level below them."""
    return [
        str(path)
        for place in places
        for path in (place, *place.glob("*"), *place.glob("*/*"))
        if path.exists()
    ]


def _mounts(directory: str) -> list[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if directory in line]


def _processes(directory: str) -> list[str]:
    """By process id and command; this one and those above it may name the directory too."""
    found, ours = [], _above(os.getpid())
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) in ours:
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
        except OSError:
            continue  # it ended as we looked
        if any(part in command for part in (directory, *_COMPANIONS)):
            found.append(f"{entry.name} {command}")
    return found


def _above(pid: int) -> set[int]:
    """The process and its ancestors."""
    found = {pid}
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        found.add(pid)
    return found


def _rules() -> list[str]:
    """Without the counters of chains, which change by themselves; none without the programs, which a cluster cannot do without."""
    found: list[str] = []
    for command in filter(shutil.which, ("iptables-save", "ip6tables-save")):
        done = subprocess.run([command], capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith((":", "-A"))]
        found += [f"{command}: {_COUNTERS.sub('', line)}" for line in lines]
    return found
