"""A bookie with a disk that is soon full: a small file system of its own, or, where that is not allowed, a pretended one.

A real one is a tmpfs in a user and mount namespace that a holding process keeps alive, so that the bookie can be killed
and started again on it. The pretended one (`python -m tests.process.integration.small_disk KIND BYTES DIRECTORY …`) answers for
one directory what a full file system would: the free space there, and ENOSPC at preallocation; or what a quota does, of
which the free space shows nothing.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from daybook.local.child import wait_for_exit
from daybook.local.cluster import CLUSTER_NAME
from daybook.runtime.allocator import ALLOCATOR
from tests.fixtures.cluster import SETTINGS
from tests.process.integration.kit import eventually

EXIT_TIMEOUT_MS: Final = 30_000
RATIOS: Final = {
    "disk_warn_ratio": 0.3,
    "disk_low_water_ratio": 0.3,
    "disk_full_ratio": 0.6,
    "disk_reserve_ratio": 0.9,
}
"""Far apart: on such a small disk a journal file that goes is much, and what is full must stay so until ledgers go.

A bookie that is full at 0.6 of 224 MiB may flush all that its journal holds and find room for another file of 32; and once
it has let go of all files but one it still uses more than 0.4.
"""
DISK_BYTES: Final = 224 << 20
SHOWN_BYTES: Final = 1 << 40
"""What a disk with a quota shows as free."""


class SmallDisk(NamedTuple):
    """Where a bookie's data goes, and the words that a command on that disk begins with."""

    directory: Path
    command: tuple[str, ...]


@contextmanager
def small_tmpfs(directory: Path, size_bytes: int) -> Iterator[SmallDisk | None]:
    """A tmpfs at `directory`; None where this user may make none."""
    directory.mkdir()
    script = f'mount -t tmpfs -o size={size_bytes} tmpfs "$0" && echo mounted && exec cat'
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != b"mounted\n":
            yield None
        else:
            enter = ("nsenter", "--preserve-credentials", "--user", "--mount", "--target", str(holder.pid))
            yield SmallDisk(directory, (*enter, sys.executable, "-m", "daybook_bookie"))
    finally:
        holder.kill()
        holder.stdin.close()
        holder.stdout.close()
        wait_for_exit(holder.pid, EXIT_TIMEOUT_MS)
        holder.wait()


def pretended_disk(directory: Path, size_bytes: int, kind: str = "small") -> SmallDisk:
    """A directory that pretends to be a file system of this size, or ("quota") one with a quota of it."""
    directory.mkdir()
    me = (sys.executable, "-m", "tests.process.integration.small_disk")
    return SmallDisk(directory, (*me, kind, str(size_bytes), str(directory)))


class SmallBookie:
    """A bookie on a small disk, as one more bookie of a cluster."""

    def __init__(self, disk: SmallDisk, home: Path, bookie_id: str, zookeeper: str) -> None:
        """Its settings and log are in `home`, its data is on `disk`."""
        self.id = bookie_id
        self._disk = disk
        self._config = home / f"{bookie_id}.toml"
        self._ready = home / f"{bookie_id}.json"
        self._log = home / f"{bookie_id}.log"
        values = {
            **SETTINGS,
            "bookie_id": bookie_id,
            "cluster": CLUSTER_NAME,
            "zookeeper": zookeeper,
            "rack": "small",
            "journal_dir": str(disk.directory / "journal"),
            "store_dir": str(disk.directory / "store"),
            "ready_file": str(self._ready),
            "disk_check_ms": 50,
            **RATIOS,
        }
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items()]
        self._config.write_text("".join(lines), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it; returns once it serves."""
        self._ready.unlink(missing_ok=True)
        process = self._process = self._spawn()
        await eventually(lambda: self._ready.exists() or wait_for_exit(process.pid, 0))
        assert self._ready.exists(), self._log.read_text(errors="replace")[-2000:]

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*self._disk.command, "start", "--config", self._config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **ALLOCATOR},
            )

    def end(self, number: signal.Signals) -> int:
        """Send it a signal and wait until it is gone; its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(EXIT_TIMEOUT_MS / 1000)


def pretend(kind: str, size_bytes: int, directory: Path) -> None:
    """Let the disk of this process pretend that `directory` is a file system of `size_bytes`, or has that quota."""
    ask, allocate = os.statvfs, os.posix_fallocate

    def used_bytes() -> int:
        return sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.is_file())

    def statvfs(path: str | Path) -> os.statvfs_result:
        answer = list(ask(path))
        if directory in (Path(path), *Path(path).parents):
            block = answer[1]
            size, used = (SHOWN_BYTES, 0) if kind == "quota" else (size_bytes, used_bytes())
            free = max(0, size - used) // block
            answer[2:5] = [size // block, free, free]
        return os.statvfs_result(answer)

    def posix_fallocate(descriptor: int, offset: int, length: int) -> None:
        if used_bytes() + length > size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, offset, length)

    os.__dict__.update(statvfs=statvfs, posix_fallocate=posix_fallocate)


if __name__ == "__main__":
    from daybook_bookie.main import app

    pretend(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    app(sys.argv[4:], prog_name="daybook-bookie")
