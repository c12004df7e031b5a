"""The snapshot of `daybook topic explain`: what brokers answer, and beside it what ZooKeeper has."""

import asyncio
from dataclasses import replace

import daybook
from daybook.cli.topic.brokers import admin_of
from daybook.cli.topic.explain.asking import ask_brokers
from daybook.cli.topic.explain.facts import Snapshot, StoredTopic
from daybook.core.errors import NoSuchLedgerError
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.metadata.brokers import BrokerDirectory
from daybook.metadata.bundles import BundleDirectory
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import unix_ms

_ATTEMPTS = 3
"""A topic that moves to another broker between two reads is read again; more often it does not move by itself."""


async def observe(client: "daybook.Client", name: TopicName) -> Snapshot:
    """Read a topic. Raises NoSuchTopicError, AdminError if it does not exist, MetadataUnavailableError."""
    stored = await _stored(client, name)
    admin = await admin_of(client)
    for _ in range(_ATTEMPTS):
        asked = await asyncio.to_thread(ask_brokers, admin, name, unix_ms())
        stored = await _stored(client, name)
        if asked.report is None or asked.report.owner_token == stored.owner_token:
            break
    watch = client.store.watch()
    try:
        owner = await BundleDirectory(client.store, client.layout).owner(Bundle.of(name), watch)
    finally:
        watch.close()
    view = await BrokerDirectory(client.store, client.layout).view()
    return replace(
        asked,
        stored=stored,
        owner=None if owner is None else owner.value,
        brokers=dict.fromkeys(view.brokers, ""),
        bookies={bookie: info.writable for bookie, info in client.bookies().items()},
    )


async def _stored(client: "daybook.Client", name: TopicName) -> StoredTopic:
    found = (await TopicManager(client.store, client.layout).read(name, sync=True)).value
    if not found.ledgers or not found.ledgers[-1].is_open:
        return StoredTopic(found.owner_token)
    ledger_id = found.ledgers[-1].ledger_id
    try:
        metadata = await client.ledgers.read(ledger_id)
    except NoSuchLedgerError:
        return StoredTopic(found.owner_token, ledger_id)
    return StoredTopic(found.owner_token, ledger_id, metadata.value.state.value)
