"""The third act's compaction: the shipped job on Spark, and what an ordinary client then reads.

A reader that asks for the compacted topic must receive one message of each key, the last that the producer sent, and nothing else.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import daybook
from daybook.cli.demo_input import messages
from daybook.core.errors import CompactionError
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime.clock import monotonic_s

if TYPE_CHECKING:
    from daybook_spark.options import Where
    from pyspark.sql import SparkSession

READ_MS: Final = 20_000
"""How long a message that is available may take."""


@dataclass(slots=True)
class CompactionResults:
    """The results, for the table at the end."""

    expected: Mapping[str, bytes] = field(default_factory=dict)
    """The last message of each key, as the producer sent them."""
    read: int = 0
    """Messages that the job found in the topic."""
    left: Sequence[tuple[str, bytes]] = ()
    """Key and content of each message that a reader of the compacted topic received."""
    seconds: float = 0.0

    @property
    def wrong(self) -> int:
        """Keys of which a reader received anything but the last message, once."""
        found: defaultdict[str, list[bytes]] = defaultdict(list)
        for key, content in self.left:
            found[key].append(content)
        keys = {*self.expected, *found}
        return sum(found.get(key) != [self.expected.get(key)] for key in keys)

    @property
    def is_good(self) -> bool:
        """Whether the last message of each key is left, once, and nothing else."""
        return not self.wrong


def last_of_keys(source: Path | None, count: int) -> dict[str, bytes]:
    """What a compaction must leave of the first `count` lines of the input."""
    return dict(messages(source, count))


def run_compaction(
    spark: "SparkSession", cluster: LocalCluster, topic: TopicName, expected: Mapping[str, bytes]
) -> CompactionResults:
    """Compact `topic` and read what is left."""
    begin_s = monotonic_s()
    read = compact(spark, cluster, topic)
    return CompactionResults(expected, read, read_compacted(cluster, topic), monotonic_s() - begin_s)


def compact(spark: "SparkSession", cluster: LocalCluster, topic: TopicName) -> int:
    """Compact all partitions of `topic`; how many messages with keys they had. Raises CompactionError if one failed."""
    from daybook_spark.compact.job import CompactionSettings
    from daybook_spark.jobs import compaction

    summary = compaction.run_compaction(
        spark, _where(cluster), Selection(topics=(topic,)), CompactionSettings()
    )
    if summary.failures:
        raise CompactionError("; ".join(f"{each.topic}: {each.message}" for each in summary.failures))
    return summary.figures.get("keyedRead", 0)


def read_compacted(cluster: LocalCluster, topic: TopicName) -> list[tuple[str, bytes]]:
    """Key and content of each message that an ordinary reader receives which asks for the compacted topic."""
    import pulsar

    from daybook.cli.demo_pulsar import quiet_client

    client = quiet_client(asyncio.run(_service_url(cluster)))
    try:
        reader = client.create_reader(str(topic), pulsar.MessageId.earliest, is_read_compacted=True)
        found = []
        while reader.has_message_available():
            message = reader.read_next(READ_MS)
            found.append((message.partition_key(), message.data()))
        return found
    finally:
        client.close()


async def _service_url(cluster: LocalCluster) -> str:
    """That of the broker that is left: an address of a dead one costs the client its time-out."""
    from daybook_spark.brokers import service_url

    async with daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        return await service_url(client, _where(cluster), "")


def _where(cluster: LocalCluster) -> "Where":
    from daybook_spark.options import Where

    return Where(cluster.zookeeper.connect_string, CLUSTER_NAME)
