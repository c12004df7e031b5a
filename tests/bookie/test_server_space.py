"""Full disks: read-only with a reserve, with hysteresis, over restarts, and back."""

from collections.abc import Callable

import pytest
from daybook_bookie.disk_watch import DiskWatch, SpaceLimits, SpaceState, Usage, next_state
from daybook_bookie.storage_errors import StorageFullError

from daybook.core.errors import Code
from daybook.core.frame import FLAG_RECOVERY
from daybook.wire import bookie_pb2 as pb
from tests.bookie.server_kit import WAIT_S, RunningBookie, eventually, frame_of

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


def test_rule_30_no_space_for_the_journal_is_an_answer_and_no_failure(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"]))

    def full(*_: object) -> None:
        raise StorageFullError("no room for a journal file")

    with monkeypatch.context() as patch:
        patch.setattr(bookie.bookie.storage.journal, "append", full)
        assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.READ_ONLY}
    assert bookie.failures == []
    assert bookie.bookie.disk_watch.check() is SpaceState.READ_ONLY, "nothing was freed since"
    assert stream.add(frame_of(1, 1, [b"b"])) == {0: Code.READ_ONLY}
    bookie.usages = used(5)
    assert bookie.bookie.disk_watch.check() is SpaceState.WRITABLE
    assert stream.add(frame_of(1, 1, [b"b"])) == {}


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
    bookie.bookie.disk_watch.check()
    assert bookie.bookie.store_thread.flush_now(WAIT_S)
    assert stream.add(frame_of(1, 50, [b"b"])) == {}
    assert bookie.failures == []


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
