"""A process without a free file descriptor goes on to journal, and says what is wrong if it cannot (rule 30)."""

import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import StorageFullError
from daybook_bookie.journal.format import START, Position, Record, fence_record, file_name
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.journal.spare import SPARE

from daybook.runtime.descriptors import raise_descriptor_limit
from tests.unit.bookie.journal.test_journal import FILE_BYTES, append_each
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, eventually, frame_of

StartBookie = Callable[..., RunningBookie]


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Take every descriptor that the process may still have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def opened(directory: Path) -> tuple[Journal, list[Record]]:
    disk = RealDisk(directory)
    replay = JournalReplay(disk, START, new=not (directory / file_name(1)).exists())
    records = [Record(kind, bytes(body)) for kind, body in replay]
    return Journal(disk, replay, file_bytes=FILE_BYTES), records


@pytest.mark.parametrize("is_ahead", [False, True])
def test_rule_30_a_journal_without_descriptors_begins_file_after_file_and_loses_none(
    tmp_path: Path, is_ahead: bool
) -> None:
    journal, _ = opened(tmp_path)
    append_each(journal, [0])
    with no_descriptors():
        for n in range(1, 80):
            append_each(journal, [n])
            if is_ahead:
                journal.make_spare()
        assert journal.written.file_id > 4
        journal.trim(Position(2, START.offset))
    journal.close()
    assert file_name(1) not in os.listdir(tmp_path)
    records = list(JournalReplay(RealDisk(tmp_path), Position(2, START.offset)))
    assert records[-1] == fence_record(79)


def test_rule_30_a_journal_that_has_no_descriptor_at_all_refuses_and_goes_on_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = opened(tmp_path)
    append_each(journal, [0])
    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "_lend", lambda _: False)
        with no_descriptors(), pytest.raises(StorageFullError, match="RLIMIT_NOFILE"):
            append_each(journal, range(1, 40))
    append_each(journal, [99])
    journal.close()
    records = opened(tmp_path)[1]
    assert records[0] == fence_record(0)
    assert records[-1] == fence_record(99)


@OVER_BOTH
def test_a_bookie_without_descriptors_goes_on_to_write(start_bookie: StartBookie) -> None:
    bookie = start_bookie(journal_file_bytes=32 << 20)
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    stream.attach(1)
    journal = bookie.bookie.storage.journal
    assert eventually(lambda: journal.has_spare)
    with no_descriptors():
        for n in range(9):
            assert stream.add(frame_of(1, n, [bytes(7 << 20)])) == {}
    assert journal.written.file_id > 2
    assert bookie.failures == []
    assert bookie.bookie.availability.is_writable


def test_the_next_file_is_made_off_the_journal_thread(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[str] = []
    real = Journal.make_spare

    def make(journal: Journal) -> None:
        makers.append(threading.current_thread().name)
        real(journal)

    monkeypatch.setattr(Journal, "make_spare", make)
    bookie = start_bookie(journal_file_bytes=32 << 20)
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    stream.attach(1)
    journal = bookie.bookie.storage.journal
    for n in range(9):
        assert eventually(lambda: journal.has_spare)
        assert stream.add(frame_of(1, n, [bytes(7 << 20)])) == {}
    assert journal.written.file_id > 1
    assert set(makers) == {"journal-spare"}
    bookie.restart()
    assert bookie.read(1, 8, 8)[1] == [(8, bytes(7 << 20))]


def test_a_prepared_file_that_was_never_used_changes_nothing(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    append_each(journal, [1])
    journal.make_spare()
    assert SPARE in os.listdir(tmp_path)
    again, records = opened(tmp_path)
    assert records == [fence_record(1)]
    append_each(again, [2])
    assert opened(tmp_path)[1] == [fence_record(1), fence_record(2)]
    journal.close()
    again.close()


def test_the_limit_of_descriptors_is_raised_to_what_the_process_may_have() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        assert raise_descriptor_limit() == limits[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
