"""What the machine itself can do: the figures beside which the others are read."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lmdb

from bench.result import Result

TOTAL_BYTES = 1 << 30
GROUP_BYTES = 256 * 1024
ENTRY_BYTES = 1024
TRANSACTION_ENTRIES = 16 * 1024


def measure_limits(scale: float, directory: Path) -> list[Result]:
    """Raw `pwritev` + `fdatasync` of groups, and LMDB alone with entries of 1 KiB."""
    total_bytes = max(64 << 20, int(TOTAL_BYTES * scale))
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        return [
            _row(
                "pwritev + fdatasync, 256 KiB groups", total_bytes, lambda: _raw(Path(scratch), total_bytes)
            ),
            _row("LMDB alone, sync on", total_bytes, lambda: _lmdb(Path(scratch), total_bytes)),
        ]


def _row(name: str, total_bytes: int, work: Callable[[], None]) -> Result:
    begin = time.perf_counter()
    work()
    entries = total_bytes // ENTRY_BYTES
    return Result("machine", name, entries, ENTRY_BYTES, entries / (time.perf_counter() - begin))


def _raw(directory: Path, total_bytes: int) -> None:
    group = [os.urandom(ENTRY_BYTES) for _ in range(GROUP_BYTES // ENTRY_BYTES)]
    file = os.open(directory / "raw", os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(file, 0, total_bytes)
        for offset in range(0, total_bytes, GROUP_BYTES):
            os.pwritev(file, group, offset)
            os.fdatasync(file)
    finally:
        os.close(file)


def _lmdb(directory: Path, total_bytes: int) -> None:
    value = os.urandom(ENTRY_BYTES)
    with lmdb.open(str(directory / "lmdb"), map_size=4 * total_bytes) as env:
        entries = range(total_bytes // ENTRY_BYTES)
        for first in range(0, len(entries), TRANSACTION_ENTRIES):
            chunk = entries[first : first + TRANSACTION_ENTRIES]
            with env.begin(write=True) as txn, txn.cursor() as cursor:
                cursor.putmulti([(n.to_bytes(16, "big"), value) for n in chunk], append=True)
