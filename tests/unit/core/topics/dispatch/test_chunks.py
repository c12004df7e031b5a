"""Messages in chunks on shared subscriptions: all chunks of one go to one consumer."""

import pytest

from daybook.core.topics.dispatch import chunks
from daybook.core.topics.dispatch.chunks import Chunk, ChunkHolders, no_chunks
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.dispatch.events import ConsumerPaused, ConsumerResumed
from tests.unit.core.topics.dispatch.world import World, at, chunk_of


def shared(consumers: int = 2, permits: int = 100, **policy: int) -> World:
    world = World("shared", **policy)
    for key in range(1, consumers + 1):
        world.add(key, permits=permits)
    return world


def received(world: World) -> list[list[int]]:
    return [client.entry_ids for client in world.clients.values()]


def publish_one_by_one(world: World, *parts: bytes) -> None:
    for part in parts:
        world.publish_chunks(part)
        world.settle()


def test_rule_65_all_chunks_of_a_message_go_to_the_consumer_of_the_first() -> None:
    world = shared(2)
    publish_one_by_one(world, b"a", b"b", b"b", b"a", b"a.", b"b.")
    assert received(world) == [[0, 3, 4], [1, 2, 5]]
    world.publish(1, 1)
    world.settle()
    assert sorted(map(len, received(world))) == [4, 4], "turns continue"


def test_messages_in_chunks_go_to_the_consumers_in_turn() -> None:
    world = shared(2)
    publish_one_by_one(world, b"a", b"a.", b"b", b"b.", b"c", b"c.", b"d", b"d.")
    assert received(world) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_a_backlog_of_chunks_is_divided_by_messages() -> None:
    world = shared(2, permits=0)
    world.publish_chunks(b"a", b"b", b"a", b"b", b"a.", b"b.")
    world.grant(1, 1)
    world.grant(2, 100)
    world.settle()
    by_client = [set(each) for each in received(world)]
    for message in ({0, 2, 4}, {1, 3, 5}):
        assert any(message <= each for each in by_client), "whatever the permits are"


def test_a_chunk_that_takes_the_last_permit_of_the_next_in_turn_holds_up_nothing() -> None:
    world = shared(2, permits=0)
    world.grant(1, 1)
    publish_one_by_one(world, b"a")
    world.publish_chunks(b"a.")
    world.publish(1)
    world.grant(2, 10)
    world.grant(1, 1)
    world.settle()
    assert received(world) == [[0, 1], [2]]


def test_what_is_held_up_by_a_connection_that_takes_nothing_waits_for_it() -> None:
    world = shared(2)
    publish_one_by_one(world, b"a")
    world.step(ConsumerPaused(1))
    publish_one_by_one(world, b"a", b"b.")
    assert received(world) == [[0], []]
    world.due.add(at(1))
    world.step(ConsumerResumed(1))
    world.settle()
    assert 1 in world.clients[1].entry_ids
    assert sorted(each for client in received(world) for each in client) == [0, 1, 2]


def test_rule_65_the_chunks_of_a_consumer_that_leaves_go_to_another_from_the_first_on() -> None:
    world = shared(2)
    publish_one_by_one(world, b"a", b"a")
    world.step(ConsumerPaused(1))
    publish_one_by_one(world, b"a")
    world.due.add(at(2))
    world.remove(1)
    world.settle()
    publish_one_by_one(world, b"a.")
    assert received(world) == [[0, 1, 2, 3]]


def test_after_a_seek_nobody_has_the_beginning_of_a_message() -> None:
    world = shared(2)
    publish_one_by_one(world, b"a", b"a.", b"b")
    world.seek(at(-1))
    world.settle()
    last = [client.entry_ids for client in world.clients.values() if 2 in client.entry_ids]
    assert last


def test_the_number_of_messages_that_never_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MESSAGES_MAX", 2)
    holders = ChunkHolders(chunk_of)
    for number, message in enumerate((b"a", b"b", b"c")):
        holders.delivered(TopicEntry(at(number), message, 1), 1)
    assert [holders.receiver(TopicEntry(at(9), each, 1), 2) for each in (b"a", b"b", b"c")] == [2, 1, 1]
    holders.delivered(TopicEntry(at(8), b"b.", 1), 1)
    holders.delivered(TopicEntry(at(8), b"b.", 1), 1)
    assert holders.receiver(TopicEntry(at(9), b"b", 1), 2) == 2


def test_batches_and_other_entries_are_no_chunks() -> None:
    holders = ChunkHolders(lambda _: Chunk(b"a", is_last=False))
    holders.delivered(TopicEntry(at(0), b"", 5), 1)
    assert holders.receiver(TopicEntry(at(1), b"", 5), 2) == 2
    assert no_chunks(b"a") is None
