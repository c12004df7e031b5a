"""The third act of `daybook demo`: Spark compacts the topic of the second act, and counts in SQL what it holds, straight from the bookies.

The compaction (demo_compaction) removes no message from what other readers see: after it a query counts the messages of each key. The
counts must equal those of the input, although the topic's owner was killed while a producer published, and although no broker takes part
in the reading. A producer without a receipt sends again, so a message may be stored twice: the query counts the numbers of lines, each once.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.panel import Panel
from rich.table import Table

from daybook.cli.demo_compaction import CompactionResults, last_of_keys, run_compaction
from daybook.cli.demo_input import NUMBER_BYTES, messages
from daybook.cli.demo_stage import Stage
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS: Final = "the third act needs Spark: `uv sync --inexact --extra spark` in a checkout"
QUERY: Final = f"""
SELECT key, count(DISTINCT substring(value, 1, {NUMBER_BYTES})) AS lines, count(*) AS stored
FROM demo GROUP BY key
"""  # noqa: S608 - nothing in it comes from outside


@dataclass(slots=True)
class SparkResults:
    """The results, for the table at the end."""

    expected: Mapping[str, int]
    """Lines of each key, as the producer sent them."""
    found: Mapping[str, int]
    """Lines of each key, as Spark counted them."""
    stored: int = 0
    """Messages in the topic, with those that were sent again."""
    compaction: CompactionResults = field(default_factory=CompactionResults)
    start_s: float = 0.0
    query_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Of the whole act."""
        return self.start_s + self.compaction.seconds + self.query_s

    @property
    def differing(self) -> int:
        """Keys whose count is not that of the input, or that are on one side alone."""
        keys = {*self.expected, *self.found}
        return sum(self.expected.get(key) != self.found.get(key) for key in keys)

    @property
    def is_good(self) -> bool:
        """Whether every key has its count, and its last message alone is left of a compaction."""
        return not self.differing and self.compaction.is_good


def can_run() -> bool:
    """Whether the extra `spark` is installed."""
    return all(find_spec(name) is not None for name in ("daybook_spark", "pyspark", "pyarrow"))


def run_spark(
    cluster: LocalCluster, topic: TopicName, source: Path | None, count: int, stage: Stage
) -> SparkResults:
    """Compact `topic`, and count its messages by key, which are the first `count` lines of the input."""
    from daybook_spark.session import local_session

    expected = Counter(key for key, _ in messages(source, count))
    with tempfile.TemporaryDirectory(prefix="daybook-demo-", ignore_cleanup_errors=True) as scratch:
        begin_s = time.perf_counter()
        with stage.step("start Spark"):
            spark = local_session(Path(scratch), name="daybook demo")
        started_s = time.perf_counter()
        try:
            with stage.step("compact the topic, read what is left"):
                compaction = run_compaction(spark, cluster, topic, last_of_keys(source, count))
            compacted_s = time.perf_counter()
            with stage.step("count by key, in SQL"):
                found, stored = count_by_key(spark, cluster, topic)
        finally:
            spark.stop()
    return SparkResults(
        expected, found, stored, compaction, started_s - begin_s, time.perf_counter() - compacted_s
    )


def count_by_key(
    spark: "SparkSession", cluster: LocalCluster, topic: TopicName
) -> tuple[dict[str, int], int]:
    """The lines of each key, each once, and how many messages are stored."""
    where = {"zookeeper": cluster.zookeeper.connect_string, "cluster": CLUSTER_NAME}
    rows = spark.read.format("daybook").options(**where, topic=str(topic)).schema("key string, value binary")
    rows.load().createOrReplaceTempView("demo")
    counts = spark.sql(QUERY).collect()
    return {row.key: row.lines for row in counts}, sum(row.stored for row in counts)


def spark_summary(results: SparkResults) -> Panel:
    """The table at the end."""
    compaction = results.compaction
    table = Table(show_header=False, box=None, padding=(0, 2))
    lines = sum(results.found.values())
    again = f", {results.stored - lines:,} of them stored twice" if results.stored > lines else ""
    table.add_row(
        "compaction",
        f"of {compaction.read:,} messages a reader receives {len(compaction.left):,}, for {len(compaction.expected):,} keys",
    )
    table.add_row("messages read from the bookies", f"{results.stored:,}{again}")
    table.add_row("keys counted", f"{len(results.found):,}")
    for key, count in Counter(results.found).most_common(3):
        table.add_row(f"  {key}", f"{count:,}")
    table.add_row(
        "time",
        f"{results.seconds:.1f} s: {results.start_s:.1f} to start, {compaction.seconds:.1f} for the compaction, {results.query_s:.1f} for the query",
    )
    table.add_row("keys without their last message alone", _of_faults(compaction.wrong))
    table.add_row("keys with another count than was written", _of_faults(results.differing))
    verdict = "[green]every key has its count and its last message[/]"
    if not results.is_good:
        verdict = "[red]COUNTS DIFFER[/]" if results.differing else "[red]THE COMPACTION DIFFERS[/]"
    return Panel(table, title=verdict, expand=False)


def _of_faults(count: int) -> str:
    return f"[bold {'red' if count else 'green'}]{count}[/]"
