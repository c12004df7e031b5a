"""The entry: what a producer sends, a ledger stores and a consumer receives, byte for byte. Every number is big-endian.

    0x0e02, size u32, BrokerEntryMetadata       only if a broker put it there
    0x0e01, CRC32C u32                          of all that follows; absent from the entries of very old clients
    size u32, MessageMetadata
    payload                                     one message, a chunk or a batch, perhaps compressed, perhaps encrypted

No metadata is as large as a size that begins with one of the two magic numbers, so what begins an entry is never in doubt.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.errors import EntryChecksumError, EntryError
from daybook.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, MessageMetadata

MAGIC_CHECKSUM: Final = 0x0E01
_MAGIC_BROKER: Final = 0x0E02
_MAGIC: Final = struct.Struct(">H")
_TAGGED: Final = struct.Struct(">HI")
"""A magic number with its checksum or size."""
_SIZE: Final = struct.Struct(">I")


class Entry(NamedTuple):
    """The parts of an entry, each a view of its bytes. `checksum` is None where the entry has none."""

    broker_metadata: memoryview
    checksum: int | None
    checked: memoryview
    """What the checksum covers: the size of the metadata, the metadata and the payload."""
    metadata: memoryview
    payload: memoryview


def split_entry(entry: Buffer) -> Entry:
    """The parts of an entry, without a look at the checksum. Raises EntryError."""
    view = memoryview(entry)
    broker_metadata = view[:0]
    if _begins_with(view, _MAGIC_BROKER):
        broker_metadata, view = _sized(view[_MAGIC.size :], "broker metadata")
    checksum = None
    if _begins_with(view, MAGIC_CHECKSUM):
        if len(view) < _TAGGED.size:
            msg = f"an entry of {len(entry)} bytes ends within its checksum"
            raise EntryError(msg)
        checksum = _TAGGED.unpack_from(view)[1]
        view = view[_TAGGED.size :]
    metadata, payload = _sized(view, "metadata")
    return Entry(broker_metadata, checksum, view, metadata, payload)


def check_entry(entry: Buffer) -> Entry:
    """The parts of an entry whose checksum, if it has one, is that of its bytes. Raises EntryError, EntryChecksumError."""
    parts = split_entry(entry)
    if parts.checksum is not None and (found := crc32c(parts.checked)) != parts.checksum:
        msg = f"an entry of {len(entry)} bytes has the CRC32C {found:08x}, and its header says {parts.checksum:08x}: send it again"
        raise EntryChecksumError(msg)
    return parts


def decode_metadata(entry: Entry) -> MessageMetadata:
    """The metadata of an entry. Raises EntryError."""
    try:
        metadata = MessageMetadata.FromString(bytes(entry.metadata))
    except DecodeError as error:
        msg = f"metadata of {len(entry.metadata)} bytes cannot be read ({error})"
        raise EntryError(msg) from error
    if not metadata.IsInitialized():
        msg = "metadata lacks its producer's name, its sequence id or its publish time"
        raise EntryError(msg)
    return metadata


def publish_time_ms(entry: Buffer) -> int | None:
    """When an entry was published, by its producer's clock; None where nobody can read it.

    A broker stores what has the right checksum, so entries with such metadata exist, and must not end a search by time.
    """
    try:
        return decode_metadata(split_entry(entry)).publish_time
    except EntryError:
        return None


def decode_broker_metadata(entry: Entry) -> BrokerEntryMetadata:
    """What a broker put before an entry; no field is set where it put nothing. Raises EntryError."""
    try:
        return BrokerEntryMetadata.FromString(bytes(entry.broker_metadata))
    except DecodeError as error:
        msg = f"broker metadata of {len(entry.broker_metadata)} bytes cannot be read ({error})"
        raise EntryError(msg) from error


def encode_entry(metadata: MessageMetadata, payload: Buffer) -> bytes:
    """An entry with its checksum. Raises EncodeError for metadata without a required field, which is a mistake of the caller."""
    record = metadata.SerializeToString()
    size = _SIZE.pack(len(record))
    checksum = crc32c(payload, crc32c(record, crc32c(size)))
    return b"".join((_TAGGED.pack(MAGIC_CHECKSUM, checksum), size, record, payload))


def encode_broker_metadata(metadata: BrokerEntryMetadata) -> bytes:
    """What a broker puts before an entry that has no such metadata yet."""
    record = metadata.SerializeToString()
    return _TAGGED.pack(_MAGIC_BROKER, len(record)) + record


def without_broker_metadata(entry: Buffer) -> memoryview:
    """The entry for a client that did not ask for broker metadata. Raises EntryError."""
    view = memoryview(entry)
    return _sized(view[_MAGIC.size :], "broker metadata")[1] if _begins_with(view, _MAGIC_BROKER) else view


def _begins_with(view: memoryview, magic: int) -> bool:
    return len(view) >= _MAGIC.size and _MAGIC.unpack_from(view)[0] == magic


def _sized(view: memoryview, what: str) -> tuple[memoryview, memoryview]:
    """What stands behind its size, and the rest."""
    if len(view) < _SIZE.size:
        msg = f"an entry ends {len(view)} bytes into the size of its {what}"
        raise EntryError(msg)
    end = _SIZE.size + _SIZE.unpack_from(view)[0]
    if end > len(view):
        msg = f"{end - _SIZE.size} bytes of {what}, and {len(view) - _SIZE.size} are left in the entry"
        raise EntryError(msg)
    return view[_SIZE.size : end], view[end:]
