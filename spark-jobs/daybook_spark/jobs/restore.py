"""The job that restores offloaded ledgers of topics: some topics at a time, each ledger by a task of Spark (rule 72).

restore_topic.py has one topic's part, and restoring.py what a task does. A dry run asks no owner, and changes nothing.
"""

import asyncio
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook_spark.access import open_client
from daybook_spark.jobs.offload import TOPICS_AT_ONCE, begin_job
from daybook_spark.jobs.restore_topic import RestoreSettings, restore_topic
from daybook_spark.jobs.restoring import CopyWritten, LedgerRestore, restore_ledgers
from daybook_spark.jobs.result import Done, JobSummary, TopicResult, attempt, leave_results, summary_of
from daybook_spark.options import Where
from daybook_spark.own_tasks import own_tasks
from daybook_spark.progress import OnProgress, tasks_progress

JOB: Final = "restore"


def run_restore(
    spark: SparkSession,
    where: Where,
    selection: Selection,
    settings: RestoreSettings,
    *,
    on_progress: OnProgress = lambda _done, _total: None,
) -> JobSummary:
    """Restore offloaded ledgers of the topics of a selection.

    Raises OptionError without a broker, CollectionHeldError after a restore of metadata (rule 68), NoSuchTopicError, MetadataError,
    PolicyError.
    """
    names, admin = asyncio.run(begin_job(where, selection, JOB, is_dry_run=settings.is_dry_run))

    def restore(restores: Sequence[LedgerRestore]) -> list[CopyWritten]:
        tasks = spark.sparkContext.parallelize(restores, len(restores))
        with own_tasks(spark):
            return tasks.mapPartitions(partial(restore_ledgers, where=where)).collect()

    async def part(name: TopicName) -> Done:
        async with open_client(where) as client:
            return await restore_topic(client, admin, name, uuid.uuid4().hex, settings, restore)

    def result(name: TopicName) -> TopicResult:
        return attempt(str(name), JOB, lambda: asyncio.run(part(name)))

    with tasks_progress(spark, on_progress), ThreadPoolExecutor(TOPICS_AT_ONCE) as topics:
        summary = summary_of(JOB, topics.map(result, names))
    if not settings.is_dry_run:
        asyncio.run(leave_results(where, summary))
    return summary
