"""A journal file that the store holds is written again; what an earlier use left in it is never taken for something new."""

import errno
import os
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import BookieMustStopError
from daybook_bookie.journal import format as journal_format
from daybook_bookie.journal.format import (
    PAGE_BYTES,
    START,
    Position,
    Record,
    fence_record,
    file_name,
    frame_record,
    lac_table_record,
    pack_group,
)
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.spare import SPARE, USED

from daybook.core.format.lac_table import LacRow
from tests.unit.bookie.journal.test_journal import (
    append_each,
    created,
    created_on,
    is_among,
    lost,
    reopen,
)
from tests.unit.bookie.sim_disk import SimDisk
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


def test_a_file_that_the_store_holds_is_written_again(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    journal = created_on(disk)
    inodes = set()
    for _ in range(20):
        journal.trim(roll(journal))
        inodes.add((tmp_path / file_name(journal.written.file_id)).stat().st_ino)
    assert len(inodes) == 2, "one that is written and one that is kept"
    assert sorted(os.listdir(tmp_path)) == sorted([file_name(journal.written.file_id), USED])
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


@pytest.mark.parametrize("operation", ["rename", "sync_directory", "open", "pwritev", "fdatasync"])
@pytest.mark.parametrize("keep_names", [False, True])
def test_rule_24_a_power_cut_while_a_file_changes_its_use_loses_nothing(
    operation: str, keep_names: bool
) -> None:
    disk, journal = created()
    roll(journal)
    checkpoint = journal.durable
    append_each(journal, [1, 2])
    disk.fail[operation] = OSError(errno.EIO, "the power goes here")
    try:
        journal.trim(checkpoint)
        journal.make_spare()
        append_each(journal, range(3, 40))
    except (BookieMustStopError, OSError):
        pass
    else:
        pytest.fail("no operation of the disk was refused")
    left = disk.power_cut(lambda *_: False, keep_names=keep_names)
    records = reopen(left, checkpoint)[1]
    assert records[:2] == [fence_record(1), fence_record(2)]
    assert records == [fence_record(n) for n in range(1, len(records) + 1)]


def test_groups_are_written_as_whole_pages() -> None:
    """So the kernel never reads a page to write a part of it."""
    for record in (fence_record(1), frame_record(frame(7, [1], size=PAGE_BYTES))):
        buffers = pack_group([record] * 3, START, 1, START, 1)
        assert sum(map(len, buffers)) % PAGE_BYTES == 0


def test_files_of_format_1_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were written once, by earlier releases, and their groups' checksum leaves frames out."""
    disk = SimDisk()
    written = [frame_record(frame(7, [1])), fence_record(7), lac_tables(1)]
    with monkeypatch.context() as former:
        former.setattr(journal_format, "_records_crc", journal_format._records_crc_1)
        former.setattr(journal_format, "_FILE_MAGIC", b"DBJ1")
        former.setattr(journal_format.FileHeader, "format", property(lambda _: 1))
        journal = created_on(disk)
        journal.append(written)
        journal.sync()
    assert bytes(disk.files[file_name(1)].seen[:4]) == b"DBJ1"
    journal, records = reopen(lost(disk))
    assert records == written
