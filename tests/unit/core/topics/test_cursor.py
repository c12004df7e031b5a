"""The machine of a cursor: what it writes when and where, and what the next owner finds."""

from dataclasses import replace

import pytest

from daybook.core.errors import NoSuchTopicError, NotOwnerError
from daybook.core.topics.cursor_events import (
    AppendRecord,
    CloseRequested,
    CreateCursor,
    CreateCursorLedger,
    DeleteCursor,
    DeleteRequested,
    FlushRequested,
    LastRecordRead,
    PutCursor,
    ReadCursor,
    ReadLastRecord,
    RecordLost,
)
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.cursor_record import (
    NODE_RANGES_MAX,
    CursorRecord,
)
from daybook.core.topics.events import (
    CloseLedger,
    DeleteLedger,
)
from daybook.core.topics.ledger_list import NO_POSITION, Position
from tests.unit.core.topics.cursor_world import TIME_OUT, CursorWorld, Holder, holding, with_holes
from tests.unit.core.topics.lists import extent_of

POLICY = CursorPolicy()
BEGIN = CursorRecord(Position(1, -1))


def at(entry: int) -> Position:
    return Position(1, entry)


def moving(world: CursorWorld, policy: CursorPolicy | None = None) -> Holder:
    """A broker whose cursor has a ledger, after the first entry was acknowledged."""
    holder = holding(world, initial=BEGIN, policy=policy)
    holder.acks.ack(at(0))
    holder.tick(POLICY.persist_ms)
    holder.run()
    assert holder.machine.persisted == at(0)
    return holder


# Opening


def test_a_subscription_that_does_not_exist_is_not_opened() -> None:
    holder = Holder(CursorWorld())
    holder.run()
    assert [type(error) for error in holder.ended] == [NoSuchTopicError]
    assert holder.machine.persisted == NO_POSITION
    assert holder.machine.rests


def test_a_new_subscription_begins_where_it_is_to() -> None:
    world = CursorWorld()
    holder = Holder(world, initial=CursorRecord(at(4), properties={"k": "v"}))
    assert holder.run() == [ReadCursor, CreateCursor]
    assert holder.acks.mark_delete == holder.machine.persisted == at(4)
    assert world.record == CursorRecord(at(4), properties={"k": "v"})
    assert holding(world).acks.properties == {"k": "v"}


@pytest.mark.parametrize("applied", [True, False])
def test_a_creation_without_an_answer_is_settled_by_a_read(applied: bool) -> None:
    holder = Holder(CursorWorld(), initial=BEGIN)
    holder.carry_out()
    holder.fail(applied=applied)
    assert holder.run() == ([ReadCursor] if applied else [ReadCursor, CreateCursor])
    assert holder.is_open


def test_a_creation_that_meets_another_version_of_the_own_list_is_tried_again() -> None:
    world = CursorWorld()
    holder = Holder(world, initial=BEGIN)
    holder.write_list(says_so=False)
    assert holder.run() == [ReadCursor, CreateCursor, ReadCursor, CreateCursor]
    assert holder.is_open


def test_rule_38_a_superseded_owner_creates_no_cursor() -> None:
    world = CursorWorld()
    holder = Holder(world, initial=BEGIN)
    Holder(world)
    assert holder.run() == [ReadCursor, CreateCursor, ReadCursor]
    assert [type(error) for error in holder.ended] == [NotOwnerError]
    assert world.record is None


def test_a_node_that_cannot_be_read_is_read_again_after_a_pause() -> None:
    holder = Holder(CursorWorld(BEGIN))
    holder.fail()
    holder.tick(POLICY.retry_ms - 1)
    assert not holder.asked
    holder.tick(1)
    assert holder.run() == [ReadCursor]
    assert holder.is_open


def lost_record(holder: Holder) -> RecordLost:
    """The warning of a record that could not be read, after which the node's counts."""
    (lost,) = holder.said(RecordLost)
    assert isinstance(lost, RecordLost)
    assert holder.acks.mark_delete == at(0)
    return lost


def test_a_ledger_that_cannot_be_read_falls_back_to_the_node_after_some_attempts() -> None:
    world = CursorWorld()
    moving(world)
    second = Holder(world)
    second.carry_out()
    for _ in range(POLICY.recoveries_max):
        assert not second.is_open
        second.fail()
        second.tick(POLICY.retry_ms)
    assert lost_record(second).error is TIME_OUT


@pytest.mark.parametrize("data", [b"", None])
def test_a_record_that_cannot_be_parsed_falls_back_to_the_node(data: bytes | None) -> None:
    world = CursorWorld()
    moving(world)
    second = Holder(world)
    second.carry_out()
    asked = second.asked.popleft()
    assert isinstance(asked, ReadLastRecord)
    second.step(LastRecordRead(asked.request_id, data))
    lost_record(second)


# Persisting


def test_a_cursor_is_persisted_at_most_once_a_second_and_only_while_it_moves() -> None:
    holder = moving(CursorWorld())
    for entry in range(1, 5):
        holder.acks.ack(at(entry))
        holder.tick(POLICY.persist_ms // 4)
    holder.acks.ack(at(5))
    holder.tick(POLICY.persist_ms // 2)
    assert holder.run() == [AppendRecord]
    assert holder.machine.persisted == at(4)
    holder.tick(POLICY.persist_ms // 2)
    assert holder.run() == [AppendRecord], "what was acknowledged meanwhile"
    assert holder.machine.persisted == at(5)
    holder.tick(POLICY.persist_ms)
    assert not holder.asked


def test_a_flush_does_not_wait_for_the_second() -> None:
    holder = moving(CursorWorld())
    holder.step(FlushRequested())
    assert not holder.asked, "nothing moved"
    assert not holder.machine.is_dirty
    holder.acks.ack(at(1))
    assert holder.machine.is_dirty
    holder.tick(1)
    assert not holder.asked
    holder.step(FlushRequested())
    assert holder.run() == [AppendRecord]
    assert holder.machine.persisted == at(1)


def test_an_idle_cursor_rests_in_its_node_and_its_next_move_goes_there() -> None:
    world = CursorWorld()
    holder = moving(world)
    assert not holder.machine.rests
    holder.tick(POLICY.idle_ms)
    assert isinstance(holder.carry_out(), PutCursor)
    assert not holder.machine.rests, "the ledger is still to go"
    assert holder.run() == [DeleteLedger]
    assert holder.machine.rests
    assert world.record == CursorRecord(at(0))
    assert world.ledgers == {}
    holder.tick(POLICY.idle_ms)
    holder.acks.ack(at(1))
    assert not holder.machine.rests
    holder.tick(1)
    assert holder.run() == [PutCursor]
    holder.acks.ack(at(2))
    holder.tick(POLICY.persist_ms)
    assert holder.run() == [CreateCursorLedger, AppendRecord, PutCursor]


@pytest.mark.parametrize("policy", [replace(POLICY, entries_max=3), replace(POLICY, age_ms_max=3_000)])
def test_a_full_or_old_ledger_gives_way_to_one_that_begins_with_the_whole_state(policy: CursorPolicy) -> None:
    world = CursorWorld()
    holder = moving(world, policy)
    effects = []
    for entry in (2, 4, 6):
        holder.acks.ack(at(entry))
        holder.tick(policy.persist_ms)
        effects.append(holder.run())
    assert effects == [
        [AppendRecord],
        [AppendRecord],
        [CreateCursorLedger, AppendRecord, PutCursor, DeleteLedger],
    ]
    (ledger,) = world.ledgers.values()
    (data,) = ledger.records
    assert [acked.first_entry for acked in CursorRecord.from_json(data).ranges] == [2, 4, 6]


def test_a_ledger_that_fails_is_replaced_after_a_pause() -> None:
    world = CursorWorld()
    holder = moving(world)
    holder.acks.ack(at(1))
    holder.tick(POLICY.persist_ms)
    holder.fail()
    assert not holder.asked
    holder.tick(POLICY.retry_ms)
    assert holder.run() == [CreateCursorLedger, AppendRecord, PutCursor, DeleteLedger]
    assert holder.machine.persisted == at(1)
    assert len(world.ledgers) == 1


def test_while_no_ledger_can_be_created_the_old_one_continues() -> None:
    holder = moving(CursorWorld(), replace(POLICY, entries_max=1, retry_ms=3_000))
    for entry in (1, 2):
        holder.acks.ack(at(entry))
        holder.tick(POLICY.persist_ms)
        if entry == 1:
            holder.fail()
        assert holder.run() == [AppendRecord]
        assert holder.machine.persisted == at(entry)
    holder.acks.ack(at(3))
    holder.tick(3_000)
    assert holder.run() == [CreateCursorLedger, AppendRecord, PutCursor, DeleteLedger]


def test_a_new_ledger_that_takes_no_record_is_deleted_and_deleted_again_if_that_fails() -> None:
    world = CursorWorld()
    holder = holding(world, initial=BEGIN)
    holder.acks.ack(at(0))
    holder.tick(POLICY.persist_ms)
    holder.carry_out()
    holder.fail()
    assert isinstance(holder.fail(), DeleteLedger)
    holder.tick(POLICY.retry_ms)
    assert sorted(kind.__name__ for kind in holder.run()) == [
        "AppendRecord",
        "CreateCursorLedger",
        "DeleteLedger",
        "PutCursor",
    ]
    assert list(world.ledgers) == [101]


# Closing and deleting


def test_a_closed_cursor_is_in_its_node_alone() -> None:
    world = CursorWorld()
    holder = moving(world)
    holder.acks.ack(at(1))
    holder.step(CloseRequested())
    assert holder.run() == [PutCursor, DeleteLedger]
    assert holder.ended == [None]
    assert holder.machine.rests
    assert world.record == CursorRecord(at(1))
    assert world.ledgers == {}


def test_a_cursor_that_never_moved_is_closed_at_once() -> None:
    holder = holding(CursorWorld(BEGIN))
    holder.step(CloseRequested())
    assert holder.ended == [None]
    assert not holder.asked


def test_the_ledger_of_a_former_owner_is_taken_into_the_node_by_a_close() -> None:
    world = CursorWorld()
    moving(world)
    second = holding(world)
    second.step(CloseRequested())
    assert second.run() == [PutCursor, DeleteLedger]
    assert world.record == CursorRecord(at(0))


def test_a_ledger_that_cannot_be_closed_is_the_next_owners() -> None:
    holder = holding(CursorWorld(extent=extent_of((1, 20_010))), initial=BEGIN)
    with_holes(holder, NODE_RANGES_MAX + 1)
    holder.tick(POLICY.persist_ms)
    holder.run()
    holder.step(CloseRequested())
    assert isinstance(holder.fail(), CloseLedger)
    assert holder.ended == [None]


def test_a_deleted_subscription_leaves_nothing() -> None:
    world = CursorWorld()
    holder = moving(world)
    holder.step(DeleteRequested())
    assert holder.run() == [DeleteCursor, DeleteLedger]
    assert holder.ended == [None]
    assert world.record is None
    assert world.ledgers == {}
    late = holding(world, initial=BEGIN)
    late.step(DeleteRequested())
    assert late.run() == [DeleteCursor]


@pytest.mark.parametrize("applied", [True, False])
def test_a_deletion_without_an_answer_is_settled_by_a_read(applied: bool) -> None:
    world = CursorWorld()
    holder = moving(world)
    holder.step(DeleteRequested())
    holder.fail(applied=applied)
    holder.fail()
    assert not holder.asked
    holder.tick(POLICY.retry_ms)
    again = [] if applied else [DeleteCursor]
    assert holder.run() == [ReadCursor, *again, DeleteLedger]
    assert world.record is None


def test_rule_38_a_superseded_owner_deletes_no_cursor() -> None:
    world = CursorWorld()
    holder = moving(world)
    Holder(world)
    holder.step(DeleteRequested())
    assert holder.run() == [DeleteCursor, ReadCursor]
    assert [type(error) for error in holder.ended] == [NotOwnerError]
    assert world.record is not None
    assert len(world.ledgers) == 1
