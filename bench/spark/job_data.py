"""What jobs work on: topics of messages with keys, and topics that nobody uses."""

import asyncio
import os
import random
from typing import Any, Final

import pulsar
from daybook_spark.plan.existing import TopicPart, extent_of

import daybook
from bench.broker.load import BATCHES, LoadError, Outstanding
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.unnamed import made_by
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import unix_ms

SEED: Final = 7
SIZE: Final = 100
NAMESPACE: Final = ("public", "idle")
AT_ONCE: Final = 16
"""Topics that are written at a time."""


def write_keyed(cluster: LocalCluster, topic: str, count: int, keys: int) -> int:
    """Write messages in batches, their keys drawn; how many keys there are. All of them can be read once this returns."""
    draw = random.Random(SEED)
    drawn = [f"key-{draw.randrange(keys):08}" for _ in range(count)]
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn)
    client = pulsar.Client(cluster.file.brokers[0].service_url, logger=quiet)
    producer = client.create_producer(topic, **BATCHES)
    data, outstanding = os.urandom(SIZE), Outstanding(count)
    last: list[Any] = []

    def answered(result: Any, message_id: Any) -> None:
        last[:] = [message_id]
        outstanding.answered(result, message_id)

    for key in drawn:
        producer.send_async(data, answered, partition_key=key)
    producer.flush()
    outstanding.wait()
    client.close()
    asyncio.run(_readable(cluster, topic, Position(last[0].ledger_id(), last[0].entry_id())))
    return len(set(drawn))


async def _readable(cluster: LocalCluster, topic: str, last: Position) -> None:
    """Wait: a topic's last message is readable a moment after its receipt (rule 48). Raises LoadError."""
    part = TopicPart(TopicName.parse(topic), topic)
    async with daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        try:
            async with asyncio.timeout(60):
                while not (await extent_of(client, part)).contains(last):
                    pass
        except TimeoutError as error:
            msg = f"{last} of {topic} cannot be read"
            raise LoadError(msg) from error


async def write_idle_topics(cluster: LocalCluster, topics: int, ledgers: int) -> None:
    """Topics of closed ledgers of one entry each, which no broker has loaded, in a namespace of their own."""
    async with daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        free = asyncio.Semaphore(AT_ONCE)

        async def write(number: int) -> None:
            async with free:
                await _write_idle(client, TopicName(*NAMESPACE, f"idle-{number}"), ledgers)

        async with asyncio.TaskGroup() as group:
            for number in range(topics):
                group.create_task(write(number))


async def _write_idle(client: daybook.Client, name: TopicName, ledgers: int) -> None:
    topics = TopicManager(client.store, client.layout)
    current = await topics.create(name)
    for _ in range(ledgers):
        custom = made_by(str(name), "former owner")
        async with await client.create_ledger(custom_metadata=custom) as ledger:
            await ledger.append(b"x" * SIZE)
        now_ms = unix_ms()
        listed = ListedLedger(ledger.id, now_ms, entries=1, size_bytes=SIZE, closed_at_ms=now_ms)
        grown = LedgerList(
            ledgers=(*current.value.ledgers, listed),
            last_confirmed=Position(ledger.id, 0),
            owner_token="former owner",
        )
        current = await topics.cas(name, current, grown)
