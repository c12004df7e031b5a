"""Which task runs: what Spark says of it, for names that a repeated task has again."""

from typing import NamedTuple

from pyspark import TaskContext

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


class TaskId(NamedTuple):
    """A task; of a batch job `query` is empty and `batch` 0."""

    query: str
    batch: int
    partition: int
    attempt: int

    @classmethod
    def now(cls) -> "TaskId":
        """The task that calls."""
        context = TaskContext.get()
        assert context is not None, "a task of Spark has a context"
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        return cls(query or "", int(batch or 0), context.partitionId(), context.attemptNumber())
