"""A journal file that the store holds is used again; what an earlier use left in it is never taken for something new."""

import errno
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import BookieMustStopError
from daybook_bookie.journal.format import (
    PAGE_BYTES,
    START,
    Position,
    Record,
    fence_record,
    file_name,
    frame_record,
    lac_table_record,
)
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.spare import SPARE, TAKEN, USED

from daybook.core.format.lac_table import LacRow
from tests.unit.bookie.journal.test_journal import (
    append_each,
    created,
    created_on,
    is_among,
    lost,
    reopen,
)
from tests.unit.bookie.sim_disk import SimDisk, SimFile
from tests.unit.bookie.store.kit import frame


def roll(journal: Journal) -> Position:
    """Fill the current file, so that the next record begins another one; returns the end of what was written."""
    file_id = journal.written.file_id
    while journal.written.file_id == file_id:
        append_each(journal, [0])
    return journal.durable


def lap(journal: Journal, record: Record) -> None:
    """Fill a file with groups of `record` alone, and have the journal write to that file again from its beginning."""
    journal.trim(roll(journal))
    journal.make_spare()
    file_id = journal.written.file_id
    while journal.written.file_id == file_id:
        journal.append([record])
        journal.sync()
    journal.trim(journal.durable)
    roll(journal)


def test_a_file_that_the_store_holds_is_used_again() -> None:
    disk, journal = created()
    files: list[SimFile] = []
    for _ in range(20):
        journal.trim(roll(journal))
        file = disk.files[file_name(journal.written.file_id)]
        if file not in files:
            files.append(file)
    assert len(files) == 2, "one that is written and one that is kept"
    assert disk.names() == [file_name(journal.written.file_id), USED]
    assert journal.spares == 1
    journal.make_spare()
    assert journal.spares == 1, "the file that was kept is the spare"
    journal.trim(roll(journal))
    journal.make_spare()
    journal.trim(roll(journal))
    assert journal.has_spare is False
    journal.close()


def test_one_file_is_kept_and_others_are_removed() -> None:
    disk, journal = created()
    for _ in range(4):
        roll(journal)
    assert journal.trim(journal.durable) == 4
    assert disk.names() == [file_name(5), USED]
    journal.make_spare()
    assert disk.names() == [file_name(5), SPARE]


def test_a_file_of_the_process_before_is_removed() -> None:
    """Its size may be another one, as settings change between two starts."""
    disk, journal = created()
    roll(journal)
    again, _ = reopen(disk.killed())
    again.trim(roll(again))
    assert disk.names() == [file_name(again.written.file_id)]


def test_a_start_removes_what_an_earlier_process_kept() -> None:
    disk, journal = created()
    roll(journal)
    journal.trim(journal.durable)
    assert USED in disk.names()
    again, _ = reopen(disk.killed(), journal.durable)
    again.make_spare()
    assert USED not in disk.names()
    assert SPARE in disk.names()


def lac_tables(lac: int) -> Record:
    return lac_table_record([LacRow(7, lac, 12), LacRow(8, lac, 4)])


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (frame_record(frame(7, [1, 2], size=900)), frame_record(frame(7, [3, 4], size=900))),
        (frame_record(frame(7, [], lac=1, length=5)), frame_record(frame(7, [], lac=2, length=5))),
        (lac_tables(1), lac_tables(2)),
        (fence_record(7), fence_record(8)),
    ],
    ids=["frame", "LAC", "table of LACs", "fence"],
)
def test_rule_25_older_records_of_the_same_sizes_are_not_taken_for_a_torn_groups(
    older: Record, newer: Record
) -> None:
    """Whatever sectors of the last group a power cut keeps. Small sectors cut between header, table and record."""
    disk = SimDisk(sector_bytes=64)
    journal = created_on(disk)
    lap(journal, older)
    synced = journal.durable
    journal.append([newer])
    sectors = [(name, at) for name, at in disk.unsynced() if any(disk.files[name].sector(at))]
    head = sectors[:5]
    for choice in product((False, True), repeat=len(head)):
        kept = {sector for sector, keep in zip(head, choice, strict=True) if keep}
        for rest in (set(), set(sectors[5:])):
            left = disk.power_cut(partial(is_among, kept | rest))
            records = reopen(left, synced)[1]
            assert records in ([], [newer])
            assert records or not (all(choice) and rest)


@pytest.mark.parametrize("keep_names", [False, True])
def test_rule_24_a_power_cut_at_any_operation_while_files_change_their_use_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, keep_names: bool
) -> None:
    steps = 0
    while True:
        steps += 1
        disk, journal = created()
        checkpoint, synced = START, []
        left = iter(range(steps, -1, -1))

        def check(_: str, left: Iterator[int] = left) -> None:
            if next(left, 0) == 0:
                raise OSError(errno.EIO, "the power goes here")

        monkeypatch.setattr(disk, "check", check)
        number = 0
        try:
            for turn in range(4):
                file_id = journal.written.file_id
                while journal.written.file_id < file_id + 1 + turn % 2:
                    number += 1
                    append_each(journal, [number])
                    synced.append(fence_record(number))
                    if number % 7 == 0:
                        journal.make_spare()
                checkpoint, synced = journal.durable, []
                journal.trim(checkpoint)
        except (BookieMustStopError, OSError):
            cut = disk.power_cut(lambda *_: False, keep_names=keep_names)
            records = reopen(cut, checkpoint)[1]
            assert records[: len(synced)] == synced, f"operation {steps}"
            assert len(records) <= len(synced) + 1
            continue
        assert steps > 100
        return


@pytest.mark.parametrize("is_ready", [False, True])
def test_rule_25_a_spare_that_is_made_while_another_one_is_taken_has_a_file_of_its_own(
    monkeypatch: pytest.MonkeyPatch, is_ready: bool
) -> None:
    disk, journal = created()
    journal.trim(roll(journal))
    if is_ready:  # and another one is kept
        journal.make_spare()
        journal.trim(roll(journal))
        journal.make_spare()
        journal.trim(roll(journal))
    rename = SimDisk.rename

    def made_meanwhile(disk: SimDisk, old: str, new: str) -> None:
        if old == TAKEN:
            journal.make_spare()
        rename(disk, old, new)

    monkeypatch.setattr(SimDisk, "rename", made_meanwhile)
    checkpoint = roll(journal)
    append_each(journal, [1])
    roll(journal)
    records = reopen(lost(disk), checkpoint)[1]
    assert records[0] == fence_record(1)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSPC])
def test_a_file_that_cannot_be_zeroed_is_removed_and_another_one_made(number: int) -> None:
    disk, journal = created()
    journal.trim(roll(journal))
    disk.fail["zero"] = OSError(number, "injected")
    journal.make_spare()
    assert disk.names() == [file_name(2), SPARE]
    journal.trim(roll(journal))
    assert disk.names() == [file_name(3), USED]


def test_rule_30_a_full_disk_that_refuses_a_new_name_keeps_no_file() -> None:
    disk, journal = created()
    end = roll(journal)
    disk.fail["rename"] = OSError(errno.ENOSPC, "injected")
    assert journal.trim(end) == 1
    assert disk.names() == [file_name(2)]


def test_a_real_file_reads_as_zeros_again_and_keeps_its_space(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).open("file", create=True)
    file.preallocate(PAGE_BYTES)
    file.pwritev([b"x" * PAGE_BYTES], 0)
    file.fdatasync()
    blocks = (tmp_path / "file").stat().st_blocks
    with suppress(OSError):  # some file systems cannot, and then a file is removed
        file.zero(PAGE_BYTES)
        assert file.read(0, PAGE_BYTES) == bytes(PAGE_BYTES)
        assert (tmp_path / "file").stat().st_blocks == blocks
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.zero(PAGE_BYTES)
