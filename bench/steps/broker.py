"""A broker: from the bytes of a SEND to those of its receipt. Its connections, subscriptions and upkeep are left out."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

from daybook_broker.metrics import BrokerMetrics
from daybook_broker.settings import BrokerSettings
from daybook_broker.topics.ledger_reads import LedgerReads
from daybook_broker.topics.producer import Producer, ProducerWish
from daybook_broker.topics.services import TopicServices
from daybook_broker.topics.tail_cache import TailCache
from daybook_broker.topics.topic import Topic
from prometheus_client import CollectorRegistry

from bench.steps import PAYLOAD
from bench.steps.instant import InstantCluster
from bench.steps.turns import us_for_each
from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.quorum import Quorum
from daybook.core.topics.name import TopicName
from daybook.core.writer.policy import WriterPolicy
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook.wire.pulsar.by_hand import parse_send
from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.frames import encode_frame, split_frame
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandSend, MessageMetadata, ProducerAccessMode

TOPICS: Final = 300
TURN_ENTRIES: Final = 8
"""Entries that come in one turn of the loop, each for another topic."""


class _Cluster(InstantCluster):
    """With what a topic asks of a client."""

    def can_place(self, quorum: Quorum, pool: str = "") -> bool:
        """Every ledger can be placed."""
        del quorum, pool
        return True

    async def create_ledger(self, *, policy: WriterPolicy, **_: Any) -> Ledger:
        """A ledger of E=3 Qw=3 Qa=2."""
        return self.open_ledger(policy)


class _Peer:
    """A connection that only counts its receipts."""

    address = "nowhere:1"
    is_writable = True

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.expected = 0
        self.answered = asyncio.Event()

    def send(self, *parts: Buffer) -> None:
        """A receipt."""
        self.expected -= len(parts)
        if not self.expected:
            self.answered.set()

    def count_pending(self) -> None:
        """Nobody bounds it."""


async def broker_us(entries: int) -> float:
    """µs of a broker for an entry."""
    async with _Cluster.opened() as cluster:
        peer = _Peer()
        services = _services(cluster)
        producers = [await _producer(services, number, peer) for number in range(TOPICS)]
        frames = [_send_frame(number) for number in range(TOPICS)]

        async def publish(numbers: Sequence[int]) -> None:
            peer.expected = len(numbers)
            peer.answered.clear()
            for number in numbers:
                command, entry = split_frame(frames[number])
                send = parse_send(command)
                assert send is not None
                producers[send[0]].send(send, entry)
            await peer.answered.wait()

        await publish(range(TOPICS))  # creates the ledgers
        found_us = await us_for_each(range(TOPICS), TURN_ENTRIES, entries, publish)
        for producer in producers:
            await producer.topic.stop(DaybookError("the bench is over"))
        return found_us


def _services(cluster: _Cluster) -> TopicServices:
    settings = BrokerSettings(broker_id="bench", cluster="bench", zookeeper="nowhere:1")
    client = cast("Client", cluster)
    metrics = BrokerMetrics(CollectorRegistry())
    return TopicServices(
        settings,
        client,
        TopicManager(cluster.store, cluster.layout),
        PolicyManager(cluster.store, cluster.layout, settings.policy),
        metrics,
        LedgerReads(client, TailCache(settings.cache_bytes), metrics.totals),
        is_certain=lambda: True,
    )


async def _producer(services: TopicServices, number: int, peer: _Peer) -> Producer:
    name = TopicName.parse(f"persistent://public/default/topic-{number}")
    await services.topics.create(name)
    topic = Topic(name, services, on_ended=lambda _: None)
    await topic.open()
    wish = ProducerWish(
        number,
        f"producer-{number}",
        is_name_given=True,
        epoch=0,
        access_mode=ProducerAccessMode.Shared,
        topic_epoch=None,
    )
    producer = Producer(wish, topic, cast("Any", peer), on_closed=lambda *_: None, on_ready=lambda *_: None)
    await topic.add_producer(producer)
    return producer


def _send_frame(producer_id: int) -> bytes:
    """What arrives, without its first size."""
    metadata = MessageMetadata(producer_name="bench", sequence_id=1000, publish_time=1_000_000_000_000)
    send = CommandSend(producer_id=producer_id, sequence_id=1000, num_messages=1)
    return encode_frame(BaseCommand(type=BaseCommand.SEND, send=send), encode_entry(metadata, PAYLOAD))[4:]
