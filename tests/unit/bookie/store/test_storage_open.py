"""Opening a bookie's storage on a real disk: what is new, what is lost, and what cannot be configured."""

from pathlib import Path

import pytest
from daybook_bookie.disk.disk import IOVECS_MAX, RealDisk
from daybook_bookie.disk.errors import JournalCorruptError, StoreRefusedError
from daybook_bookie.journal.format import file_name
from daybook_bookie.settings import GIB, MIB, StorageSettings, map_bytes_for
from daybook_bookie.store.storage import Storage

from tests.unit.bookie.store.kit import add, entries, flush, frame, read_all

SETTINGS = StorageSettings(journal_file_bytes=32 * MIB, store_map_bytes=256 * MIB)


def opened(base: Path, *, new: bool = False) -> Storage:
    for name in ("journal", "store"):
        (base / name).mkdir(exist_ok=True)
    return Storage.open(
        RealDisk(base / "journal"), RealDisk(base / "store"), base / "store", SETTINGS, new=new
    )


def test_what_was_written_is_there_after_each_start_and_files_go_after_a_flush(tmp_path: Path) -> None:
    storage = opened(tmp_path, new=True)
    for start in range(4):
        add(storage, frame(7, [2 * start, 2 * start + 1]))
        if start == 2:
            flush(storage)
        storage.close()
        storage = opened(tmp_path)
        assert read_all(storage, 7) == entries(range(2 * start + 2))
    add(storage, frame(7, [8]))
    flush(storage)
    assert sorted(path.name for path in (tmp_path / "journal").iterdir()) == [
        file_name(storage.journal.durable.file_id)
    ]
    storage.close()


def test_a_first_start_may_be_repeated_until_something_was_stored(tmp_path: Path) -> None:
    opened(tmp_path, new=True).close()
    storage = opened(tmp_path, new=True)
    add(storage, frame(7, [0]))
    storage.close()
    storage = opened(tmp_path)
    assert read_all(storage, 7) == entries([0])
    storage.close()


@pytest.mark.parametrize("flushed", [False, True])
def test_a_lost_journal_or_store_is_refused_and_not_made_anew(tmp_path: Path, flushed: bool) -> None:
    storage = opened(tmp_path, new=True)
    add(storage, frame(7, [0]))
    if flushed:
        flush(storage)
    storage.close()
    (tmp_path / "journal").rename(tmp_path / "aside")
    with pytest.raises(JournalCorruptError, match="missing"):
        opened(tmp_path)
    (tmp_path / "journal").rmdir()
    (tmp_path / "aside").rename(tmp_path / "journal")
    (tmp_path / "store").rename(tmp_path / "aside")
    with pytest.raises(StoreRefusedError, match="although this bookie had one"):
        opened(tmp_path)


def test_more_buffers_than_one_call_takes_and_a_read_beyond_the_end(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    file = disk.open("file", create=True)
    buffers = [bytes([n % 251]) * 3 for n in range(2 * IOVECS_MAX + 7)]
    file.pwritev(buffers, 11)
    assert file.read(11, 10**6) == b"".join(buffers)
    assert file.read(0, 11) == bytes(11)
    file.preallocate(8 * MIB)
    file.pwritev([b"x"], 5 * MIB)
    assert any(begin <= 5 * MIB < end for begin, end in file.written_ranges(MIB))
    assert file.written_ranges(file.size_bytes()) == []
    file.close()
    with pytest.raises(FileExistsError):
        disk.open("file", create=True)
    with pytest.raises(FileNotFoundError, match="mount"):
        RealDisk(tmp_path / "absent")


def test_a_map_that_nobody_gave_lets_a_volume_be_filled_and_grow() -> None:
    assert map_bytes_for(10 * GIB) == 256 * GIB
    assert map_bytes_for(2048 * GIB) == 4 * 2048 * GIB
    assert map_bytes_for(2**63) == 64 * 1024 * GIB, "a network file system is as large as it likes"


@pytest.mark.parametrize(
    "wrong",
    [
        {"journal_file_bytes": MIB},
        {"store_map_bytes": MIB},
        {"block_bytes": 0},
        {"block_bytes": 17 * MIB},
        {"flush_transaction_bytes": 0},
        {"delete_transaction_blocks": 0},
        {"read_overshoot_bytes": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        StorageSettings(**wrong)
