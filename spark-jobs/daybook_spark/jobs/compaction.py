"""The job that compacts topics: some at a time, each by tasks of its own (`daybook_spark.compact`).

A compaction is several stages, some of few tasks, between which the driver asks ZooKeeper and the owner. Topics fill each other's gaps in
Spark's slots, so that a topic of many partitions takes little longer than its largest one. A dry run asks no owner, and changes nothing.

A topic that is deleted meanwhile takes its ledgers with it, so tasks and requests fail in many ways, and whether the topic is still there decides.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from daybook.client.broker_admin import BrokerAdmin
from daybook.core.errors import DaybookError, NoSuchTopicError
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.metadata.topics import TopicManager
from daybook_spark.access import open_client
from daybook_spark.brokers import admin_of
from daybook_spark.compact.job import CompactionSettings, compact_topic
from daybook_spark.jobs.result import (
    DELETED_MEANWHILE,
    Done,
    JobSummary,
    TopicResult,
    attempt,
    leave_results,
    summary_of,
)
from daybook_spark.jobs.topics import topics_of
from daybook_spark.options import Where
from daybook_spark.progress import OnProgress, tasks_progress

JOB: Final = "compaction"
TOPICS_AT_ONCE: Final = 4
"""Each has a session with ZooKeeper, and the rows of its keys on the executors' disks."""


def run_compaction(
    spark: SparkSession,
    where: Where,
    selection: Selection,
    settings: CompactionSettings,
    *,
    on_progress: OnProgress = lambda _done, _total: None,
) -> JobSummary:
    """Compact the topics of a selection. Raises OptionError without a broker, NoSuchTopicError, MetadataError, PolicyError."""
    names, admin = asyncio.run(_begin(where, selection, settings))

    def compact(name: TopicName) -> Done:
        try:
            done = compact_topic(spark, where, admin, name, settings)
        except Exception:
            if asyncio.run(_is_gone(where, name)):
                return Done(DELETED_MEANWHILE)
            raise
        if done is None:
            return Done("nothing came since the last compaction")
        if settings.dry_run:
            return Done(
                f"{done.keyed_kept} of {done.keyed_read} messages with keys would stay", done.figures()
            )
        return Done(f"{done.entries_written} of {done.entries_read} entries stay", done.figures())

    def result(name: TopicName) -> TopicResult:
        return attempt(str(name), JOB, partial(compact, name))

    with tasks_progress(spark, on_progress), ThreadPoolExecutor(TOPICS_AT_ONCE) as topics:
        summary = summary_of(JOB, topics.map(result, names))
    if not settings.dry_run:
        asyncio.run(leave_results(where, summary))
    return summary


async def _begin(
    where: Where, selection: Selection, settings: CompactionSettings
) -> tuple[tuple[TopicName, ...], BrokerAdmin | None]:
    async with open_client(where) as client:
        admin = None if settings.dry_run else await admin_of(client, where)
        return await topics_of(client, selection, JOB), admin


async def _is_gone(where: Where, name: TopicName) -> bool:
    """Whether the topic was deleted; False if nobody can say, because what failed before says more."""
    with suppress(DaybookError):
        async with open_client(where) as client:
            try:
                await TopicManager(client.store, client.layout).read(name, sync=True)
            except NoSuchTopicError:
                return True
    return False
