"""The journal: what was synced comes back whatever happens; damage is refused; a failed disk stops the bookie."""

import errno
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle, product
from pathlib import Path

import pytest
from daybook_bookie.disk.disk import PROBE, Disk, RealDisk
from daybook_bookie.disk.errors import BookieMustStopError, JournalCorruptError, StorageFullError
from daybook_bookie.journal.format import (
    DATA_START,
    PAGE_BYTES,
    START,
    LedgerIntro,
    Position,
    Record,
    deletion_record,
    fence_record,
    file_name,
    frame_record,
    intro_record,
    lac_table_record,
    limbo_clear_record,
    limbo_record,
    record_intro,
    record_lacs,
    record_ledger,
    record_nonce,
)
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.journal.spare import USED
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.format.lac_table import LacRow
from tests.unit.bookie.sim_disk import Fate, SimDisk
from tests.unit.bookie.store.kit import frame, payload

FILE_BYTES = 16 * PAGE_BYTES


def salts() -> Callable[[], int]:
    numbers = iter(range(1000, 2**32, 7919))
    return lambda: next(numbers)


def reopen(disk: SimDisk, checkpoint: Position = START) -> tuple[Journal, list[Record]]:
    replay = JournalReplay(disk, checkpoint, new=file_name(1) not in disk.files)
    records = [Record(kind, bytes(body)) for kind, body in replay]
    return Journal(disk, replay, file_bytes=FILE_BYTES, new_salt=salts()), records


def lost(disk: SimDisk) -> SimDisk:
    """The disk after a power cut that kept nothing but what was synced."""
    return disk.power_cut(lambda *_: False)


def created(*fences: int) -> tuple[SimDisk, Journal]:
    """A new journal with the fences of these ledgers, each synced."""
    disk = SimDisk()
    journal, _ = reopen(disk)
    append_each(journal, fences)
    return disk, journal


def created_on(
    disk: Disk, file_bytes: int = FILE_BYTES, new_salt: Callable[[], int] | None = None
) -> Journal:
    """A new journal on any disk."""
    replay = JournalReplay(disk, START, new=True)
    assert list(replay) == []
    return Journal(disk, replay, file_bytes=file_bytes, new_salt=new_salt or salts())


def is_among(kept: set[tuple[str, int]], name: str, sector: int) -> bool:
    return (name, sector) in kept


def is_chosen(noise: int, _: str, sector: int) -> bool:
    return bool(noise >> sector % 32 & 1)


def append_each(journal: Journal, ledgers: Iterable[int]) -> None:
    for ledger in ledgers:
        journal.append([fence_record(ledger)])
        journal.sync()


def some_records() -> list[Record]:
    return [
        intro_record(LedgerIntro(7, 123, b"hash")),
        frame_record(frame(7, [0, 1, 2])),
        fence_record(7),
        limbo_record(8, bytes(range(16))),
        limbo_clear_record(8, bytes(range(16))),
        frame_record(frame(7, [], lac=2, length=9)),
        lac_table_record([LacRow(7, 3, 12), LacRow(8, 0, 4)]),
        deletion_record(9),
    ]


def test_every_kind_of_record_comes_back_in_order(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    journal = created_on(disk)
    journal.append(some_records()[:3])
    journal.append(some_records()[3:])
    assert journal.sync() == journal.written
    journal.close()
    back = list(JournalReplay(disk, START))
    assert back == some_records()
    assert record_intro(back[0]) == LedgerIntro(7, 123, b"hash")
    assert record_ledger(back[2]) == 7
    assert record_lacs(back[6]) == [LacRow(7, 3, 12), LacRow(8, 0, 4)]
    assert record_nonce(back[3]) == bytes(range(16))


def test_more_records_than_one_write_takes(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    journal = created_on(disk)
    many = [fence_record(n) for n in range(5000)]
    journal.append(many)
    journal.sync()
    assert list(JournalReplay(disk, START)) == many
    assert journal.written.file_id > 1


@pytest.mark.parametrize("operation", ["fdatasync", "pwritev", "rename", "sync_directory"])
def test_rule_23_a_failed_write_or_fsync_stops_the_bookie_for_good(operation: str) -> None:
    disk, journal = created()
    if operation in ("fdatasync", "pwritev"):
        journal.append([fence_record(1)])
        journal.sync()
    disk.fail[operation] = OSError(errno.EIO, "injected")
    with pytest.raises(BookieMustStopError):
        append_each(journal, range(2, 3))
    disk.fail.clear()
    for again in (journal.sync, lambda: journal.append([fence_record(3)]), lambda: journal.trim(START)):
        with pytest.raises(BookieMustStopError, match="next start replays"):
            again()
    assert fence_record(3) not in reopen(disk.killed())[1]


def test_rule_23_a_torn_write_stops_the_bookie_and_is_cut_off_at_replay() -> None:
    disk, journal = created(1)
    disk.tear_at, disk.fail["pwritev"] = 70, OSError(errno.EIO, "injected")
    with pytest.raises(BookieMustStopError):
        journal.append([frame_record(frame(1, [0, 1]))])
    assert reopen(disk.killed())[1] == [fence_record(1)]


def test_rule_24_only_files_wholly_before_the_checkpoint_are_removed() -> None:
    disk, journal = created()
    ends = []
    for n in range(40):
        journal.append([fence_record(n)])
        ends.append(journal.sync())
    assert ends[-1].file_id == 3
    for n, checkpoint in enumerate(ends):
        journal.trim(checkpoint)
        assert reopen(lost(disk), checkpoint)[1] == [fence_record(m) for m in range(n + 1, 40)]
    assert disk.names() == [file_name(3), USED]


def test_a_missing_file_is_refused() -> None:
    disk, journal = created()
    for n in range(40):
        journal.append([fence_record(n)])
    end = journal.sync()
    for gone, checkpoint in ((2, START), (1, START), (3, end)):
        left = disk.power_cut(lambda *_: True)
        del left.files[file_name(gone)]
        with pytest.raises(JournalCorruptError, match="missing"):
            reopen(left, checkpoint)
    journal, _ = reopen(SimDisk())
    journal.prepare()
    with pytest.raises(JournalCorruptError, match="missing"):
        list(JournalReplay(SimDisk(), START))


def test_rule_25_all_subsets_of_unsynced_sectors() -> None:
    """Synced groups come back from any of them; of the others only whole ones, in order, and nothing is refused."""
    disk, journal = created()
    synced = [frame_record(frame(7, [0])), fence_record(7)]
    for record in synced:
        journal.append([record])
        journal.sync()
    unsynced = [
        frame_record(frame(7, [1], size=500)),
        fence_record(8),
        frame_record(frame(7, [2, 3, 4], size=400)),
    ]
    for record in unsynced:
        journal.append([record])
    sectors = disk.unsynced()
    assert 5 <= len(sectors) <= 9
    for choice in product((False, True), repeat=len(sectors)):
        kept = {sector for sector, keep in zip(sectors, choice, strict=True) if keep}
        left = disk.power_cut(partial(is_among, kept))
        journal, records = reopen(left)
        assert records[:2] == synced
        assert records[2:] == unsynced[: len(records) - 2]
        journal.append([fence_record(99)])
        journal.sync()
        assert reopen(left.power_cut(lambda *_: False))[1] == [*records, fence_record(99)]
        assert len(records) == 5 or not all(choice)


def test_rule_25_damage_before_a_durable_position_is_refused() -> None:
    """Every byte of every synced group but the last, and of the file headers."""
    disk, journal = created()
    groups = []
    for n in range(3):
        groups.append(
            (journal.written.offset if n else DATA_START, [frame_record(frame(7, [n])), fence_record(n)])
        )
        journal.append(groups[-1][1])
        journal.sync()
    file = disk.files[file_name(1)]
    places = [*range(36), *(at + byte for at, _ in groups[:2] for byte in range(64 + 16 + 120))]
    for place in places:
        file.seen[place] ^= 0x40
        with pytest.raises(JournalCorruptError, match="acknowledged are missing"):
            reopen(disk)
        file.seen[place] ^= 0x40
    file.seen[groups[2][0] + 70] ^= 1
    assert reopen(disk)[1] == groups[0][1] + groups[1][1], "the last group is where a torn tail may be"


def test_rule_25_damage_is_told_from_a_torn_tail_on_a_real_disk_too(tmp_path: Path) -> None:
    """Where the file system says which parts of a preallocated file were written."""
    disk = RealDisk(tmp_path)
    journal = created_on(disk, 4096 * PAGE_BYTES)
    append_each(journal, range(1, 3))
    journal.append([frame_record(frame(7, range(5000), size=1000))])
    journal.sync()
    append_each(journal, range(3, 5))
    path = tmp_path / file_name(1)
    sound = path.read_bytes()
    at = sound.index(payload(2500, 1000))
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"?")
    with pytest.raises(JournalCorruptError, match="acknowledged are missing"):
        list(JournalReplay(disk, START))


def test_rule_25_a_clean_close_makes_damage_of_the_last_group_known() -> None:
    disk, journal = created()
    journal.append([fence_record(1)])
    journal.close()
    disk.files[file_name(1)].seen[DATA_START + 70] ^= 1
    with pytest.raises(JournalCorruptError):
        reopen(disk)


def test_rule_25_a_new_file_that_lost_its_name_is_no_damage() -> None:
    disk, journal = created(1)
    disk.fail["sync_directory"] = OSError(errno.EIO, "the power went here")
    with pytest.raises(BookieMustStopError):
        append_each(journal, range(2, 40))
    for keep_names in (False, True):
        left = disk.power_cut(lambda *_: False, keep_names=keep_names)
        _, records = reopen(left)
        assert records == [fence_record(n) for n in range(1, 16)]


def test_rule_25_a_replay_makes_the_name_of_the_last_file_durable() -> None:
    """Else a flush could move the checkpoint into a file that the next power cut removes."""
    disk, journal = created(1)
    disk.fail["sync_directory"] = OSError(errno.EIO, "injected")
    with pytest.raises(BookieMustStopError):
        append_each(journal, range(2, 40))
    journal, _ = reopen(disk.killed())
    assert journal.durable.file_id == 2
    left = disk.power_cut(lambda *_: False)
    assert list(JournalReplay(left, journal.durable)) == []


def test_a_payload_that_looks_like_a_group_is_no_group() -> None:
    """A reader may store journal files as entries; none of their pages may be taken for groups."""
    disk, _ = created(*range(4))
    stolen = bytes(disk.files[file_name(1)].seen)
    other = SimDisk()
    append_each(created_on(other, new_salt=lambda: 5), [50])
    file = other.files[file_name(1)]
    file.seen[2 * PAGE_BYTES :] = stolen[2 * PAGE_BYTES :]
    assert reopen(other)[1] == [fence_record(50)]


def test_what_a_killed_process_left_in_the_page_cache_is_synced_before_it_is_built_on() -> None:
    disk, journal = created()
    journal.append([fence_record(1)])
    left = disk.killed()
    assert left.unsynced()
    assert reopen(left)[1] == [fence_record(1)]
    assert not left.unsynced()


def test_rule_30_no_room_for_a_file_is_read_only_and_ends_when_there_is_room() -> None:
    disk, journal = created()
    disk.fail["preallocate"] = OSError(errno.ENOSPC, "injected")
    with pytest.raises(StorageFullError, match="read-only"):
        journal.append([fence_record(1)])
    assert disk.names() == []
    disk.fail.clear()
    append_each(journal, [2])
    disk.fail["preallocate"] = OSError(errno.EDQUOT, "injected")
    with pytest.raises(StorageFullError):
        append_each(journal, [2] * 40)
    journal, records = reopen(disk.killed())
    assert set(records) == {fence_record(2)}, "a full disk boots"
    append_each(journal, [3])
    assert reopen(disk)[1][-1] == fence_record(3)


def test_rule_30_no_room_within_a_file_is_read_only_and_no_byte_is_written_twice() -> None:
    """A file system that copies on write keeps no promise of preallocation."""
    disk, journal = created()
    append_each(journal, [1])
    journal.append([fence_record(2)])
    disk.tear_at, disk.fail["pwritev"] = 50, OSError(errno.ENOSPC, "injected")
    with pytest.raises(StorageFullError, match="read-only"):
        journal.append([fence_record(3)])
    disk.killed()
    left = lost(disk)
    assert reopen(left)[1] == [fence_record(1), fence_record(2)]
    append_each(journal, [4])
    assert journal.written.file_id == 2
    assert reopen(lost(disk))[1] == [fence_record(n) for n in (1, 2, 4)]
    disk.fail["pwritev"] = OSError(errno.ENOSPC, "injected")
    journal.close()
    disk.killed()
    assert reopen(disk)[1] == [fence_record(n) for n in (1, 2, 4)]


@pytest.mark.parametrize("operation", ["create", "preallocate", "pwritev", "fdatasync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_rule_30_room_is_proved_by_taking_it_and_nothing_is_left_behind(operation: str, code: int) -> None:
    disk, journal = created()
    before = disk.names()
    assert journal.has_room()
    disk.fail[operation] = OSError(code, "injected")
    assert not journal.has_room()
    disk.fail[operation] = OSError(errno.EIO, "injected")
    with pytest.raises(OSError, match="injected"):
        journal.has_room()
    disk.fail.clear()
    disk.open(PROBE, create=True)  # as somebody leaves it who is killed at the worst moment
    assert journal.has_room()
    assert disk.names() == before


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "sync", "kill", "cut", "fail", "full", "spare", "trim"]),
            st.integers(0, 2**32),
        ),
        max_size=30,
    )
)
@settings(max_examples=150, deadline=None)
def test_rule_25_synced_records_survive_any_sequence_of_crashes(steps: list[tuple[str, int]]) -> None:
    disk, journal = created()
    written: list[Record] = []  # since the checkpoint; those before `synced` must come back
    synced, checkpoint, number = 0, START, 0
    for step, noise in steps:
        if step == "append":
            batch = [frame_record(frame(7, [number], size=noise % 3000)), fence_record(number)]
            number += 1
            journal.append(batch)
            written += batch
            synced = synced if journal.durable < journal.written else len(written)
        elif step == "sync":
            journal.sync()
            synced = len(written)
        elif step == "full":
            if journal.written.offset > DATA_START:
                disk.tear_at, disk.fail["pwritev"] = noise % 60, OSError(errno.ENOSPC, "injected")
                with pytest.raises(StorageFullError):
                    journal.append([fence_record(10**6)])
                disk.killed()
                synced = len(written)
        elif step == "spare":
            journal.make_spare()
        elif step == "trim":
            checkpoint = journal.sync()
            journal.trim(checkpoint)
            written, synced = [], 0
        else:
            if step == "cut":
                disk = disk.power_cut(partial(is_chosen, noise), keep_names=noise % 3 == 0)
            elif step == "fail":
                fates = [Fate.DROPPED] if noise % 3 == 0 else [Fate.CLEAN, Fate.WRITTEN][: noise % 3]
                disk.fate_of_failed = partial(next, cycle(fates))
                disk.fail["fdatasync"] = OSError(errno.EIO, "injected")
                if journal.durable < journal.written:
                    with pytest.raises(BookieMustStopError):
                        journal.sync()
                disk.killed()
            journal, records = reopen(disk, checkpoint)
            assert records[:synced] == written[:synced]
            assert records == written[: len(records)]
            written, synced = records, len(records)
