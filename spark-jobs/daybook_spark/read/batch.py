"""The reader of a query: it plans in the driver and reads in tasks, and only its options travel from one to the other."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from daybook_spark.options import ReadOptions
from daybook_spark.plan.entry_range import EntryRange
from daybook_spark.rows.columns import check_schema


class BatchReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises OptionError for columns that do not exist."""
        check_schema(schema, options)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Ranges of entries; in the driver. Raises DaybookError."""
        from daybook_spark.plan.batch import plan

        return list(plan(self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; in a task. PySpark makes one range without a value where there is nothing to read."""
        if isinstance(partition, EntryRange):
            from daybook_spark.read.rows import rows_of

            yield from rows_of(self._options, partition, self._schema)
