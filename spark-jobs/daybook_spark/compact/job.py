"""The compaction of one topic, from its plan to the owner's commit (rule 38, rule 41).

The job may be killed at any step and be run again: until the owner names the ledgers in the topic's list nothing has changed for anybody, and
after that all has. Ledgers that no list names stay behind only where the driver is killed, or where nobody knows what became of the commit;
they carry the job's id, and `daybook spark retention` deletes them (rule 71).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TypeVar

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import daybook
from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.client.broker_topics import commit_compaction, topic_path
from daybook.core.errors import CompactionError
from daybook.core.topics.compaction.commit import CompactionCommit
from daybook.core.topics.ledger_list import Compaction
from daybook.core.topics.name import TopicName
from daybook_spark.access import open_client
from daybook_spark.asking import NOT_NOW, ask_owner
from daybook_spark.compact.columns import key_batches
from daybook_spark.compact.entries import stored_entries
from daybook_spark.compact.places import (
    ROWS,
    figures_of,
    last_of_keys,
    part_column,
    part_of,
    place_of_part,
    places_that_stay,
    within_part,
)
from daybook_spark.compact.plan import JobPlan, plan_topic
from daybook_spark.compact.writing import WRITTEN, PartWriter, Written
from daybook_spark.options import PARTITION_BYTES, Where
from daybook_spark.own_tasks import own_tasks
from daybook_spark.write.job import Job, delete_ledgers, ledgers_of

T = TypeVar("T")


class UnknownCommitError(CompactionError):
    """Nobody knows whether the owner has named what the job wrote; a later run finds out, and nothing is lost."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """What a job is asked for."""

    keeps_keyless: bool | None = None
    """Whether messages without a key stay; None: as the topic's policy says."""
    part_bytes: int = PARTITION_BYTES
    """What one task reads, and what is left of it is one ledger."""
    dry_run: bool = False
    """Whether it only reads, and says what would stay."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction read and wrote; in a dry run nothing is written."""

    entries_read: int = 0
    bytes_read: int = 0
    keyed_read: int = 0
    """Messages with a key, and chunks."""
    keyed_kept: int = 0
    """How many of them stay."""
    ledgers: int = 0
    entries_written: int = 0
    bytes_written: int = 0

    def figures(self) -> dict[str, int]:
        """By the names of a job's result."""
        return {
            "entriesRead": self.entries_read,
            "bytesRead": self.bytes_read,
            "keyedRead": self.keyed_read,
            "keyedKept": self.keyed_kept,
            "ledgersWritten": self.ledgers,
            "entriesWritten": self.entries_written,
            "bytesWritten": self.bytes_written,
        }


def compact_topic(
    spark: SparkSession,
    where: Where,
    admin: BrokerAdmin | None,
    name: TopicName,
    settings: CompactionSettings | None = None,
) -> Compacted | None:
    """Compact a topic up to its last message; None if nothing came since the last compaction.

    `admin` reaches the topic's owner; only a dry run does without. Raises NoSuchTopicError, CompactionError, AdminError (409: what was planned on has changed, run the job
    again), UnknownCommitError, and what reading, writing and Spark raise.
    """
    asked = settings or CompactionSettings()
    if not asked.dry_run:
        assert admin is not None, "only an owner names what is written"
        admin.ask_any(
            "GET", topic_path(name)
        )  # without an owner, or without the right to ask it, all work would be for nothing
    plan = _connected(where, lambda client: plan_topic(client, name, asked.part_bytes, asked.keeps_keyless))
    if plan is None:
        return None
    job = Job(uuid.uuid4().hex, "", plan.first_id)
    lasts = last_of_keys(_read(spark, where, plan)).persist(StorageLevel.DISK_ONLY)
    try:
        keyed, has_chunks, keyless = figures_of(lasts)
        places = places_that_stay(lasts, keeps_keyless=plan.keeps_keyless, has_chunks=has_chunks)
        if asked.dry_run or admin is None:
            kept = places.distinct().count()
            return Compacted(plan.entries, plan.size_bytes, keyed, kept)
        writer = PartWriter(where, str(name), job.job_id, plan.quorum, plan.pool, plan.keeps_keyless, keyless)
        try:
            with own_tasks(spark):
                written = _write(spark, places, plan, writer)
        except BaseException:
            _connected(where, lambda client: _delete_all(client, job))
            raise
        try:
            _commit(admin, plan, job, written)
        except AdminError:  # after any other error, an interrupt too, the owner may have named the ledgers
            _connected(where, lambda client: _delete_all(client, job))
            raise
    finally:
        lasts.unpersist()
    named = [each.compacted for each in written if each.entries]
    _connected(where, lambda client: _delete_all(client, job, {each.ledger_id for each in named}))
    return Compacted(
        plan.entries,
        plan.size_bytes,
        keyed,
        sum(each.keyed_kept for each in written),
        len(named),
        sum(each.entries for each in named),
        sum(each.size_bytes for each in named),
    )


# The passes


def _read(spark: SparkSession, where: Where, plan: JobPlan) -> DataFrame:
    """The first pass, a task for each part."""
    parts = plan.parts

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from key_batches(number, stored_entries(where, parts[number]))

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, ROWS)


def _write(spark: SparkSession, places: DataFrame, plan: JobPlan, writer: PartWriter) -> list[Written]:
    """The second pass, a task for each part; what it wrote, in the topic's order."""
    parts = plan.parts

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        places = chain.from_iterable(batch.column(0).to_numpy().tolist() for batch in batches)
        for number, of_part in groupby(places, key=part_of):
            yield writer.write(parts[number], _within(of_part)).batch()

    every = spark.range(0, len(parts), 1, 1).select(place_of_part(f.col("id")).alias("place"))
    by_part = every.unionByName(places).repartitionById(len(parts), part_column("place"))
    in_order = by_part.sortWithinPartitions("place")
    return sorted(Written(*row) for row in in_order.mapInArrow(write, WRITTEN).collect())


def _within(places: Iterator[int]) -> Iterator[int]:
    """The places of messages of a part, in which each part has one of its own before them: so a part of which nothing stays has a task, too."""
    next(places)
    return map(within_part, places)


# The owner


def _commit(admin: BrokerAdmin, plan: JobPlan, job: Job, written: Iterable[Written]) -> None:
    """Have the owner name what was written. Raises AdminError if it refuses, UnknownCommitError if nobody knows."""
    ledgers = tuple(each.compacted for each in written if each.entries)
    commit = CompactionCommit(job.job_id, plan.former, plan.planned, Compaction(plan.horizon, ledgers))
    try:
        ask_owner(plan.topic, lambda: commit_compaction(admin, plan.topic, commit))
    except AdminError as error:
        if error.status not in NOT_NOW:  # an owner that refuses has settled what it was asked for before
            raise
        raise _unknown(plan, error) from error


def _unknown(plan: JobPlan, error: AdminError) -> UnknownCommitError:
    return UnknownCommitError(
        f"nobody knows whether the owner of {plan.topic} has named what the job wrote ({error}): run the job again; if it has not, "
        "`daybook spark retention` deletes the ledgers after a day"
    )


async def _delete_all(client: daybook.Client, job: Job, named: Iterable[int] = ()) -> None:
    """Delete what the job wrote and no list names, also what tasks wrote that were killed or repeated."""
    kept = set(named)
    await delete_ledgers(client, [each for each in await ledgers_of(client, job) if each not in kept], b"")


def _connected(where: Where, work: Callable[[daybook.Client], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_client(where) as client:
            return await work(client)

    return asyncio.run(run())
