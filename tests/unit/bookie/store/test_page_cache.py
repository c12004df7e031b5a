"""The bound of the page cache: what it drops, and that what was dropped is read from the disk."""

import ctypes
import errno
import io
import mmap
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from daybook_bookie.settings import MIB
from daybook_bookie.store.page_cache import PageCacheBound

from tests.unit.bookie.store.kit import SMALL, entries, frame, open_store, put, read_store

LIMIT = 10 * MIB
SIZE = 101 * MIB
Drops = list[tuple[int, int]]


@pytest.fixture
def drops(monkeypatch: pytest.MonkeyPatch) -> Drops:
    """The ranges (offset, size) that are dropped."""
    seen: Drops = []
    drop = os.posix_fadvise

    def note(descriptor: int, offset: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        seen.append((offset, size))
        drop(descriptor, offset, size, advice)

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


@pytest.mark.parametrize("call", ["posix_fadvise", "fstat"])
def test_an_error_of_the_hint_fails_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drops: Drops, call: str
) -> None:
    settings = replace(SMALL, store_page_cache_bytes=MIB, block_bytes=100_000)
    failed: list[object] = []

    def fail(*arguments: object) -> None:
        failed.append(arguments)
        raise OSError(errno.EIO, "injected")

    with open_store(tmp_path, new=True, settings=settings) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            for ledger in range(12):
                put(store, frame(ledger, range(1000), size=500))
        assert failed
        assert not drops
        put(store, frame(12, range(1000), size=500))
        assert drops, "the next commit drops what the others could not"
        assert read_store(store, 0, 0, 999) == entries(range(1000), size=500)


def cached_bytes(path: Path, begin: int, end: int) -> int:
    """How much of a file the page cache has, by mincore(2); reading it would change it."""
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    states = (ctypes.c_ubyte * ((end - begin) // page))()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), end - begin, offset=begin) as pages:
        start = ctypes.c_char.from_buffer(pages)
        result = libc.mincore(ctypes.byref(start), ctypes.c_size_t(end - begin), states)
        del start
    assert result == 0, os.strerror(ctypes.get_errno())
    return page * sum(state & 1 for state in states)


def write(file: io.FileIO, size: int) -> None:
    file.write(os.urandom(size))
    os.fdatasync(file.fileno())


@pytest.fixture
def dropping(tmp_path: Path) -> Path:
    """A folder whose file system drops what it is told to drop; not every one can, like tmpfs."""
    path = tmp_path / "sample"
    with path.open("wb", buffering=0) as file:
        write(file, MIB)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_bytes(path, 0, MIB):
        pytest.skip("this file system does not drop what it cached")
    return tmp_path


def test_the_kernel_drops_what_is_behind(dropping: Path) -> None:
    path = dropping / "written"
    with path.open("wb", buffering=0) as file:
        bound = PageCacheBound(path, 8 * MIB)
        for _ in range(16):
            write(file, 2 * MIB)
            bound.committed(2 * MIB)
        bound.close()
    assert cached_bytes(path, 24 * MIB, 32 * MIB) == 8 * MIB, "the newest"
    assert cached_bytes(path, 0, 24 * MIB) < 6 * MIB, "the kernel may hold a few for a moment"


def test_a_store_drops_what_it_wrote_and_reads_it_from_the_disk(tmp_path: Path, drops: Drops) -> None:
    settings = replace(SMALL, store_page_cache_bytes=4 * MIB, block_bytes=100_000)
    with open_store(tmp_path, new=True, settings=settings) as store:
        for ledger in range(40):
            put(store, frame(ledger, range(1000), size=500))
        assert sum(size for _, size in drops) >= 8 * MIB
        for ledger in range(40):
            assert read_store(store, ledger, 0, 999) == entries(range(1000), size=500)
