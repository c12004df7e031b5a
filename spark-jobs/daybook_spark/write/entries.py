"""The payloads of rows, in chunks of bounded size: what a task holds does not depend on how much it writes."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from daybook.core.errors import EntryTooLargeError
from daybook.core.ids import ENTRY_BYTES_MAX

VALUE: Final = "value"
CHUNK_BYTES: Final = 1024 * 1024
CHUNK_ENTRIES: Final = 8192


def check_value(schema: StructType) -> None:
    """Raise ValueError unless rows have a payload."""
    found = [field for field in schema.fields if field.name == VALUE]
    if not found or not isinstance(found[0].dataType, BinaryType | StringType):
        what = f"it is {found[0].dataType.simpleString()}" if found else f"there are {schema.fieldNames()}"
        msg = f"a row needs a column `{VALUE}` of type binary or string, and {what}: select it, or cast it"
        raise ValueError(msg)


def check_only_value(schema: StructType) -> None:
    """Raise ValueError unless rows are a payload and nothing else, since an entry of a ledger is nothing else."""
    check_value(schema)
    others = [name for name in schema.fieldNames() if name != VALUE]
    if others:
        msg = f"an entry of a ledger is its payload alone, and the columns {others} would be lost: select `{VALUE}`"
        raise ValueError(msg)


def payloads(batch: pa.RecordBatch) -> list[bytes]:
    """The payloads of a batch. Raises ValueError for a null."""
    column = batch.column(batch.schema.get_field_index(VALUE))
    if column.null_count:
        msg = f"{column.null_count} of {len(column)} rows have no `{VALUE}`: leave them out, or give them an empty one"
        raise ValueError(msg)
    found: list[bytes] = column.cast(pa.large_binary()).to_pylist()
    return found


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[list[bytes]]:
    """The payloads in chunks of at most `CHUNK_ENTRIES` and, but for one large one, `CHUNK_BYTES`."""
    chunk: list[bytes] = []
    size_bytes = 0
    for batch in batches:
        for data in payloads(batch):
            if len(data) > ENTRY_BYTES_MAX:
                msg = f"a row has {len(data)} bytes, and at most {ENTRY_BYTES_MAX} are allowed: split it, or store a reference"
                raise EntryTooLargeError(msg)
            if chunk and (size_bytes + len(data) > CHUNK_BYTES or len(chunk) >= CHUNK_ENTRIES):
                yield chunk
                chunk, size_bytes = [], 0
            chunk.append(data)
            size_bytes += len(data)
    if chunk:
        yield chunk
