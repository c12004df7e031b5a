"""Shared subscriptions: turns, permits, redelivery, limits."""

import pytest

from daybook.core.topics.dispatch.events import (
    Acked,
    AcksAdvanced,
    ConsumerPaused,
    ConsumerResumed,
    EntriesAcked,
    EntriesRead,
    ReadAgain,
    TimerFired,
)
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.dispatch.redelivery import Redelivery
from daybook.core.topics.dispatch.shared import SharedDispatch
from tests.unit.core.topics.dispatch.world import World, at


def shared(consumers: int = 2, permits: int = 100, **policy: int) -> World:
    world = World("shared", **policy)
    for key in range(1, consumers + 1):
        world.add(key, permits=permits)
    return world


def machine(world: World) -> SharedDispatch:
    assert isinstance(world.machine, SharedDispatch)
    return world.machine


def unacked(world: World) -> int:
    """How many messages are with a consumer and not acknowledged."""
    return sum(consumer.unacked for consumer in machine(world).consumers.values())


def received(world: World) -> list[list[int]]:
    return [client.entry_ids for client in world.clients.values()]


def test_single_entries_go_to_the_consumers_in_turn() -> None:
    world = shared(3)
    for _ in range(7):
        world.publish(1)
        world.settle()
    assert received(world) == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_backlog_is_divided_among_the_consumers() -> None:
    world = shared(2, permits=0)
    world.publish(*[1] * 8)
    world.grant(1, 8)
    world.grant(2, 100)
    world.settle()
    assert received(world) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_turn_has_a_limit() -> None:
    world = shared(2, permits=0, turn_entries_max=2)
    world.publish(*[1] * 8)
    world.grant(1, 8)
    world.grant(2, 100)
    world.settle()
    assert received(world) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_a_consumer_without_permits_is_left_out() -> None:
    world = shared(1, permits=3)
    world.add(2, permits=100)
    world.publish(*[1] * 10)
    world.settle()
    assert len(world.clients[1].received) == 3
    assert len(world.clients[2].received) == 7


def test_a_lower_priority_receives_what_a_higher_one_does_not_take() -> None:
    world = World("shared")
    low = world.add(1, priority=1, permits=100)
    high = world.add(2, priority=0, permits=4)
    for _ in range(6):
        world.publish(1)
        world.settle()
    assert high.entry_ids == [0, 1, 2, 3]
    assert low.entry_ids == [4, 5]
    world.remove(2)
    world.settle()
    assert low.entry_ids == [4, 5, 0, 1, 2, 3]


def test_permits_count_messages_and_a_batch_is_delivered_whole() -> None:
    world = shared(1, permits=5)
    world.publish(4, 4, 4)
    world.settle()
    assert received(world) == [[0, 1]]
    assert world.clients[1].permits == -3


def test_rule_65_what_a_consumer_had_goes_to_others_in_order_and_before_what_is_new() -> None:
    world = shared(2, permits=100)
    world.publish(*[1] * 6)
    world.settle()
    held = world.clients[1].entry_ids
    world.ack(1, held[1])
    world.publish(1, 1)
    world.remove(1)
    before = len(world.clients[2].received)
    world.settle()
    due = [entry_id for entry_id in held if entry_id != held[1]]
    assert [each for each in world.clients[2].entry_ids[before:] if each in due] == due
    assert {count for _, count, _ in world.clients[2].received} == {0}
    assert sorted(world.clients[2].entry_ids) == [n for n in range(8) if n != held[1]]


def test_rule_65_new_entries_wait_until_what_is_due_is_read() -> None:
    world = shared(1)
    world.publish(1, 1)
    world.settle()
    world.publish(1)
    world.redeliver(1)
    world.answer()
    assert world.clients[1].entry_ids == [0, 1]
    assert [read.positions for read in world.reads if isinstance(read, ReadAgain)] == [[at(0), at(1)]]
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 0, 1, 2]


def test_rule_65_a_lower_position_that_becomes_due_goes_first() -> None:
    world = shared(1, permits=4)
    world.publish(1, 1, 1, 1)
    world.settle()
    world.redeliver(1, at(2), at(3))
    world.grant(1, 1)
    world.settle()
    assert world.clients[1].entry_ids[4:] == [2]
    world.redeliver(1, at(0), at(2))
    world.grant(1, 10)
    world.settle()
    assert world.clients[1].entry_ids[4:] == [2, 0, 2, 3]
    assert [count for _, count, _ in world.clients[1].received[4:]] == [1, 1, 2, 1]


def test_negative_acknowledgements_deliver_these_messages_again_and_count() -> None:
    world = shared(1)
    world.publish(1, 1, 1)
    world.settle()
    for count in (1, 2):
        world.redeliver(1, at(1))
        world.settle()
        assert world.clients[1].received[-1] == (at(1), count, ())
    world.ack(1, 1)
    world.redeliver(1, at(1))
    world.settle()
    assert len(world.clients[1].received) == 5


def test_a_consumer_asks_again_only_for_what_it_has() -> None:
    world = shared(2)
    world.publish(1, 1)
    world.settle()
    assert received(world) == [[0], [1]]
    world.redeliver(1, at(1), at(5))
    world.settle()
    assert received(world) == [[0], [1]]


def test_the_position_of_one_request_may_be_named_twice() -> None:
    world = shared(1)
    world.publish(1)
    world.settle()
    world.redeliver(1, at(0), at(0))
    world.settle()
    assert world.clients[1].received == [(at(0), 0, ()), (at(0), 1, ())]


def test_the_rest_of_a_batch_is_delivered_again_with_its_words() -> None:
    world = shared(1)
    world.publish(8)
    world.settle()
    world.ack_batch(1, at(0), [0b0000_1111])
    assert unacked(world) == 4
    world.redeliver(1)
    assert unacked(world) == 0
    world.settle()
    assert world.clients[1].received[1:] == [(at(0), 1, (0b0000_1111,))]
    assert world.clients[1].permits == 100 - 8 - 4
    world.ack_batch(1, at(0), [0b0000_0000])
    assert world.acks.mark_delete == at(0)
    assert unacked(world) == 0


def test_rule_65_what_a_consumer_gives_back_is_with_the_next_one_alone() -> None:
    world = shared(1, permits=1)
    world.publish(1)
    world.settle()
    world.redeliver(1)
    other = world.add(2, permits=100)
    world.settle()
    assert other.entry_ids == [0]
    assert unacked(world) == 1
    world.remove(1)
    world.settle()
    assert other.entry_ids == [0], "the one that left did not have it any more"


def test_an_acknowledgement_of_what_another_consumer_has_counts_there() -> None:
    world = shared(2)
    world.publish(1, 1)
    world.settle()
    world.ack(2, 0)
    assert machine(world).consumers[1].unacked == 0
    assert machine(world).consumers[2].unacked == 1
    world.remove(1)
    world.settle()
    assert received(world) == [[1]]


def test_an_acknowledgement_of_what_nobody_has_is_harmless() -> None:
    world = shared(1)
    world.publish(1, 1)
    world.step(EntriesAcked(1, [Acked(at(1)), Acked(at(9)), Acked(at(0, 5)), Acked(at(7), [1], 8)]))
    world.settle()
    assert received(world) == [[0]]
    assert unacked(world) == 1


def test_what_is_due_and_then_acknowledged_is_not_delivered_again() -> None:
    world = shared(2, permits=1)
    world.publish(1, 1)
    world.settle()
    assert received(world) == [[0], [1]]
    world.remove(1)
    world.ack(2, 0)
    world.grant(2, 10)
    world.settle()
    assert received(world) == [[1]]


def test_a_consumer_with_too_many_unacknowledged_messages_receives_nothing_until_half_are() -> None:
    world = shared(1, unacked_per_consumer_max=4)
    world.publish(*[1] * 10)
    world.settle()
    assert received(world) == [[0, 1, 2, 3]]
    assert machine(world).consumers[1].is_blocked
    world.ack(1, 0)
    world.settle()
    assert received(world) == [[0, 1, 2, 3]]
    world.ack(1, 1)
    world.settle()
    assert received(world) == [[0, 1, 2, 3, 4, 5]]


def test_a_blocked_consumer_leaves_the_rest_to_others() -> None:
    world = shared(2, unacked_per_consumer_max=3)
    world.publish(*[1] * 10)
    world.settle()
    assert list(map(len, received(world))) == [3, 3]
    assert not machine(world).is_blocked


def test_too_many_unacknowledged_messages_of_a_subscription_block_it_until_half_are() -> None:
    world = shared(2, unacked_per_subscription_max=4)
    world.publish(*[1] * 10)
    world.settle()
    assert sum(map(len, received(world))) == 4
    assert machine(world).is_blocked
    holders = [next(key for key, each in world.clients.items() if n in each.entry_ids) for n in (0, 1)]
    world.ack(holders[0], 0)
    world.settle()
    assert sum(map(len, received(world))) == 4
    world.ack(holders[1], 1)
    world.settle()
    assert sum(map(len, received(world))) == 6


def test_when_the_last_consumer_leaves_delivery_and_counts_begin_anew() -> None:
    world = shared(1)
    world.publish(1, 1, 1)
    world.settle()
    world.redeliver(1)
    world.settle()
    world.ack(1, 1)
    world.remove(1)
    client = world.add(2, permits=10)
    world.settle()
    assert client.received == [(at(0), 0, ()), (at(2), 0, ())]


def test_an_answer_to_a_read_of_consumers_that_are_gone_is_dropped() -> None:
    world = shared(1)
    world.publish(1)
    (read,) = world.reads
    world.remove(1)
    assert world.step(EntriesRead(read.request_id, [])) == []
    assert world.fail()
    assert not world.timers


def test_a_seek_begins_again_elsewhere() -> None:
    world = shared(1)
    world.publish(1, 1, 1)
    world.settle()
    world.ack(1, 0, 1)
    world.seek(at(0))
    assert unacked(world) == 0
    world.settle()
    assert world.clients[1].received[3:] == [(at(1), 0, ()), (at(2), 0, ())]


def test_what_others_skip_is_forgotten() -> None:
    world = shared(1, permits=5)
    world.publish(*[1] * 8)
    world.settle()
    world.redeliver(1, at(0), at(4))
    world.grant(1, 1)
    world.settle()
    assert world.clients[1].entry_ids[5:] == [0]
    for position in (at(4), at(0), at(1)):
        world.settled(position)
    world.acks.ack_through(at(1))
    world.acks.ack(at(4))
    world.step(AcksAdvanced())
    assert unacked(world) == 2
    world.grant(1, 100)
    world.settle()
    assert world.clients[1].entry_ids[5:] == [0, 5, 6, 7]


def test_after_a_failed_read_there_is_a_pause() -> None:
    world = shared(1, retry_ms=70)
    world.publish(1)
    world.fail()
    world.publish(1)
    assert not world.reads
    assert [timer.after_ms for timer in world.timers] == [70]
    world.step(TimerFired(99))
    world.settle()
    assert received(world) == [[0, 1]]


def test_a_read_of_what_is_due_that_failed_is_repeated_after_a_pause() -> None:
    world = shared(1)
    world.publish(1, 1)
    world.settle()
    world.redeliver(1)
    world.fail()
    assert not world.reads
    assert world.timers
    world.settle()
    assert world.clients[1].entry_ids == [0, 1, 0, 1]


def test_a_consumer_whose_connection_takes_no_more_is_left_out() -> None:
    world = shared(2)
    world.step(ConsumerPaused(1))
    world.publish(1, 1)
    world.settle()
    assert received(world) == [[], [0, 1]]
    world.step(ConsumerPaused(2))
    world.publish(1)
    assert not world.reads
    world.step(ConsumerResumed(1))
    world.settle()
    assert received(world) == [[2], [0, 1]]


def test_a_new_read_that_finds_nothing_is_repeated_after_a_pause() -> None:
    world = shared(1)
    world.publish(1)
    world.answer(entries_max=0)
    assert not world.reads
    world.settle()
    assert received(world) == [[0]]


def test_what_is_due_and_was_trimmed_is_forgotten() -> None:
    world = shared(1, permits=3)
    world.publish(1, 1)
    world.roll()
    world.publish(1, 1)
    world.settle()
    world.redeliver(1)
    world.grant(1, 10)
    world.trim(1)
    world.due = {each for each in world.due if each.ledger_id > at(0).ledger_id}
    world.settle()
    assert world.clients[1].positions == [at(0), at(1), at(0, 1), at(0, 1), at(1, 1)]


def test_consumers_are_notified_once_of_the_end() -> None:
    world = shared(2)
    world.publish(1)
    world.settle()
    world.terminate()
    assert [client.at_end for client in world.clients.values()] == [0, 0]
    world.ack(1, 0)
    assert [client.at_end for client in world.clients.values()] == [1, 1]
    assert world.add(3).at_end == 1
    world.seek(at(-1))
    world.settle()
    world.ack(1, 0)
    assert [client.at_end for client in world.clients.values()] == [2, 2, 2]


def test_no_entry_is_with_a_consumer_and_due() -> None:
    redelivery = Redelivery()
    redelivery.add([at(1)], is_counted=False)
    with pytest.raises(AssertionError, match="7:1"):
        redelivery.add([at(1)], is_counted=False)


def test_what_is_forgotten_takes_no_memory_for_long() -> None:
    redelivery = Redelivery()
    redelivery.add([at(n) for n in range(1_000)], is_counted=True)
    for n in range(999):
        redelivery.forget(at(n))
    assert len(redelivery) == 1
    assert redelivery.lowest == at(999)
    redelivery.forget(at(999))
    redelivery.add([at(999)], is_counted=False)
    assert redelivery.first(5) == [at(999)]
    assert redelivery.count(at(999)) == 0


def test_permits_have_a_limit() -> None:
    world = shared(1, permits=0)
    world.grant(1, 2**31)
    world.grant(1, 2**31)
    assert machine(world).consumers[1].permits == 2**31 - 1
    assert DispatchPolicy().turn_entries_max == 20
