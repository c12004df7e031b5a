"""The writer of ledgers: a task writes its rows into a ledger of its own and closes it; the commit names all of them (rule 66).

A task that fails deletes its ledger. One that is killed leaves it, and it is deleted by the job's commit or abort, or by a later sweep. A
batch of a stream that Spark repeats is in the manifest already: its ledgers are deleted, so each batch is there once.

Spark makes the writer of a stream anew for each commit and each abort, which know the job of the tasks from their messages alone. So an abort
of a batch without a task that ended deletes nothing, and a later sweep does.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from daybook.client.blocking import BlockingClient
from daybook.client.client import Client
from daybook.client.placement_settings import placement_policy
from daybook.metadata.manifests import WrittenLedger
from daybook_spark.access import open_client
from daybook_spark.options import Password, Where
from daybook_spark.write.entries import chunks
from daybook_spark.write.job import Job, abort_job, commit_job, delete_ledgers
from daybook_spark.write.task import TaskId


class Replication(NamedTuple):
    """E, Qw and Qa of the ledgers that a job writes."""

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2


@dataclass(frozen=True, slots=True)
class TaskDone(WriterCommitMessage):
    """What a task of `job` wrote: None for no rows. `query` is the streaming query, empty for a batch job."""

    job: Job
    written: WrittenLedger | None
    query: str = ""


@dataclass(frozen=True, slots=True)
class Writing:
    """What the writers share; it travels to the tasks."""

    where: Where
    job: Job
    replication: Replication

    @classmethod
    def begin(cls, where: Where, manifest: str, replication: Replication) -> "Writing":
        """A job that begins now. Raises MetadataUnavailableError, UnknownClusterError."""

        async def next_id() -> int:
            async with open_client(where) as client:
                return await client.ledgers.next_id()

        return cls(where, Job(uuid.uuid4().hex, manifest, asyncio.run(next_id())), replication)

    def of_batch(self, batch: int) -> "Writing":
        """The job that one batch of a stream is."""
        job = Job(f"{self.job.job_id}/{batch}", self.job.manifest, self.job.first_id)
        return replace(self, job=job)

    def of_tasks(self, messages: Iterable[WriterCommitMessage | None]) -> "Writing | None":
        """The job whose tasks sent the messages; None where no task ended."""
        jobs = {message.job for message in messages if isinstance(message, TaskDone)}
        assert len(jobs) <= 1, f"Spark makes the writer of a batch's tasks once, and they are of {jobs}"
        return replace(self, job=jobs.pop()) if jobs else None

    def write(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> WrittenLedger | None:
        """Write the rows of a task into a ledger of its own, and close it; without rows there is none."""
        pieces = chunks(batches)
        first = next(pieces, None)
        if first is None:
            return None
        key = Password.read()
        with BlockingClient(open_client(self.where, placement=placement_policy())) as client:
            ledger = client.create_ledger(
                **self.replication._asdict(),
                password=key,
                custom_metadata=self.job.tags(f"{task.partition}.{task.attempt}"),
            )
            try:
                ledger.append_many(first)
                for chunk in pieces:
                    ledger.append_many(chunk)
                closed = ledger.close()
            except BaseException:
                self.run(lambda client: delete_ledgers(client, [ledger.id], key))
                raise
        return WrittenLedger(ledger.id, closed.last_entry + 1, closed.length)

    def commit(
        self, messages: Iterable[WriterCommitMessage | None], *, overwrite: bool, batch: int = 0
    ) -> None:
        """Name what the tasks wrote."""
        done = [message for message in messages if isinstance(message, TaskDone)]
        ledgers = [message.written for message in done if message.written is not None]
        query = next((message.query for message in done if message.query), "")
        self.run(
            lambda client: commit_job(
                client,
                self.job,
                ledgers,
                password=Password.read(),
                overwrite=overwrite,
                query=query,
                batch=batch,
            )
        )

    def abort(self) -> None:
        """Delete what the tasks wrote; those that still run end with an error."""
        self.run(lambda client: abort_job(client, self.job, Password.read()))

    def run(self, work: Callable[[Client], Awaitable[Any]]) -> None:
        """Run `work` with a client of its own."""

        async def connected() -> None:
            async with open_client(self.where) as client:
                await work(client)

        asyncio.run(connected())


class LedgersWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, writing: Writing, *, overwrite: bool) -> None:
        """`overwrite`: the manifest names the new ledgers alone then, and the others are deleted."""
        self._writing = writing
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """See DataSourceArrowWriter."""
        return TaskDone(self._writing.job, self._writing.write(iterator, TaskId.now()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """See DataSourceWriter."""
        self._writing.commit(messages, overwrite=self._overwrite)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """See DataSourceWriter; the ledgers of tasks that sent no message are found as well."""
        del messages
        self._writing.abort()


class LedgersStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each of them once."""

    def __init__(self, writing: Writing) -> None:
        """Each batch is a job of its own, whose tasks have another writer than its commit."""
        self._writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """See DataSourceStreamArrowWriter."""
        task = TaskId.now()
        writing = self._writing.of_batch(task.batch)
        return TaskDone(writing.job, writing.write(iterator, task), task.query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """See DataSourceStreamWriter."""
        if writing := self._writing.of_tasks(messages):
            writing.commit(messages, overwrite=False, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """See DataSourceStreamWriter; without a message of a task the ledgers stay for a sweep."""
        del batchId
        if writing := self._writing.of_tasks(messages):
            writing.abort()
