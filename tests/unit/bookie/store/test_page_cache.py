"""The bound of the page cache: what it drops, and that what was dropped is read from the disk."""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from daybook_bookie.settings import MIB
from daybook_bookie.store.page_cache import PageCacheBound

from tests.unit.bookie.store.kit import SMALL, entries, frame, open_store, put, read_store

LIMIT = 10 * MIB
SIZE = 101 * MIB
Drops = list[tuple[int, int]]
Grow = Callable[[int], None]


@pytest.fixture
def drops(monkeypatch: pytest.MonkeyPatch) -> Drops:
    """The ranges (offset, size) that were dropped."""
    seen: Drops = []

    def note(descriptor: int, offset: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        seen.append((offset, size))

    monkeypatch.setattr(os, "posix_fadvise", note)
    return seen


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.touch()
    os.truncate(path, SIZE)
    return path


@pytest.fixture
def bound(file: Path) -> Iterator[PageCacheBound]:
    bound = PageCacheBound(file, LIMIT)
    yield bound
    bound.close()


def test_what_is_behind_the_newest_part_of_a_growing_file_is_dropped_once(
    file: Path, bound: PageCacheBound, drops: Drops
) -> None:
    """What was there when it opened stays, and so does what a folio would hold on both sides of a cut."""
    for mib in (110, 111, 112, 112, 117):
        grown = mib * MIB - file.stat().st_size
        os.truncate(file, mib * MIB)
        bound.committed(grown)
    assert drops == [(100 * MIB, 2 * MIB), (102 * MIB, 4 * MIB)]


def test_what_goes_where_deleted_blocks_were_is_dropped_with_everything(
    file: Path, bound: PageCacheBound, drops: Drops
) -> None:
    bound.committed(6 * MIB)
    assert not drops
    bound.committed(4 * MIB)
    assert drops == [(0, SIZE)]
    os.truncate(file, SIZE + 11 * MIB)
    bound.committed(11 * MIB)
    assert drops[1:] == [(100 * MIB, 2 * MIB)]


def test_without_a_limit_all_stays(file: Path, drops: Drops) -> None:
    bound = PageCacheBound(file, 0)
    bound.committed(2 * SIZE)
    bound.close()
    assert not drops


def is_cached(path: Path, offset: int) -> bool:
    """Whether a read there would not wait for the disk; skips the test where the file system does not tell."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # or the question reads ahead
        return os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            pytest.skip("this file system does not tell what is cached")
        raise
    finally:
        os.close(descriptor)


def test_a_store_reads_from_the_disk_what_the_page_cache_has_no_more(tmp_path: Path) -> None:
    settings = replace(SMALL, store_page_cache_bytes=4 * MIB, block_bytes=100_000)
    with open_store(tmp_path, new=True, settings=settings) as store:
        for ledger in range(40):
            put(store, frame(ledger, range(1000), size=500))
        data = tmp_path / "data.mdb"
        end = data.stat().st_size
        middle = range(2 * MIB, end - 8 * MIB, 64 * 1024)
        cached = [is_cached(data, offset) for offset in middle]
        assert any(is_cached(data, offset) for offset in range(end - 2 * MIB, end, 64 * 1024))
        assert cached.count(True) < len(cached) / 2, "pages of the trees are mapped"
        for ledger in range(40):
            assert read_store(store, ledger, 0, 999) == entries(range(1000), size=500)
