"""The readers of a query: they plan in the driver and read in tasks, and only options and bounds travel from one to the other."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from daybook_spark.options import ReadOptions
from daybook_spark.plan.bounds import bounds_of, narrowed
from daybook_spark.plan.entry_range import EntryRange, FileRange
from daybook_spark.rows.columns import check_schema
from daybook_spark.worker import leave_modules_out_of_collections


class BatchReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises OptionError for columns that do not exist."""
        check_schema(schema, options)
        self._options = options
        self._schema = schema
        self._bounds = bounds_of(options)

    def partitions(self) -> list[InputPartition]:
        """Ranges of entries; in the driver. Raises DaybookError."""
        from daybook_spark.plan.batch import plan

        ranges: list[InputPartition] = list(plan(self._options, self._bounds))
        leave_modules_out_of_collections()
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; in a task. PySpark makes one range without a value where there is nothing to read."""
        if isinstance(partition, EntryRange | FileRange):
            from daybook_spark.read.rows import rows_of

            yield from rows_of(self._options, partition, self._schema, self._bounds.times)


class FilteringReader(BatchReader):
    """Takes Spark's filters as well. It is a class of its own because PySpark refuses one that does where the session forbids it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Leave out what no row of the filters can be in; Spark applies all of them to the rows."""
        self._bounds = narrowed(self._bounds, filters)
        return filters
