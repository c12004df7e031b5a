"""What a replay read is written again before it counts, whatever a failed sync left, and whether or not there is room."""

import errno
from functools import partial
from itertools import cycle

import pytest
from daybook_bookie.disk.errors import BookieMustStopError, StorageFullError
from daybook_bookie.journal.format import START, Record, fence_record, frame_record

from tests.unit.bookie.journal.test_journal import append_each, created, lost, reopen
from tests.unit.bookie.sim_disk import Fate, SimDisk
from tests.unit.bookie.store.kit import frame


@pytest.mark.parametrize(
    "fates",
    [[Fate.CLEAN], [Fate.DROPPED], [Fate.CLEAN, Fate.WRITTEN], [Fate.WRITTEN, Fate.CLEAN]],
    ids=["ext4", "btrfs", "half", "other half"],
)
@pytest.mark.parametrize("rolled", [False, True])
def test_rule_23_what_a_failed_sync_left_readable_is_written_again_before_it_counts(
    fates: list[Fate], rolled: bool
) -> None:
    """The kernel calls the pages clean: the next process reads them, and its own sync writes nothing of them."""
    disk = SimDisk()
    disk.fate_of_failed = partial(next, cycle(fates))
    journal, _ = reopen(disk)
    append_each(journal, range(40 if rolled else 1))
    journal.append([frame_record(frame(7, [1], size=3000))])
    disk.fail["fdatasync"] = OSError(errno.EIO, "injected")
    with pytest.raises(BookieMustStopError):
        journal.sync()
    journal, replayed = reopen(disk.killed())
    assert (len(replayed) > (40 if rolled else 1)) is (Fate.DROPPED not in fates)
    assert reopen(lost(disk))[1] == replayed, "they may have been answered for"
    append_each(journal, [99])
    assert reopen(lost(disk))[1] == [*replayed, fence_record(99)]


def owing() -> tuple[SimDisk, list[Record]]:
    """A disk with a record that a failed sync left readable, on a file system that has no room to write it again."""
    disk, journal = created(1)
    journal.append([fence_record(2)])
    disk.fail["fdatasync"] = OSError(errno.EIO, "injected")
    with pytest.raises(BookieMustStopError):
        journal.sync()
    disk.killed()
    disk.fail["pwritev"] = OSError(errno.ENOSPC, "injected")
    return disk, [fence_record(1), fence_record(2)]


def test_rule_30_a_journal_that_finds_no_room_to_write_again_starts_and_promises_nothing_until_it_does() -> (
    None
):
    disk, records = owing()
    journal, replayed = reopen(disk)
    assert replayed == records
    for again in (journal.sync, lambda: journal.append([fence_record(3)])):
        with pytest.raises(StorageFullError, match="read-only"):
            again()
    assert journal.durable == START
    disk.fail.clear()
    assert journal.sync() == journal.written
    assert reopen(lost(disk))[1] == records


def test_rule_30_what_the_store_has_need_not_be_written_again() -> None:
    disk, _ = owing()
    journal, _ = reopen(disk)
    end = journal.written
    journal.trim(end)
    disk.fail.clear()
    append_each(journal, [3])
    assert reopen(lost(disk), end)[1] == [fence_record(3)]


def test_rule_23_a_journal_that_cannot_be_written_again_stops_the_bookie() -> None:
    disk, _ = owing()
    journal, _ = reopen(disk)
    disk.fail["pwritev"] = OSError(errno.EIO, "injected")
    with pytest.raises(BookieMustStopError, match="written again"):
        journal.sync()
    with pytest.raises(OSError, match="injected"):
        reopen(disk)
