"""What a power cut leaves of a directory: all that was synced, and any part of what was not.

shim.c takes the notes while a process runs; `WatchedDirectory.cut` draws a state from them. For each file every sector
that differs from the synced image may be there or not, and so may its size; of the names, the changes since the last sync
of the directory are there up to some point, in order, as journaling file systems have it. How much survives is drawn
for each file, from nothing to all of it, since both ends are what a real disk does most.
"""

import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

SECTOR_SIZES: Final = (512, 4096)
SURVIVAL: Final = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0)
"""Chances of a sector; drawn once for each file."""
_CONTROL: Final = struct.Struct("=IIIII")
_CHUNK: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK)


class Faults(NamedTuple):
    """What a directory's disk does wrong from now on; errors are errno numbers, 0 for none."""

    write_errno: int = 0
    sync_errno: int = 0
    allocate_errno: int = 0
    sync_delay_us: int = 0
    sync_lies: int = 0
    """1: a sync says that it is done and does nothing."""


class WatchedDirectory:
    """A directory whose durable state is known. Its notes are beside it, in `<directory>.shadow`."""

    def __init__(self, directory: Path) -> None:
        """`prepare` comes first."""
        self.directory = directory.resolve()
        self._shadow = self.directory.with_name(f"{self.directory.name}.shadow")

    def prepare(self) -> None:
        """Begin: all that is there is durable. No process may use the directory."""
        shutil.rmtree(self._shadow, ignore_errors=True)
        for part in ("live", "synced"):
            (self._shadow / part).mkdir(parents=True)
        self.set_faults(Faults())
        lines = []
        for path in sorted(self.directory.iterdir()) if self.directory.exists() else []:
            inode = path.stat().st_ino
            os.link(path, self._shadow / "live" / str(inode))
            _write_sparsely(self._shadow / "synced" / str(inode), path.read_bytes())
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
        files, counts = self.survivors(rng)
        for path in self.directory.iterdir() if self.directory.exists() else []:
            path.unlink()
        self.directory.mkdir(exist_ok=True)
        for name, data in sorted(files.items()):
            _write_sparsely(self.directory / name, data)
        self.prepare()
        return counts

    def survivors(self, rng: random.Random) -> tuple[dict[str, bytes], Counter[str]]:
        """The files that a power cut now might leave, and what was lost, counted. Changes nothing."""
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

    def _image(self, inode: int, rng: random.Random, counts: Counter[str]) -> bytes:
        """What of a file survives."""
        durable = (self._shadow / "synced" / str(inode)).read_bytes()
        written = (self._shadow / "live" / str(inode)).read_bytes()
        if durable == written:
            return durable
        size = len(durable) if rng.random() < 0.5 else len(written)
        sector, chance = rng.choice(SECTOR_SIZES), rng.choice(SURVIVAL)
        counts["unsynced files"] += 1
        image = bytearray(durable[:size].ljust(size, b"\0"))
        for begin in _differing(durable, written, size, sector):
            end = min(begin + sector, size)
            counts["unsynced sectors"] += 1
            if rng.random() < chance:
                image[begin:end] = written[begin:end].ljust(end - begin, b"\0")
            else:
                counts["lost sectors"] += 1
        return bytes(image)


def _differing(durable: bytes, written: bytes, size: int, sector: int) -> Iterator[int]:
    """Where sectors begin that are not the same in both; what is beyond the end of `durable` is zero."""
    for chunk in range(0, min(size, len(written)), _CHUNK):
        end = min(chunk + _CHUNK, size, len(written))
        new, old = written[chunk:end], durable[chunk:end].ljust(end - chunk, b"\0")
        if new == old:
            continue
        for at in range(0, len(new), sector):
            if new[at : at + sector] != old[at : at + sector]:
                yield chunk + at


def _write_sparsely(path: Path, data: bytes) -> None:
    """Write a file and leave out what is zero: preallocated files are mostly that."""
    with path.open("wb") as file:
        for begin in range(0, len(data), _CHUNK):
            part = data[begin : begin + _CHUNK]
            if part != _ZEROS[: len(part)]:
                file.seek(begin)
                file.write(part)
        file.truncate(len(data))
