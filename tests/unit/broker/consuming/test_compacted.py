"""Compaction by a topic's owner, and what readers and consumers of compacted messages receive, through Pulsar's own client."""

import asyncio
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pulsar
import pytest
from daybook_broker.topics import compaction as compaction_module
from daybook_broker.topics.compacted_reads import CompactedReads
from daybook_broker.topics.compaction import CompactionState
from daybook_broker.topics.ledger_reads import ReadDelayedError
from daybook_broker.topics.planned_trims import trim_planned

from daybook.core.errors import DaybookError
from daybook.core.ids import LedgerId
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.runtime.clock import unix_ms
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandFlow,
    CommandSubscribe,
    CompressionType,
    MessageMetadata,
)
from tests.fixtures.table_views import table_of
from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.consuming.kit import LIMIT_MS, gets_nothing, receive
from tests.unit.broker.kit import LIMIT_S, frame_client, new_topic

pytestmark = pytest.mark.integration

Written = tuple[str | None, str]
"""A key and a value; an empty value deletes the key."""

BEFORE: Sequence[Written] = (
    *((f"k{number % 4}", f"{number}") for number in range(12)),
    ("k1", ""),
    (None, "keyless"),
)
LEFT: Sequence[Written] = (("k0", "8"), ("k2", "10"), ("k3", "11"), (None, "keyless"))
"""What is left of them, in order."""
SQUEEZED = 10_000
"""Bytes of a message that the client takes the trouble to compress."""


def publish(
    client: pulsar.Client, topic: str, messages: Sequence[Written], *, batch: int = 0
) -> list[pulsar.MessageId]:
    """Publish messages, `batch` of them as one entry where it is given; their ids."""
    ids: list[pulsar.MessageId] = []
    producer = client.create_producer(
        topic,
        batching_enabled=bool(batch),
        batching_max_messages=max(batch, 2),
        batching_max_publish_delay_ms=10_000,
    )
    for index, (key, value) in enumerate(messages):
        producer.send_async(value.encode(), lambda _, each: ids.append(each), partition_key=key)
        if not batch or index % batch == batch - 1:
            producer.flush()
    producer.flush()
    producer.close()
    return ids


def compact(served: ServedBroker, topic: str) -> None:
    async def work() -> None:
        compaction = served.topic(topic).compaction
        compaction.begin()
        await compaction.finished()
        assert (compaction.state, compaction.error) == (CompactionState.SUCCESS, "")

    served.call(work())


def keyed(messages: Sequence[pulsar.Message]) -> list[Written]:
    return [(each.partition_key() or None, each.data().decode()) for each in messages]


def read(client: pulsar.Client, topic: str, *, is_compacted: bool = True) -> list[pulsar.Message]:
    """All that a reader finds, until its client knows that nothing follows."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=is_compacted)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(LIMIT_MS))
    reader.close()
    return found


def drop_own_ledgers(served: ServedBroker, topic: str) -> None:
    """The topic's own ledgers are closed and trimmed: what was compacted is only in the compacted ledgers."""
    name = TopicName.parse(topic)

    async def work() -> None:
        registry = served.broker.registry
        unload = registry.unload([name])
        await unload.finished()
        unload.announce(None)
        found = await registry.load(name, create=False)
        listed = found.ledger_list.ledgers
        await trim_planned(
            found, [PlannedLedger(each.ledger_id, each.entries, each.size_bytes) for each in listed]
        )

    served.call(work())


def exists(served: ServedBroker, ledger_id: LedgerId) -> bool:
    async def work() -> bool:
        (found,) = await served.broker.client.ledgers.read_each([ledger_id], sync=True)
        return not isinstance(found, DaybookError)

    return served.call(work())


@pytest.mark.parametrize("batch", [0, 5, 20])
def test_rule_41_a_reader_receives_the_last_value_of_each_key_with_its_id_and_then_the_tail(
    served: ServedBroker, client: pulsar.Client, batch: int
) -> None:
    topic = new_topic()
    ids = dict(zip(BEFORE, publish(client, topic, BEFORE, batch=batch), strict=True))
    compact(served, topic)
    assert keyed(read(client, topic)) == list(LEFT)
    tail = [("k0", "new"), ("k9", "9")]
    publish(client, topic, tail, batch=batch)
    found = read(client, topic)
    assert keyed(found) == [*LEFT, *tail]
    assert [str(each.message_id()) for each in found[: len(LEFT)]] == [str(ids[each]) for each in LEFT]
    assert keyed(read(client, topic, is_compacted=False)) == [*BEFORE, *tail]


@pytest.mark.parametrize("batch", [0, 5])
def test_what_is_compacted_is_read_after_the_topics_own_ledgers_were_trimmed(
    served: ServedBroker, client: pulsar.Client, batch: int
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE, batch=batch)
    compact(served, topic)
    drop_own_ledgers(served, topic)
    assert keyed(read(client, topic)) == list(LEFT)
    consumer = client.subscribe(
        topic,
        "s",
        is_read_compacted=True,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,  # the client waits for all messages of a batch otherwise, also for those that were removed
    )
    publish(client, topic, [("k2", "tail")])
    assert keyed(receive(consumer, 5)) == [*LEFT, ("k2", "tail")]
    consumer.seek(pulsar.MessageId.earliest)
    for message in receive(consumer, 5):
        consumer.acknowledge(message)
    acks = served.subscription(topic, "s").acks
    deadline_s = time.monotonic() + LIMIT_S
    while acks.unacked_entries() and time.monotonic() < deadline_s:
        pass
    assert acks.mark_delete == served.topic(topic).extent.last_confirmed
    consumer.close()


def test_a_table_view_is_the_table_of_the_keys(served: ServedBroker, client: pulsar.Client) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE[:-1], batch=4)
    compact(served, topic)
    publish(client, topic, [("k0", "later"), ("k7", "7")])
    assert table_of(client, topic) == {"k0": b"later", "k2": b"10", "k3": b"11", "k7": b"7"}


def test_where_everything_was_deleted_nothing_is_available(
    served: ServedBroker, client: pulsar.Client
) -> None:
    topic = new_topic()
    publish(client, topic, [("a", "1"), ("b", "2"), ("a", ""), ("b", "")], batch=3)
    compact(served, topic)
    assert served.topic(topic).ledger_list.compacted_ids == frozenset()
    assert read(client, topic) == []
    publish(client, topic, [("c", "3")])
    assert keyed(read(client, topic)) == [("c", "3")]


def test_rule_41_another_compaction_takes_the_place_of_the_former_one_whose_ledger_goes(
    served: ServedBroker, client: pulsar.Client
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE, batch=5)
    compact(served, topic)
    (former,) = served.topic(topic).ledger_list.compacted_ids
    compact(served, topic)
    assert served.topic(topic).ledger_list.compacted_ids == {former}, "nothing came since"
    publish(client, topic, [("k2", ""), ("k8", "8")], batch=2)
    compact(served, topic)
    assert keyed(read(client, topic)) == [LEFT[0], *LEFT[2:], ("k8", "8")]
    deadline_s = time.monotonic() + LIMIT_S
    while exists(served, former) and time.monotonic() < deadline_s:
        pass
    assert not exists(served, former)


def test_rule_41_a_compacted_ledger_that_is_missing_is_an_error_and_not_an_end(
    served: ServedBroker, client: pulsar.Client
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE)
    compact(served, topic)
    found = served.topic(topic)
    (lost,) = found.ledger_list.compacted_ids

    async def work() -> None:
        await served.broker.client.delete_ledger(lost)
        reads = CompactedReads(found)
        for asked in (reads.read(Position(0, 0), 10, 10**6), reads.last()):
            with pytest.raises(ReadDelayedError, match="is missing"):
                await asked

    served.call(work())


def test_rule_41_what_an_owner_wrote_and_never_named_goes_with_the_next_owners_collection(
    served: ServedBroker, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE)
    name = TopicName.parse(topic)
    made: list[LedgerId] = []

    async def work() -> None:
        broker, found = served.broker, served.topic(topic)
        is_written = asyncio.Event()

        async def never(compaction: Any) -> None:
            made.extend(each.ledger_id for each in compaction.ledgers)
            is_written.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(found, "name_compaction", never)
        found.compaction.begin()
        await asyncio.wait_for(is_written.wait(), LIMIT_S)
        broker.registry.lose([name], None)
        await broker.registry.load(name, create=False)
        monkeypatch.setattr(
            broker.collection, "_settings", broker.settings.model_copy(update={"collect_grace_ms": 0})
        )
        assert set(made) <= set(await broker.collection.collect(broker.ownership))

    served.call(work())
    assert not exists(served, made[0])
    compact(served, topic)
    assert keyed(read(client, topic)) == list(LEFT)


def test_a_compaction_that_fails_leaves_no_ledger_and_the_topic_as_it_was(
    served: ServedBroker, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE)
    found = served.topic(topic)
    made: list[LedgerId] = []
    create = served.broker.client.create_ledger

    async def failing(**wish: Any) -> Any:
        handle = await create(**wish)
        made.append(handle.id)
        await handle.abandon()
        return handle

    async def work() -> None:
        found.compaction.begin()
        await found.compaction.finished()

    monkeypatch.setattr(served.broker.client, "create_ledger", failing)
    served.call(work())
    assert found.compaction.state is CompactionState.ERROR
    assert "abandoned" in found.compaction.error
    assert not exists(served, made[0])
    assert keyed(read(client, topic)) == list(BEFORE)
    for settings, why in (
        ({"compaction_bytes_max": 0}, "raise compaction_bytes_max"),
        ({"compaction_keys_bytes_max": 1}, "raise the bound"),
    ):
        limited = served.broker.settings.model_copy(update=settings)
        with monkeypatch.context() as patch:
            patch.setattr(found.compaction, "_settings", limited)
            served.call(work())
        assert why in found.compaction.error


@pytest.fixture
def squeezed(client: pulsar.Client) -> tuple[str, Any]:
    """A topic and a function that publishes to it with a compression."""
    topic = new_topic()

    def send(compression: pulsar.CompressionType) -> None:
        producer = client.create_producer(
            topic, compression_type=compression, batching_enabled=True, batching_max_publish_delay_ms=10_000
        )
        for value in (b"1" * SQUEEZED, b"2" * SQUEEZED):
            producer.send_async(value, None, partition_key="k")
        producer.flush()
        producer.close()

    return topic, send


def _is_of_pyarrow(metadata: MessageMetadata) -> bool:
    return metadata.compression not in (CompressionType.NONE, CompressionType.ZLIB)


@pytest.mark.parametrize("compression", ["ZLib", "LZ4", "ZSTD", "SNAPPY"])
def test_batches_of_every_compression_are_compacted(
    served: ServedBroker,
    client: pulsar.Client,
    squeezed: tuple[str, Any],
    compression: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, send = squeezed
    loaded: list[str] = []

    def load() -> None:
        loaded.append(threading.current_thread().name)
        monkeypatch.undo()  # it is there from now on

    monkeypatch.setattr(compaction_module, "needs_loading", _is_of_pyarrow)
    monkeypatch.setattr(compaction_module, "load_codecs", load)
    send(getattr(pulsar.CompressionType, compression))
    compact(served, topic)
    assert keyed(read(client, topic)) == [("k", "2" * SQUEEZED)]
    assert len(loaded) == (compression != "ZLib")
    assert all(name.startswith("asyncio_") for name in loaded), "the event loop does not wait for the import"


def test_batches_in_a_compression_that_a_broker_cannot_read_are_an_error_that_says_what_to_install(
    served: ServedBroker, client: pulsar.Client, squeezed: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, send = squeezed
    send(pulsar.CompressionType.ZLib)
    compact(served, topic)
    assert keyed(read(client, topic)) == [("k", "2" * SQUEEZED)]
    send(pulsar.CompressionType.LZ4)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed

    async def work() -> str:
        compaction = served.topic(topic).compaction
        compaction.begin()
        await compaction.finished()
        return compaction.error

    assert "install the extra `offload`" in served.call(work())
    monkeypatch.undo()
    assert keyed(read(client, topic)) == [("k", f"{value}" * SQUEEZED) for value in (2, 1, 2)]
    compact(served, topic)
    assert keyed(read(client, topic)) == [("k", "2" * SQUEEZED)]


def test_a_time_is_found_in_what_was_compacted_and_in_the_topics_own_ledgers(
    served: ServedBroker, client: pulsar.Client
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE)
    between_ms = unix_ms() + 1
    while unix_ms() <= between_ms:  # the next messages are later, by the clock of their producer
        pass
    later: list[Written] = [("k0", "12"), ("k7", "13")]
    publish(client, topic, later)
    compact(served, topic)
    before = [LEFT[1], LEFT[2], LEFT[3]]

    def found(at_ms: int) -> list[Written]:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
        reader.seek(at_ms)
        messages = []
        while reader.has_message_available():
            messages.append(reader.read_next(LIMIT_MS))
        reader.close()
        return keyed(messages)

    assert found(between_ms) == later
    drop_own_ledgers(served, topic)
    assert found(between_ms) == later, "only the compacted ledgers have it"
    assert found(1) == [*before, *later]
    tail: list[Written] = [("k8", "14")]
    publish(client, topic, tail)
    assert found(between_ms) == [*later, *tail]
    assert found(unix_ms() + 60_000) == []


def test_a_reader_that_starts_some_time_ago_begins_in_what_was_compacted(
    served: ServedBroker, client: pulsar.Client
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE)
    compact(served, topic)
    drop_own_ledgers(served, topic)
    command = CommandSubscribe(
        topic=topic,
        subscription="some-time-ago",
        subType=CommandSubscribe.Exclusive,
        consumer_id=1,
        request_id=2,
        durable=False,
        read_compacted=True,
        start_message_rollback_duration_sec=3600,
    )

    async def work() -> list[int]:
        async with frame_client(served.broker) as by_hand:
            answer = await by_hand.ask(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=command))
            assert answer.type == BaseCommand.SUCCESS
            flow = CommandFlow(consumer_id=1, messagePermits=100)
            by_hand.send(BaseCommand(type=BaseCommand.FLOW, flow=flow))
            found = [await by_hand.receive() for _ in LEFT]
            assert {each.type for each in found} == {BaseCommand.MESSAGE}
            return [each.message.message_id.entryId for each in found]

    assert served.call(work()) == [8, 10, 11, 13]


def test_the_consumers_of_a_subscription_all_read_what_is_compacted_or_none(
    served: ServedBroker, client: pulsar.Client
) -> None:
    topic = new_topic()
    failover = pulsar.ConsumerType.Failover
    first = client.subscribe(topic, "s", consumer_type=failover, is_read_compacted=True)
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", consumer_type=failover)
    first.close()
    other = client.subscribe(topic, "s", consumer_type=failover)
    assert gets_nothing(other)
    other.close()
