"""An entry as a compaction knows it: the keys of its messages, and the entry without those that do not stay.

A batch keeps its size, so that the messages that stay keep their indexes. One that does not stay has no payload any more, and its
metadata says `compacted_out`. Not every client reads that: the broker also clears its bit in `ack_set` of MESSAGE.

Nobody can look into an encrypted batch, nor into one whose bytes are not what its metadata or its checksum says: it stays whole, and its keys
count nowhere. So what a producer damaged keeps its wrong checksum: with a new one, clients would take the damage for a message. A batch with a
compression that this process cannot undo is an error instead, because another one could. What an earlier compaction removed from a batch
that this one cannot look into stays removed: a job on Spark opens larger ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from daybook.core.format.frame import Buffer
from daybook.core.topics.acks import bits_of
from daybook.core.topics.compaction.keys import KeyedEntry, KeyedMessage
from daybook.core.topics.compaction.record import encode_compacted, encode_left
from daybook.core.topics.ledger_list import Position
from daybook.wire.pulsar.batches import BatchMessage, batch_of, encode_message, is_batch, unpack_batch
from daybook.wire.pulsar.chunks import chunk_of
from daybook.wire.pulsar.entries import Entry, check_entry, decode_metadata, without_broker_metadata
from daybook.wire.pulsar.errors import BatchError, EntryError
from daybook.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

Uncompress: TypeAlias = Callable[[MessageMetadata, Buffer], Buffer]
"""The payload of an entry as its producer gave it to its client. Raises EntryError for one that is damaged; another
error for one that this process cannot read."""

_REMOVED = BatchMessage(SingleMessageMetadata(payload_size=0, compacted_out=True), b"")
REMOVED: Final = encode_message(_REMOVED)
"""What is left in a batch of a message that does not stay."""


@dataclass(frozen=True, slots=True)
class OpenedEntry:
    """An entry that a compaction has opened."""

    keyed: KeyedEntry
    data: Buffer
    batch: tuple[MessageMetadata, tuple[BatchMessage, ...]] | None = None
    """Its messages, if it is a batch that can be read."""
    left: Sequence[int] = ()
    """The words of what an earlier compaction left of it, if nobody can judge it now; its messages say so otherwise."""

    def without(self, kept: Sequence[bool]) -> Buffer:
        """The entry with those messages of its batch that are `kept`, at least one; the others are there without payload.

        It is returned as it is where nothing goes, and where the messages that stay would not fit into an entry without compression.
        """
        if self.batch is None or all(kept):
            return self.data
        metadata, messages = self.batch
        left = [
            encode_message(message) if stays else REMOVED
            for message, stays in zip(messages, kept, strict=True)  # indexes are part of messages' ids
        ]
        return with_messages(self.data, metadata, left)


def with_messages(data: Buffer, metadata: MessageMetadata, messages: Sequence[Buffer]) -> Buffer:
    """A batch with other messages, each as `encode_message` makes it; as it is where they would not fit without compression."""
    try:
        made = batch_of(metadata, messages)
    except BatchError:
        return data
    return b"".join((_broker_metadata(data), made))


def compacted_entry(entry: OpenedEntry, kept: Sequence[bool]) -> bytes | None:
    """What a compacted ledger has of an entry of which `kept` stays, () for one that nobody can judge; None if nothing stays."""
    if kept and not any(kept):
        return None
    position = entry.keyed.position
    if not kept:
        return encode_left(position, entry.data, entry.left)
    return encode_compacted(position, entry.without(kept), kept)


def open_entry(
    position: Position, data: Buffer, uncompress: Uncompress, *, left: Sequence[int] = ()
) -> OpenedEntry:
    """Read an entry. `left`: the words of what an earlier compaction left of it. Raises CompactionError."""
    try:
        entry = check_entry(data)
        metadata = decode_metadata(entry)
        if not is_batch(metadata):
            return OpenedEntry(_single(position, data, metadata, entry), data)
        if metadata.encryption_keys:
            return OpenedEntry(KeyedEntry(position, ()), data)
        messages = tuple(unpack_batch(metadata, uncompress(metadata, entry.payload)))
    except EntryError:
        return OpenedEntry(KeyedEntry(position, ()), data, left=left)
    bits = bits_of(left) if left else -1
    keyed = KeyedEntry(
        position,
        tuple(
            _message(single) if bits >> index & 1 and not single.compacted_out else None
            for index, (single, _) in enumerate(messages)
        ),
    )
    return OpenedEntry(keyed, data, (metadata, messages))


def _broker_metadata(data: Buffer) -> memoryview:
    return memoryview(data)[: len(data) - len(without_broker_metadata(data))]


def _single(position: Position, data: Buffer, metadata: MessageMetadata, entry: Entry) -> KeyedEntry:
    is_encrypted = bool(metadata.encryption_keys)
    size_bytes = metadata.uncompressed_size if metadata.compression else len(entry.payload)
    chunk = chunk_of(data)
    is_empty = metadata.null_value or (not size_bytes and not is_encrypted and chunk is None)
    return KeyedEntry(position, (KeyedMessage(_key(metadata), is_empty),), chunk)


def _message(single: SingleMessageMetadata) -> KeyedMessage:
    return KeyedMessage(_key(single), single.null_value or not single.payload_size)


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> str | bytes | None:
    """The key; protobuf gives bytes where it is no UTF-8."""
    return metadata.partition_key if metadata.HasField("partition_key") else None
