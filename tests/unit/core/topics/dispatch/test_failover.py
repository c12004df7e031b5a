"""Failover subscriptions: which consumer is active, and how another one becomes active (rule 64)."""

from daybook.core.topics.dispatch.active import choose_active
from daybook.core.topics.dispatch.consumers import Consumer
from daybook.core.topics.dispatch.events import AcksAdvanced
from tests.unit.core.topics.dispatch.world import World, at


def failover(**policy: int) -> World:
    """Of a partition whose active consumer is the first by name."""
    return World("failover", partition=0, **policy)


def consumer(key: int, name: str, priority: int = 0) -> Consumer:
    return Consumer(key, name, priority, None)


def chosen(consumers: list[Consumer], topic: str = "t", partition: int = -1) -> int:
    found = choose_active(consumers, topic, partition)
    assert found is not None
    return found.key


def test_partitions_are_shared_by_the_names_of_the_consumers_of_the_highest_priority() -> None:
    consumers = [consumer(1, "b"), consumer(2, "c", 1), consumer(3, "a"), consumer(4, "0", 1)]
    assert [chosen(consumers, partition=n) for n in range(4)] == [3, 1, 3, 1]
    assert choose_active([], "t", 0) is None


def test_consumers_of_one_name_go_by_the_order_in_which_they_came() -> None:
    assert chosen([consumer(2, "a"), consumer(1, "a")], partition=0) == 1


def test_topics_without_partitions_are_shared_too_and_few_of_them_move_when_a_consumer_comes() -> None:
    consumers = [consumer(n, f"c{n}") for n in range(4)]
    topics = [f"topic-{n}" for n in range(400)]
    before = [chosen(consumers[:3], topic) for topic in topics]
    after = [chosen(consumers, topic) for topic in topics]
    assert all(80 <= before.count(n) <= 190 for n in range(3))
    assert {b for a, b in zip(before, after, strict=True) if a != b} == {3}
    assert chosen([consumer(1, "a", 1), consumer(2, "b", 0)], "t") == 2


def test_the_first_consumer_is_active_at_once_and_a_later_one_is_not() -> None:
    world = failover()
    first = world.add(1, "a", permits=10)
    second = world.add(2, "b", permits=10)
    world.publish(1, 1)
    world.settle()
    assert (first.is_active, second.is_active) == (True, False)
    assert first.entry_ids == [0, 1]
    assert not second.received


def test_rule_64_the_former_active_consumer_is_notified_and_has_time_to_acknowledge_before_another_one_is_active() -> (
    None
):
    world = failover(switch_delay_ms=500)
    former = world.add(1, "b", permits=10)
    world.publish(1, 1, 1)
    world.settle()
    world.ack(1, 0)
    later = world.add(2, "a", permits=10)
    assert (former.is_active, later.is_active) == (False, False)
    world.publish(1)
    assert not world.reads
    world.ack(1, 1)
    assert [timer.after_ms for timer in world.timers] == [500]
    world.settle()
    assert (former.is_active, later.is_active) == (False, True)
    assert former.entry_ids == [0, 1, 2]
    assert later.entry_ids == [2, 3]


def test_rule_64_a_consumer_that_left_is_not_waited_for() -> None:
    world = failover()
    world.add(1, "a", permits=10)
    later = world.add(2, "b", permits=10)
    world.publish(1, 1)
    world.settle()
    world.ack(1, 1)
    world.remove(1)
    assert later.is_active
    assert not world.timers
    world.settle()
    assert later.entry_ids == [0]


def test_rule_64_the_former_one_leaves_during_the_switch() -> None:
    world = failover()
    world.add(1, "c", permits=10)
    world.publish(1)
    world.settle()
    later = world.add(2, "b", permits=10)
    world.remove(1)
    assert later.is_active
    world.fire()
    world.settle()
    assert later.entry_ids == [0]


def test_rule_64_when_the_next_one_leaves_during_the_switch_the_former_one_continues_where_it_was() -> None:
    world = failover()
    former = world.add(1, "b", permits=10)
    world.publish(1, 1)
    world.settle()
    world.add(2, "a", permits=10)
    world.remove(2)
    assert former.is_active is False
    world.publish(1)
    world.settle()
    assert former.is_active
    assert former.entry_ids == [0, 1, 2]


def test_rule_65_the_former_one_that_asks_for_redelivery_during_the_switch_begins_again() -> None:
    world = failover()
    former = world.add(1, "b", permits=10)
    world.publish(1, 1)
    world.settle()
    world.add(2, "a", permits=10)
    world.redeliver(1)
    world.remove(2)
    world.publish(1)
    world.settle()
    assert former.entry_ids == [0, 1, 0, 1, 2]


def test_the_switch_ends_with_whoever_is_the_best_then() -> None:
    world = failover()
    world.add(1, "c", permits=10)
    world.add(2, "b", permits=10)
    best = world.add(3, "a", permits=10)
    world.publish(1)
    assert len(world.timers) == 1
    world.settle()
    assert best.is_active
    assert best.entry_ids == [0]


def test_a_higher_priority_is_preferred_to_a_name() -> None:
    world = failover()
    world.add(1, "a", priority=1)
    better = world.add(2, "b", priority=0)
    world.settle()
    assert better.is_active


def test_only_the_active_consumer_asks_for_redelivery_with_effect() -> None:
    world = failover()
    first = world.add(1, "a", permits=10)
    world.add(2, "b", permits=10, epoch=0)
    world.publish(1)
    world.settle()
    world.redeliver(2, epoch=4)
    world.settle()
    assert first.entry_ids == [0]
    world.redeliver(1)
    world.settle()
    assert first.entry_ids == [0, 0]


def test_permits_of_a_consumer_that_is_not_active_wait_for_it() -> None:
    world = failover()
    world.add(1, "a")
    later = world.add(2, "b", permits=2)
    world.publish(1, 1, 1)
    world.remove(1)
    world.settle()
    assert later.entry_ids == [0, 1]


def test_all_consumers_are_notified_of_the_end() -> None:
    world = failover()
    clients = [world.add(n, str(n), permits=10) for n in (1, 2)]
    world.publish(1)
    world.settle()
    world.terminate()
    world.acks.ack_through(at(0))
    world.step(AcksAdvanced())
    assert [client.at_end for client in clients] == [1, 1]


def test_all_leave_during_a_switch_and_another_one_comes() -> None:
    world = failover()
    world.add(1, "b", permits=10)
    world.publish(1)
    world.settle()
    world.add(2, "a", permits=10)
    world.remove(2)
    world.remove(1)
    client = world.add(3, "z", permits=10)
    assert client.is_active
    world.settle()
    assert client.entry_ids == [0]
