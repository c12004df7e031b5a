"""The job that compacts topics: one after the other, each by all tasks of Spark (`daybook_spark.compact`).

A dry run asks no owner, and changes nothing.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from daybook.client.broker_admin import BrokerAdmin
from daybook.client.client import Client
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.metadata.policies import PolicyManager
from daybook_spark.access import open_client
from daybook_spark.brokers import admin_of
from daybook_spark.compact.job import CompactionSettings, compact_topic
from daybook_spark.jobs.result import Done, JobSummary, attempt, leave_results, summary_of
from daybook_spark.jobs.topics import topics_of
from daybook_spark.options import PARTITION_BYTES, Where
from daybook_spark.progress import OnProgress

JOB: Final = "compaction"


class CompactionWish(NamedTuple):
    """What the job is asked for. `keeps_keyless`: whether messages without a key stay; None: as each topic's policy says."""

    part_bytes: int = PARTITION_BYTES
    keeps_keyless: bool | None = None
    dry_run: bool = False


def run_compaction(
    spark: SparkSession,
    where: Where,
    selection: Selection,
    wish: CompactionWish,
    *,
    on_progress: OnProgress = lambda _done, _total: None,
) -> JobSummary:
    """Compact the topics of a selection. Raises OptionError without a broker, NoSuchTopicError, MetadataError, PolicyError."""
    names, admin = asyncio.run(_begin(where, selection, wish))

    def compact(name: TopicName) -> Done:
        settings = asyncio.run(_settings(where, name, wish))
        done = compact_topic(spark, where, admin, name, settings, on_progress=on_progress)
        if done is None:
            return Done("nothing came since the last compaction")
        if wish.dry_run:
            return Done(
                f"{done.keyed_kept} of {done.keyed_read} messages with keys would stay", done.figures()
            )
        return Done(f"{done.entries_written} of {done.entries_read} entries stay", done.figures())

    summary = summary_of(JOB, [attempt(str(name), JOB, partial(compact, name)) for name in names])
    if not wish.dry_run:
        asyncio.run(_leave(where, summary))
    return summary


async def _begin(
    where: Where, selection: Selection, wish: CompactionWish
) -> tuple[tuple[TopicName, ...], BrokerAdmin | None]:
    async with open_client(where) as client:
        admin = None if wish.dry_run else await admin_of(client, where)
        return await topics_of(client, selection, JOB), admin


async def _settings(where: Where, name: TopicName, wish: CompactionWish) -> CompactionSettings:
    async with open_client(where) as client:
        settings = CompactionSettings(part_bytes=wish.part_bytes, dry_run=wish.dry_run)
        if wish.keeps_keyless is not None:
            return replace(settings, keeps_keyless=wish.keeps_keyless)
        return replace(settings, keeps_keyless=await _policy_keeps_keyless(client, name))


async def _policy_keeps_keyless(client: Client, name: TopicName) -> bool:
    terms = (await PolicyManager(client.store, client.layout).topic(name)).value.compaction
    return terms is None or terms.keeps_keyless


async def _leave(where: Where, summary: JobSummary) -> None:
    async with open_client(where) as client:
        await leave_results(client, summary)
