"""The first pass: a row for each message with a key, without its value, and what Spark makes of them: the places that stay.

A place is a ledger, an entry and the index within a batch; places compare as the topic has them. The last message of each key is the one
with the largest place. Spark adds up the keys of a task before it sends them on, and no task has more than its share of them.

A message in chunks has several entries and one fate, decided at the place of its last chunk, which another task may read. So each chunk is a
row as well. Most topics have none, and are spared the joins. The rules are those of daybook/core/topics/compaction/keys.py.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from daybook.core.topics.compaction.keys import KeyedEntry

ROWS_MAX: Final = 8192
"""Of a batch that is given to Spark."""
ROWS: Final = "part int, ledger long, entry long, index int, key string, is_empty boolean, chunk binary, is_last boolean, messages long"
"""A message with a key, which is the last one of `messages`, or a chunk of any message: `chunk` names the message, and is null for what is no
chunk. A row with neither says that not every message of the part has a key."""

ARROW: Final = pa.schema(
    [
        ("part", pa.int32()),
        ("ledger", pa.int64()),
        ("entry", pa.int64()),
        ("index", pa.int32()),
        ("key", pa.string()),
        ("is_empty", pa.bool_()),
        ("chunk", pa.binary()),
        ("is_last", pa.bool_()),
        ("messages", pa.int64()),
    ]
)

Row = tuple[int, int, int, int, str | None, bool, bytes | None, bool, int]


def rows_of(part: int, entry: KeyedEntry) -> Iterator[Row]:
    """The rows of an entry; none for what stays or goes whatever else there is."""
    ledger_id, entry_id = entry.position
    if entry.chunk is not None:
        (message,) = entry.messages
        assert message is not None, "a chunk is no batch, of which a part could have been removed"
        yield part, ledger_id, entry_id, 0, message.key, message.is_empty, *entry.chunk, 1
        return
    for index, message in enumerate(entry.messages):
        if message is not None and message.key is not None:
            yield part, ledger_id, entry_id, index, message.key, message.is_empty, None, False, 1


def keyless_row(part: int) -> Row:
    """Says that not every message of a part has a key."""
    return part, 0, 0, 0, None, False, None, False, 0


def row_batch(rows: list[Row]) -> pa.RecordBatch:
    """The rows, at least one, as Spark takes them."""
    columns: list[Any] = list(zip(*rows, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def places_that_stay(rows: DataFrame, *, keeps_keyless: bool, has_chunks: bool) -> DataFrame:
    """The places of messages with keys, and of chunks, that stay, each at least once: part, ledger, entry and index."""
    place = f.struct("ledger", "entry", "index", "part", "is_empty")
    lasts = (
        rows.where("key is not null and (chunk is null or is_last)")
        .groupBy("key")
        .agg(f.max(place).alias("last"))
        .select("key", "last.*")
        .where("not is_empty")
        .drop("is_empty")
    )
    places = lasts.select("part", "ledger", "entry", "index")
    return places.unionByName(_chunks_that_stay(rows, lasts, keeps_keyless)) if has_chunks else places


def _chunks_that_stay(rows: DataFrame, lasts: DataFrame, keeps_keyless: bool) -> DataFrame:
    """Chunks stay with their message; those of a message without its last one stay as they are."""
    chunks = rows.where("chunk is not null")
    ends = (
        chunks.where("is_last")
        .groupBy("chunk")
        .agg(f.max(f.struct("ledger", "entry")).alias("end"))
        .select("chunk", f.col("end.ledger").alias("end_ledger"), f.col("end.entry").alias("end_entry"))
    )
    winners = lasts.where("index = 0").select(
        "key",
        f.col("ledger").alias("end_ledger"),
        f.col("entry").alias("end_entry"),
        f.expr("true").alias("wins"),
    )
    judged = chunks.join(ends, "chunk", "left").join(winners, ["end_ledger", "end_entry", "key"], "left")
    keyless = f.col("key").isNull() & f.lit(keeps_keyless)
    stays = f.col("end_ledger").isNull() | keyless | (f.col("key").isNotNull() & f.col("wins"))
    return judged.where(stays).select("part", "ledger", "entry", "index")
