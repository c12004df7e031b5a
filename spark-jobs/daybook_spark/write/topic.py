"""The writer of a topic: rows become messages, sent through the topic's brokers by `pulsar-client`.

A message is written at least once: a task that Spark repeats sends its rows again. Each producer is named by query and partition, and
each message numbered by batch and row, so that a repeated task sends the same name and numbers: a broker that removes duplicates
keeps one of each.
"""

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from daybook.core.errors import DaybookError
from daybook_spark.brokers import client_options
from daybook_spark.options import OptionError, Where
from daybook_spark.write.entries import VALUE, check_value
from daybook_spark.write.task import TaskId

COLUMNS: Final = (VALUE, "key", "ordering_key", "properties", "event_time")
ROWS_OF_A_BATCH: Final = 2**32
"""A sequence id is the batch of the stream times this, plus the row's place in its partition."""
PENDING_MAX: Final = 5_000
"""Messages that wait for their receipts; the task waits beyond it."""


class WriteFailedError(DaybookError):
    """A broker did not take a message."""


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """How many messages a task sent, each with its receipt."""

    messages: int


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """Where messages go; it travels to the tasks."""

    where: Where
    topic: str
    service_url: str
    job_id: str

    def send(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> Sent:
        """Send the rows of a task, and wait for every receipt. Raises WriteFailedError."""
        import pulsar

        client = pulsar.Client(self.service_url, **client_options(self.where))
        try:
            producer = client.create_producer(
                self.topic,
                producer_name=f"{task.query or self.job_id}-{task.partition}",
                batching_enabled=True,
                block_if_queue_full=True,
                max_pending_messages=PENDING_MAX,
            )
            receipts = _Receipts()
            sent = 0
            for row in _rows(batches):
                receipts.check()
                producer.send_async(
                    _content(row[VALUE]),
                    receipts.came,
                    sequence_id=task.batch * ROWS_OF_A_BATCH + sent,
                    **_optional(row),
                )
                sent += 1
            producer.flush()
            receipts.check()
        except pulsar.PulsarException as error:
            msg = f"topic {self.topic} at {self.service_url} took no message: {error}"
            raise WriteFailedError(msg) from error
        finally:
            client.close()
        return Sent(sent)


class _Receipts:
    """What brokers answered; pulsar-client calls `came` on a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._error = ""

    def came(self, result: Any, _message_id: Any) -> None:
        """One receipt, or an error."""
        import pulsar

        if result != pulsar.Result.Ok:
            with self._lock:
                self._error = self._error or str(result)

    def check(self) -> None:
        """Raise WriteFailedError if a message was refused."""
        with self._lock:
            if self._error:
                msg = f"a broker did not take a message: {self._error}"
                raise WriteFailedError(msg)


class TopicWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, target: TopicTarget) -> None:
        """A commit has nothing to do: messages are in the topic once they have their receipts."""
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """See DataSourceArrowWriter."""
        return self._target.send(iterator, TaskId.now())


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream."""

    def __init__(self, target: TopicTarget) -> None:
        """See `TopicWriter`."""
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """See DataSourceStreamArrowWriter."""
        return self._target.send(iterator, TaskId.now())


def topic_target(where: Where, topic: str, service_url: str, schema: StructType) -> TopicTarget:
    """A target that is checked before the job begins. Raises OptionError, ValueError."""
    check_value(schema)
    unknown = [name for name in schema.fieldNames() if name not in COLUMNS]
    if unknown:
        msg = f"a message has the columns {', '.join(COLUMNS)}, and the rows have {', '.join(unknown)}: drop or rename them"
        raise OptionError(msg)
    return TopicTarget(where, topic, service_url, uuid.uuid4().hex)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Mapping[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _content(value: str | bytes | None) -> bytes:
    if value is None:
        msg = f"a row has no `{VALUE}`: leave it out, or give it an empty one"
        raise WriteFailedError(msg)
    return value.encode() if isinstance(value, str) else value


def _optional(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a message has beside its payload, where the row has it."""
    found: dict[str, Any] = {}
    if (key := row.get("key")) is not None:
        found["partition_key"] = key
    if (ordering_key := row.get("ordering_key")) is not None:
        found["ordering_key"] = ordering_key.decode() if isinstance(ordering_key, bytes) else ordering_key
    if (properties := row.get("properties")) is not None:
        found["properties"] = dict(properties)
    if (event_time := row.get("event_time")) is not None:
        found["event_timestamp"] = _unix_ms(event_time)
    return found


def _unix_ms(moment: datetime) -> int:
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
