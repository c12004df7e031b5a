"""What of a cursor survives (rule 40), and whose it is (rule 38)."""

import pytest

from daybook.core.errors import DaybookError, NotOwnerError
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.topics.cursor_events import (
    AppendRecord,
    CloseRequested,
    CreateCursorLedger,
    CursorRead,
    FlushRequested,
    HolesDropped,
    LastRecordRead,
    PutCursor,
    ReadCursor,
    RecordAppended,
)
from daybook.core.topics.cursor_record import (
    LEDGER_RANGES_MAX,
    NO_LEDGER,
    NODE_RANGES_MAX,
    AckedRange,
    CursorRecord,
)
from daybook.core.topics.events import (
    CloseLedger,
    DeleteLedger,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
)
from tests.unit.core.topics.cursor_world import CursorWorld, Holder, holding, with_holes
from tests.unit.core.topics.lists import extent_of
from tests.unit.core.topics.test_cursor import BEGIN, POLICY, at, moving

NOBODYS = 10**6
"""The id of a request that no machine made."""


# Rule 40


def test_rule_40_of_10001_holes_all_but_the_last_survive_a_restart_with_a_warning() -> None:
    world = CursorWorld(extent=extent_of((1, 20_010)))
    holder = holding(world, initial=BEGIN)
    with_holes(holder, LEDGER_RANGES_MAX + 1)
    holder.tick(POLICY.persist_ms)
    holder.run()
    assert holder.said(HolesDropped) == [HolesDropped(1)]
    again = holding(world)
    assert again.acks.range_count == LEDGER_RANGES_MAX
    assert again.acks.is_acked(at(2 * LEDGER_RANGES_MAX - 1))
    assert again.acks.next_unacked(at(20_001)) == at(20_001), "it is delivered again"
    assert again.acks.mark_delete == at(-1)
    assert again.acks.unacked_entries() == 10_010


def test_rule_40_the_warning_is_given_once_until_all_fits_again() -> None:
    holder = holding(CursorWorld(extent=extent_of((1, 20_020))), initial=BEGIN)
    with_holes(holder, LEDGER_RANGES_MAX + 2)
    for acked, warnings in ((0, 1), (2, 1), (4, 1), (20_015, 2)):
        holder.acks.ack(at(acked))
        holder.tick(POLICY.persist_ms)
        holder.run()
        if acked == 4:
            holder.acks.ack(at(6))
            holder.tick(POLICY.persist_ms)
            holder.run()
            holder.acks.ack(at(20_011))
            holder.acks.ack(at(20_013))
        assert len(holder.said(HolesDropped)) == warnings


def test_rule_40_what_is_acknowledged_and_not_persisted_is_not_trimmed() -> None:
    holder = moving(CursorWorld())
    holder.acks.ack_through(at(7))
    assert holder.machine.persisted == at(0)
    holder.tick(POLICY.persist_ms)
    assert holder.machine.persisted == at(0)
    holder.fail(applied=True)
    assert holder.machine.persisted == at(0), "nobody knows whether it is durable"
    holder.tick(POLICY.retry_ms)
    holder.run()
    assert holder.machine.persisted == at(7)
    holder.acks.reset(at(3))
    assert holder.machine.persisted == at(3), "a seek needs what is behind it"


def test_rule_40_the_node_has_fewer_ranges_and_the_ledger_is_kept_for_the_others() -> None:
    world = CursorWorld(extent=extent_of((1, 20_010)))
    holder = holding(world, initial=BEGIN)
    with_holes(holder, NODE_RANGES_MAX + 1)
    holder.tick(POLICY.idle_ms)
    assert holder.run() == [CreateCursorLedger, AppendRecord, PutCursor]
    assert world.record is not None
    assert len(world.record.ranges) == NODE_RANGES_MAX
    holder.tick(POLICY.idle_ms)
    assert not holder.asked, "the node has no room"
    holder.step(CloseRequested())
    assert holder.run() == [CloseLedger]
    assert holder.ended == [None]
    assert not holder.said(HolesDropped)
    again = holding(world)
    assert again.acks.range_count == NODE_RANGES_MAX + 1
    again.step(CloseRequested())
    assert again.ended == [None], "the ledger has it all"


def test_rule_40_a_close_without_a_ledger_stores_what_the_node_takes() -> None:
    world = CursorWorld(extent=extent_of((1, 20_010)))
    holder = holding(world, initial=BEGIN)
    with_holes(holder, NODE_RANGES_MAX + 3)
    holder.step(CloseRequested())
    holder.fail()
    assert holder.run() == [PutCursor]
    assert holder.said(HolesDropped) == [HolesDropped(3)]
    assert holder.ended == [None]
    assert holding(world).acks.range_count == NODE_RANGES_MAX


def test_rule_40_after_a_seek_no_older_record_counts() -> None:
    world = CursorWorld()
    holder = holding(world, initial=CursorRecord(at(9), (AckedRange(1, 12, 12),)))
    holder.acks.ack(at(10))
    holder.tick(POLICY.persist_ms)
    holder.run()
    holder.acks.reset(at(3))
    holder.step(FlushRequested())
    assert holder.run() == [PutCursor, DeleteLedger]
    assert world.record == CursorRecord(at(3))
    assert holder.machine.persisted == at(3)
    holder.acks.ack(at(4))
    holder.tick(POLICY.persist_ms)
    holder.run()
    world.ledgers.clear()
    assert holding(world).acks.mark_delete == at(4)
    assert not holding(world).acks.is_acked(at(10))


# Whoever owns the topic


def test_rule_38_a_superseded_owner_stops_and_deletes_what_it_did_not_name() -> None:
    world = CursorWorld()
    holder = holding(world, initial=BEGIN)
    holder.acks.ack(at(0))
    Holder(world)
    holder.tick(POLICY.persist_ms)
    assert holder.run() == [CreateCursorLedger, AppendRecord, PutCursor, ReadCursor, DeleteLedger]
    assert [type(error) for error in holder.ended] == [NotOwnerError]
    assert world.ledgers == {}
    assert world.record == BEGIN
    holder.step(CloseRequested())
    holder.tick(POLICY.persist_ms)
    assert not holder.asked


def test_rule_38_a_ledger_that_was_named_after_all_is_the_next_owners() -> None:
    world = CursorWorld()
    holder = holding(world, initial=BEGIN)
    holder.acks.ack(at(0))
    holder.tick(POLICY.persist_ms)
    holder.carry_out()
    holder.carry_out()
    holder.fail(applied=True)
    second = holding(world)
    assert second.acks.mark_delete == at(0)
    assert holder.run() == [ReadCursor]
    assert [type(error) for error in holder.ended] == [NotOwnerError]
    assert len(world.ledgers) == 1


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_without_an_answer_is_settled_by_a_read(applied: bool) -> None:
    world = CursorWorld()
    holder = moving(world)
    holder.tick(POLICY.idle_ms)
    holder.fail(applied=applied)
    holder.fail()
    assert not holder.asked
    holder.tick(POLICY.retry_ms)
    again = [] if applied else [PutCursor]
    assert holder.run() == [ReadCursor, *again, DeleteLedger]
    assert world.record == CursorRecord(at(0))


def test_a_node_that_somebody_else_changed_ends_the_cursor() -> None:
    world = CursorWorld()
    holder = moving(world)
    holder.tick(POLICY.idle_ms)
    world.record = None
    assert holder.run() == [PutCursor, ReadCursor, DeleteLedger]
    assert [type(error) for error in holder.ended] == [NotOwnerError]
    assert world.ledgers == {}, "no node names its ledger"


def test_rule_38_a_superseded_owner_deletes_the_ledger_that_its_last_write_took_out_of_the_node() -> None:
    world = CursorWorld()
    holder = moving(world)
    holder.tick(POLICY.idle_ms)
    holder.fail(applied=True)
    holding(world)
    assert holder.run() == [ReadCursor, DeleteLedger]
    assert [type(error) for error in holder.ended] == [NotOwnerError]
    assert world.ledgers == {}


def test_an_answer_that_comes_after_its_failure_is_dropped() -> None:
    world = CursorWorld()
    holder = moving(world)
    holder.tick(POLICY.idle_ms)
    holder.fail()
    read = holder.fail()
    assert isinstance(read, ReadCursor)
    holder.step(CursorRead(read.request_id, world.record, world.version))
    assert not holder.asked
    holder.tick(POLICY.retry_ms)
    assert holder.run() == [ReadCursor, PutCursor, DeleteLedger]


def test_what_nobody_waits_for_is_dropped() -> None:
    holder = moving(CursorWorld())
    error = DaybookError("late")
    for event in (
        CasAnswered(NOBODYS, CasOutcome.DONE, 9),
        CursorRead(NOBODYS, None),
        MetadataUnreadable(NOBODYS),
        LastRecordRead(NOBODYS, b""),
        RecordAppended(NOBODYS),
        LedgerCreated(NOBODYS, 7),
        LedgerEnded(NOBODYS, 0, 0),
        LedgerDeleted(NOBODYS),
        LedgerRequestFailed(NOBODYS, error),
    ):
        assert holder.machine.step(event) == []
    holder.tick(POLICY.retry_ms)
    assert not holder.asked
    with pytest.raises(AssertionError):
        holder.machine.step(None)  # type: ignore[arg-type]  # no event at all


def test_a_cursor_that_is_not_open_has_no_acknowledgements() -> None:
    holder = Holder(CursorWorld(BEGIN))
    with pytest.raises(AssertionError, match="not open yet"):
        _ = holder.acks
    assert NO_LEDGER not in holder.world.ledgers
