"""Exclusive subscriptions and readers: everything in order, to one consumer."""

import pytest

from daybook.core.topics.dispatch.events import (
    AcksAdvanced,
    ConsumerAdded,
    ConsumerPaused,
    ConsumerResumed,
    EntriesRead,
    ReadEntries,
    TimerFired,
)
from daybook.core.topics.ledger_list import Position
from tests.unit.core.topics.dispatch.world import World, at


def exclusive(**policy: int) -> World:
    world = World("exclusive", **policy)
    world.add(1)
    return world


def test_what_is_there_is_delivered_in_order_and_what_comes_after_it_as_well() -> None:
    world = exclusive()
    world.publish(1, 1, 1)
    assert not world.reads
    world.grant(1, 10)
    world.settle()
    world.publish(1, 1)
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 2, 3, 4]
    assert world.clients[1].permits == 5


def test_delivery_continues_over_the_ends_of_ledgers_and_empty_ones() -> None:
    world = exclusive()
    world.publish(1, 1)
    world.roll()
    world.roll()
    world.publish(1)
    world.grant(1, 10)
    world.settle()
    assert world.clients[1].positions == [at(0), at(1), at(0, 2)]


def test_permits_count_messages_and_a_batch_is_delivered_whole() -> None:
    world = exclusive()
    world.publish(1, 10, 10, 10)
    world.grant(1, 12)
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 2]
    assert world.clients[1].permits == -9
    world.grant(1, 9)
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 2]
    world.grant(1, 1)
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 2, 3]


def test_what_was_read_and_exceeds_the_permits_waits_and_is_not_read_again() -> None:
    world = exclusive()
    world.publish(4, 4, 4, 4)
    world.grant(1, 3)
    assert [read.entries_max for read in world.reads if isinstance(read, ReadEntries)] == [3]
    world.answer()
    assert world.clients[1].entry_ids == [0]
    world.grant(1, 5)
    assert world.clients[1].entry_ids == [0, 1]
    assert not world.reads


def test_a_read_asks_for_as_many_entries_as_the_permits_are_worth() -> None:
    world = exclusive(read_entries_max=50, read_bytes_max=3_000)
    world.publish(*[10] * 60)
    world.grant(1, 45)
    world.settle()
    assert world.clients[1].permits == -5
    world.grant(1, 105)
    assert [read.entries_max for read in world.reads if isinstance(read, ReadEntries)] == [10]
    world.settle()
    world.grant(1, 10_000)
    assert [read.entries_max for read in world.reads if isinstance(read, ReadEntries)] == [30]


def test_a_read_that_returns_less_is_continued() -> None:
    world = exclusive()
    world.publish(1, 1, 1)
    world.grant(1, 10)
    while world.answer(entries_max=1):
        pass
    assert world.clients[1].entry_ids == [0, 1, 2]


def test_rule_65_redelivery_begins_again_behind_the_mark_delete_position_and_leaves_out_what_is_acknowledged() -> (
    None
):
    world = exclusive()
    world.publish(1, 1, 1, 1, 1)
    world.grant(1, 20)
    world.settle()
    world.ack(1, 0, 2, 3)
    world.redeliver(1)
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 2, 3, 4, 1, 4]


def test_single_messages_are_not_delivered_again_without_those_behind_them() -> None:
    world = exclusive()
    world.publish(1, 1, 1)
    world.grant(1, 20)
    world.settle()
    world.redeliver(1, at(1))
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 2, 0, 1, 2]


def test_what_is_sent_after_a_request_for_redelivery_has_its_epoch() -> None:
    world = World()
    client = world.add(1, epoch=0, permits=20)
    world.publish(1)
    world.settle()
    world.redeliver(1, epoch=3)
    world.settle()
    world.redeliver(1, epoch=2)
    world.settle()
    world.redeliver(1)
    world.settle()
    assert client.epochs == [0, 3, 3, 3]


def test_a_read_from_before_a_request_for_redelivery_counts_no_more() -> None:
    world = exclusive()
    world.publish(1, 1)
    world.grant(1, 1)
    world.settle()
    world.grant(1, 9)
    stale = world.reads.popleft()
    world.redeliver(1)
    world.step(EntriesRead(stale.request_id, []))
    assert world.clients[1].entry_ids == [0]
    world.settle()
    assert world.clients[1].entry_ids == [0, 0, 1]


def test_the_rest_of_a_batch_is_delivered_again_with_its_words() -> None:
    world = exclusive()
    world.publish(1, 8)
    world.grant(1, 20)
    world.settle()
    world.ack_batch(1, at(1), [0b1110_0111])
    world.redeliver(1)
    world.settle()
    assert world.clients[1].received[2:] == [(at(0), 0, ()), (at(1), 0, (0b1110_0111,))]
    assert world.clients[1].permits == 20 - 9 - 1 - 6


def test_cumulative_acknowledgements_move_the_mark_delete_position() -> None:
    world = exclusive()
    world.publish(1, 1, 1)
    world.grant(1, 20)
    world.settle()
    world.ack_through(1, at(1))
    assert world.acks.mark_delete == at(1)
    world.redeliver(1)
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 2, 2]


def test_what_is_acknowledged_while_it_waits_is_not_delivered() -> None:
    world = exclusive()
    world.publish(5, 5, 5)
    world.grant(1, 3)
    world.settle()
    assert world.clients[1].entry_ids == [0]
    world.acks.ack(at(1))
    world.step(AcksAdvanced())
    world.grant(1, 20)
    world.settle()
    assert world.clients[1].entry_ids == [0, 2]
    world.acks.ack_through(at(2))
    world.step(AcksAdvanced())
    assert not world.reads


def test_all_that_waits_may_be_acknowledged_meanwhile() -> None:
    world = exclusive()
    world.publish(5, 5)
    world.grant(1, 2)
    world.settle()
    world.acks.ack_through(at(1))
    world.grant(1, 20)
    world.settle()
    assert world.clients[1].entry_ids == [0]


def test_a_seek_begins_again_elsewhere() -> None:
    world = exclusive()
    world.publish(1, 1, 1, 1)
    world.grant(1, 20)
    world.settle()
    world.ack_through(1, at(3))
    world.seek(at(1))
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 2, 3, 2, 3]


def test_the_next_consumer_receives_what_is_not_acknowledged() -> None:
    world = exclusive()
    world.publish(1, 1, 1)
    world.grant(1, 20)
    world.settle()
    world.ack(1, 1)
    world.remove(1)
    assert world.machine.is_done
    client = world.add(2, permits=10)
    world.settle()
    assert client.entry_ids == [0, 2]


def test_a_second_consumer_is_a_mistake_of_the_driver() -> None:
    world = exclusive()
    with pytest.raises(AssertionError, match="one consumer"):
        world.machine.step(ConsumerAdded(2, "second"))


def test_after_a_failed_read_there_is_a_pause() -> None:
    world = exclusive(retry_ms=70)
    world.publish(1)
    world.grant(1, 10)
    world.fail()
    world.publish(1)
    assert not world.reads
    assert [timer.after_ms for timer in world.timers] == [70]
    world.step(TimerFired(999))
    assert not world.reads
    world.settle()
    assert world.clients[1].entry_ids == [0, 1]


def test_a_read_that_finds_nothing_is_repeated_after_a_pause() -> None:
    world = exclusive()
    world.publish(1)
    world.grant(1, 10)
    world.answer(entries_max=0)
    assert not world.reads
    world.settle()
    assert world.clients[1].entry_ids == [0]


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    world = exclusive()
    world.publish(1)
    world.grant(1, 10)
    (read,) = world.reads
    world.remove(1)
    assert world.fail()
    assert world.step(EntriesRead(read.request_id, [])) == []
    assert not world.timers


def test_what_was_trimmed_is_left_out() -> None:
    world = exclusive()
    world.publish(1, 1)
    world.roll()
    world.publish(1)
    world.trim(1)
    world.grant(1, 10)
    world.settle()
    assert world.clients[1].positions == [Position(at(0).ledger_id + 1, 0)]


def test_a_consumer_is_notified_once_that_a_terminated_topic_is_acknowledged_to_its_end() -> None:
    world = exclusive()
    world.publish(1, 1)
    world.grant(1, 10)
    world.settle()
    world.ack(1, 0)
    world.terminate()
    assert world.clients[1].at_end == 0
    world.ack(1, 1)
    world.ack(1, 1)
    assert world.clients[1].at_end == 1
    world.seek(at(0))
    world.settle()
    world.ack_through(1, at(1))
    assert world.clients[1].at_end == 2
    world.remove(1)
    assert world.add(2).at_end == 1


def test_a_connection_that_takes_no_more_is_waited_for_whatever_the_permits() -> None:
    world = exclusive()
    world.publish(1, 1)
    world.grant(1, 10)
    world.step(ConsumerPaused(1))
    world.settle()
    assert world.clients[1].entry_ids == []
    world.step(ConsumerResumed(1))
    world.settle()
    assert world.clients[1].entry_ids == [0, 1]
