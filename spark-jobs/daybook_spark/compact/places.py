"""The first pass: a row for each message with a key, without its value, and what Spark makes of them: the places that stay.

A place is one number, so that Spark finds the largest of a key in a hash table, without sorting, and sorts places by it. From its highest bit: the
part, the entry within the part, the index within the batch, and whether the message deletes its key. So places compare as the topic has the messages.
The last message of each key is the one with the largest place. Spark adds up the keys of a task before it sends them on, and no task has more than
its share of them.

A message in chunks has several entries and one fate, decided at the place of its last chunk, which another task may read. So each chunk is a
row as well. Most topics have none, and are spared the joins. The rules are those of daybook/core/topics/compaction/keys.py.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from daybook.core.topics.compaction.keys import KeyedEntry, KeyedMessage

ROWS_MAX: Final = 8192
"""Of a batch that is given to Spark."""

INDEX_BITS: Final = 25
"""A batch has at most 128 MiB without compression, and a message of it at least four bytes."""
ENTRY_BITS: Final = 26
PART_BITS: Final = 11
_PART_SHIFT: Final = ENTRY_BITS + INDEX_BITS + 1
assert PART_BITS + _PART_SHIFT == 63, "a place is a number of Spark that is not negative"

ENTRIES_MAX: Final = (1 << ENTRY_BITS) - 1
"""Of a part: they are counted from 1, and 0 stands for the part."""
PART_NUMBERS: Final = 1 << PART_BITS
"""How many parts places can tell apart."""

ROWS: Final = "key binary, place long, messages long, note binary"
"""A message with a key, which is the last one of `messages`; or what a note says: of a chunk of any message which one it belongs to, or that not every
message of the part has a key. A note begins with its kind and the place, so that each is a row of its own in what Spark adds up."""

KEYLESS: Final = b"k"
CHUNK: Final = b"c"
LAST_CHUNK: Final = b"l"
_NAME_AT: Final = 10
"""Where the chunks' message is in a note, as SQL counts."""

ARROW: Final = pa.schema(
    [("key", pa.binary()), ("place", pa.int64()), ("messages", pa.int64()), ("note", pa.binary())]
)

Row = tuple[bytes | None, int, int, bytes | None]


def place_of(part: int, entry: int, index: int, *, is_empty: bool = False) -> int:
    """The place of a message of the `entry`-th entry of a part, counted from 1."""
    return ((part << ENTRY_BITS | entry) << INDEX_BITS | index) << 1 | is_empty


def part_of(place: int) -> int:
    """The part of a place."""
    return place >> _PART_SHIFT


def within_part(place: int) -> int:
    """Where in its part a message is: its entry and, in the lowest INDEX_BITS, its index."""
    return place >> 1 & (1 << ENTRY_BITS + INDEX_BITS) - 1


def part_column(place: str) -> Column:
    """`part_of` of a column."""
    return f.shiftright(place, _PART_SHIFT).cast("int")


def place_of_part(part: Column) -> Column:
    """The place of a part, which is before those of all its messages."""
    return f.shiftleft(part.cast("long"), _PART_SHIFT)


def rows_of(part: int, number: int, entry: KeyedEntry) -> Iterator[Row]:
    """The rows of the `number`-th entry of a part; none for what stays or goes whatever else there is."""
    if entry.chunk is not None:
        (message,) = entry.messages
        assert message is not None, "a chunk is no batch, of which a part could have been removed"
        place = place_of(part, number, 0, is_empty=message.is_empty)
        kind = LAST_CHUNK if entry.chunk.is_last else CHUNK
        key = _stored_key(message)
        yield key, place, 1, _note(kind, place) + entry.chunk.message
        if entry.chunk.is_last and key is not None:
            yield key, place, 0, None
        return
    for index, message in enumerate(entry.messages):
        if message is not None and message.key is not None:
            place = place_of(part, number, index, is_empty=message.is_empty)
            yield _stored_key(message), place, 1, None


def _stored_key(message: KeyedMessage) -> bytes | None:
    """A key as the message has it: not every producer's is UTF-8."""
    return message.key.encode() if isinstance(message.key, str) else message.key


def keyless_row(part: int) -> Row:
    """Says that not every message of a part has a key."""
    place = place_of(part, 0, 0)
    return None, place, 0, _note(KEYLESS, place)


def _note(kind: bytes, place: int) -> bytes:
    return kind + place.to_bytes(_NAME_AT - 2, "big")


def row_batch(rows: list[Row]) -> pa.RecordBatch:
    """The rows, at least one, as Spark takes them."""
    columns: list[Any] = list(zip(*rows, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def last_of_keys(rows: DataFrame) -> DataFrame:
    """Of each key the last place, and each note; `messages` says how many rows of the first pass there were. Only notes keep their key."""
    found = rows.groupBy("key", "note").agg(
        f.max("place").alias("place"), f.sum("messages").alias("messages")
    )
    return found.select(
        f.when(f.col("note").isNotNull(), f.col("key")).alias("key"), "note", "place", "messages"
    )


def figures_of(lasts: DataFrame) -> tuple[int, bool, frozenset[int]]:
    """How many messages with keys and chunks there are, whether there are chunks, and the parts with messages without keys."""
    is_chunk, is_keyless = _kind().isin(CHUNK, LAST_CHUNK), _kind() == f.lit(KEYLESS)
    messages, chunks, keyless = lasts.agg(
        f.sum("messages"),
        f.count(f.when(is_chunk, 1)),
        f.collect_set(f.when(is_keyless, part_column("place"))),
    ).collect()[0]
    return messages or 0, chunks > 0, frozenset(keyless)


def places_that_stay(lasts: DataFrame, *, keeps_keyless: bool, has_chunks: bool) -> DataFrame:
    """The places of messages with keys, and of chunks, that stay, each at least once, as the column `place`."""
    places = lasts.where("note is null and (place & 1) = 0").select("place")
    return places.unionByName(_chunks_that_stay(lasts, places, keeps_keyless)) if has_chunks else places


def _chunks_that_stay(lasts: DataFrame, places: DataFrame, keeps_keyless: bool) -> DataFrame:
    """Chunks stay with their message; those of a message without its last one stay as they are."""
    chunks = lasts.where(_kind().isin(CHUNK, LAST_CHUNK)).select(
        "key", "place", _kind().alias("kind"), f.expr(f"substring(note, {_NAME_AT})").alias("name")
    )
    ends = (
        chunks.where(f.col("kind") == f.lit(LAST_CHUNK))
        .groupBy("name")
        .agg(f.max(f.struct("place", "key")).alias("end"))
        .select("name", f.col("end.place").alias("end_place"), f.col("end.key").alias("end_key"))
    )
    winners = places.select(f.col("place").alias("end_place"), f.expr("true").alias("wins"))
    judged = chunks.join(ends, "name", "left").join(winners, "end_place", "left")
    keyless = f.col("key").isNull() & f.lit(keeps_keyless)
    wins = (f.col("key") == f.col("end_key")) & f.col("wins")
    return judged.where(f.col("end_place").isNull() | keyless | wins).select("place")


def _kind() -> Column:
    return f.expr("substring(note, 1, 1)")
