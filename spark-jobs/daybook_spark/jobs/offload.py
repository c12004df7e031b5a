"""The job that offloads topics: some at a time, each ledger by a task of Spark (rule 70).

offload_topic.py has one topic's part, and copying.py what a task does. Topics share Spark's slots, so that many with one ledger each are
as fast as one with many. A dry run asks no owner, and changes nothing.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from daybook.client.broker_admin import BrokerAdmin
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.metadata.hold import check_not_held
from daybook.offload.store import open_uri
from daybook_spark.access import open_client
from daybook_spark.brokers import admin_of
from daybook_spark.jobs.copying import Copied, LedgerCopy, copy_ledgers
from daybook_spark.jobs.offload_topic import OffloadSettings, offload_topic
from daybook_spark.jobs.result import Done, JobSummary, TopicResult, attempt, leave_results, summary_of
from daybook_spark.jobs.topics import topics_of
from daybook_spark.options import Where
from daybook_spark.progress import OnProgress, tasks_progress

JOB: Final = "offload"
TOPICS_AT_ONCE: Final = 8
"""Each has a session with ZooKeeper."""


def run_offload(
    spark: SparkSession,
    where: Where,
    selection: Selection,
    settings: OffloadSettings,
    *,
    on_progress: OnProgress = lambda _done, _total: None,
) -> JobSummary:
    """Offload the closed ledgers of the topics of a selection.

    Raises OffloadError for a place of `settings` that is none, OptionError without a broker, CollectionHeldError after a restore (rule 68),
    NoSuchTopicError, MetadataError, PolicyError.
    """
    if settings.to:
        open_uri(settings.to)
    names, admin = asyncio.run(begin_job(where, selection, JOB, is_dry_run=settings.is_dry_run))

    def copy(copies: Sequence[LedgerCopy]) -> list[Copied]:
        tasks = spark.sparkContext.parallelize(copies, len(copies))
        return tasks.mapPartitions(partial(copy_ledgers, where=where)).collect()

    async def part(name: TopicName) -> Done:
        async with open_client(where) as client:
            return await offload_topic(client, admin, name, settings, copy)

    def result(name: TopicName) -> TopicResult:
        return attempt(str(name), JOB, lambda: asyncio.run(part(name)))

    with tasks_progress(spark, on_progress), ThreadPoolExecutor(TOPICS_AT_ONCE) as topics:
        summary = summary_of(JOB, topics.map(result, names))
    if not settings.is_dry_run:
        asyncio.run(leave_results(where, summary))
    return summary


async def begin_job(
    where: Where, selection: Selection, job: str, *, is_dry_run: bool
) -> tuple[tuple[TopicName, ...], BrokerAdmin | None]:
    """The topics of a job that asks owners for changes, and who is asked; nobody in a dry run. Raises as the job does."""
    async with open_client(where) as client:
        admin = None
        if not is_dry_run:
            admin = await admin_of(client, where)
            await check_not_held(client.store, client.layout)
        return await topics_of(client, selection, job), admin
