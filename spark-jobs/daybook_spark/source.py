"""The data source: what PySpark calls, in the driver's planning processes and in tasks.

This module is imported wherever a session looks for data sources, so it imports neither gRPC nor anything else that is slow: the
parts that work are imported when they work.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from daybook_spark.options import parse_read, parse_stream


class DaybookDataSource(DataSource):
    """`format("daybook")`: ledgers, topics and namespaces of a cluster."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "daybook"

    def schema(self) -> StructType:
        """All columns of what the options name. Raises OptionError."""
        from daybook_spark.rows.columns import default_schema

        return default_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a query. Raises OptionError."""
        from daybook_spark.read.batch import BatchReader, FilteringReader

        options = parse_read(self.options)
        return (FilteringReader if options.pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader of a streaming query over topics. Raises OptionError."""
        from daybook_spark.stream.reader import StreamReader

        return StreamReader(parse_stream(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a DataFrame. Raises OptionError."""
        from daybook_spark.write.writers import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """The writer of a stream. Raises OptionError."""
        from daybook_spark.write.writers import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)
