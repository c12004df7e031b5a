"""The rows of a range."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from daybook_spark.options import ReadOptions
from daybook_spark.plan.entry_range import Range
from daybook_spark.read.entries import read_range
from daybook_spark.rows.columns import arrow_schema
from daybook_spark.rows.ledger_rows import entry_rows, numbered_rows
from daybook_spark.rows.topic_rows import ALL_TIMES, Place, TimeRange, message_rows


def rows_of(
    options: ReadOptions, entries: Range, schema: StructType, times: TimeRange = ALL_TIMES
) -> Iterator[pa.RecordBatch]:
    """The rows of a range with the columns of `schema`. A ledger's entries are not fetched where nobody wants their payload."""
    arrow = arrow_schema(schema)
    if entries.topic:
        place = Place(entries.topic, entries.partition, entries.ledger_id)
        runs = read_range(options.where, entries)
        return message_rows(place, runs, arrow, times=times, is_permissive=options.is_permissive)
    if "value" not in arrow.names:
        return numbered_rows(entries.ledger_id, entries.first, entries.last, arrow)
    return entry_rows(entries.ledger_id, read_range(options.where, entries), arrow)
