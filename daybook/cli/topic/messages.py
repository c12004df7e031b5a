"""`daybook topic produce|consume|peek`: lines in, messages out, over Pulsar's binary protocol."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated, Final

import typer

import daybook
from daybook.cli.connection import (
    Cluster,
    Directory,
    Json,
    ZooKeeper,
    broker_token,
    explain_errors,
    find_cluster,
    tls_context,
    with_client,
)
from daybook.cli.lines import batches_of_lines
from daybook.cli.output import err
from daybook.cli.progress import progress
from daybook.cli.topic.brokers import admin_of, broker_urls
from daybook.cli.topic.client import TopicClient
from daybook.cli.topic.consumer import TYPES, Consumer, Incoming, Wanted
from daybook.cli.topic.partitions import partition_of, partitions_of
from daybook.cli.topic.producer import Outgoing, Producer
from daybook.client.broker_admin import Admin
from daybook.core.errors import DaybookError
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName

BATCH_MESSAGES: Final = 1000
BATCH_BYTES: Final = 1 << 20

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/topic, or its last part alone")
]
SubscriptionArgument = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="the subscription's name")]


@explain_errors
def produce(
    topic: TopicArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="read from here instead of standard input"),
    ] = None,
    key_separator: Annotated[
        str, typer.Option(help="what stands before it in a line is the message's key")
    ] = "",
) -> None:
    """Publish each line of the input as a message, as soon as it arrives; report how many were acknowledged.

    Messages of one key go to one partition, in order. Example: `tail -F app.log | daybook topic produce logs`
    """
    name = TopicName.parse(topic)

    async def work(client: "daybook.Client") -> None:
        async with _topics(client) as topics, _producers(topics, name) as producers:
            with (
                file.open("rb") if file else nullcontext(sys.stdin.buffer) as source,
                progress(f"{name}", "{task.completed:,} messages acknowledged") as tell,
            ):
                if source.isatty():
                    err.print("each line becomes a message; Ctrl-D ends")
                async for number, batch in _batches(source.fileno(), key_separator, producers):
                    await producers[number].send(batch)
                    tell(sum(producer.acknowledged for producer in producers), None)
                for producer in producers:
                    await producer.flush()

    with_client(find_cluster(directory, zookeeper, cluster), work)


@explain_errors
def consume(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    kind: Annotated[str, typer.Option("--type", help=", ".join(TYPES))] = "exclusive",
    earliest: Annotated[
        bool, typer.Option("--earliest", help="a new subscription begins with the oldest message")
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="end after so many messages")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.0, help="end after so many seconds without a message")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print messages and acknowledge them; runs until Ctrl-C unless --count or --timeout says otherwise.

    Example: `daybook topic consume logs mine --earliest --json`
    """
    if kind not in TYPES:
        msg = f"{kind!r} is not a type of subscription: use one of {', '.join(TYPES)}"
        raise typer.BadParameter(msg, param_hint="--type")
    name = TopicName.parse(topic)
    wanted = Wanted(subscription, kind, earliest=earliest)

    async def work(client: "daybook.Client") -> None:
        async with _topics(client) as topics:
            found = partitions_of(name, await topics.partitions(name))
            left = Left(count)
            async for consumer, messages in _arriving(topics, dict.fromkeys(found, wanted), timeout, left):
                _print(messages, as_json=as_json)
                await consumer.acknowledge(messages)

    with_client(find_cluster(directory, zookeeper, cluster), work)


@explain_errors
def peek(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    count: Annotated[int, typer.Option(min=1, help="at most so many messages")] = 10,
    timeout: Annotated[float, typer.Option(min=0.0, help="wait so many seconds for more")] = 2.0,
    as_json: Json = False,
) -> None:
    """Print the next messages of a subscription without taking them: its consumers receive them as before."""
    name = TopicName.parse(topic)

    async def work(client: "daybook.Client") -> None:
        admin = await admin_of(client)
        async with _topics(client) as topics:
            found = partitions_of(name, await topics.partitions(name))
            starts = {
                each: await asyncio.to_thread(_mark_delete, admin, each, subscription) for each in found
            }
            wanted = {each: Wanted(start=start) for each, start in starts.items()}
            left = Left(count)
            async for _, messages in _arriving(topics, wanted, timeout, left):
                _print(messages, as_json=as_json)

    with_client(find_cluster(directory, zookeeper, cluster), work)


def _mark_delete(admin: Admin, topic: TopicName, subscription: str) -> Position:
    """Up to where a subscription has acknowledged everything."""
    cursors = admin.ask("GET", topic, "internalStats")["cursors"]
    if subscription not in cursors:
        known = ", ".join(sorted(cursors)) or "none"
        msg = f"topic {topic} has no subscription {subscription!r} (there are: {known})"
        raise DaybookError(msg)
    ledger_id, entry_id = cursors[subscription]["markDeletePosition"].split(":")
    return Position(int(ledger_id), int(entry_id))


@dataclass(slots=True)
class Left:
    """How many messages are still wanted; None: all."""

    count: int | None

    def limit(self, items: int) -> bool:
        """Whether `items` more are enough."""
        return self.count is not None and items >= self.count

    def take(self, items: int) -> None:
        """So many were taken."""
        if self.count is not None:
            self.count -= items


@asynccontextmanager
async def _topics(client: "daybook.Client") -> AsyncIterator[TopicClient]:
    async with TopicClient(lambda: broker_urls(client), tls_context(), broker_token()) as topics:
        yield topics


@asynccontextmanager
async def _producers(topics: TopicClient, name: TopicName) -> AsyncIterator[list[Producer]]:
    """A producer for each partition; at the end, also an early one, the number of acknowledged messages is reported."""
    found = partitions_of(name, await topics.partitions(name))
    producers = [Producer(topics, each) for each in found]
    try:
        for producer in producers:
            await producer.open()
        yield producers
    finally:
        err.print(f"{sum(producer.acknowledged for producer in producers):,} messages acknowledged")
        for producer in producers:
            await producer.close()


async def _batches(
    descriptor: int, separator: str, partitions: Sequence[object]
) -> AsyncIterator[tuple[int, list[Outgoing]]]:
    """What to publish together, with its partition: lines that arrived together, cut to batches."""
    turn = cycle(range(len(partitions)))
    async for lines in batches_of_lines(descriptor):
        without_key = next(turn)
        by_partition: dict[int, list[Outgoing]] = {}
        for line in lines:
            key, found, rest = line.partition(separator.encode()) if separator else (b"", b"", line)
            message = Outgoing(rest, key.decode(errors="replace")) if found else Outgoing(line)
            number = without_key if message.key is None else partition_of(message.key, partitions)
            by_partition.setdefault(number, []).append(message)
        for number, messages in by_partition.items():
            for batch in _cut(messages):
                yield number, batch


def _cut(messages: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    batch: list[Outgoing] = []
    size_bytes = 0
    for message in messages:
        if batch and (len(batch) == BATCH_MESSAGES or size_bytes + len(message.payload) > BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(message)
        size_bytes += len(message.payload)
    if batch:
        yield batch


async def _arriving(
    topics: TopicClient,
    wanted: dict[TopicName, Wanted],
    timeout_s: float | None,
    left: Left,
) -> AsyncIterator[tuple[Consumer, list[Incoming]]]:
    """What arrives together for one consumer, until `left` is 0 or nothing has come for `timeout_s`. Raises DaybookError."""
    arrived: asyncio.Queue[tuple[Consumer, Incoming | DaybookError]] = asyncio.Queue()
    consumers = [Consumer(topics, name, each, arrived) for name, each in wanted.items()]
    try:
        for consumer in consumers:
            await consumer.open()
        while not left.limit(0):
            try:
                async with asyncio.timeout(timeout_s):
                    items = [await arrived.get()]
            except TimeoutError:
                return
            while not arrived.empty() and not left.limit(len(items)):
                items.append(arrived.get_nowait())
            by_consumer: dict[Consumer, list[Incoming]] = {}
            for consumer, message in items:
                if isinstance(message, DaybookError):
                    raise message
                consumer.taken(message)
                by_consumer.setdefault(consumer, []).append(message)
            left.take(len(items))
            for consumer, messages in by_consumer.items():
                yield consumer, messages
    finally:
        for consumer in consumers:
            await consumer.close()


def _print(messages: Sequence[Incoming], *, as_json: bool) -> None:
    sink = sys.stdout.buffer
    for message in messages:
        sink.write((json.dumps(message.record()).encode() if as_json else message.payload) + b"\n")
    sink.flush()
