"""What a power cut leaves of a directory: all that was synced, and any part of what was not.

shim.c takes the notes while a process runs; `WatchedDirectory.cut` draws a state from them. For each file every sector
that differs from the synced image may be there or not, and so may its size; of the names, the changes since the last sync
of the directory are there up to some point, in order, as journaling file systems have it. How much survives is drawn
for each file, from nothing to all of it, since both ends are what a real disk does most.
"""

import errno
import os
import random
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

SECTOR_SIZES: Final = (512, 4096)
SURVIVAL: Final = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0)
"""Chances of a sector; drawn once for each file."""
_CONTROL: Final = struct.Struct("=IIIIII")
_CHUNK: Final = 1 << 16
_ZEROS: Final = bytes(_CHUNK)


class Faults(NamedTuple):
    """What a directory's disk does wrong from now on; errors are errno numbers, 0 for none."""

    write_errno: int = 0
    sync_errno: int = 0
    allocate_errno: int = 0
    sync_delay_us: int = 0
    sync_lies: int = 0
    """1: a sync says that it is done and does nothing."""
    dsync_kills: int = 0
    """1: a write that is its own sync (O_DSYNC) is the last thing that its process does: it is read, and not durable."""


class WatchedDirectory:
    """A directory whose durable state is known. Its notes are beside it, in `<directory>.shadow`."""

    def __init__(self, directory: Path) -> None:
        """`prepare` comes first."""
        self.directory = directory.resolve()
        self._shadow = self.directory.with_name(f"{self.directory.name}.shadow")

    def prepare(self) -> None:
        """Begin: all that is there is durable. No process may use the directory."""
        shutil.rmtree(self._shadow, ignore_errors=True)
        for part in ("live", "synced", "lost"):
            (self._shadow / part).mkdir(parents=True)
        self.set_faults(Faults())
        lines = []
        for path in sorted(self.directory.iterdir()) if self.directory.exists() else []:
            inode = path.stat().st_ino
            os.link(path, self._shadow / "live" / str(inode))
            Image.read(path).write(self._shadow / "synced" / str(inode))
            lines.append(f"= {inode} {path.name}\n")
        (self._shadow / "names").write_text("".join(lines), encoding="utf-8")

    def set_faults(self, faults: Faults) -> None:
        """Change what the disk does wrong; holds at once, in running processes too."""
        with (self._shadow / "control").open("r+b" if (self._shadow / "control").exists() else "wb") as file:
            file.write(_CONTROL.pack(*faults))

    def cut(self, rng: random.Random) -> Counter[str]:
        """Replace what is there by what a power cut might have left, and begin anew; what was lost, counted.

        Every process that used the directory is dead.
        """
        files, counts = self._draw(rng)
        for path in self.directory.iterdir() if self.directory.exists() else []:
            path.unlink()
        self.directory.mkdir(exist_ok=True)
        for name, image in sorted(files.items()):
            image.write(self.directory / name)
        self.prepare()
        return counts

    def survivors(self, rng: random.Random) -> tuple[dict[str, bytes], Counter[str]]:
        """The files that a power cut now might leave, and what was lost, counted. Changes nothing."""
        files, counts = self._draw(rng)
        return {name: image.to_bytes() for name, image in files.items()}, counts

    def _draw(self, rng: random.Random) -> tuple[dict[str, "Image"], Counter[str]]:
        counts: Counter[str] = Counter()
        names = self._names(rng, counts)
        images = {inode: self._image(inode, rng, counts) for inode in sorted(set(names.values()))}
        return {name: images[inode] for name, inode in names.items()}, counts

    def _names(self, rng: random.Random, counts: Counter[str]) -> dict[str, int]:
        """Names that survive, with their inodes."""
        lines = (self._shadow / "names").read_text(encoding="utf-8").splitlines()
        durable = max((at + 1 for at, line in enumerate(lines) if line[0] in "=!"), default=0)
        survive = durable if rng.random() < 0.5 else rng.randint(durable, len(lines))
        counts["unsynced names"] += len(lines) - durable
        counts["lost names"] += len(lines) - survive
        names: dict[str, int] = {}
        for line in lines[:survive]:
            kind, *rest = line.split(" ")
            if kind in "=+":
                names[rest[1]] = int(rest[0])
            elif kind == "-":
                names.pop(rest[0], None)
            elif kind == ">" and rest[0] in names:
                names[rest[1]] = names.pop(rest[0])
        return names

    def _image(self, inode: int, rng: random.Random, counts: Counter[str]) -> "Image":
        """What of a file survives."""
        durable = Image.read(self._shadow / "synced" / str(inode))
        written = Image.read(self._shadow / "live" / str(inode))
        size = durable.size if rng.random() < 0.5 else written.size
        sector, chance = rng.choice(SECTOR_SIZES), rng.choice(SURVIVAL)
        image = Image(size, dict(durable.chunks))
        differ = durable.size != written.size
        for at in sorted(durable.chunks.keys() | written.chunks.keys()):
            old, new = durable.chunks.get(at, _ZEROS), written.chunks.get(at, _ZEROS)
            if at >= min(size, written.size) or old == new:
                continue
            differ = True
            mixed = bytearray(old)
            for begin in range(0, min(_CHUNK, size - at, written.size - at), sector):
                part = slice(begin, begin + sector)
                if old[part] == new[part]:
                    continue
                survives = rng.random() < chance
                counts["unsynced sectors"] += 1
                counts["lost sectors"] += not survives
                if survives:
                    mixed[part] = new[part]
            image.chunks[at] = bytes(mixed)
        counts["unsynced files"] += differ
        return image


class Image(NamedTuple):
    """A file's content in chunks; what is missing is zero, as most of a preallocated file is."""

    size: int
    chunks: dict[int, bytes]

    @classmethod
    def read(cls, path: Path) -> "Image":
        """The content of a file."""
        chunks: dict[int, bytes] = {}
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            at = 0
            while at < size:
                try:
                    at = max(at, os.lseek(file.fileno(), at, os.SEEK_DATA) // _CHUNK * _CHUNK)
                except OSError as error:
                    if error.errno != errno.ENXIO:  # no data from here on
                        raise
                    break
                chunk = os.pread(file.fileno(), _CHUNK, at).ljust(_CHUNK, b"\0")
                if chunk != _ZEROS:
                    chunks[at] = chunk
                at += _CHUNK
        return cls(size, chunks)

    def write(self, path: Path) -> None:
        """Make the file."""
        with path.open("wb") as file:
            for at, chunk in sorted(self.chunks.items()):
                if at < self.size:
                    os.pwrite(file.fileno(), chunk, at)
            file.truncate(self.size)

    def to_bytes(self) -> bytes:
        """All of it."""
        whole = bytearray(self.size)
        for at, chunk in self.chunks.items():
            if at < self.size:
                whole[at : at + _CHUNK] = chunk
        return bytes(whole[: self.size])
