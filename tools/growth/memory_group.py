"""A limit on the memory of a process and on the page cache that it causes, by a cgroup of its own.

The store is mapped, so what a bookie reads is page cache: a limit on the process' own memory would say nothing of a
store that is larger than memory. The group is made below that of this process, whose limits hold for it as well.
"""

from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")


class MemoryGroup:
    """One cgroup of version 1 or 2; `with` makes and removes it. Raises OSError where it cannot be made."""

    def __init__(self, name: str, limit_bytes: int) -> None:
        """Make it, empty."""
        parent, limit_file, self._cache_name = _of_this_process()
        if limit_file == "memory.max":
            (parent / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
        self.path = parent / name
        self.path.mkdir()
        try:
            (self.path / limit_file).write_text(str(limit_bytes), encoding="ascii")
        except OSError:
            self.remove()
            raise

    def command(self, *words: str) -> list[str]:
        """A command that runs `words` in the group."""
        return ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.path), *words]

    @property
    def cache_bytes(self) -> int:
        """How much of it is page cache now."""
        for line in (self.path / "memory.stat").read_text(encoding="ascii").splitlines():
            name, value = line.split()
            if name == self._cache_name:
                return int(value)
        raise ValueError(self.path)

    def remove(self) -> None:
        """Remove it; its processes must have ended."""
        self.path.rmdir()


def _of_this_process() -> tuple[Path, str, str]:
    """The cgroup that this process is in, the file of its limit, and what its page cache is called in memory.stat."""
    groups = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _ROOT / "memory" / path[1:], "memory.limit_in_bytes", "cache"
    path = next(line for line in groups if line.startswith("0::"))[3:]
    return _ROOT / path[1:], "memory.max", "file"
