"""Topics that brokers trim or delete while queries read them: each message is read as it was stored, or an error says what is gone."""

import asyncio

import aiohttp
import pulsar
import pytest
from daybook_spark.options import ReadOptions
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import Bounds
from daybook_spark.plan.entry_range import Range
from daybook_spark.stream.topics import DataLossError

import daybook
from daybook.core.errors import NoSuchLedgerError, NoSuchTopicError
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.topics import TopicManager
from tests.fixtures.brokers import PATIENCE_S, Brokers
from tests.unit.spark.kit import new_topic, readable, send
from tests.unit.spark.test_failover import messages_of, own_process_client, where_is
from tests.unit.spark.test_trimming import Query

__all__ = ["own_process_client"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

VALUES = [b"%0100d" % number for number in range(100)]


async def admin(brokers: Brokers, method: str, topic: str, path: str = "", **query: str) -> None:
    """Have a broker do something with a topic."""
    name = TopicName.parse(topic)
    url = f"{brokers.entry(brokers.ids[0]).admin_url}/admin/v2/persistent/{name.tenant}/{name.namespace}/{name.local}{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url, params=query) as answer:
        assert answer.status == 204, await answer.text()


async def ledgers_of(client: daybook.Client, topic: str) -> list[int]:
    """The ledgers that the topic's list names."""
    found = await TopicManager(client.store, client.layout).read(TopicName.parse(topic), sync=True)
    return [ledger.ledger_id for ledger in found.value.ledgers]


async def until_trimmed(client: daybook.Client, topic: str, ledger_id: int) -> None:
    """Wait until the topic's owner has taken a ledger from its list. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_S):
        while ledger_id in await ledgers_of(client, topic):
            pass


async def planned(cluster: LocalCluster, topic: str) -> list[Range]:
    """Ranges of about 20 messages."""
    options = ReadOptions(where_is(cluster), topics=(topic,), partition_bytes=2_000)
    return await asyncio.to_thread(plan, options, Bounds())


async def read_until_gone(
    cluster: LocalCluster, topic: str, ranges: list[Range], values: list[bytes]
) -> None:
    """Read ranges again and again: bookies have their entries until they have collected the ledger, and never others."""

    async def read_on() -> None:
        while True:
            assert await messages_of(cluster, topic, ranges) == values

    with pytest.raises(NoSuchLedgerError, match=r"was deleted|does not exist"):
        await read_on()


async def test_a_query_whose_ledger_its_broker_trims_reads_what_was_stored_or_says_that_it_is_gone(
    client: daybook.Client, cluster: LocalCluster, brokers: Brokers, pulsar_client: pulsar.Client
) -> None:
    topic = new_topic()
    consumer = pulsar_client.subscribe(topic, "holds the ledger")
    last = send(pulsar_client, topic, VALUES)
    await readable(client, topic, last)
    first, *others = await planned(cluster, topic)
    assert len(others) > 2
    found = await messages_of(cluster, topic, [first])
    assert found == VALUES[: len(found)]

    consumer.acknowledge_cumulative(last)
    consumer.close()  # sends the acknowledgement, which a client that connects again forgets
    await admin(brokers, "PUT", topic, "/unload")
    later = send(pulsar_client, topic, [b"later"])
    await until_trimmed(client, topic, last.ledger_id())
    await read_until_gone(cluster, topic, others, VALUES[len(found) :])

    await readable(client, topic, later)
    assert await messages_of(cluster, topic, await planned(cluster, topic)) == [b"later"]


async def test_a_topic_that_is_deleted_while_a_job_reads_it(
    client: daybook.Client, cluster: LocalCluster, brokers: Brokers, pulsar_client: pulsar.Client
) -> None:
    topic = new_topic()
    pulsar_client.subscribe(topic, "keeps every message").close()
    await readable(client, topic, send(pulsar_client, topic, VALUES))
    query = Query(cluster, TopicName.parse(topic))
    begin = await query.begin()
    end = await query.end(begin)
    first, *others = await planned(cluster, topic)
    found = await messages_of(cluster, topic, [first])

    await admin(brokers, "DELETE", topic, force="true")

    await read_until_gone(cluster, topic, others, VALUES[len(found) :])
    with pytest.raises(NoSuchTopicError, match="was deleted"):
        await planned(cluster, topic)
    with pytest.raises(DataLossError, match="was deleted"):
        await query.values(begin, end)
    await query.stop()
