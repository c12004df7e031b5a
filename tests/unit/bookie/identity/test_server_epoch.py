"""A disk that goes back in time: restored, whole or in part, from a snapshot that lacks what was acknowledged (rule 58)."""

import asyncio
import errno
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import JournalCorruptError
from daybook_bookie.disk.small_files import write_durably
from daybook_bookie.identity import boot, epoch
from daybook_bookie.identity.epoch import Age, DiskEpoch, EpochKeeper
from daybook_bookie.journal.format import Position
from daybook_bookie.store.storage import Storage

from daybook.core.errors import Code, MetadataUnavailableError
from daybook.metadata.layout import Layout
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.identity.kit import DIRECTORIES, cut_off, fill, let_back, limbo_of, restore, snapshot
from tests.unit.bookie.server_kit import RunningBookie, frame_of
from tests.unit.bookie.stream_kit import WAIT_S

StartBookie = Callable[..., RunningBookie]


def stored_epoch(server: MemoryServer) -> dict[str, object]:
    """What ZooKeeper has."""

    async def read() -> bytes:
        store = MemoryStore(server)
        try:
            return (await store.get(Layout("test").epoch("b0"))).value
        finally:
            await store.close()

    record: dict[str, object] = json.loads(asyncio.run(read()))
    return record


def add(bookie: RunningBookie, first: int) -> None:
    """Have one more entry of ledger 1 acknowledged."""
    stream = bookie.open_stream()
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, first, [b"later"], lac=first - 1)) == {}


@pytest.fixture
def served(bookie: RunningBookie) -> RunningBookie:
    """A registered bookie whose ledger 1 has two entries."""
    bookie.register()
    fill(bookie)
    return bookie


def test_rule_58_a_disk_that_went_back_vouches_for_nothing(served: RunningBookie, tmp_path: Path) -> None:
    served.create_ledger(3, bookies=("b9",))
    served.stop()
    snapshot(served, tmp_path / "old")
    served._start()
    served.register()
    add(served, 2)
    served.stop()
    restore(served, tmp_path / "old")
    served._start()
    assert limbo_of(served) == [1]
    header, _, _ = served.read(1, 2, 2)
    assert header.limbo, "what it lacks proves nothing"
    notice = served.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S).disk_notice
    assert "went back in time" in notice
    assert served.metric("disk_went_back") == 1
    served.register()
    served.restart()
    assert limbo_of(served) == [1], "until repair has given back what is owed"
    assert served.metric("disk_went_back") == 0


@pytest.mark.parametrize("names", [(), ("journal",), ("store",)])
def test_rule_58_a_copy_that_was_made_while_the_bookie_ran_is_found_after_its_orderly_stop(
    served: RunningBookie, tmp_path: Path, names: tuple[str, ...]
) -> None:
    snapshot(served, tmp_path / "old")
    add(served, 2)
    served.stop()
    restore(served, tmp_path / "old", *names)
    served._start()
    assert limbo_of(served) == [1]


def test_rule_58_a_journal_older_than_its_store_is_found_where_the_journal_alone_tells_nothing(
    served: RunningBookie, tmp_path: Path
) -> None:
    """The checkpoint is beyond what the old journal holds, in the same file: a replay takes that for a torn tail."""
    snapshot(served, tmp_path / "old")
    add(served, 2)
    assert served.flush()
    add(served, 3)
    served.stop()
    restore(served, tmp_path / "old", "journal")
    served._start()
    assert limbo_of(served) == [1]


def test_a_journal_that_went_back_by_a_file_is_refused_by_its_replay(
    served: RunningBookie, tmp_path: Path
) -> None:
    served.stop()
    snapshot(served, tmp_path / "old")
    served._start()
    add(served, 2)
    served.stop()
    restore(served, tmp_path / "old", "journal")
    with pytest.raises(JournalCorruptError):
        served._start()


def test_a_bookie_that_starts_and_stops_is_not_taken_for_old(served: RunningBookie) -> None:
    for number in range(2, 4):
        served.restart()
        served.register()
        add(served, number)
    assert limbo_of(served) == []
    assert served.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S).disk_notice == ""


def test_disks_and_a_zookeeper_of_an_earlier_release_begin_to_count(served: RunningBookie) -> None:
    served.stop()
    for name in DIRECTORIES:
        (served.directory / name / epoch.FILE).unlink()

    async def forget() -> None:
        store = MemoryStore(served.metadata)
        await store.delete(Layout("test").epoch("b0"))
        await store.delete(Layout("test").epochs)
        await store.close()

    asyncio.run(forget())
    served._start()
    served.register()
    assert limbo_of(served) == []
    assert stored_epoch(served.metadata)["epoch"] == 1
    served.restart()
    assert limbo_of(served) == []


def test_a_zookeeper_that_went_back_does_no_harm(served: RunningBookie) -> None:
    for _ in range(3):
        served.restart()
    served.register()
    before = stored_epoch(served.metadata)["epoch"]
    served.stop()

    async def set_back() -> None:
        store = MemoryStore(served.metadata)
        record = {**stored, "epoch": 1, "bootId": "long ago"}
        await store.put(Layout("test").epoch("b0"), json.dumps(record).encode(), None)
        await store.close()

    stored = stored_epoch(served.metadata)
    asyncio.run(set_back())
    served._start()
    served.register()
    assert limbo_of(served) == []
    after = stored_epoch(served.metadata)["epoch"]
    assert isinstance(after, int)
    assert isinstance(before, int)
    assert after > before, "and it is lifted again"


def test_rule_58_marks_and_epoch_are_of_one_claim(
    served: RunningBookie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the process with the right disks may have been the bookie in between."""
    served.stop()
    snapshot(served, tmp_path / "old")
    served.restart()
    served.register()
    served.stop()
    restore(served, tmp_path / "old")
    mark = boot._Boot._mark_limbo
    listings: list[int] = []

    def lose_the_session(self: boot._Boot, storage: Storage, ledgers: Sequence[int]) -> None:
        mark(self, storage, ledgers)
        listings.append(len(ledgers))
        if len(listings) == 1:

            async def expire() -> None:
                served.metadata.expire(self._link.store.session.session_id)

            self._link.run(expire())

    monkeypatch.setattr(boot._Boot, "_mark_limbo", lose_the_session)
    served._start()
    assert listings == [1, 1]


def test_rule_57_a_process_whose_directories_were_copied_and_started_elsewhere_stops(
    served: RunningBookie, start_bookie: StartBookie
) -> None:
    cut_off(served)
    snapshot(served, served.directory.with_name("copy"))
    copy = start_bookie("copy", server=served.metadata)
    copy.register()
    copy.stop()
    let_back(served)
    assert served.failed.wait(WAIT_S)
    assert "a copy of them" in served.failures[0]


@pytest.mark.parametrize(
    ("age", "in_zookeeper", "behind"),
    [
        (Age(3, 3), 3, False),
        (Age(4, 3), 3, False),
        (Age(4, 3), 4, True),
        (Age(3, 3), 4, True),
        (Age(3, 4), 0, True),
        (Age(5, 3), 0, True),
        (Age(9, 9), 1, False),
        (Age(0, 0), 0, False),
        (Age(0, 0), 1, True),
        (Age(-1, -1), 0, True),
    ],
)
def test_rule_58_old_is_what_is_behind_zookeeper_or_behind_the_other_disk(
    age: Age, in_zookeeper: int, behind: bool
) -> None:
    assert age.is_behind(in_zookeeper) is behind


def test_rule_58_a_damaged_epoch_is_of_no_age(tmp_path: Path) -> None:
    disks = {name: RealDisk(tmp_path) for name in DIRECTORIES}
    DiskEpoch(disks, "i").write(7)
    assert DiskEpoch(disks, "i").age == (7, 7)
    assert DiskEpoch(disks, "another incarnation").age == (0, 0)
    (tmp_path / epoch.FILE).write_bytes(b'{"epoch": 9}\ncrc32 00000000\n')
    assert DiskEpoch(disks, "i").age.is_behind(0)


class Keeping:
    """ZooKeeper as the keeper meets it, and the clock."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in DIRECTORIES:
            (tmp_path / name).mkdir()
        self.directories = {name: RealDisk(tmp_path / name) for name in DIRECTORIES}
        self.disks = DiskEpoch(self.directories, "i")
        self.at = Position(1, 4096)
        self.now_ms = 0
        self.published: list[tuple[int, Age]] = []
        self.answers = self.connected = True
        monkeypatch.setattr(epoch, "monotonic_ms", lambda: self.now_ms)
        self.keeper = EpochKeeper(self.disks, lambda: self.at, self._publish, lambda: self.connected)

    def _publish(self, number: int) -> None:
        if not self.answers:
            msg = "away"
            raise MetadataUnavailableError(msg)
        self.published.append((number, DiskEpoch(self.directories, "i").age))

    def write(self, *, roll: bool = False) -> None:
        """Something is journalled."""
        self.at = Position(self.at.file_id + roll, self.at.offset + 4096)


def test_rule_58_the_epoch_rises_with_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = Keeping(tmp_path, monkeypatch)
    keeping.now_ms = 10 * epoch.RAISE_MS
    keeping.keeper.poll()
    assert keeping.published == [], "nothing was written"
    keeping.write()
    keeping.keeper.poll()
    assert keeping.published == [(1, (1, 1))], "at once after a pause, and durable on both disks by then"
    keeping.write()
    keeping.keeper.poll()
    keeping.now_ms += epoch.RAISE_MS
    keeping.keeper.poll()
    keeping.write(roll=True)
    keeping.keeper.poll()
    keeping.write()
    keeping.keeper.poll(at_last=True)
    assert [number for number, _ in keeping.published] == [1, 2, 3, 4]


def test_rule_58_without_zookeeper_the_epoch_waits_and_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = Keeping(tmp_path, monkeypatch)
    keeping.now_ms = epoch.RAISE_MS
    keeping.connected = False
    keeping.write()
    keeping.keeper.poll()
    keeping.connected, keeping.answers = True, False
    keeping.keeper.poll()
    assert keeping.published == []
    keeping.answers = True
    keeping.keeper.poll()
    assert keeping.published == [(2, (2, 2))], "raised on the disks again, and only then there"


def test_rule_58_a_full_disk_raises_nothing_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = Keeping(tmp_path, monkeypatch)
    write = write_durably
    failed = threading.Event()

    def full(disk: RealDisk, name: str, data: bytes) -> None:
        if failed.is_set():
            raise OSError(errno.ENOSPC, "full")
        failed.set()
        write(disk, name, data)

    monkeypatch.setattr(epoch, "write_durably", full)
    assert keeping.disks.step() == 0
    assert not DiskEpoch({n: RealDisk(tmp_path / n) for n in DIRECTORIES}, "i").age.is_behind(0)
