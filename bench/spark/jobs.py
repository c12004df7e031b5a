"""What the jobs of topics take: a compaction beside the data source that reads all rows of the same topic, and a retention.

A topic is compacted once, so each round has a topic of its own. The session is warm: a small topic was read and compacted in it before.
A retention reads lists, policies and cursors, and no rows: what counts is how many topics and ledgers it judges in a second.
"""

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from daybook_spark.compact.job import CompactionSettings
from daybook_spark.jobs.compaction import run_compaction
from daybook_spark.jobs.result import JobSummary
from daybook_spark.jobs.retain import RetentionTerms
from daybook_spark.jobs.retention import run_retention
from daybook_spark.options import Where
from rich.console import Console

from bench.sides import WorkloadError
from bench.spark.costs import java_of, worker_peaks_mib
from bench.spark.job_data import NAMESPACE, write_idle_topics, write_keyed
from bench.spark.job_rows import CompactionRow, RetentionRow
from bench.spark.tables import read_all, session, timed
from bench.spark.workloads import LEDGERS
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster

TASKS: Final = 2
_WARM_MESSAGES: Final = 2_000


def measure_compaction(
    cluster: LocalCluster, scratch: Path, row: CompactionRow, rounds: int, console: Console
) -> CompactionRow:
    """All rounds in one session with new workers, so that their memory is that of this number of keys."""
    bookies = [bookie.pid for bookie in cluster.bookies]
    where = Where(cluster.zookeeper.connect_string, CLUSTER_NAME)
    with session(scratch / "spark", TASKS) as spark:
        for number in range(-1, rounds):
            count = row.messages if number >= 0 else min(row.messages, _WARM_MESSAGES)
            console.print(
                f"{row.name}, {'warming up' if number < 0 else f'round {number + 1}'}: {count:,} messages"
            )
            topic = f"persistent://public/default/keyed-{row.keys}-{number + 1}"
            distinct = write_keyed(cluster, topic, count, row.keys)
            part_bytes = max(1, count * row.size // LEDGERS)
            options = {"zookeeper": where.zookeeper, "cluster": CLUSTER_NAME, "topic": topic}
            table = spark.read.format("daybook").options(**options, partitionBytes=str(part_bytes))
            read = read_all(table.load(), bookies)
            settings = CompactionSettings(part_bytes=part_bytes)
            asked = Selection(topics=(TopicName.parse(topic),))
            done, job = timed(partial(run_compaction, spark, where, asked, settings), bookies)
            _check_compaction(done, count, distinct)
            if number >= 0:
                row.reads.append(read)
                row.jobs.append(job)
        row.peak_mib, row.own_mib = worker_peaks_mib(java_of(os.getpid()))
    return row


def _check_compaction(summary: JobSummary, messages: int, keys: int) -> None:
    """Raises WorkloadError for a job that did not do what is measured."""
    _check_succeeded(summary)
    found = summary.figures.get("keyedRead"), summary.figures.get("keyedKept")
    if found != (messages, keys):
        msg = f"the job read and kept {found} messages, and the topic has {messages} with {keys} keys"
        raise WorkloadError(msg)


def _check_succeeded(summary: JobSummary) -> None:
    if summary.failures:
        msg = f"{len(summary.failures)} topics failed, first: {summary.failures[0].message}"
        raise WorkloadError(msg)


def measure_retention(
    cluster: LocalCluster, scratch: Path, row: RetentionRow, rounds: int, console: Console
) -> RetentionRow:
    """Dry runs, which judge and ask no owner; then the run that trims, of which there is one."""
    console.print(f"retention: writing {row.topics:,} idle topics of {row.ledgers_of_topic} ledgers")
    asyncio.run(write_idle_topics(cluster, row.topics, row.ledgers_of_topic))
    bookies: Sequence[int] = [bookie.pid for bookie in cluster.bookies]
    where = Where(cluster.zookeeper.connect_string, CLUSTER_NAME)
    asked = Selection(namespaces=(NAMESPACE,))
    with session(scratch / "spark", TASKS) as spark:
        for number in range(-1, rounds):
            console.print(f"retention, {'warming up' if number < 0 else f'round {number + 1}'}")
            terms = RetentionTerms(topics_per_second=0, is_dry_run=True)
            done, run = timed(partial(run_retention, spark, where, asked, terms), bookies)
            _check_retention(done, row.topics, row.ledgers, "ledgersToTrim")
            if number >= 0:
                row.judged.append(run)
        console.print("retention, the run that trims")
        done, row.trimmed = timed(
            partial(run_retention, spark, where, asked, RetentionTerms(topics_per_second=0)), bookies
        )
        _check_retention(done, row.topics, row.ledgers, "ledgersTrimmed")
    return row


def _check_retention(summary: JobSummary, topics: int, ledgers: int, figure: str) -> None:
    """Raises WorkloadError for a job that did not do what is measured."""
    _check_succeeded(summary)
    found = len(summary.results), summary.figures.get(figure)
    if found != (topics, ledgers):
        msg = f"topics and {figure}: {found}, and there are {topics} and {ledgers}"
        raise WorkloadError(msg)
