"""Ledgers that jobs write: named all at once when they are closed, or deleted (rule 66)."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from daybook_spark.options import OptionError, Where
from daybook_spark.write.entries import CHUNK_ENTRIES, chunks
from daybook_spark.write.job import MANIFEST, abort_job, commit_job, ledgers_of
from daybook_spark.write.ledgers import LedgersStreamWriter, Replication, TaskDone, Writing
from daybook_spark.write.sweep import sweep
from daybook_spark.write.task import TaskId
from daybook_spark.write.writers import batch_writer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructType

import daybook
from daybook.core.errors import MetadataError
from daybook.core.ids import LedgerId
from daybook.local.cluster import LocalCluster
from daybook.metadata.manifests import JobAbandonedError, ManifestManager, WrittenLedger
from daybook.runtime.clock import unix_ms
from tests.fixtures.cluster import abandon
from tests.fixtures.spark import where

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PATIENCE_S = 60
"""For a killed task to be gone."""


async def manifest(client: daybook.Client, name: str) -> list[WrittenLedger]:
    found = await ManifestManager(client.store, client.layout).read(name)
    return [] if found is None else list(found.value.ledgers)


async def contents(client: daybook.Client, name: str) -> list[bytes]:
    """All entries of a manifest's ledgers, which are all closed."""
    found = []
    for written in await manifest(client, name):
        reader = await client.open_ledger(written.ledger_id, recover=False)
        assert reader.metadata.is_closed
        assert reader.last_add_confirmed + 1 == written.entries
        found += [entry.data async for entry in reader.read()]
    return found


async def tagged(client: daybook.Client, name: str) -> list[LedgerId]:
    """Every ledger that a job of this manifest left, named or not."""
    return [
        found.value.ledger_id
        async for found in client.list_ledgers()
        if found.value.custom_metadata.get(MANIFEST) == name.encode()
    ]


async def test_a_dataframe_becomes_ledgers_and_overwriting_deletes_them(
    spark: SparkSession, cluster: LocalCluster, client: daybook.Client
) -> None:
    options = where(cluster)
    writer = spark.range(1000).repartition(3).selectExpr("concat('row ', id) as value").write
    writer.format("daybook").options(**options, manifest="rows").mode("append").save()
    assert sorted(await contents(client, "rows")) == sorted(b"row %d" % n for n in range(1000))
    first = await tagged(client, "rows")
    assert first == sorted(written.ledger_id for written in await manifest(client, "rows"))
    assert len(first) == 3

    few = spark.range(5).coalesce(1).selectExpr("cast(concat('new ', id) as binary) as value").write
    few.format("daybook").options(**options, manifest="rows").mode("append").save()
    assert len(await contents(client, "rows")) == 1005
    few.format("daybook").options(**options, manifest="rows").mode("overwrite").save()
    assert await contents(client, "rows") == [b"new %d" % n for n in range(5)]
    assert len(await tagged(client, "rows")) == 1, "what nobody names is deleted"


async def test_a_job_without_rows_is_committed_and_read_as_an_empty_table(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    rows = spark.range(0).selectExpr("cast(id as string) as value")
    rows.write.format("daybook").options(**where(cluster), manifest="no rows").mode("append").save()
    reader = spark.read.format("daybook").options(**where(cluster))
    assert reader.option("manifest", "no rows").load().collect() == []
    with pytest.raises(PySparkException, match="no job has committed to manifest 'never written'"):
        reader.option("manifest", "never written").load().collect()


async def test_a_job_whose_task_fails_names_nothing_and_leaves_nothing(
    spark: SparkSession, cluster: LocalCluster, client: daybook.Client
) -> None:
    failing = "if(id = 900, raise_error('planted'), cast(id as string)) as value"
    # one task: another one might be killed meanwhile, and leave its ledger to a sweep
    rows = spark.range(1000).coalesce(1).selectExpr(failing)
    with pytest.raises(PySparkException, match="planted"):
        rows.write.format("daybook").options(**where(cluster), manifest="failing").mode("append").save()
    assert await manifest(client, "failing") == []
    assert await tagged(client, "failing") == []


async def test_a_task_that_is_killed_because_another_one_fails_leaves_nothing_but_to_a_sweep(
    spark: SparkSession, cluster: LocalCluster, client: daybook.Client
) -> None:
    failing = "if(id = 900, raise_error('planted'), cast(id as string)) as value"
    rows = spark.range(1000).repartition(2).selectExpr(failing)
    with pytest.raises(PySparkException, match="planted"):
        rows.write.format("daybook").options(**where(cluster), manifest="killing").mode("append").save()
    assert await manifest(client, "killing") == []
    async with asyncio.timeout(PATIENCE_S):
        while await tagged(client, "killing"):
            await sweep(client, b"", now_ms=unix_ms(), older_than_ms=0)


async def test_each_batch_of_a_stream_is_named_once(
    spark: SparkSession, cluster: LocalCluster, client: daybook.Client, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", str(tmp_path / "checkpoint")
    source.mkdir()
    for batch in range(2):
        (source / f"{batch}.txt").write_text(f"a{batch}\nb{batch}\n")
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
        query = (
            lines.writeStream.format("daybook")
            .options(**where(cluster), manifest="lines")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
    assert sorted(await contents(client, "lines")) == [b"a0", b"a1", b"b0", b"b1"]


class Batch(NamedTuple):
    """A batch of a stream before its end."""

    manifest: str
    done: TaskDone
    end: LedgersStreamWriter


def rows(count: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array([b"%d" % n for n in range(count)])], names=["value"])


async def begin(cluster: LocalCluster, name: str) -> Writing:
    options = where(cluster)
    target = Where(options["zookeeper"], options["cluster"])
    return await asyncio.to_thread(Writing.begin, target, name, Replication())


async def test_rule_66_a_manifest_names_closed_ledgers_alone(
    cluster: LocalCluster, client: daybook.Client
) -> None:
    writing = await begin(cluster, "half")
    tags = writing.job.tags("0.0")
    open_ledger = await client.create_ledger(custom_metadata=tags)
    await open_ledger.append_many([b"x"] * 10)
    with pytest.raises(MetadataError, match="nothing was committed"):
        await commit_job(client, writing.job, [WrittenLedger(open_ledger.id, 10, 10)], password=b"")
    assert await manifest(client, "half") == []
    written = await asyncio.to_thread(writing.write, rows(10), TaskId("", 0, 1, 0))
    assert written is not None
    assert (await client.ledgers.read(written.ledger_id)).value.is_closed, "a task closes what it wrote"
    await abort_job(client, writing.job, b"")
    assert await tagged(client, "half") == []


async def test_a_commit_deletes_the_ledgers_of_killed_tasks(
    cluster: LocalCluster, client: daybook.Client
) -> None:
    writing = await begin(cluster, "killed")
    other = await abandon(client, [b"not of the job"])
    killed = await client.create_ledger(custom_metadata=writing.job.tags("0.0"))
    await killed.append(b"the task is killed here")
    written = await asyncio.to_thread(writing.write, rows(3), TaskId("", 0, 0, 1))
    await asyncio.to_thread(
        writing.commit, [TaskDone(writing.job, written), TaskDone(writing.job, None), None], overwrite=False
    )
    assert await contents(client, "killed") == [b"0", b"1", b"2"]
    assert await tagged(client, "killed") == [written.ledger_id] if written else []
    assert (await client.ledgers.read(other)).value.ledger_id == other
    with pytest.raises(daybook.DaybookError):
        await killed.append(b"a task that was only slow ends")


async def test_a_sweep_ends_slow_jobs_before_it_deletes_their_ledgers(
    cluster: LocalCluster, client: daybook.Client
) -> None:
    slow, done = await begin(cluster, "swept"), await begin(cluster, "swept")
    late = await asyncio.to_thread(slow.write, rows(3), TaskId("", 0, 0, 0))
    kept = await asyncio.to_thread(done.write, rows(2), TaskId("", 0, 0, 0))
    assert late is not None
    await asyncio.to_thread(done.commit, [TaskDone(done.job, kept)], overwrite=False)
    now_ms = unix_ms()
    assert late.ledger_id not in await sweep(client, b"", now_ms=now_ms), "it is not a day old"
    later_ms = now_ms + 25 * 3_600_000
    assert late.ledger_id in await sweep(client, b"", now_ms=later_ms, dry_run=True)
    assert await ledgers_of(client, slow.job) == [late.ledger_id]
    assert late.ledger_id in await sweep(client, b"", now_ms=later_ms)
    assert await ledgers_of(client, slow.job) == []
    with pytest.raises(daybook.NoSuchLedgerError):
        await asyncio.to_thread(slow.commit, [TaskDone(slow.job, late)], overwrite=False)
    with pytest.raises(JobAbandonedError):
        await commit_job(client, slow.job, [], password=b"")
    assert await contents(client, "swept") == [b"0", b"1"]


async def test_a_repeated_batch_deletes_its_new_ledgers(
    cluster: LocalCluster, client: daybook.Client
) -> None:
    for attempt in range(2):
        writing = (await begin(cluster, "repeated")).of_batch(7)
        written = await asyncio.to_thread(writing.write, rows(4), TaskId("query", 7, 0, attempt))
        await asyncio.to_thread(
            writing.commit, [TaskDone(writing.job, written, "query")], overwrite=False, batch=7
        )
    assert len(await contents(client, "repeated")) == 4
    assert len(await tagged(client, "repeated")) == 1


@pytest.fixture
async def batch(cluster: LocalCluster, client: daybook.Client, monkeypatch: pytest.MonkeyPatch) -> Batch:
    """A batch of a stream, of which one task ended and one was killed; the writer is another one for its end, as Spark has it."""
    monkeypatch.setattr(TaskId, "now", classmethod(lambda _: TaskId("query", 7, 0, 0)))
    name = uuid.uuid4().hex
    of_tasks, of_end = [LedgersStreamWriter(await begin(cluster, name)) for _ in range(2)]
    done = await asyncio.to_thread(of_tasks.write, rows(3))
    killed = await client.create_ledger(custom_metadata=done.job.tags("1.0"))
    await killed.append(b"the task is killed here")
    return Batch(name, done, of_end)


async def test_the_commit_of_a_stream_deletes_the_ledgers_of_killed_tasks(
    client: daybook.Client, batch: Batch
) -> None:
    await asyncio.to_thread(batch.end.commit, [batch.done, None], 7)
    assert await contents(client, batch.manifest) == [b"0", b"1", b"2"]
    assert len(await tagged(client, batch.manifest)) == 1


async def test_the_abort_of_a_stream_deletes_the_ledgers_of_its_tasks_and_ends_its_job(
    client: daybook.Client, batch: Batch
) -> None:
    await asyncio.to_thread(batch.end.abort, [batch.done, None], 7)
    assert await tagged(client, batch.manifest) == []
    with pytest.raises(JobAbandonedError):
        await commit_job(client, batch.done.job, [], password=b"")


async def test_the_abort_of_a_stream_of_which_no_task_ended_leaves_its_ledgers_to_a_sweep(
    client: daybook.Client, batch: Batch
) -> None:
    await asyncio.to_thread(batch.end.abort, [None, None], 7)
    left = await tagged(client, batch.manifest)
    assert len(left) == 2
    assert set(left) <= set(await sweep(client, b"", now_ms=unix_ms(), older_than_ms=0))


def test_a_task_holds_a_chunk_at_a_time() -> None:
    many = pa.record_batch([pa.array([b"x"] * (2 * CHUNK_ENTRIES + 1))], names=["value"])
    assert [len(chunk) for chunk in chunks([many])] == [CHUNK_ENTRIES, CHUNK_ENTRIES, 1]
    large = pa.record_batch([pa.array(["é" * 400_000] * 3)], names=["value"])
    assert [len(chunk) for chunk in chunks([large])] == [1, 1, 1]
    with pytest.raises(ValueError, match="1 of 2 rows have no `value`"):
        list(chunks([pa.record_batch([pa.array([b"x", None])], names=["value"])]))
    with pytest.raises(daybook.EntryTooLargeError):
        list(chunks([pa.record_batch([pa.array([b"x" * (8 * 2**20 + 1)])], names=["value"])]))


@pytest.mark.parametrize(
    ("options", "schema", "says"),
    [
        ({}, "value string", "one of the options manifest and topic"),
        ({"manifest": "m", "topic": "t"}, "value string", "one of the options manifest and topic"),
        ({"manifest": "m"}, "value int", "a column `value` of type binary or string"),
        ({"manifest": "m"}, "value string, key string", r"the columns \['key'\] would be lost"),
        ({"manifest": "m", "ackQuorum": "9"}, "value string", "quorum"),
        ({"topic": "a,b"}, "value string", "one topic alone"),
        ({"topic": "t", "serviceUrl": "pulsar://h:1"}, "value string, colour string", "colour"),
        ({"manfest": "m"}, "value string", "did you mean manifest"),
    ],
)
def test_a_wrong_option_is_refused_before_a_task_starts(
    options: dict[str, str], schema: str, says: str
) -> None:
    kinds = {"string": StringType(), "int": IntegerType()}
    fields = StructType()
    for column in schema.split(", "):
        name, _, kind = column.partition(" ")
        fields = fields.add(name, kinds[kind])
    with pytest.raises((OptionError, ValueError), match=says):
        batch_writer({"zookeeper": "127.0.0.1:1", **options}, fields, overwrite=False)
