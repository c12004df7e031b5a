"""The messages of an entry: of a batch all of them, of anything else the one that it is.

An entry is checked before anything in it is believed. A chunk is a part of a message and an encrypted entry says nothing but its
metadata, so both are one row with the bytes that are stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from daybook.core.format.entries import Entry
from daybook.wire.pulsar.batches import BatchMessage, is_batch, unpack_batch
from daybook.wire.pulsar.compression import UNCOMPRESSED_BYTES_MAX, uncompressed
from daybook.wire.pulsar.entries import check_entry, decode_metadata
from daybook.wire.pulsar.errors import EntryError
from daybook.wire.pulsar.pulsar_pb2 import MessageMetadata

TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, which Spark's own dates end at."""
MESSAGE_BYTES_MIN: Final = 6
"""What a message takes in a batch at least."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """An entry that is a message or several: its metadata was read, its payload was not."""

    entry_id: int
    metadata: MessageMetadata
    payload: memoryview

    @property
    def is_encrypted(self) -> bool:
        """Whether only its consumers can read it."""
        return bool(self.metadata.encryption_keys)

    @property
    def is_chunk(self) -> bool:
        """Whether it is a part of a message that was too large for an entry."""
        return self.metadata.num_chunks_from_msg > 1

    @property
    def is_batch(self) -> bool:
        """Whether it is unpacked into messages."""
        return is_batch(self.metadata) and not self.is_encrypted

    @property
    def count(self) -> int:
        """How many messages a batch says that it has. Raises EntryError for more than fit into it."""
        metadata = self.metadata
        size_bytes = metadata.uncompressed_size if metadata.compression else len(self.payload)
        if (
            not 0
            < metadata.num_messages_in_batch
            <= size_bytes // MESSAGE_BYTES_MIN
            <= UNCOMPRESSED_BYTES_MAX
        ):
            msg = f"a batch of {metadata.num_messages_in_batch} messages in {size_bytes} bytes"
            raise EntryError(msg)
        return metadata.num_messages_in_batch

    def content(self) -> memoryview:
        """The payload of what is no batch, decompressed where that is possible. Raises EntryError."""
        if self.is_encrypted or self.is_chunk:
            return self.payload
        return uncompressed(self.metadata, self.payload, UNCOMPRESSED_BYTES_MAX)

    def runs(self, messages_max: int) -> Iterator[list[BatchMessage]]:
        """The messages of a batch, so many at a time. Raises EntryError, perhaps after some."""
        messages = unpack_batch(
            self.metadata, uncompressed(self.metadata, self.payload, UNCOMPRESSED_BYTES_MAX)
        )
        while run := list(islice(messages, messages_max)):
            yield run


def read_entry(entry: Entry) -> StoredMessage:
    """What an entry says of itself. Raises EntryError for one that is no message, EntryChecksumError for one that was damaged."""
    parts = check_entry(entry.data)
    metadata = decode_metadata(parts)
    if metadata.publish_time > TIME_MS_MAX:
        msg = f"published at {metadata.publish_time} ms after 1970, which is no time of a producer"
        raise EntryError(msg)
    return StoredMessage(entry.entry_id, metadata, parts.payload)
