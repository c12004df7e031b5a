"""The reader of a streaming query: how far each batch goes, its ranges, and what happens once it is done.

Spark asks for the end of a batch, stores it, and asks for the ranges up to it, perhaps again after a restart: the ranges come from
the two offsets alone. What was acknowledged once stays acknowledged, so a LAC that seems to go back means an answer that is
older, and the query waits.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

import daybook
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.runtime.logs import get_logger
from daybook_spark.brokers import service_url
from daybook_spark.options import StreamOptions
from daybook_spark.plan.entry_range import EntryRange, FileRange
from daybook_spark.plan.existing import TopicPart
from daybook_spark.read.rows import rows_of
from daybook_spark.rows.columns import check_schema
from daybook_spark.rows.topic_rows import TimeRange
from daybook_spark.stream.cursor import DurableCursor
from daybook_spark.stream.losses import why_beginning_lost, why_lost
from daybook_spark.stream.offsets import Limits, Offset, advance, shares
from daybook_spark.stream.topics import DataLossError, FollowedTopics

log = get_logger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics. Spark calls all but `read` in one process of the driver, and `read` of a copy in tasks."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        """Raises OptionError for columns that do not exist."""
        check_schema(schema, options.read)
        self._options = options
        self._schema = schema
        self._limits = Limits(options.entries_max, options.bytes_max)
        self._topics = FollowedTopics(options.read)
        self._cursor: DurableCursor | None = None
        self._pinned: dict[str, TopicExtent] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: neither connections nor positions."""
        return {"_options": self._options, "_schema": self._schema}

    # What comes next

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins. With a subscription its cursors are there from now on."""
        extents = self._topics.extents()
        self._hold(extents)
        starts = self._topics.starts(extents, is_from_latest=self._options.is_from_latest)
        return Offset(starts).to_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next batch ends: `start` if there is nothing new.

        Topics have their cursors before they are read, those that came meanwhile and those of a checkpoint that is older than the subscription.
        """
        extents = self._topics.extents() if self._pinned is None else self._pinned
        known = Offset.from_dict(start).following
        self._hold(extents)
        following = {name: known.get(name, extent.first) for name, extent in extents.items()}
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._limits
        taken = shares(extents, following, limits)
        ends = {name: advance(extents[name], following[name], taken[name]) for name in extents}
        return Offset({**known, **ends}).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of the options; with both, `latestOffset` applies the other as well."""
        if self._limits.entries_max is not None:
            return ReadMaxRows(self._limits.entries_max)
        if self._limits.bytes_max is not None:
            return ReadMaxBytes(self._limits.bytes_max)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the topics end, for the query's progress."""
        return Offset({name: extent.end for name, extent in self._topics.extents().items()}).to_dict()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Pin the ends: a query of what is available ends there, whatever comes meanwhile."""
        self._pinned = self._topics.extents()

    # A batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges between two offsets. Raises DataLossError."""
        begin, until = Offset.from_dict(start).following, Offset.from_dict(end).following
        return list(self._topics.ranges(begin, until, checks=self._check_losses, lost=self._lost))

    async def _check_losses(
        self, client: daybook.Client, part: TopicPart, extent: TopicExtent, start: Position | None
    ) -> None:
        if start is None:
            why = why_beginning_lost(part, extent, self._options.read.start_time_ms)
        else:
            why = await why_lost(client, part, extent, start, self._options.subscription)
        if why:
            self._lost(why)

    def _lost(self, why: str) -> None:
        """Warn of entries that the query has not read, or raise DataLossError."""
        if self._options.fails_on_data_loss:
            msg = f"{why}. Start a query with another checkpoint, or continue without them: option failOnDataLoss=false"
            raise DataLossError(msg)
        log.warning("entries were lost before the query read them", why=why)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; in a task."""
        if isinstance(partition, EntryRange | FileRange):
            times = TimeRange(self._options.read.start_time_ms)
            yield from rows_of(self._options.read, partition, self._schema, times)

    # Afterwards

    def commit(self, end: dict[str, Any]) -> None:
        """The batches up to `end` are done: the owners of the topics may forget what is before. Raises CursorError."""
        if self._options.subscription:
            for name, last in self._topics.lasts(Offset.from_dict(end).following).items():
                self._durable_cursor().move(name, last)

    def stop(self) -> None:
        """Disconnect."""
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None
        self._topics.close()

    def _hold(self, names: Iterable[str]) -> None:
        """Have the query's subscription on topics, if it has one. Raises CursorError."""
        for name in names if self._options.subscription else ():
            self._durable_cursor().hold(name)

    def _durable_cursor(self) -> DurableCursor:
        if self._cursor is None:
            where = self._options.read.where
            hint = ", and only a topic's owner moves its subscriptions: start one"
            url = self._topics.ask(lambda client: service_url(client, where, hint))
            self._cursor = DurableCursor(where, url, self._options.subscription)
        return self._cursor
