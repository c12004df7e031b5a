"""A topic whose list can name no more ledgers, with bounds that a few ledgers reach: what clients of its broker see, and who is told."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from daybook_broker.broker import Broker
from daybook_broker.metrics import PREFIX
from daybook_broker.topics import compaction, upkeep
from daybook_broker.topics.subscriptions import SubscriptionWish
from daybook_broker.topics.topic import Topic

from daybook.client.ledger import Ledger
from daybook.core.errors import NoSuchLedgerError, TopicFullError
from daybook.core.ids import LedgerId
from daybook.core.topics import list_room
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.unit.broker.kit import FrameClient, contents, frame_client, new_topic, running_broker, until

pytestmark = pytest.mark.integration

FULL_BYTES = 1000
"""Four ledgers."""
SETTINGS: dict[str, Any] = {
    "trim_interval_ms": 50,
    "quota_interval_ms": 50,
    "ledger_entries_max": 1,
    "ledger_age_ms_min": 0,
}


@pytest.fixture
async def broker(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    """A broker that begins a ledger for each entry, and whose lists are small."""
    monkeypatch.setattr(list_room, "MEASURED_LEDGERS", 1)
    monkeypatch.setattr(list_room, "SCARCE_BYTES", FULL_BYTES)
    monkeypatch.setattr(list_room, "FULL_BYTES", FULL_BYTES)
    monkeypatch.setattr(upkeep, "NEARLY_FULL_BYTES", FULL_BYTES)
    async with running_broker(cluster, **SETTINGS) as started:
        yield started


async def filled(broker: Broker, client: FrameClient, topic: str) -> tuple[Topic, list[bytes]]:
    """A topic whose list is full, with its messages."""
    found = await broker.registry.load(TopicName.parse(topic), create=True)
    await found.subscriptions.subscribe(SubscriptionWish("s"))
    messages: list[bytes] = []
    assert (await client.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS
    while len(found.ledger_list.to_json()) < FULL_BYTES or len(messages) < 8:
        messages.append(b"%d" % len(messages))
        client.publish(messages[-1], len(messages))
        assert (await client.receive()).type == BaseCommand.SEND_RECEIPT
    return found, messages


async def end_ledger(broker: Broker, topic: Topic) -> None:
    """Fence the ledger that the topic writes, as an auditor may."""
    handle = topic.open_ledger
    assert handle is not None
    await broker.client.recover((await broker.client.ledgers.read(handle.id)).value)


async def test_a_topic_whose_list_is_full_refuses_messages_and_takes_them_again_after_a_trim(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    async with frame_client(broker) as client:
        found, messages = await filled(broker, client, topic)
        await end_ledger(broker, found)
        client.publish(b"refused", 100)
        client.publish(b"refused as well", 101)
        assert (await client.receive()).type == BaseCommand.CLOSE_PRODUCER
        client.publish(b"ignored", 102)
        refused = await client.produce(topic)
        assert refused.error.error == ServerError.ProducerBlockedQuotaExceededException
        assert "as many ledgers as its list can name" in refused.error.message
        gauge = broker.metrics.registry.get_sample_value
        await until(lambda: (gauge(f"{PREFIX}largest_list_bytes") or 0) >= FULL_BYTES)
        assert await contents(broker, topic) == messages
        (subscription,) = found.subscriptions.all()
        subscription.skip_through(found.extent.last_confirmed)
        await until(lambda: found.publish_refusal is None)
        assert (await client.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS
        client.publish(b"taken", 103)
        assert (await client.receive()).type == BaseCommand.SEND_RECEIPT
        assert await contents(broker, topic) == [b"taken"]
    warned = [each for each in caplog.messages if "list of ledgers is nearly full" in each]
    assert len(warned) == 1, "the topic is named once"
    assert str(found.name) in warned[0]


async def test_what_would_make_a_full_list_larger_is_refused_and_leaves_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, made = new_topic(), list[LedgerId]()
    async with frame_client(broker) as client:
        found, _ = await filled(broker, client, topic)
    before = found.ledger_list
    with pytest.raises(TopicFullError):
        await found.offloads.begin("job")
    create = broker.client.create_ledger

    async def noting(**wish: Any) -> Ledger:
        handle = await create(**wish)
        made.append(handle.id)
        return handle

    monkeypatch.setattr(broker.client, "create_ledger", noting)
    found.compaction.begin()
    await found.compaction.finished()
    assert "as many ledgers as its list can name" in found.compaction.error
    assert made == [], "nothing is written in vain"
    monkeypatch.setattr(compaction, "check_room", lambda *_: None)  # as if it had become full meanwhile
    found.compaction.begin()
    await found.compaction.finished()
    assert "as many ledgers as its list can name" in found.compaction.error
    assert len(made) == 1
    with pytest.raises(NoSuchLedgerError):
        await broker.client.ledgers.read(made[0])
    assert found.ledger_list == before
