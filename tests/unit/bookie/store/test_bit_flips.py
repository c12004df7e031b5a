"""Rule 26 against real LMDB pages: no single flipped bit of the store makes an entry vanish or change unnoticed."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.journal.format import START, fence_record
from daybook_bookie.store import flushing
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.format.frame import decode_header
from tests.unit.bookie.store.flip_worker import ENTRIES, LEDGERS
from tests.unit.bookie.store.kit import SMALL, frame, memory_directory

FLIPS = 700


@pytest.fixture
def directory() -> Iterator[Path]:
    """Hundreds of stores are opened, and each start syncs."""
    with memory_directory() as name:
        yield Path(name)


def make_store(directory: Path) -> bytes:
    """A store of some pages, flushed several times so that there are older pages too; its file."""
    with Store(directory, RealDisk(directory), SMALL, new=True) as store:
        for part in range(0, ENTRIES, 10):
            cache = WriteCache()
            for ledger in LEDGERS:
                cache.apply(fence_record(ledger))
                data = frame(ledger, range(part, part + 10))
                cache.add_frame(data, decode_header(data))
            flushing.flush(store, cache.swap(), START)
    return (directory / "data.mdb").read_bytes()


def bits_to_flip(data: bytes, random: Random) -> list[int]:
    """A seventh in the meta pages' headers, most where something is written, the others anywhere."""
    meta = [8 * 4096 * random.randrange(2) + random.randrange(8 * 160) for _ in range(FLIPS // 7)]
    written = [at for at, byte in enumerate(data) if byte]
    used = [8 * random.choice(written) + random.randrange(8) for _ in range(5 * FLIPS // 7)]
    return meta + used + [random.randrange(8 * len(data)) for _ in range(FLIPS - len(meta) - len(used))]


def test_rule_26_every_flipped_bit_is_noticed_or_harmless(directory: Path) -> None:
    """A process that LMDB takes down with it has noticed, too: a bookie that dies answers nothing."""
    bits = bits_to_flip(make_store(directory), Random(26))
    verdicts: Counter[str] = Counter()
    while bits:
        worker = subprocess.run(
            [sys.executable, "-m", "tests.unit.bookie.store.flip_worker", str(directory), *map(str, bits)],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = worker.stdout.splitlines()
        for line in lines:
            verdicts[line.split(" ", 1)[1]] += 1
        bits = bits[len(lines) :]
        if bits:
            assert worker.returncode < 0, f"bit {bits[0]}: {worker.stderr[-2000:]}"
            verdicts["died"] += 1
            bits = bits[1:]
    assert set(verdicts) <= {"refused", "io-error", "harmless", "died"}, verdicts
    assert verdicts["refused"] > 10, verdicts
    assert verdicts["io-error"] > 10, verdicts
    assert verdicts["died"] < FLIPS / 10, verdicts
    assert verdicts.total() == FLIPS
