"""A disk in memory that fails on request and loses unsynced sectors when the power goes.

After a sync that failed it does what Linux does: the pages count as clean, so no later sync writes them. As ext4 has it they
stay readable until the power goes; as Btrfs has it they are dropped at once; of either, some may have been written.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from daybook_bookie.disk.disk import Buffer

SECTOR_BYTES: Final = 512


class Fate(Enum):
    """What a failed sync makes of a sector that it was to write."""

    CLEAN = "readable, and never written again"
    DROPPED = "as if it had not been written"
    WRITTEN = "durable after all"


class SimFile:
    """Contents as the process sees them, and as they are on the platter."""

    def __init__(self, disk: "SimDisk") -> None:
        self.disk = disk
        self.seen = bytearray()
        self.platter = bytearray()
        self.dirty: set[int] = set()

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        torn = self.disk.tear_at
        if torn is not None:
            data = data[:torn]
        end = offset + len(data)
        if end > len(self.seen):
            self.seen.extend(bytes(end - len(self.seen)))
        self.seen[offset:end] = data
        sector = self.disk.sector_bytes
        self.dirty |= set(range(offset // sector, -(-end // sector)))
        self.disk.check("pwritev")

    def fdatasync(self) -> None:
        try:
            self.disk.check("fdatasync")
        except OSError:
            self._give_up()
            raise
        self.disk.syncs += 1
        self.platter.extend(bytes(len(self.seen) - len(self.platter)))
        for sector in self.dirty:
            self._copy(self.seen, self.platter, sector)
        self.dirty.clear()

    def _give_up(self) -> None:
        """A sync failed: no sector is dirty any more."""
        self.platter.extend(bytes(len(self.seen) - len(self.platter)))
        for sector in sorted(self.dirty):
            fate = self.disk.fate_of_failed()
            if fate is Fate.WRITTEN:
                self._copy(self.seen, self.platter, sector)
            elif fate is Fate.DROPPED:
                self._copy(self.platter, self.seen, sector)
        self.dirty.clear()

    def _copy(self, source: bytearray, target: bytearray, sector: int) -> None:
        begin, end = sector * self.disk.sector_bytes, (sector + 1) * self.disk.sector_bytes
        target[begin:end] = source[begin:end]

    def read(self, offset: int, size_bytes: int) -> bytes:
        self.disk.check("read")
        return bytes(self.seen[offset : offset + size_bytes])

    def sector(self, number: int) -> bytes:
        """What a sector holds as the process sees it."""
        size_bytes = self.disk.sector_bytes
        return bytes(self.seen[number * size_bytes : (number + 1) * size_bytes])

    def written_ranges(self, offset: int) -> list[tuple[int, int]]:
        return [(offset, len(self.seen))] if offset < len(self.seen) else []

    def preallocate(self, size_bytes: int) -> None:
        self.disk.check("preallocate")
        for content in (self.seen, self.platter):
            content.extend(bytes(size_bytes - len(content)))

    def zero(self, size_bytes: int) -> None:
        self.disk.check("zero")
        self.seen[:size_bytes] = bytes(size_bytes)
        self.dirty |= set(range(-(-size_bytes // self.disk.sector_bytes)))

    def size_bytes(self) -> int:
        return len(self.seen)

    def close(self) -> None:
        """Nothing is held."""


class SimDisk:
    """The Disk interface over `SimFile`s. `fail[operation]` is an OSError to raise there, until it is removed."""

    def __init__(self, sector_bytes: int = SECTOR_BYTES) -> None:
        """`sector_bytes`: what is written as a whole or not at all."""
        self.sector_bytes = sector_bytes
        self.files: dict[str, SimFile] = {}
        self.durable_names: dict[str, SimFile] = {}
        self.fail: dict[str, OSError] = {}
        self.tear_at: int | None = None
        self.fate_of_failed: Callable[[], Fate] = lambda: Fate.CLEAN
        """Asked for each sector that a sync was to write and failed."""
        self.syncs = 0

    def check(self, operation: str) -> None:
        if operation in self.fail:
            raise self.fail[operation]

    def open(self, name: str, *, create: bool = False) -> SimFile:
        self.check("create" if create else "open")
        if create:
            if name in self.files:
                raise FileExistsError(name)
            self.files[name] = SimFile(self)
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def names(self) -> list[str]:
        return sorted(self.files)

    def rename(self, old: str, new: str) -> None:
        self.check("rename")
        self.files[new] = self.files.pop(old)

    def unlink(self, name: str) -> None:
        self.check("unlink")
        if name not in self.files:
            raise FileNotFoundError(name)
        del self.files[name]

    def sync_directory(self) -> None:
        self.check("sync_directory")
        self.durable_names = dict(self.files)

    def free_bytes(self) -> int:
        return 10**9

    def unsynced(self) -> list[tuple[str, int]]:
        """The sectors that a power cut may lose, of files whose names are durable."""
        return [
            (name, sector)
            for name, file in sorted(self.durable_names.items())
            for sector in sorted(file.dirty)
        ]

    def power_cut(self, keep: Callable[[str, int], bool], *, keep_names: bool = False) -> "SimDisk":
        """What is left: synced bytes, the unsynced sectors that `keep` names, durable names (or also the others)."""
        left, size = SimDisk(self.sector_bytes), self.sector_bytes
        left.fate_of_failed = self.fate_of_failed
        names = self.files if keep_names else self.durable_names
        for name, file in names.items():
            copy = SimFile(left)
            copy.seen = bytearray(file.platter)
            for sector in sorted(file.dirty):
                if keep(name, sector):
                    begin = sector * size
                    data = file.seen[begin : begin + size]
                    copy.seen.extend(bytes(max(0, begin + len(data) - len(copy.seen))))
                    copy.seen[begin : begin + len(data)] = data
            copy.platter = bytearray(copy.seen)
            left.files[name] = copy
        left.durable_names = dict(left.files)
        return left

    def killed(self) -> "SimDisk":
        """What a killed process leaves: everything it wrote, synced or not."""
        for file in self.files.values():
            file.disk = self
        self.fail.clear()
        self.tear_at = None
        return self
