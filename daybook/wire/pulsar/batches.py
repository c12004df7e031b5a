"""Batches: several messages that a producer sends, a ledger stores and a broker delivers as one entry.

A broker passes batches on as they came. Who needs the single messages (a command that shows them, a job that drops some of them)
unpacks a batch and makes another. The payload of a batch is, for each message:

    size u32, big-endian, SingleMessageMetadata, payload

Compression covers the whole payload. It is left to the caller, who has the codec's library: `MessageMetadata.compression` names
the codec, and a batch that is made here has none.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.errors import BatchError
from daybook.wire.pulsar.frames import MESSAGE_BYTES_MAX
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

_SIZE: Final = struct.Struct(">I")
_SINGLE_BYTES_MIN: Final = _SIZE.size + 2
"""What the smallest message of a batch takes: its metadata has at least the size of its payload."""


class BatchMessage(NamedTuple):
    """A message of a batch."""

    metadata: SingleMessageMetadata
    payload: Buffer


def is_batch(metadata: MessageMetadata) -> bool:
    """Whether the entry is a batch, which one of a single message is, too."""
    return metadata.HasField("num_messages_in_batch")


def unpack_batch(metadata: MessageMetadata, payload: Buffer) -> Iterator[BatchMessage]:
    """The messages of a batch whose payload is neither compressed nor encrypted any more; their payloads are views.

    They come one by one, because the smallest take many times as much memory as bytes of the batch. Raises BatchError, perhaps
    after some messages, for a payload that is not exactly so many messages.
    """
    view = memoryview(payload)
    count = metadata.num_messages_in_batch
    if not 0 < count <= len(view) // _SINGLE_BYTES_MIN:
        msg = f"a batch of {count} messages in {len(view)} bytes: decompress the payload, and decrypt it, before it is unpacked"
        raise BatchError(msg)
    at = 0
    for index in range(count):
        single, at = _single_at(view, at, index)
        end = at + single.payload_size
        if not at <= end <= len(view):
            msg = f"message {index} of a batch has {single.payload_size} bytes, and {len(view) - at} are left"
            raise BatchError(msg)
        yield BatchMessage(single, view[at:end])
        at = end
    if at != len(view):
        msg = f"{len(view) - at} bytes are left after the {count} messages of a batch"
        raise BatchError(msg)


def _single_at(view: memoryview, at: int, index: int) -> tuple[SingleMessageMetadata, int]:
    """The metadata of a message, and where its payload begins."""
    start = at + _SIZE.size
    end = start + (_SIZE.unpack_from(view, at)[0] if start <= len(view) else 0)
    if start > len(view) or end > len(view):
        msg = f"a batch ends within the metadata of message {index}"
        raise BatchError(msg)
    try:
        single = SingleMessageMetadata.FromString(bytes(view[start:end]))
    except DecodeError as error:
        msg = f"the metadata of message {index} of a batch cannot be read ({error})"
        raise BatchError(msg) from error
    if not single.IsInitialized():
        msg = f"message {index} of a batch does not say how many bytes it has"
        raise BatchError(msg)
    return single, end


def encode_batch(metadata: MessageMetadata, messages: Iterable[BatchMessage]) -> bytes:
    """An entry with these messages, at least one, not compressed; the rest of `metadata` is kept, and nothing is changed.

    Raises BatchError for no messages, and for more bytes than a message may have.
    """
    return batch_of(metadata, map(encode_message, messages))


def encode_message(message: BatchMessage) -> bytes:
    """A message as a batch has it."""
    record = SingleMessageMetadata()
    record.CopyFrom(message.metadata)
    record.payload_size = len(message.payload)
    encoded = record.SerializeToString()
    return b"".join((_SIZE.pack(len(encoded)), encoded, message.payload))


def batch_of(metadata: MessageMetadata, messages: Iterable[Buffer]) -> bytes:
    """As `encode_batch`, of messages that are encoded."""
    parts: list[Buffer] = []
    count = size_bytes = 0
    for part in messages:
        parts.append(part)
        size_bytes += len(part)
        count += 1
        if size_bytes > MESSAGE_BYTES_MAX:
            msg = f"the first {count} messages of a batch have {size_bytes} bytes: at most {MESSAGE_BYTES_MAX} are allowed; split it"
            raise BatchError(msg)
    if not count:
        msg = "a batch without messages: leave the entry out instead"
        raise BatchError(msg)
    made = MessageMetadata()
    made.CopyFrom(metadata)
    made.num_messages_in_batch = count
    made.compression = CompressionType.NONE
    made.uncompressed_size = size_bytes
    return encode_entry(made, b"".join(parts))
