"""The second act of `daybook demo`: a topic of three partitions, ordinary clients of Pulsar, and a broker that is killed.

A producer publishes lines with keys in batches; an exclusive and a shared subscription read them. On the way the demo kills the broker that
owns a partition. The other broker takes over: every message with a receipt must arrive, unchanged, and in the order of the producer on each
partition. The time without receipts is broken down by what ZooKeeper shows: the end of the broker's session, the recovery of the topic's
ledger and the first receipt.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rich.panel import Panel
from rich.table import Table

import daybook
from daybook.cli.demo_reports import Consumed, Produced
from daybook.cli.demo_stage import Stage
from daybook.cli.topic.client import TopicClient
from daybook.cli.topic.partitions import partitions_of
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.local.cluster_file import BrokerEntry
from daybook.metadata.partitions import PartitionManager
from daybook.runtime.clock import monotonic_s

BROKERS: Final = ("broker-0", "broker-1")
PARTITIONS: Final = 3
MESSAGES_MAX: Final = 100_000
KILL_AT: Final = 0.4
SUBSCRIPTIONS: Final = (("one-reader", "exclusive"), ("two-readers", "shared"))
TOPIC: Final = TopicName.parse("demo")
NEEDS: Final = "the second act needs Pulsar's client: `pip install pulsar-client`, or `uv sync --inexact --extra demo` in a checkout"


@dataclass(slots=True)
class TakeOver:
    """When what happened after the kill; seconds of the monotonic clock, 0 if it was not seen."""

    killed_s: float = 0.0
    session_over_s: float = 0.0
    recovered_s: float = 0.0
    receipt_s: float = 0.0

    @property
    def steps(self) -> tuple[tuple[str, float], ...]:
        """How long each step took, in seconds."""
        return (
            ("until the broker's session was over", self.session_over_s - self.killed_s),
            ("until the last topic's ledgers were recovered", self.recovered_s - self.session_over_s),
            ("until the producer's next receipt", self.receipt_s - self.recovered_s),
        )


@dataclass(slots=True)
class TopicResults:
    """The results, for the table at the end."""

    total: int
    killed: str = ""
    moved: tuple[int, ...] = ()
    """The partitions that the killed broker owned."""
    produced: Produced = field(default_factory=Produced)
    consumed: dict[str, Consumed] = field(default_factory=dict)
    take_over: TakeOver = field(default_factory=TakeOver)

    @property
    def lost(self) -> int:
        """Messages with a receipt that did not arrive at every subscription."""
        return max(self.produced.acknowledged - each.distinct for each in self.consumed.values())

    @property
    def is_good(self) -> bool:
        """Whether everything that has a receipt arrived, unchanged and in order."""
        each = self.consumed.values()
        wrong = sum(one.changed + one.disordered for one in each)
        return self.produced.acknowledged == self.total and not (self.lost or wrong)


def can_run() -> bool:
    """Whether Pulsar's client is installed."""
    return find_spec("pulsar") is not None


def run_topics(cluster: LocalCluster, source: Path | None, total: int, stage: Stage) -> TopicResults:
    """Run all steps of the act on a cluster that serves."""
    results = TopicResults(min(total, MESSAGES_MAX))
    with stage.step(f"start {len(BROKERS)} brokers"):
        cluster.start_brokers(*BROKERS)
    asyncio.run(_act(cluster, source, results, stage))
    return results


async def _act(cluster: LocalCluster, source: Path | None, results: TopicResults, stage: Stage) -> None:
    async with daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        await PartitionManager(client.store, client.layout).create(TOPIC, PARTITIONS)
        with (
            stage.step("publish, 3 partitions, batches, keys", results.total) as publishing,
            stage.step("read, exclusive and shared", len(SUBSCRIPTIONS) * results.total) as reading,
            _children(cluster.brokers, source, results.total) as (producer, consumers),
        ):
            async with asyncio.TaskGroup() as group:
                group.create_task(_follow_producer(producer, cluster, client, results, stage, publishing))
                for (name, _), consumer in zip(SUBSCRIPTIONS, consumers, strict=True):
                    group.create_task(_follow_consumer(consumer, name, results, stage, reading))


@contextmanager
def _children(
    brokers: Sequence[BrokerEntry], source: Path | None, total: int
) -> "Iterator[tuple[subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]]":
    """The processes of the clients; those that are left at the end are killed."""
    hosts = ",".join(broker.service_url.removeprefix("pulsar://") for broker in brokers)
    where = (f"pulsar://{hosts}", str(TOPIC), str(total))
    path = [str(source)] if source else []
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "daybook.cli.demo_pulsar", *arguments, *path]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))  # noqa: S603 - our own program
        return started[-1]

    try:
        consumers = [start("consume", *where, *subscription) for subscription in SUBSCRIPTIONS]
        yield start("produce", *where), consumers
    finally:
        for child in started:
            if child.poll() is None:
                child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


async def _follow_producer(
    child: "subprocess.Popen[bytes]",
    cluster: LocalCluster,
    client: "daybook.Client",
    results: TopicResults,
    stage: Stage,
    task: Any,
) -> None:
    """Show its progress, kill a broker on the way, and find out how long receipts were missing."""
    watching: asyncio.Task[None] | None = None
    async for line in _lines(child):
        results.produced = Produced.from_line(line)
        stage.at(task, results.produced.acknowledged)
        if watching is None and KILL_AT * results.total <= results.produced.acknowledged < results.total:
            moving = await _kill_owner(cluster, results, stage)
            watching = asyncio.create_task(_watch_take_over(client, moving, results))
    await _expect_success(child, "the producer")
    if watching is not None:
        await watching
        gaps = (results.produced.gaps.get(str(index), (0.0, 0.0)) for index in results.moved)
        results.take_over.receipt_s = max(end for _, end in gaps)


async def _follow_consumer(
    child: "subprocess.Popen[bytes]", name: str, results: TopicResults, stage: Stage, task: Any
) -> None:
    async for line in _lines(child):
        results.consumed[name] = Consumed.from_line(line)
        stage.at(task, sum(each.distinct for each in results.consumed.values()))
    await _expect_success(child, f"the consumer of {name}")


async def _lines(child: "subprocess.Popen[bytes]") -> Any:
    assert child.stdout is not None
    while line := await asyncio.to_thread(child.stdout.readline):
        yield line


async def _expect_success(child: "subprocess.Popen[bytes]", what: str) -> None:
    code = await asyncio.to_thread(child.wait)
    if code:
        msg = f"{what} ended with exit code {code}"
        raise daybook.DaybookError(msg)


async def _kill_owner(cluster: LocalCluster, results: TopicResults, stage: Stage) -> list[TopicName]:
    """Kill the owner of the first partition; the partitions that it owned."""
    by_url = {broker.service_url: broker.id for broker in cluster.brokers}

    async def urls() -> list[str]:
        return list(by_url)

    parts = partitions_of(TOPIC, PARTITIONS)
    async with TopicClient(urls) as topics:
        owners = [by_url[(await topics.owner(each)).url] for each in parts]
    results.killed = owners[0]
    results.moved = tuple(index for index, owner in enumerate(owners) if owner == results.killed)
    results.take_over.killed_s = monotonic_s()
    await asyncio.to_thread(cluster.signal_broker, results.killed)
    stage.say(
        f"[red]SIGKILL[/] {results.killed}, the owner of {len(results.moved)} of {PARTITIONS} partitions"
    )
    return [parts[index] for index in results.moved]


async def _watch_take_over(
    client: "daybook.Client", moving: Sequence[TopicName], results: TopicResults
) -> None:
    """Note when the killed broker's session is over, and when the new owner has changed the last list (rule 38)."""
    layout, store = client.layout, client.store
    versions = {topic: (await store.get(layout.topic(topic))).version for topic in moving}
    await _until(client, layout.broker(results.killed), lambda node: node is None)
    results.take_over.session_over_s = monotonic_s()
    for topic, version in versions.items():
        await _until(
            client, layout.topic(topic), lambda node, old=version: node is not None and node.version > old
        )
    results.take_over.recovered_s = monotonic_s()


async def _until(client: "daybook.Client", path: str, is_so: Any) -> None:
    """Wait until the node at `path` is as wanted."""
    while True:
        watch = client.store.watch()
        try:
            if is_so(await watch.get(path)):
                return
            await watch.changed()
        finally:
            watch.close()


def topic_summary(results: TopicResults) -> Panel:
    """The table at the end."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    produced, take_over = results.produced, results.take_over
    table.add_row(
        "messages published", f"{produced.acknowledged:,} with a receipt, to {PARTITIONS} partitions"
    )
    for name, kind in SUBSCRIPTIONS:
        seen = results.consumed[name]
        again = f", {seen.arrived - seen.distinct:,} of them twice" if seen.arrived > seen.distinct else ""
        table.add_row(f"received, {kind}", f"{seen.distinct:,} messages{again}, {seen.changed} different")
    exclusive = results.consumed[SUBSCRIPTIONS[0][0]]
    table.add_row("out of the producer's order", f"{exclusive.disordered}")
    if take_over.receipt_s > take_over.killed_s:
        table.add_row("take-over", f"{take_over.receipt_s - take_over.killed_s:.1f} s without a receipt")
        for step, seconds in take_over.steps:
            table.add_row(f"  {step}", f"{seconds:.2f} s")
    else:
        table.add_row(
            "take-over", "not measured: everything had a receipt before the kill; give it more input"
        )
    table.add_row(
        "acknowledged messages lost", f"[bold {'red' if results.lost else 'green'}]{results.lost}[/]"
    )
    verdict = "[green]nothing lost, order kept[/]" if results.is_good else "[red]MESSAGES DIFFER[/]"
    return Panel(table, title=verdict, expand=False)
