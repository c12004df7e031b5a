"""Full disks: read-only with a reserve, with hysteresis, over restarts, and back."""

import errno
import os
import threading
from collections.abc import Callable

import grpc
import pytest
from daybook_bookie.disk import disk as real_disk
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import StorageFullError
from daybook_bookie.disk.watch import TRIAL_POLLS_MAX, DiskWatch, SpaceLimits, SpaceState, Usage, next_state
from daybook_bookie.settings import GIB
from daybook_bookie.store.entry_store import Space

from daybook.core.errors import Code
from daybook.core.format.frame import FLAG_RECOVERY
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, eventually, frame_of
from tests.unit.bookie.stream_kit import WAIT_S

StartBookie = Callable[..., RunningBookie]
LIMITS = SpaceLimits()


def used(percent: float) -> list[Usage]:
    """A store that is so full."""
    return [Usage("journal", 1000, 900), Usage("store", 1000, round(1000 - 10 * percent))]


def test_rule_30_hysteresis() -> None:
    states = []
    state = SpaceState.WRITABLE
    for ratio in (0.5, 0.94, 0.95, 0.94, 0.91, 0.90, 0.899, 0.94, 0.98, 0.97, 0.91, 0.89):
        state = next_state(state, ratio, LIMITS)
        states.append(state.name[0])
    assert "".join(states) == "WWRRRRWWERRW"


def test_rule_30_the_fullest_directory_decides_and_a_full_disk_starts_read_only() -> None:
    watch = DiskWatch(lambda: used(96), LIMITS, 10_000)
    assert watch.state is SpaceState.READ_ONLY
    assert watch.fullest.name == "store"


class Disk:
    """A directory whose figures never move, as with a quota; counts how often it was tried."""

    def __init__(self) -> None:
        self.has_room = False
        self.free_bytes = 500
        self.tried = 0
        self.watch = DiskWatch(self.look, LIMITS, 1000, {"store": self.take})

    def look(self) -> list[Usage]:
        return [Usage("store", 1000, self.free_bytes)]

    def take(self) -> bool:
        self.tried += 1
        return self.has_room

    @property
    def is_writable(self) -> bool:
        return self.watch.state is SpaceState.WRITABLE

    def looks_until_tried(self) -> int:
        before, looks = self.tried, 0
        while self.tried == before:
            self.watch.check()
            looks += 1
        return looks


def test_rule_30_a_refusal_that_no_figure_shows_ends_when_room_was_taken_and_not_before() -> None:
    disk = Disk()
    disk.watch.refuse_writes("store")
    assert {disk.watch.check() for _ in range(3 * TRIAL_POLLS_MAX)} == {SpaceState.READ_ONLY}
    assert 0 < disk.tried < 12, "trials become rare"
    assert disk.watch.refused == ["store"]
    disk.has_room = True
    assert disk.looks_until_tried() <= TRIAL_POLLS_MAX
    assert disk.watch.state is SpaceState.WRITABLE
    assert disk.watch.refused == []


def test_rule_30_a_refused_disk_that_shows_more_room_is_tried_at_once_and_only_then_believed() -> None:
    disk = Disk()
    disk.watch.refuse_writes("store")
    for _ in range(5):
        disk.looks_until_tried()
    disk.free_bytes += 100
    assert disk.looks_until_tried() == 1
    assert disk.watch.state is SpaceState.READ_ONLY, "a figure is no proof"
    assert disk.looks_until_tried() > 1, "it showed no more since"


def test_rule_30_a_disk_that_comes_and_goes_is_tried_ever_more_rarely_until_it_holds() -> None:
    disk = Disk()
    disk.has_room = True
    waits = []
    for _ in range(8):
        disk.watch.refuse_writes("store")
        waits.append(disk.looks_until_tried())
        assert disk.watch.state is SpaceState.WRITABLE
    assert waits == [1, 2, 4, 8, 16, 32, TRIAL_POLLS_MAX, TRIAL_POLLS_MAX]
    for _ in range(TRIAL_POLLS_MAX):
        disk.watch.check()
    disk.watch.refuse_writes("store")
    assert disk.looks_until_tried() == 1, "it took writes for long enough"


def test_rule_30_a_refusal_during_a_trial_stands() -> None:
    disk = Disk()

    def refused_meanwhile() -> bool:
        if disk.tried == 0:
            disk.watch.refuse_writes("store")
        disk.tried += 1
        return True

    disk.watch = DiskWatch(disk.look, LIMITS, 1000, {"store": refused_meanwhile})
    disk.watch.refuse_writes("store")
    disk.looks_until_tried()
    assert not disk.is_writable
    disk.looks_until_tried()
    assert disk.is_writable


def test_a_trial_that_fails_for_another_reason_proves_nothing() -> None:
    def fails() -> bool:
        raise OSError(errno.EIO, "injected")

    watch = DiskWatch(lambda: [Usage("store", 1000, 500)], LIMITS, 1000, {"store": fails})
    watch.refuse_writes("store")
    assert watch.check() is SpaceState.READ_ONLY


def test_rule_27_what_the_store_can_reuse_counts_for_a_journal_on_the_same_disk(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    def journal_usage(reusable: int) -> Usage:
        space = Space(file_system_free=0, reusable=reusable, map_free=2**40)
        monkeypatch.setattr(bookie.bookie.storage.store, "space", lambda: space)
        return bookie.bookie._look_at_space()[0]

    capacity_bytes = journal_usage(0).capacity_bytes
    assert journal_usage(0).ratio > 0
    assert journal_usage(capacity_bytes).ratio == 0


def file_system_of(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    """An empty one."""
    blocks = size_bytes // 4096
    stat = os.statvfs_result((4096, 4096, blocks, blocks, blocks, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: stat)


def test_a_store_larger_than_256_gib_is_told_whole(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_system_of(monkeypatch, 2048 * GIB)
    store = start_bookie(store_map_bytes=None).bookie._look_at_space()[1]
    assert (store.capacity_bytes, store.free_bytes) == (2048 * GIB, 2048 * GIB)
    assert store.capped_by == ""


def test_a_given_map_binds_and_is_named_when_it_is_what_is_full(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_system_of(monkeypatch, 2048 * GIB)
    bookie = start_bookie(store_map_bytes=GIB)
    store = bookie.bookie._look_at_space()[1]
    assert (store.capacity_bytes, store.capped_by) == (GIB, "store_map_bytes")
    bookie.usages = [used(0)[0], store._replace(free_bytes=0)]
    bookie.bookie.disk_watch.check()
    assert "raise the setting store_map_bytes" in bookie.bookie.availability.reason


@OVER_BOTH
def test_rule_30_a_full_bookie_keeps_a_reserve_for_recovery_fences_and_deletions(
    start_bookie: StartBookie,
) -> None:
    bookie = start_bookie()
    bookie.create_ledger(1)
    bookie.register()
    stream = bookie.open_stream()
    stream.attach(1)
    stream.attach(1, recovery=True)
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    bookie.usages = used(96)
    bookie.bookie.disk_watch.check()
    assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.READ_ONLY}
    assert stream.add(frame_of(1, 1, [b"b"], flags=FLAG_RECOVERY)) == {}
    assert Code(bookie.fence(1).code) is Code.OK
    bookie.usages = used(99)
    bookie.bookie.disk_watch.check()
    assert stream.add(frame_of(1, 2, [b"c"], flags=FLAG_RECOVERY)) == {0: Code.READ_ONLY}
    assert [entry.entry_id for entry in bookie.read(1, 0, 9)[1]] == [0, 1]
    bookie.delete_ledger(1)
    answer = bookie.stub.collect_garbage(pb.CollectGarbageRequest(), timeout=WAIT_S)
    assert list(answer.deleted) == [1]


@OVER_BOTH
def test_rule_30_a_full_bookie_restarts_read_only_and_becomes_writable_again(
    start_bookie: StartBookie,
) -> None:
    bookie = start_bookie(disk_check_ms=20)
    bookie.create_ledger(1)
    bookie.usages = used(96)
    bookie.restart()
    info = bookie.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S)
    assert not info.writable
    assert "store is full" in info.read_only_reason
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"a"])) == {0: Code.READ_ONLY}
    bookie.usages = used(80)
    assert eventually(lambda: bookie.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S).writable)
    assert stream.add(frame_of(1, 0, [b"a"])) == {}


@OVER_BOTH
def test_rule_30_no_space_for_the_journal_is_an_answer_and_no_failure(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"]))

    journal = bookie.bookie.storage.journal
    assert eventually(lambda: journal.has_spare)
    journal._spare.close()  # the next file was made while there was room

    def full(*_: object) -> None:
        raise StorageFullError("no room for a journal file")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "append", full)
        assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.READ_ONLY}
    assert bookie.failures == []
    with monkeypatch.context() as patch:
        patch.setattr(real_disk._RealFile, "preallocate", no_space)
        assert bookie.bookie.disk_watch.check() is SpaceState.READ_ONLY, "no file of the journal finds room"
    assert bookie.bookie.availability.reason.startswith("journal is full")
    assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.READ_ONLY}
    bookie.usages = used(5)
    assert bookie.bookie.disk_watch.check() is SpaceState.WRITABLE
    assert stream.add(frame_of(1, 1, [b"b"])) == {}


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "injected")


@OVER_BOTH
def test_rule_30_a_store_without_room_refuses_instead_of_waiting(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = start_bookie(flush_bytes=1 << 20)
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    stream.attach(1)
    stream.attach(1, recovery=True)

    def full(*_: object) -> None:
        raise StorageFullError("no room in the store")

    with monkeypatch.context() as patch:
        patch.setattr(bookie.bookie.storage, "flush", full)
        outcomes = [stream.add(frame_of(1, n, [bytes(1 << 22)])) for n in range(14)]
        assert outcomes[0] == {}
        assert outcomes[-1] == {0: Code.READ_ONLY}
        outcomes = [
            stream.add(frame_of(1, 100 + n, [bytes(1 << 22)], flags=FLAG_RECOVERY)) for n in range(14)
        ]
        assert outcomes[-1] == {0: Code.READ_ONLY}, "the cache has a bound for recovery, too"
        bookie.usages = used(5)
        assert bookie.bookie.disk_watch.check() is SpaceState.READ_ONLY, "a flush waits for room"
    assert bookie.flush()
    bookie.usages = used(4)
    assert bookie.bookie.disk_watch.check() is SpaceState.WRITABLE
    assert stream.add(frame_of(1, 50, [b"b"])) == {}
    assert bookie.failures == []


def test_rule_30_a_refusal_is_not_undone_by_who_looked_before_it(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk watch, the journal, the store and an administrator tell the table, each in a thread of its own."""
    table, watch = bookie.bookie.table, bookie.bookie.disk_watch
    refusing = threading.Thread(target=watch.refuse_writes, args=("store",))
    set_space = table.set_space

    def overtaken(space: SpaceState) -> None:
        if refusing.ident is None:
            refusing.start()
            assert eventually(lambda: watch.state is SpaceState.READ_ONLY)
            refusing.join(0.2)
        set_space(space)

    monkeypatch.setattr(table, "set_space", overtaken)
    assert bookie.stub.set_read_only(pb.SetReadOnlyRequest(), timeout=WAIT_S)
    refusing.join(WAIT_S)
    assert table.space is SpaceState.READ_ONLY


def test_registration_follows_the_state(start_bookie: StartBookie) -> None:
    bookie = start_bookie()
    bookie.register()

    def registered() -> bool:
        found = bookie.link.run(bookie.link.bookies.bookies())
        return found["b0"].writable

    assert registered()
    answer = bookie.stub.set_read_only(
        pb.SetReadOnlyRequest(read_only=True, reason="maintenance"), timeout=WAIT_S
    )
    assert (answer.writable, answer.read_only_reason) == (False, "maintenance")
    assert eventually(lambda: not registered())
    assert bookie.metric("server_status") == 0
    assert bookie.stub.set_read_only(pb.SetReadOnlyRequest(), timeout=WAIT_S).writable
    assert eventually(registered)
    assert bookie.metric("server_status") == 1


@OVER_BOTH
def test_a_bookie_that_was_told_to_be_read_only_is_so_until_it_is_told_otherwise(
    start_bookie: StartBookie,
) -> None:
    bookie = start_bookie()
    bookie.create_ledger(1)
    bookie.stub.set_read_only(pb.SetReadOnlyRequest(read_only=True, reason="maintenance"), timeout=WAIT_S)
    bookie.restart()
    assert bookie.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S).read_only_reason == "maintenance"
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"a"])) == {0: Code.READ_ONLY}, "from the first frame on"
    bookie.register()
    assert not bookie.link.run(bookie.link.bookies.bookies())["b0"].writable, (
        "and it never was in the other list"
    )
    assert bookie.stub.set_read_only(pb.SetReadOnlyRequest(), timeout=WAIT_S).writable
    bookie.restart()
    assert bookie.bookie.availability.is_writable
    assert bookie.stub.set_read_only(pb.SetReadOnlyRequest(), timeout=WAIT_S).writable, (
        "once more is no error"
    )


@pytest.mark.parametrize("read_only", [True, False])
def test_a_mode_that_cannot_be_kept_is_read_only_and_an_error(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    bookie = start_bookie()
    if not read_only:
        bookie.stub.set_read_only(pb.SetReadOnlyRequest(read_only=True), timeout=WAIT_S)

    def fails(_: RealDisk) -> None:
        raise OSError(errno.EIO, "no such luck")

    monkeypatch.setattr(RealDisk, "sync_directory", fails)
    with pytest.raises(grpc.RpcError, match="no such luck"):
        bookie.stub.set_read_only(pb.SetReadOnlyRequest(read_only=read_only), timeout=WAIT_S)
    assert not bookie.bookie.availability.is_writable
    monkeypatch.undo()
    answer = bookie.stub.set_read_only(pb.SetReadOnlyRequest(read_only=read_only), timeout=WAIT_S)
    assert answer.writable is not read_only
    bookie.restart()
    assert bookie.bookie.availability.is_writable is not read_only


def test_registration_tells_how_much_is_free(start_bookie: StartBookie) -> None:
    bookie = start_bookie(disk_check_ms=20)
    bookie.register()
    bookie.usages = used(42)

    def told() -> int:
        return bookie.link.run(bookie.link.bookies.bookies())["b0"].free_bytes

    assert eventually(lambda: told() == 580)
    assert bookie.metric("registered") == 1
    bookie.link.unregister()
    assert bookie.metric("registered") == 0


def test_each_flush_is_due_at_a_size_of_its_own(start_bookie: StartBookie) -> None:
    """So that bookies with the same load do not flush at the same time."""
    table = start_bookie(flush_bytes=8 << 20).bookie.table
    sizes = set()
    for _ in range(64):
        with table.lock:
            table.room_made()
            sizes.add(table._due_bytes)
    assert len(sizes) > 32
    assert min(sizes) >= 4 << 20
    assert max(sizes) <= 8 << 20
