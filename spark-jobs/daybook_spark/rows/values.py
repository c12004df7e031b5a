"""The values of a topic's columns: those of an entry, which all its messages share, and those of each message of a batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from daybook.wire.pulsar.batches import BatchMessage
from daybook.wire.pulsar.errors import EntryError
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata
from daybook_spark.rows.messages import TIME_MS_MAX, StoredMessage

Of: TypeAlias = MessageMetadata | SingleMessageMetadata


def time_us(time_ms: int) -> int | None:
    """A time as Arrow has it; None for 0, which stands for none. Raises EntryError."""
    if time_ms > TIME_MS_MAX:
        msg = f"{time_ms} ms after 1970 is no time of an event"
        raise EntryError(msg)
    return time_ms * 1000 if time_ms else None


def signed(number: int) -> int:
    """An unsigned number of 64 bits as Java's clients show it."""
    return number - 2**64 if number >= 2**63 else number


def text(field: str | bytes, what: str) -> str:
    """A field of text, which protobuf gives as bytes where it is no UTF-8. Raises EntryError for these: no column of text has them."""
    if isinstance(field, bytes):
        msg = f"{what} is no UTF-8: {field[:60]!r}"
        raise EntryError(msg)
    return field


def key(of: Of) -> str | None:
    """The key of a message, in base64 where its producer gave bytes. Raises EntryError."""
    has_key = of.HasField("partition_key") and not of.null_partition_key
    return text(of.partition_key, "its key") if has_key else None


def ordering_key(of: Of) -> bytes | None:
    """The ordering key of a message."""
    return of.ordering_key if of.HasField("ordering_key") else None


def properties(of: Of) -> list[tuple[str, str]]:
    """The properties of a message; of two with one name the later counts. Raises EntryError."""
    if not of.properties:
        return []
    found = {
        text(each.key, "the name of a property"): text(each.value, "a property") for each in of.properties
    }
    return list(found.items())


def _chunk(stored: StoredMessage) -> dict[str, Any] | None:
    if not stored.is_chunk:
        return None
    metadata = stored.metadata
    return {
        "uuid": text(metadata.uuid, "the uuid of its chunks"),
        "id": metadata.chunk_id,
        "count": metadata.num_chunks_from_msg,
        "total_bytes": metadata.total_chunk_msg_size,
        "compression": CompressionType.Name(metadata.compression),
    }


OF_ENTRY: Final[Mapping[str, Callable[[StoredMessage], Any]]] = {
    "entry_id": lambda stored: stored.entry_id,
    "publish_time": lambda stored: stored.metadata.publish_time * 1000,
    "producer": lambda stored: text(stored.metadata.producer_name, "the name of its producer"),
    "schema_version": lambda stored: (
        stored.metadata.schema_version if stored.metadata.HasField("schema_version") else None
    ),
    "chunk": _chunk,
    "encrypted": lambda stored: stored.is_encrypted,
    "error": lambda _: None,
}
"""What all messages of an entry share."""

OF_MESSAGE: Final[Mapping[str, Callable[[StoredMessage], Any]]] = {
    "batch_index": lambda _: None,
    "event_time": lambda stored: time_us(stored.metadata.event_time),
    "sequence_id": lambda stored: signed(stored.metadata.sequence_id),
    "key": lambda stored: key(stored.metadata),
    "ordering_key": lambda stored: ordering_key(stored.metadata),
    "properties": lambda stored: properties(stored.metadata),
    "value": lambda stored: None if stored.metadata.null_value else stored.content(),
}
"""Of an entry that is one message."""

Run: TypeAlias = Sequence[BatchMessage]

OF_BATCH: Final[Mapping[str, Callable[[StoredMessage, int, Run], list[Any]]]] = {
    "batch_index": lambda _, begin, run: list(range(begin, begin + len(run))),
    "event_time": lambda _, __, run: [time_us(single.event_time) for single, _ in run],
    "sequence_id": lambda stored, begin, run: [
        signed(single.sequence_id)
        if single.HasField("sequence_id")
        else signed(stored.metadata.sequence_id) + index
        for index, (single, _) in enumerate(run, begin)
    ],
    "key": lambda _, __, run: [key(single) for single, _ in run],
    "ordering_key": lambda _, __, run: [ordering_key(single) for single, _ in run],
    "properties": lambda _, __, run: [properties(single) for single, _ in run],
    "value": lambda _, __, run: [None if single.null_value else payload for single, payload in run],
}
"""Of messages of a batch, from one index on."""
