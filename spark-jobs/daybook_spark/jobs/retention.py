"""The retention job: what owners do not see of topics, by as many tasks as Spark has, and what killed jobs left (rule 71, rule 66).

The driver reads which topics there are and which ledgers carry the mark of one, whole or not at all (rule 28). Tasks do the topics' parts
(retain.py), a session each, and never faster than the limit that they share. At the end the driver sweeps the ledgers of jobs that no manifest
names, and the files of deleted topics (gone_files.py).
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from daybook.client.client import Client
from daybook.client.loop_thread import LoopThread
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.core.topics.retention_plan import MarkedLedger
from daybook.metadata.hold import check_not_held
from daybook.runtime.clock import monotonic_s, unix_ms
from daybook_spark.access import open_client
from daybook_spark.audit.pace import Pace
from daybook_spark.brokers import admin_of
from daybook_spark.jobs.gone_files import delete_gone_files
from daybook_spark.jobs.result import Done, JobSummary, TopicResult, attempt, leave_results, summary_of
from daybook_spark.jobs.retain import RetentionTerms, TopicWork, retain
from daybook_spark.jobs.topics import topics_of
from daybook_spark.options import Password, Where
from daybook_spark.progress import OnProgress, tasks_progress
from daybook_spark.write.sweep import sweep

JOB: Final = "retention"
SWEPT: Final = "manifests://"
"""Stands for a topic in the result of the sweep."""
FILES: Final = "files://"
"""And in that of the files of deleted topics."""
_TASKS_PER_SLOT: Final = 4
"""A task that is lost is repeated, so it is only a part of what a slot does."""


def run_retention(
    spark: SparkSession,
    where: Where,
    selection: Selection,
    terms: RetentionTerms,
    *,
    on_progress: OnProgress = lambda _done, _total: None,
) -> JobSummary:
    """Apply the retention of the topics, and delete what nothing names; with a dry run say what that would be.

    Raises OptionError without a broker, CollectionHeldError after a restore (rule 68), IncompleteListingError, and what `topics_of` raises.
    """
    works = asyncio.run(_planned(where, selection, terms))
    slots = max(1, spark.sparkContext.defaultParallelism)
    results: list[TopicResult] = []
    if works:
        tasks = min(len(works), _TASKS_PER_SLOT * slots)
        share = terms.topics_per_second / min(slots, tasks)
        do = partial(do_works, where=where, terms=terms, topics_per_second=share)
        with tasks_progress(spark, on_progress):
            results = spark.sparkContext.parallelize(works, tasks).mapPartitions(do).collect()
    if not selection.topics and not selection.namespaces:
        results.append(attempt(SWEPT, JOB, lambda: asyncio.run(_sweep(where, terms))))
        results.append(attempt(FILES, JOB, lambda: asyncio.run(_delete_files(where, terms))))
    summary = summary_of(JOB, results)
    if not terms.is_dry_run:
        asyncio.run(leave_results(where, summary))
    return summary


async def _planned(where: Where, selection: Selection, terms: RetentionTerms) -> list[TopicWork]:
    async with open_client(where) as client:
        if not terms.is_dry_run:
            await admin_of(client, where)
            await check_not_held(client.store, client.layout)
        return await plan_works(client, selection, terms.grace_ms)


async def plan_works(client: Client, selection: Selection, grace_ms: int) -> list[TopicWork]:
    """The topics that are taken, and those of which old ledgers are left, each with these ledgers. Raises as `topics_of`, IncompleteListingError."""
    marked: defaultdict[TopicName, list[MarkedLedger]] = defaultdict(list)
    now_ms = unix_ms()
    await client.store.sync(client.layout.ledgers)
    async for found in client.list_ledgers():
        ledger = MarkedLedger.of(found.value)
        if ledger is not None and ledger.is_old(grace_ms, now_ms):
            marked[ledger.ledger.topic].append(ledger)
    taken = await topics_of(client, selection, JOB)
    works = [TopicWork(name, is_taken=True, marked=tuple(marked.pop(name, ()))) for name in taken]
    for name, ledgers in marked.items():
        of_pool = tuple(each for each in ledgers if selection.takes_pool(each.pool))
        if selection.covers(name) and of_pool:
            works.append(TopicWork(name, is_taken=False, marked=of_pool))
    return sorted(works, key=lambda work: work.name)


def do_works(
    works: Iterator[TopicWork], *, where: Where, terms: RetentionTerms, topics_per_second: float
) -> Iterator[TopicResult]:
    """What a task does: the parts of its topics, one after the other."""
    loop = LoopThread()
    pace = Pace(topics_per_second, monotonic_s)  # of topics, as of bytes of one bookie
    opened: Client | None = None
    try:
        opened = loop.run(_opened(where))
        for work in works:
            part = partial(_part, loop, opened, where, work, terms)
            yield attempt(str(work.name), JOB, part)
            loop.run(pace.read("", 1))
    finally:
        if opened is not None:
            loop.run(opened.close())
        loop.close()


async def _opened(where: Where) -> Client:
    return await open_client(where).__aenter__()


def _part(loop: LoopThread, client: Client, where: Where, work: TopicWork, terms: RetentionTerms) -> Done:
    async def do() -> Done:
        admin = None if terms.is_dry_run else await admin_of(client, where)
        return await retain(client, admin, work, terms)

    return loop.run(do())


async def _delete_files(where: Where, terms: RetentionTerms) -> Done:
    """The files of topics that were deleted."""
    async with open_client(where) as client:
        return await delete_gone_files(client, terms.places, terms.grace_ms, is_dry_run=terms.is_dry_run)


async def _sweep(where: Where, terms: RetentionTerms) -> Done:
    """The ledgers of jobs that no manifest names."""
    async with open_client(where) as client:
        gone = await sweep(
            client, Password.read(), now_ms=unix_ms(), older_than_ms=terms.grace_ms, dry_run=terms.is_dry_run
        )
    if not gone:
        return Done("nothing to do")
    ids = ", ".join(map(str, gone))
    if terms.is_dry_run:
        return Done(f"no manifest names ledgers {ids}", {"ledgersToDelete": len(gone)})
    return Done(f"ledgers {ids}, which no manifest names, were deleted", {"ledgersDeleted": len(gone)})
