"""The collection of ledgers that crashes left behind, over real bookies and ZooKeeper: rule 28 and rule 56."""

from collections.abc import Mapping
from typing import Any

import pytest
from daybook_broker.broker import Broker

from daybook.core.errors import DaybookError
from daybook.core.ids import LedgerId
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.unnamed import made_by
from daybook.local.cluster import LocalCluster
from daybook.metadata.hold import CollectionHeldError, begin_hold
from tests.unit.broker.kit import new_topic, running_broker

pytestmark = pytest.mark.integration

AT_ONCE: dict[str, Any] = {"collect_grace_ms": 0}


async def left_behind(broker: Broker, custom: Mapping[str, bytes]) -> LedgerId:
    """A ledger that nothing names, and that nobody closed."""
    handle = await broker.client.create_ledger(custom_metadata=custom)
    await handle.append(b"what only its owner could have acknowledged, had it named the ledger")
    await handle.abandon()
    return handle.id


async def existing(broker: Broker, *ledgers: LedgerId) -> set[LedgerId]:
    found = await broker.client.ledgers.read_each(ledgers, sync=True)
    return {ledger for ledger, each in zip(ledgers, found, strict=True) if not isinstance(each, DaybookError)}


async def test_rule_28_a_crashed_owners_ledgers_go_and_all_others_stay(cluster: LocalCluster) -> None:
    async with running_broker(cluster, **AT_ONCE) as broker:
        text = new_topic()
        name = TopicName.parse(text)
        topic = await broker.registry.load(name, create=True)
        named = await left_behind(broker, made_by(text, "former", "s"))
        await broker.topics.create_cursor(
            name,
            "s",
            CursorRecord(Position(-1, -1), cursor_ledger=named),
            list_version=topic.list_version,
        )
        gone = [
            await left_behind(broker, made_by(text, "former")),
            await left_behind(broker, made_by(text, "former", "s")),
        ]
        kept = [
            named,
            await left_behind(broker, made_by(text, topic.owner_token)),
            await left_behind(broker, made_by(text, topic.owner_token, "s")),
            await left_behind(broker, {}),
            await left_behind(broker, {**made_by(text, "former"), "job": b"compaction"}),
        ]
        assert set(gone) <= set(await broker.collection.collect(broker.ownership))
        assert await existing(broker, *gone, *kept) == set(kept)
        assert broker.registry.get(name) is topic, "it is served as before"


async def test_an_idle_topic_is_loaded_only_for_a_candidate_and_a_deleted_ones_ledgers_go(
    cluster: LocalCluster,
) -> None:
    async with running_broker(cluster, **AT_ONCE) as broker:
        idle, busy = TopicName.parse(new_topic()), TopicName.parse(new_topic())
        for name in (idle, busy):
            await broker.topics.create(name)
        gone = [
            await left_behind(broker, made_by(str(busy), "former")),
            await left_behind(broker, made_by(new_topic(), "former")),
        ]
        assert set(gone) <= set(await broker.collection.collect(broker.ownership))
        assert not await existing(broker, *gone)
        assert broker.registry.get(busy) is not None
        assert broker.registry.get(idle) is None


async def test_a_ledger_younger_than_the_grace_and_one_of_another_brokers_topic_stay(
    cluster: LocalCluster,
) -> None:
    async with running_broker(cluster) as patient, running_broker(cluster, **AT_ONCE) as other:
        text = new_topic()
        await patient.registry.load(TopicName.parse(text), create=True)
        young = await left_behind(patient, made_by(text, "former"))
        assert young not in await patient.collection.collect(patient.ownership)
        assert young not in await other.collection.collect(other.ownership)
        assert await existing(patient, young) == {young}


async def test_rule_56_a_ledger_that_somebody_recovers_just_now_stays_until_the_next_cycle(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(cluster, **AT_ONCE) as broker:
        text = new_topic()
        await broker.registry.load(TopicName.parse(text), create=True)
        left = [await left_behind(broker, made_by(text, "former")) for _ in range(2)]
        delete = broker.client.delete_ledger

        async def changing(ledger_id: LedgerId, *, version: int | None = None, **rest: Any) -> Any:
            if ledger_id == left[0]:
                await broker.client.recover((await broker.client.ledgers.read(ledger_id)).value)
            return await delete(ledger_id, version=version, **rest)

        monkeypatch.setattr(broker.client, "delete_ledger", changing)
        collected = await broker.collection.collect(broker.ownership)
        assert left[0] not in collected
        assert await existing(broker, *left) == {left[0]}
        monkeypatch.setattr(broker.client, "delete_ledger", delete)
        assert left[0] in await broker.collection.collect(broker.ownership), "the next cycle deletes it"


async def test_rule_68_nothing_is_collected_after_a_restore_that_no_person_confirmed(
    cluster: LocalCluster,
) -> None:
    """The list that named the ledger may be younger than the export."""
    async with running_broker(cluster, **AT_ONCE) as broker:
        store, layout = broker.client.store, broker.client.layout
        left = await left_behind(broker, made_by(new_topic(), "former"))
        await begin_hold(store, layout, now_ms=2, exported_at_ms=1)
        try:
            with pytest.raises(CollectionHeldError, match="daybook metadata confirm"):
                await broker.collection.collect(broker.ownership)
            assert await existing(broker, left) == {left}
        finally:
            await store.delete(layout.collection_hold)
        assert left in await broker.collection.collect(broker.ownership)
