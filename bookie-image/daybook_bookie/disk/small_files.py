"""Small files that a bookie keeps beside journal and store: each is replaced, read and removed as a whole."""

import json
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from daybook_bookie.disk.disk import Buffer, Disk

SIZE_MAX: Final = 64 * 1024


def write_durably(disk: Disk, name: str, data: Buffer) -> None:
    """Replace the file in one step: written under another name, synced, renamed, the directory synced. Raises OSError."""
    temporary = f"{name}.tmp"
    if temporary in disk.names():
        disk.unlink(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.pwritev([data], 0)
        file.fdatasync()
    finally:
        file.close()
    disk.rename(temporary, name)
    disk.sync_directory()


def read_whole(disk: Disk, name: str) -> bytes | None:
    """The file's content; None if there is no such file. Raises OSError."""
    if name not in disk.names():
        return None
    file = disk.open(name)
    try:
        return file.read(0, SIZE_MAX)
    finally:
        file.close()


def remove_durably(disk: Disk, name: str) -> None:
    """Remove the file, if there is one. Raises OSError."""
    if name in disk.names():
        disk.unlink(name)
    disk.sync_directory()


def with_checksum(record: Mapping[str, Any]) -> bytes:
    """One line of JSON and one line with its checksum."""
    line = json.dumps(record, sort_keys=True).encode()
    return line + b"\n" + f"crc32 {crc32(line):08x}\n".encode()


def without_checksum(data: bytes) -> bytes | None:
    """The line of JSON that `with_checksum` wrote; None if it fails its checksum."""
    line, _, rest = data.partition(b"\n")
    return line if rest == f"crc32 {crc32(line):08x}\n".encode() else None
