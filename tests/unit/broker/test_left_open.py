"""A ledger that a dead owner left open stays open until a client comes; `daybook ledger recover` closes it, also beside a live owner."""

import asyncio
from typing import Any

import pytest

import daybook
from daybook.client.accepted_loss import close_accepting_loss
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerState
from daybook.core.recovery.deletion import DeletionPolicy
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.metadata.bundles import BundleDirectory
from daybook.metadata.topics import TopicManager
from tests.fixtures.brokers import Brokers
from tests.unit.broker.kit import Publisher, in_order_once, new_topic, stored_contents
from tests.unit.cli.kit import run

pytestmark = pytest.mark.integration


async def last_ledger(client: daybook.Client, name: TopicName) -> LedgerId:
    return (await TopicManager(client.store, client.layout).read(name)).value.ledgers[-1].ledger_id


async def state_of(client: daybook.Client, ledger_id: LedgerId) -> LedgerState:
    return (await client.ledgers.read(ledger_id, sync=True)).value.state


async def recovered(brokers: Brokers, ledger_id: LedgerId) -> None:
    """By the command that the condition of a pool names."""
    done: Any = await asyncio.to_thread(
        run, "ledger", "recover", ledger_id, "--dir", brokers.cluster.directory
    )
    assert done.exit_code == 0, done.output


async def published(brokers: Brokers, topic: str, count: int) -> list[bytes]:
    """What a client that comes and goes has receipts for."""
    publisher = Publisher(brokers.service_url, topic)
    publisher.start()
    await publisher.more(count)
    await publisher.stop()
    assert not publisher.failed
    return publisher.acked


async def test_the_ledger_of_a_dead_owner_stays_open_and_a_person_may_close_it(
    patient_brokers: Brokers, client: daybook.Client
) -> None:
    brokers = patient_brokers
    topic = new_topic()
    name = TopicName.parse(topic)
    before = await published(brokers, topic, 100)
    owner = (await BundleDirectory(client.store, client.layout).owners(name.tenant, name.namespace))[
        Bundle.of(name)
    ].broker
    left = await last_ledger(client, name)
    brokers.kill(owner)
    async for node in client.store.watch_node(client.layout.bundle(Bundle.of(name))):
        if node is None:
            break
    assert await state_of(client, left) is LedgerState.OPEN, (
        "nobody owns the topic, so nobody recovers its ledger"
    )
    await recovered(brokers, left)
    assert await state_of(client, left) is LedgerState.CLOSED
    after = await published(brokers, topic, 100)
    brokers.restart(owner)
    assert await stored_contents(client, name) == before + after
    assert await last_ledger(client, name) > left


async def test_rule_61_a_topic_whose_open_ledger_is_lost_goes_on_once_a_person_gave_up_its_end(
    patient_brokers: Brokers, client: daybook.Client
) -> None:
    brokers = patient_brokers
    topic = new_topic()
    name = TopicName.parse(topic)
    await published(brokers, topic, 100)
    bundle = Bundle.of(name)
    owner = (await BundleDirectory(client.store, client.layout).owners(name.tenant, name.namespace))[
        bundle
    ].broker
    left = await last_ledger(client, name)
    brokers.kill(owner)
    async for node in client.store.watch_node(client.layout.bundle(bundle)):
        if node is None:
            break
    await lose_all_bookies(client, left)
    metadata, lost = await close_accepting_loss(
        left,
        client,
        lambda metadata: client.recover(metadata, timeout_ms=500),
        policy=DeletionPolicy(lost_delay_ms=0),
    )
    assert (metadata.last_entry, lost) == (-1, metadata.last_fragment.bookies)
    after = await published(brokers, topic, 100)
    brokers.restart(owner)
    assert await stored_contents(client, name) == after
    assert await last_ledger(client, name) > left


async def lose_all_bookies(client: daybook.Client, ledger_id: LedgerId) -> None:
    """The metadata of the open ledger names bookies that never were, as if its own were gone with their disks."""
    found = await client.ledgers.read(ledger_id, sync=True)
    metadata = found.value
    for at, bookie in enumerate(metadata.last_fragment.bookies):
        metadata = metadata.with_replica(0, bookie, f"lost-{at}")
    await client.ledgers.cas(found, metadata)


async def test_rule_50_an_owner_whose_ledger_a_person_recovers_continues_in_another_one(
    brokers: Brokers, client: daybook.Client
) -> None:
    topic = new_topic()
    name = TopicName.parse(topic)
    publisher = Publisher(brokers.service_url, topic)
    publisher.start()
    await publisher.more(200)
    fenced = await last_ledger(client, name)
    await recovered(brokers, fenced)
    await publisher.more(200)
    await publisher.stop()
    assert not publisher.failed
    assert await last_ledger(client, name) > fenced
    assert in_order_once(await stored_contents(client, name)) == publisher.acked
