"""A topic after the loss of all of ZooKeeper's data: its messages, how far its subscription was, and its policy are those of the export.

docs/operations/restore.md says what may differ: acknowledgements after the export may be forgotten, and nothing else is delivered again.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pulsar
import pytest

import daybook
from daybook.core.errors import NoSuchLedgerError, NoSuchTopicError
from daybook.core.topics.cursor_record import NO_LEDGER, CursorRecord
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import UNLIMITED, Degrade, Durability, PolicyLayer
from daybook.local.cluster import LocalCluster
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from tests.fixtures.brokers import Brokers, MakeClient, write_settings
from tests.fixtures.cluster import connect_to, make_cluster
from tests.process.integration.kit import BOOKIES, PATIENCE_S, POLL_S, SESSION_MS, eventually, off
from tests.process.integration.test_restore import (
    collected,
    daybook_metadata,
    lose_the_data_of_zookeeper,
    start_bookies_of_the_import,
)
from tests.unit.broker.kit import until_gone
from tests.unit.cli.kit import run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NAME = TopicName("public", "restored", "orders")
LATER = TopicName("public", "restored", "began after the export")
POLICY = PolicyLayer(
    durability=Durability.SYNC,
    degrade=Degrade.NEVER,
    retention_ms=UNLIMITED,
    retention_bytes=UNLIMITED,
    ttl_ms=86_400_000,
    unknown_fields={"ofALaterRelease": 1},
)
BEFORE, AFTER = range(40), range(40, 60)
"""What is published before the export, and after it."""
ACKED, ACKED_AFTER = (0, 1, 2, 5, 6, 9), (3, 11)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One that knows no bookie but its own four: an import waits for every bookie that the export names."""
    with make_cluster(tmp_path / "cluster", settings={"session_timeout_ms": SESSION_MS}) as made:
        yield made


@pytest.fixture
def shared_brokers(cluster: LocalCluster) -> Brokers:
    """One broker, of this test alone."""
    write_settings(cluster, ("broker-0",))
    return Brokers(cluster, ("broker-0",))


def publish(client: pulsar.Client, name: TopicName, numbers: Iterable[int]) -> None:
    """One message of one entry for each number; each has its receipt."""
    producer = client.create_producer(str(name), batching_enabled=False)
    for number in numbers:
        producer.send(b"%d" % number)
    producer.close()


def subscribe(client: pulsar.Client) -> pulsar.Consumer:
    return client.subscribe(
        str(NAME), "slow", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )


def received(consumer: pulsar.Consumer, last: int) -> dict[int, pulsar.Message]:
    """What comes, in order, up to the message `last`."""
    found: dict[int, pulsar.Message] = {}
    while last not in found:
        message = consumer.receive(int(PATIENCE_S * 1000))
        found[int(message.data())] = message
    return found


def everything(client: pulsar.Client, last: int) -> list[int]:
    """What a reader finds from the beginning, up to the message `last`."""
    reader = client.create_reader(str(NAME), pulsar.MessageId.earliest)
    found: list[int] = []
    while last not in found:
        found.append(int(reader.read_next(int(PATIENCE_S * 1000)).data()))
    reader.close()
    return found


async def acknowledged(client: daybook.Client) -> set[int]:
    """The entries of the topic's only ledger that are acknowledged by the record that the next owner would find."""
    topics = TopicManager(client.store, client.layout)
    (ledger,) = (await topics.read(NAME, sync=True)).value.ledgers
    record = (await topics.read_cursor(NAME, "slow")).value
    if record.cursor_ledger != NO_LEDGER:
        reader = await client.open_ledger(record.cursor_ledger, recover=False)
        async for entry in reader.read():
            record = CursorRecord.from_json(entry.data)
    mark = record.mark_delete
    found = set(range(mark.entry_id + 1)) if mark.ledger_id == ledger.ledger_id else set()
    return found.union(*(range(each.first_entry, each.last_entry + 1) for each in record.ranges))


async def until_acknowledged(client: daybook.Client, count: int) -> None:
    """Wait until the cursor's record has so many entries."""
    async with asyncio.timeout(PATIENCE_S):
        while len(await acknowledged(client)) < count:  # noqa: ASYNC110 - what other processes stored has no event
            await asyncio.sleep(POLL_S)


async def lose_and_restore(cluster: LocalCluster, brokers: Brokers, file: Path) -> None:
    """ZooKeeper's data is lost with everything off; the export comes back, and a broker starts."""
    await off(cluster.stop_bookies, *BOOKIES)
    await off(lose_the_data_of_zookeeper, cluster)
    await asyncio.gather(
        daybook_metadata(cluster, "import", file, "--wait", 60), start_bookies_of_the_import(cluster)
    )
    await off(brokers.whole)


async def test_rule_68_a_topic_is_as_it_was_at_the_export_and_at_most_later_acknowledgements_are_forgotten(
    cluster: LocalCluster, brokers: Brokers, make_client: MakeClient, tmp_path: Path
) -> None:
    file = tmp_path / "metadata.gz"
    with closing(pulsar.Client(brokers.service_url)) as pulsar_client:
        async with connect_to(cluster) as client:
            await TopicManager(client.store, client.layout).create(NAME, POLICY.to_record())
            policies = PolicyManager(client.store, client.layout)
            consumer = await off(subscribe, pulsar_client)
            await off(publish, pulsar_client, NAME, BEFORE)
            messages = await off(received, consumer, BEFORE[-1])
            for number in ACKED:
                consumer.acknowledge(messages[number])
            await until_acknowledged(client, len(ACKED))
            await daybook_metadata(cluster, "export", file)

            await off(publish, pulsar_client, NAME, AFTER)
            for number in ACKED_AFTER:
                consumer.acknowledge(messages[number])
            await off(publish, pulsar_client, LATER, range(3))
            await off(pulsar_client.subscribe, str(NAME), "began after the export")
            current = await policies.topic(NAME)
            await policies.set_topic(NAME, current, PolicyLayer(ttl_ms=7_200_000))
    await off(brokers.kill, "broker-0")
    await lose_and_restore(cluster, brokers, file)

    again = make_client()
    numbers = [*BEFORE, *AFTER]
    assert await off(everything, again, AFTER[-1]) == numbers
    delivered = list(await off(received, await off(subscribe, again), AFTER[-1]))
    assert delivered == sorted(delivered)
    assert set(numbers) - {*ACKED, *ACKED_AFTER} <= set(delivered) <= set(numbers) - {*ACKED}
    async with connect_to(cluster) as client:
        topics = TopicManager(client.store, client.layout)
        assert (await PolicyManager(client.store, client.layout).topic(NAME)).value == POLICY
        assert await topics.cursors(NAME) == ("slow",)
        with pytest.raises(NoSuchTopicError):
            await topics.read(LATER)
    await off(publish, again, NAME, [60])
    assert await off(everything, again, 60) == [*numbers, 60]
    orphans = json.loads((await daybook_metadata(cluster, "orphans", "--json")).stdout)
    assert not any(each["is_in_metadata"] for each in orphans), "each copy is where the metadata says"
    assert orphans, "the later topic's ledger is kept"


async def test_what_the_topic_dropped_after_the_export_holds_a_subscription_up_until_a_person_moves_it(
    cluster: LocalCluster, brokers: Brokers, make_client: MakeClient, tmp_path: Path
) -> None:
    """The export names a closed ledger that everybody had consumed before the loss: bookies have nothing of it any more."""
    file = tmp_path / "metadata.gz"
    with closing(pulsar.Client(brokers.service_url)) as pulsar_client:
        async with connect_to(cluster) as client:
            topics = TopicManager(client.store, client.layout)
            consumer = await off(subscribe, pulsar_client)
            await off(publish, pulsar_client, NAME, BEFORE)
            await off(brokers.stop, "broker-0")
            await off(brokers.whole)
            await off(publish, pulsar_client, NAME, [40])
            first, second = (await topics.read(NAME, sync=True)).value.ledgers
            await daybook_metadata(cluster, "export", file)
            for message in (await off(received, consumer, 40)).values():
                consumer.acknowledge(message)
            await until_gone(lambda: client.ledgers.read(first.ledger_id, sync=True), NoSuchLedgerError)
            for _ in range(2):  # a cycle that runs already may have read the ledgers before
                await collected(cluster)
    await off(brokers.kill, "broker-0")
    await lose_and_restore(cluster, brokers, file)

    consumer = await off(subscribe, make_client())
    await eventually(lambda: "entries cannot be read yet" in brokers.log("broker-0"))
    behind = f"{second.ledger_id}:0"
    moved = await off(run, "topic", "seek", str(NAME), "slow", behind, "--dir", cluster.directory)
    assert moved.exit_code == 0, moved.output
    assert list(await off(received, consumer, 40)) == [40]
