"""A broker in the test's event loop, and clients of it: by frames written by hand, and Pulsar's own in a thread."""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from typing import Any, TypeVar

import pulsar
from daybook_broker.broker import Broker
from daybook_broker.metrics import BrokerMetrics
from daybook_broker.ownership.api import LookupResult
from daybook_broker.settings import BrokerSettings
from prometheus_client import CollectorRegistry

import daybook
from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.local.zookeeper import SESSION_MS_MAX
from daybook.metadata.store.settings import options_of_process
from daybook.metadata.topics import TopicManager
from daybook.wire.pulsar.batches import is_batch, unpack_batch
from daybook.wire.pulsar.entries import check_entry, decode_metadata, encode_entry
from daybook.wire.pulsar.frames import (
    FRAME_BYTES_MAX,
    decode_command,
    encode_frame,
    frame_buffer,
    split_frame,
)
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandPong,
    CommandProducer,
    CommandSend,
    MessageMetadata,
)

T = TypeVar("T")

LIMIT_S = 60.0
"""A limit on failure, never a wait."""

SESSION_MS = SESSION_MS_MAX
"""A machine that stands still for some seconds must not cost a test's broker its topics: clients would send again what they sent."""


def new_topic() -> str:
    """A topic that no other test uses, in a namespace whose bundles no other broker has."""
    return f"persistent://public/{uuid.uuid4().hex}/topic"


@asynccontextmanager
async def running_broker(cluster: LocalCluster, broker_id: str = "", **changes: Any) -> AsyncIterator[Broker]:
    """A broker of `cluster` in this event loop; `changes` are settings."""
    settings = broker_settings(cluster, broker_id or f"broker-{uuid.uuid4().hex[:8]}", **changes)
    async with client_for_broker(settings) as client:
        broker = Broker(settings, client, BrokerMetrics(CollectorRegistry()))
        await broker.start(admin_url="")
        _take_what_is_asked_for(broker)
        try:
            yield broker
        finally:
            await broker.stop()


def broker_settings(cluster: LocalCluster, broker_id: str, **changes: Any) -> BrokerSettings:
    """Those of a broker in this event loop, whose session outlives stalls of the machine."""
    found = {
        "broker_id": broker_id,
        "zookeeper": cluster.zookeeper.connect_string,
        "cluster": CLUSTER_NAME,
        "session_timeout_ms": SESSION_MS,
    }
    return BrokerSettings(**{**found, **changes})


def client_for_broker(settings: BrokerSettings) -> daybook.Client:
    """The client of a broker in this event loop."""
    return daybook.connect(
        settings.zookeeper, cluster=settings.cluster, zookeeper_options=options_of_process(settings)
    )


def _take_what_is_asked_for(broker: Broker) -> None:
    """The broker takes every topic that nobody has: other tests have brokers of this cluster, too, and one of them leads."""
    lookup = broker.ownership.lookup

    async def taking(
        topic: TopicName, *, authoritative: bool = True, hold_s: float | None = None
    ) -> LookupResult:
        return await lookup(topic, authoritative=True, hold_s=hold_s)

    vars(broker.ownership)["lookup"] = taking


class FrameClient:
    """A connection whose frames are written by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = frame_buffer(FRAME_BYTES_MAX)
        self.is_silent = False
        """Whether PINGs have no answer."""
        self._frames: list[tuple[BaseCommand, Buffer]] = []

    def write(self, data: Buffer) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def send(self, command: BaseCommand, entry: Buffer = b"") -> None:
        """Send a frame."""
        self.write(encode_frame(command, entry))

    async def receive(self) -> BaseCommand:
        """The next command but PING, which is answered. Raises EOFError at the end of the connection."""
        while True:
            while not self._frames:
                async with asyncio.timeout(LIMIT_S):
                    data = await self._reader.read(64 * 1024)
                if not data:
                    raise EOFError
                at = 0
                while at < len(data):
                    room = self._buffer.room()
                    size_bytes = min(len(room), len(data) - at)
                    room[:size_bytes] = data[at : at + size_bytes]
                    at += size_bytes
                    for frame in self._buffer.received(size_bytes):
                        command, entry = split_frame(frame)
                        self._frames.append((decode_command(command), entry))
            found, self.entry = self._frames.pop(0)
            if found.type != BaseCommand.PING:
                return found
            if not self.is_silent:
                self.send(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))

    async def ask(self, command: BaseCommand) -> BaseCommand:
        """Send a command and return the next one that comes."""
        self.send(command)
        return await self.receive()

    async def ended(self) -> None:
        """Wait until the broker ends the connection."""
        while True:
            try:
                await self.receive()
            except (EOFError, ConnectionError):
                return

    async def produce(
        self, topic: str, producer_id: int = 1, request_id: int = 100, **fields: Any
    ) -> BaseCommand:
        """Open a producer; the answer."""
        wish = CommandProducer(topic=topic, producer_id=producer_id, request_id=request_id, **fields)
        return await self.ask(BaseCommand(type=BaseCommand.PRODUCER, producer=wish))

    def publish(self, payload: bytes, sequence_id: int, producer_id: int = 1, **fields: Any) -> None:
        """Send an entry of one message."""
        metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
        self.send(_send(producer_id, sequence_id, **fields), encode_entry(metadata, payload))

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


def _send(producer_id: int, sequence_id: int, **fields: Any) -> BaseCommand:
    body = CommandSend(producer_id=producer_id, sequence_id=sequence_id, **fields)
    return BaseCommand(type=BaseCommand.SEND, send=body)


@asynccontextmanager
async def frame_client(broker: Broker, *, connect: bool = True) -> AsyncIterator[FrameClient]:
    """A client by hand, connected unless a test wants to do that itself."""
    host, _, port = broker.service_url.rpartition("://")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = FrameClient(reader, writer)
    try:
        if connect:
            command = CommandConnect(client_version="by hand", protocol_version=21)
            answer = await client.ask(BaseCommand(type=BaseCommand.CONNECT, connect=command))
            assert answer.type == BaseCommand.CONNECTED
        yield client
    finally:
        client.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the broker made `condition` true."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - its cycles, and what reaches it, have no event
            await asyncio.sleep(0.02)


async def until_gone(read: Callable[[], Awaitable[object]], error: type[DaybookError]) -> None:
    """Wait until what is read does not exist."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                await read()
            except error:
                return


async def with_pulsar(broker: Broker, work: Callable[[pulsar.Client], T]) -> T:
    """Do `work` with Pulsar's own client, in a thread."""

    def run() -> T:
        client = pulsar.Client(broker.service_url, operation_timeout_seconds=int(LIMIT_S))
        try:
            return work(client)
        finally:
            client.close()

    return await asyncio.to_thread(run)


def messages_of(entry: Buffer) -> list[bytes]:
    """The payloads of an entry's messages."""
    parts = check_entry(entry)
    metadata = decode_metadata(parts)
    if is_batch(metadata):
        return [bytes(each.payload) for each in unpack_batch(metadata, parts.payload)]
    return [bytes(parts.payload)]


async def contents(broker: Broker, topic: str) -> list[bytes]:
    """The messages in the topic's ledgers, with batches unpacked."""
    name = TopicName.parse(topic)
    stored = await broker.topics.read(name, sync=True)
    served = broker.registry.get(name)
    assert served is not None
    found: list[bytes] = []
    for ledger in stored.value.ledgers:
        handle = served.handle(ledger.ledger_id)
        reader = await broker.client.open_ledger(ledger.ledger_id) if handle is None else handle.reader()
        async for entry in reader.read():
            found += messages_of(entry.data)
    return found


def first_difference(found: Sequence[bytes], expected: Sequence[bytes]) -> tuple[int, bytes, bytes] | None:
    """Where two long lists differ, and by what: pytest's comparison of them is pages long and hides the log."""
    pairs = zip_longest(found, expected, fillvalue=b"")
    return next(((at, one, other) for at, (one, other) in enumerate(pairs) if one != other), None)


class Publisher(threading.Thread):
    """Publishes numbers one after the other, without waiting, until it is stopped."""

    def __init__(self, url: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._topic = topic
        self._stop_it = threading.Event()
        self._count = threading.Condition()
        self.acked: list[bytes] = []
        self.failed: list[pulsar.Result] = []

    def run(self) -> None:
        """Publish."""
        client = pulsar.Client(self._url, operation_timeout_seconds=int(LIMIT_S))
        client.subscribe(self._topic, "keeps everything").close()
        producer = client.create_producer(
            self._topic,
            block_if_queue_full=True,
            max_pending_messages=100,
            batching_max_messages=10,
            send_timeout_millis=int(1000 * LIMIT_S),
        )
        number = 0
        while not self._stop_it.is_set():
            data = b"%d" % number
            producer.send_async(data, lambda result, _, data=data: self._done(result, data))
            number += 1
        producer.flush()
        client.close()

    def _done(self, result: pulsar.Result, data: bytes) -> None:
        with self._count:
            if result == pulsar.Result.Ok:
                self.acked.append(data)
            else:
                self.failed.append(result)
            self._count.notify_all()

    async def more(self, count: int) -> None:
        """Wait for so many receipts more."""
        wanted = len(self.acked) + count

        def wait() -> None:
            with self._count:
                assert self._count.wait_for(lambda: len(self.acked) >= wanted, LIMIT_S), self.acked[-3:]

        await asyncio.to_thread(wait)

    async def stop(self) -> None:
        """End, after all that was sent is answered."""
        self._stop_it.set()
        await asyncio.to_thread(self.join, LIMIT_S)
        assert not self.is_alive()


def in_order_once(found: list[bytes]) -> list[bytes]:
    """What was found, without what a client sent again because it had no receipt; that comes in runs, each in order."""
    seen: list[bytes] = []
    highest = -1
    for data in found:
        if int(data) > highest:
            assert int(data) == highest + 1, f"{data!r} follows {highest}"
            highest = int(data)
            seen.append(data)
    return seen


async def stored_contents(client: daybook.Client, name: TopicName) -> list[bytes]:
    """The messages in a topic's ledgers, whoever writes them; the last one is recovered, so its owner begins another."""
    stored = await TopicManager(client.store, client.layout).read(name, sync=True)
    found: list[bytes] = []
    for ledger in stored.value.ledgers:
        reader = await client.open_ledger(ledger.ledger_id)
        async for entry in reader.read():
            found += messages_of(entry.data)
    return found
