"""The disk as journal, store and identity use it: an interface, so that tests can inject every failure.

The journal uses files through this interface alone: tests put a disk behind it that loses and reorders unsynced sectors,
tears writes and raises EIO or ENOSPC (rule 23, rule 25, rule 30). Durability is explicit: bytes are durable after
`fdatasync`, names after `sync_directory`. Names are relative to the disk's one directory.
"""

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

FILE_MODE: Final = 0o600
Buffer: TypeAlias = bytes | bytearray | memoryview

IOVECS_MAX: Final = 1024
"""IOV_MAX of Linux: more buffers than this take more than one call."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The error numbers that mean a full disk, which is a state and not a fault (rule 30)."""


NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The error numbers that mean that this process, or the machine, has no file descriptor left: no disk failure either."""

_NONE: Final = -1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_ZERO_RANGE: Final = 0x10
"""FALLOC_FL_ZERO_RANGE of Linux."""
T = TypeVar("T")


class DiskFile(Protocol):
    """An open file. Every method raises OSError."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all of `buffers`, one after the other, from `offset` on."""

    def fdatasync(self) -> None:
        """Make everything written to this file durable."""

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `offset`; fewer only at the end of the file."""

    def written_ranges(self, offset: int) -> list[tuple[int, int]]:
        """The ranges (begin, end) from `offset` on that may have been written; everything else reads as zeros."""

    def preallocate(self, size_bytes: int) -> None:
        """Reserve the space, so that later writes within it cannot fail for lack of it; it reads as zeros."""

    def zero(self, size_bytes: int) -> None:
        """Have the first `size_bytes` read as zeros, and keep their space reserved; EOPNOTSUPP where the file system cannot."""

    def size_bytes(self) -> int:
        """The file's size."""

    def close(self) -> None:
        """Close the file; nothing is synced."""


class Disk(Protocol):
    """One directory. Every method raises OSError."""

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; with `create`, a new empty file (FileExistsError if there is one)."""

    def names(self) -> list[str]:
        """The names in the directory, sorted."""

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing `new`; durable after `sync_directory`."""

    def unlink(self, name: str) -> None:
        """Remove; durable after `sync_directory`."""

    def sync_directory(self) -> None:
        """Make names durable."""

    def free_bytes(self) -> int:
        """What the file system has left for this process."""


class _RealFile:
    """A file descriptor."""

    def __init__(self, descriptor: int, give_back: Callable[[int], None]) -> None:
        self._descriptor = descriptor
        self._give_back = give_back

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        for begin in range(0, len(buffers), IOVECS_MAX):
            offset += self._write_all(buffers[begin : begin + IOVECS_MAX], offset)

    def _write_all(self, buffers: Sequence[Buffer], offset: int) -> int:
        total = sum(map(len, buffers))
        written = os.pwritev(self._descriptor, buffers, offset)
        if written < total:
            rest = memoryview(b"".join(buffers))
            while written < total:
                done = os.pwrite(self._descriptor, rest[written:], offset + written)
                if done == 0:
                    raise OSError(errno.EIO, "the disk accepts no more bytes and names no error")
                written += done
        return total

    def fdatasync(self) -> None:
        os.fdatasync(self._descriptor)

    def read(self, offset: int, size_bytes: int) -> bytes:
        parts = []
        while size_bytes > 0:
            part = os.pread(self._descriptor, size_bytes, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def written_ranges(self, offset: int) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        end = offset
        while True:
            try:
                begin = os.lseek(self._descriptor, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # nothing written from here on
                    raise
                return ranges
            end = os.lseek(self._descriptor, begin, os.SEEK_HOLE)
            ranges.append((begin, end))

    def preallocate(self, size_bytes: int) -> None:
        os.posix_fallocate(self._descriptor, 0, size_bytes)

    def zero(self, size_bytes: int) -> None:
        # Python's os has no fallocate with a mode, which would also call again after a signal
        while (
            _LIBC.fallocate(self._descriptor, _ZERO_RANGE, ctypes.c_long(0), ctypes.c_long(size_bytes)) != 0
        ):
            if (number := ctypes.get_errno()) != errno.EINTR:
                raise OSError(number, os.strerror(number))

    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        self._give_back(self._descriptor)


class RealDisk:
    """A directory of the file system; it must exist.

    It stays open, and so does one descriptor in reserve: a process that has no descriptor left can open one more file, and
    the next file that is closed fills the reserve again. So a journal that closes a file for each one that it opens can
    continue without end.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor = self._reserve = _NONE
        self._directory = directory
        if not directory.is_dir():
            raise FileNotFoundError(errno.ENOENT, "create the directory, or mount its volume", str(directory))
        self._lending = threading.Lock()
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._reserve = os.dup(self._descriptor)

    def __del__(self) -> None:
        for descriptor in (self._descriptor, self._reserve):
            if descriptor != _NONE:
                os.close(descriptor)

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        opened = self._with_a_descriptor(lambda: os.open(self._directory / name, flags, FILE_MODE))
        return _RealFile(opened, self._close)

    def names(self) -> list[str]:
        return sorted(self._with_a_descriptor(lambda: os.listdir(self._directory)))

    def _with_a_descriptor(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not self._lend():
                raise
        return call()

    def _lend(self) -> bool:
        """Close the reserve, so that its descriptor is free; False if it is lent already."""
        with self._lending:
            lent, self._reserve = self._reserve, _NONE
            if lent != _NONE:
                os.close(lent)
            return lent != _NONE

    def _close(self, descriptor: int) -> None:
        """Close a file. If the reserve is lent, the descriptor becomes the reserve in one step: no thread gets it between."""
        with self._lending:
            if self._reserve == _NONE:
                self._reserve = os.dup2(self._descriptor, descriptor, inheritable=False)
            else:
                os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._directory / old, self._directory / new)

    def unlink(self, name: str) -> None:
        os.unlink(self._directory / name)

    def sync_directory(self) -> None:
        os.fsync(self._descriptor)

    def free_bytes(self) -> int:
        stat = os.statvfs(self._directory)
        return stat.f_bavail * stat.f_frsize


PROBE: Final = "room.tmp"


def has_room(disk: Disk, size_bytes: int) -> bool:
    """Whether the file system has room for so many bytes: allocates them, in an unnamed file, and frees them.

    That also finds limits which its figures do not show, like a quota. The name is removed first, so that a process that
    is killed meanwhile leaves nothing behind. Raises OSError for any failure but a full disk.
    """
    try:
        if PROBE in disk.names():
            disk.unlink(PROBE)
        file = disk.open(PROBE, create=True)
        try:
            disk.unlink(PROBE)
            file.preallocate(size_bytes)
            file.pwritev([bytes(1)], size_bytes - 1)
            file.fdatasync()
        finally:
            file.close()
    except OSError as error:
        if error.errno not in FULL:
            raise
        return False
    return True
