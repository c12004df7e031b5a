"""A data source that does nothing: it hands over batches of rows that were recorded, from files that are mapped into memory.

They are the batches that Daybook's source made, with the same borders, so that Spark has the same work with both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


@dataclass
class Recorded(InputPartition):
    """A file of batches."""

    path: str


class NullSource(DataSource):
    """`format("bench_null")`, with the option `directory`; its schema is given by the user."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bench_null"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - PySpark passes it
        """The reader of a query."""
        return NullReader(self.options)


class NullReader(DataSourceReader):
    """One partition for each file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """The folder of the files."""
        self._directory = options["directory"]

    def partitions(self) -> list[InputPartition]:
        """In the order of their names."""
        return [Recorded(str(path)) for path in sorted(Path(self._directory).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches as they are."""
        assert isinstance(partition, Recorded), "there is at least one file"
        with pa.memory_map(partition.path) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
