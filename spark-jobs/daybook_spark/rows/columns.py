"""The columns of ledgers and of topics.

Spark reads no column less than the source's schema has, so a query that needs few columns names them by a schema of its own.
"""

import difflib
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from daybook_spark.options import OptionError, ReadOptions, parse_all

LEDGER: Final[Mapping[str, DataType]] = {
    "ledger_id": LongType(),
    "entry_id": LongType(),
    "value": BinaryType(),
}
"""The columns of ledgers without topics."""

CHUNK: Final = StructType(
    [
        StructField("uuid", StringType()),
        StructField("id", IntegerType()),
        StructField("count", IntegerType()),
        StructField("total_bytes", IntegerType()),
        StructField("compression", StringType()),
    ]
)
"""Which part of a large message a row is. Only the whole of it can be decompressed, so its parts come as they are stored."""

TOPIC: Final[Mapping[str, DataType]] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "ledger_id": LongType(),
    "entry_id": LongType(),
    "batch_index": IntegerType(),
    "publish_time": TimestampType(),
    "event_time": TimestampType(),
    "producer": StringType(),
    "sequence_id": LongType(),
    "key": StringType(),
    "ordering_key": BinaryType(),
    "properties": MapType(StringType(), StringType()),
    "schema_version": BinaryType(),
    "chunk": CHUNK,
    "encrypted": BooleanType(),
    "value": BinaryType(),
}
"""The columns of topics, one row for each message."""

ERROR: Final = "error"
"""The column of mode permissive: why an entry is no message; its bytes are the row's value."""


def columns_of(*, has_ledgers: bool, is_permissive: bool) -> dict[str, DataType]:
    """The columns that may be read."""
    if has_ledgers:
        return dict(LEDGER)
    return {**TOPIC, ERROR: StringType()} if is_permissive else dict(TOPIC)


def default_schema(options: Mapping[str, str]) -> StructType:
    """Every column that there is. Raises OptionError."""
    given = parse_all(options, "daybook", lambda _: True)
    found = columns_of(
        has_ledgers=bool(given.keys() & {"ledger", "manifest"}),
        is_permissive=given.get("mode") == "permissive",
    )
    return _struct(found)


def permissive_schema() -> pa.Schema:
    """All columns of a topic in mode permissive, as Arrow has them."""
    return arrow_schema(_struct(columns_of(has_ledgers=False, is_permissive=True)))


def _struct(columns: Mapping[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Raise OptionError for a column that does not exist, or has another type."""
    known = columns_of(
        has_ledgers=bool(options.ledgers or options.manifest), is_permissive=options.is_permissive
    )
    for field in schema.fields:
        if field.name not in known:
            near = difflib.get_close_matches(field.name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            msg = f"no column {field.name} is read from here: {hint}"
            raise OptionError(msg)
        if field.dataType != known[field.name]:
            msg = (
                f"column {field.name} has type {known[field.name].simpleString()}, not {field.dataType.simpleString()}: "
                "read it as it is, and cast it"
            )
            raise OptionError(msg)


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects of a batch, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")
