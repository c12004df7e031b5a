"""Opening a store: what its errors mean, what is made certain first (rule 23), and disks that are full even for that (rule 30)."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from daybook_bookie.disk import disk as real_disk
from daybook_bookie.disk.disk import Buffer, DiskFile, RealDisk
from daybook_bookie.disk.errors import BookieMustStopError, StorageFullError, StoreNotOpenedError
from daybook_bookie.store import thread as store_thread
from daybook_bookie.store.checkpoint import CHECKPOINT
from daybook_bookie.store.environment import DATA_FILE
from daybook_bookie.store.store import Store

from tests.unit.bookie.server_kit import RunningBookie, eventually, frame_of
from tests.unit.bookie.store.kit import SMALL, decoded, entries, frame, open_store, put
from tests.unit.bookie.stream_kit import WAIT_S

StartBookie = Callable[..., RunningBookie]
NOBODY = 65_534


class WatchedFile:
    """A file whose writes and syncs are noted, and refused as the disk has it."""

    def __init__(self, disk: "WatchedDisk", name: str, file: DiskFile) -> None:
        self._disk = disk
        self._name = name
        self._file = file
        self.read = file.read
        self.written_ranges = file.written_ranges
        self.preallocate = file.preallocate
        self.zero = file.zero
        self.size_bytes = file.size_bytes
        self.close = file.close

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._disk.meets("write", self._name)
        self._file.pwritev(buffers, offset)

    def fdatasync(self) -> None:
        self._disk.meets("sync", self._name)
        self._file.fdatasync()


class WatchedDisk(RealDisk):
    """A directory on a file system that copies on write, and may be full or broken."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.error = 0
        self.steps: list[tuple[str, str]] = []

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        return WatchedFile(self, name, super().open(name, create=create))

    def meets(self, step: str, name: str) -> None:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        self.steps.append((step, name))


def open_on(disk: WatchedDisk, directory: Path, *, new: bool = False) -> Store:
    return Store(directory, disk, SMALL, new=new)


def test_rule_23_the_newest_page_is_written_again_before_the_checkpoint_says_that_it_is_there(
    tmp_path: Path,
) -> None:
    """It may be readable and on no disk; a power cut would leave a store that its own checkpoint calls too old."""
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, [0]))
    disk = WatchedDisk(tmp_path)
    with open_on(disk, tmp_path):
        assert disk.steps == [
            ("write", DATA_FILE),
            ("sync", DATA_FILE),
            ("write", CHECKPOINT),
            ("sync", CHECKPOINT),
        ]
    with open_store(tmp_path) as store:
        assert decoded(store.read_blocks(7, 0, 9, 100)) == entries([0]), "with the bytes that it had"
    disk.error = errno.EIO
    with pytest.raises(BookieMustStopError, match="check the disk"):
        open_on(disk, tmp_path)


def test_rule_30_a_full_disk_that_copies_on_write_refuses_commits_and_opens(tmp_path: Path) -> None:
    disk = WatchedDisk(tmp_path)
    with open_on(disk, tmp_path, new=True) as store:
        put(store, frame(7, [0]))
        disk.error = errno.ENOSPC
        with pytest.raises(StorageFullError, match="read-only"):
            put(store, frame(7, [1]))
        generation = store.root.generation
        with pytest.raises(StorageFullError, match="read-only"):
            put(store, frame(7, [2]))
        assert store.root.generation == generation, "the store is never two commits ahead of its checkpoint"
    for held, error in ((2, errno.ENOSPC), (3, errno.EDQUOT)):
        disk.error = error
        with open_on(disk, tmp_path) as store:
            assert store.needs_confirmation
            assert decoded(store.read_blocks(7, 0, 9, 1000)) == entries(range(held))
            with pytest.raises(StorageFullError):
                put(store, frame(7, [held]))
            disk.error = 0
            put(store, frame(7, [held]))
            assert not store.needs_confirmation
    with open_store(tmp_path) as store:
        assert decoded(store.read_blocks(7, 0, 9, 1000)) == entries(range(4))


def test_rule_30_a_bookie_starts_on_a_full_disk_that_copies_on_write_and_serves_again_when_there_is_room(
    start_bookie: StartBookie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_thread, "_FULL_RETRY_S", 0.02)
    bookie = start_bookie(disk_check_ms=10)
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    as_killed = tmp_path / "killed"
    shutil.copytree(bookie.directory, as_killed)
    bookie.stop()
    shutil.rmtree(bookie.directory)
    as_killed.rename(bookie.directory)
    with monkeypatch.context() as patch:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

        patch.setattr(real_disk._RealFile, "_write_all", full)
        bookie.restart()
        assert eventually(lambda: not bookie.bookie.availability.is_writable)
        assert not bookie.bookie.make_durable(WAIT_S), "what was replayed could not be written again"
        assert bookie.bookie.table.known_ids() == [1]
    assert eventually(lambda: bookie.bookie.availability.is_writable)
    assert bookie.bookie.make_durable(WAIT_S)
    assert bookie.read(1, 0, 0)[1] == [(0, b"a")]
    assert bookie.failures == []


# -- errors that say nothing about what is stored


@contextmanager
def without_rights(path: Path) -> Iterator[None]:
    """An ordinary user who may not read the file."""
    mode, user = path.stat().st_mode, os.geteuid()
    with ExitStack() as stack:
        stack.callback(path.chmod, mode)
        path.chmod(0)
        if user == 0:
            parent = path.parent
            while parent.owner() == "root" and parent.stat().st_mode & 0o777 == 0o700:
                stack.callback(parent.chmod, 0o700)
                parent.chmod(0o755)
                parent = parent.parent
            stack.callback(os.seteuid, user)
            os.seteuid(NOBODY)
        yield


def test_a_store_that_may_not_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    open_store(tmp_path, new=True).close()
    with (
        without_rights(tmp_path / "lock.mdb"),
        pytest.raises(StoreNotOpenedError, match="owner and mode") as raised,
    ):
        open_store(tmp_path)
    assert "replace" not in str(raised.value)
    open_store(tmp_path).close()


def test_a_map_without_address_space_names_its_setting(tmp_path: Path) -> None:
    open_store(tmp_path, new=True).close()
    with pytest.raises(StoreNotOpenedError, match="lower that setting"):
        open_store(tmp_path, settings=replace(SMALL, store_map_bytes=1 << 60))


def test_a_process_without_descriptors_does_not_blame_the_store(tmp_path: Path) -> None:
    open_store(tmp_path, new=True).close()
    disk = RealDisk(tmp_path)
    names = disk.names()
    disk.names = lambda: names  # type: ignore[method-assign]  # listing takes a descriptor, too
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        with pytest.raises(StoreNotOpenedError, match="RLIMIT_NOFILE"):
            Store(tmp_path, disk, SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    open_store(tmp_path).close()


@pytest.mark.parametrize(
    ("error", "code", "advice"),
    [
        (lmdb.DiskError, errno.ENOSPC, "make some"),
        (lmdb.DiskError, errno.EIO, "kernel's log"),
        (lmdb.LockError, errno.EAGAIN, "another process"),
        (lmdb.Error, errno.ENODEV, "ext4 or XFS"),
        (lmdb.VersionMismatchError, 0, "another release of LMDB"),
    ],
)
def test_every_other_error_of_the_machine_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[lmdb.Error], code: int, advice: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raised = error("injected")
        vars(raised)["code"] = code
        raise raised

    monkeypatch.setattr(lmdb, "open", fail)
    with pytest.raises(StoreNotOpenedError, match=advice):
        open_store(tmp_path, new=True)
