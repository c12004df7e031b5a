"""A ZooKeeper that goes back in time costs nothing: the bookie notices, keeps what it has, and waits for a person."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.identity import rollback
from daybook_bookie.identity.rollback import RollBackGuard

from daybook.core.errors import Code, MetadataUnavailableError
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import RunningBookie, eventually
from tests.unit.bookie.stream_kit import KEY, WAIT_S
from tests.unit.bookie.upkeep.test_server_gc import collect, fill, held

StartBookie = Callable[..., RunningBookie]


def rolled_back(bookie: RunningBookie) -> None:
    """Ledgers 1 to 4, all with entries, on a ZooKeeper that knows of ledger 1 alone, and has deleted ledger 0."""
    restore = bookie.metadata.backup()
    for ledger_id in (2, 3, 4):
        bookie.create_ledger(ledger_id)
    fill(bookie, 1, 2, 3, 4)
    restore()


def accept(bookie: RunningBookie, highest: int) -> pb.AcceptRollBackResponse:
    """What a person does in the end."""
    request = pb.AcceptRollBackRequest(highest_ledger=highest)
    answer: pb.AcceptRollBackResponse = bookie.stub.accept_roll_back(request, timeout=WAIT_S)
    return answer


def attach(bookie: RunningBookie, ledger_id: int) -> tuple[Code, str]:
    """The answer to a writer."""
    stream = bookie.open_stream()
    stream.say(pb.ClientControl(attach=pb.Attach(ledger_id=ledger_id, key=KEY)))
    answer = stream.take().attached
    stream.close()
    return Code(answer.code), answer.detail


def info(bookie: RunningBookie) -> pb.GetInfoResponse:
    """What the bookie says of itself."""
    answer: pb.GetInfoResponse = bookie.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S)
    return answer


def test_rule_62_nothing_is_collected_after_zookeeper_went_back(bookie: RunningBookie) -> None:
    rolled_back(bookie)
    answer = collect(bookie)
    assert (Code(answer.code), list(answer.deleted)) == (Code.UNAVAILABLE, [])
    assert "went back in time" in answer.detail
    assert bookie.metric("metadata_rolled_back") == 1
    assert held(bookie) == [1, 2, 3, 4]


def test_rule_62_new_ledgers_that_lift_the_counter_and_a_restart_change_nothing(
    bookie: RunningBookie,
) -> None:
    rolled_back(bookie)
    collect(bookie)
    bookie.create_ledger(6)
    for _ in range(2):
        assert (list(collect(bookie).deleted), held(bookie)) == ([], [1, 2, 3, 4])
        assert bookie.read(3, 0, 0)[1] == [(0, b"x")]
        code, detail = attach(bookie, 6)
        assert code is Code.UNAVAILABLE
        assert "accept-rollback" in detail
        assert attach(bookie, 1)[0] is Code.OK, "it began before"
        bookie.restart()


def test_rule_62_a_writer_that_comes_before_the_next_cycle_makes_the_bookie_notice(
    bookie: RunningBookie,
) -> None:
    """By that cycle new ledgers may have raised the counter past what the bookie holds."""
    restore = bookie.metadata.backup()
    bookie.create_ledger(5)
    fill(bookie, 1, 5)
    assert list(collect(bookie).deleted) == []
    restore()
    bookie.create_ledger(3)
    assert attach(bookie, 3)[0] is Code.UNAVAILABLE
    bookie.create_ledger(8)
    assert (list(collect(bookie).deleted), held(bookie)) == ([], [1, 5])


def test_rule_62_without_a_counter_nothing_is_collected(start_bookie: StartBookie) -> None:
    """A ZooKeeper that begins anew, empty."""
    bookie = start_bookie()
    empty = bookie.metadata.backup()
    bookie.create_ledger(0)
    fill(bookie, 0)
    empty()

    async def lose_the_counter() -> None:
        await bookie.link.store.delete(bookie.link.layout.idgen)

    bookie.link.run(lose_the_counter())
    assert "counter of ledger ids was at 0" in collect(bookie).detail
    assert held(bookie) == [0]


def test_rule_62_nothing_is_over_replicated_by_metadata_that_went_back(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repairs that ZooKeeper has forgotten placed replicas here."""
    rolled_back(bookie)
    over_replicated = bookie.bookie.collector._over_replicated
    assert over_replicated is not None
    asked: list[int] = []
    monkeypatch.setattr(over_replicated, "collect", asked.append)
    collect(bookie)
    assert asked == []


def test_rule_62_forged_fences_set_nothing_off(bookie: RunningBookie) -> None:
    fill(bookie, 1)
    for ledger_id in (2, 10**6, 2**63 - 1):
        assert Code(bookie.fence(ledger_id, key="made up").code) is Code.OK
    for _ in range(2):
        assert Code(collect(bookie).code) is Code.OK
        assert info(bookie).collection_refused == ""
        bookie.restart()
    assert bookie.flush()
    assert held(bookie) == [1]


def test_a_person_who_knows_ends_it_once_no_id_can_be_given_out_twice(bookie: RunningBookie) -> None:
    rolled_back(bookie)
    collect(bookie)
    highest = info(bookie).highest_ledger
    assert highest == 4
    assert "raised past 4" in accept(bookie, highest).detail
    bookie.link.run(bookie.link.ledgers.raise_next_id(5))
    assert "holds ledger 4" in accept(bookie, 3).detail
    assert bookie.metric("metadata_rolled_back") == 1
    assert accept(bookie, highest).accepted
    assert accept(bookie, highest).accepted, "again is no error"
    assert bookie.metric("metadata_rolled_back") == 0
    bookie.restart()
    assert list(collect(bookie).deleted) == [2, 3, 4]
    bookie.create_ledger(5)
    assert attach(bookie, 5)[0] is Code.OK


def test_without_zookeeper_nobody_ends_it(bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled_back(bookie)
    collect(bookie)

    def fail() -> int:
        raise MetadataUnavailableError("no answer")

    monkeypatch.setattr(bookie.link, "next_ledger_id", fail)
    with pytest.raises(grpc.RpcError, match="cannot be accepted now"):
        accept(bookie, 4)
    assert attach(bookie, 1)[0] is Code.OK


def test_collection_looks_as_soon_as_the_bookie_starts(bookie: RunningBookie) -> None:
    rolled_back(bookie)
    bookie.restart()
    assert eventually(lambda: bookie.metric("metadata_rolled_back") == 1)


class Counter:
    """Ids that were given out."""

    next_id = 0

    def next_ledger_id(self) -> int:
        return self.next_id


def test_a_disk_that_does_not_take_the_note_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    guard = RollBackGuard(disk, Counter())
    with monkeypatch.context() as patch:
        patch.setattr(rollback, "write_durably", full)
        guard.judge(7, 3)
    assert guard.reason
    assert RollBackGuard(disk, Counter()).reason == ""
    guard.judge(9, 20)
    again = RollBackGuard(disk, Counter())
    assert again.highest_held == 7
    again.judge(8, 2)
    assert "at 2, and this bookie holds ledger 8" in RollBackGuard(disk, Counter()).reason


def test_a_note_that_cannot_be_read_stands(tmp_path: Path) -> None:
    (tmp_path / rollback.FILE).write_bytes(b"\0garbage")
    guard = RollBackGuard(RealDisk(tmp_path), Counter())
    assert guard.reason
    assert guard.why_not_begin(10**9)
