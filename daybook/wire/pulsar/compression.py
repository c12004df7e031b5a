"""Compressed payloads, undone by what the standard library has: ZLIB. The other codecs need a library of their own."""

import zlib

from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.errors import EntryError
from daybook.wire.pulsar.frames import MESSAGE_BYTES_MAX
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, MessageMetadata


def uncompressed(metadata: MessageMetadata, payload: Buffer) -> Buffer | None:
    """The payload as its producer gave it to its client; None for a codec that is not read here.

    Raises EntryError for a payload that is damaged, or larger than a message may be.
    """
    if metadata.compression == CompressionType.NONE:
        return payload
    if metadata.compression != CompressionType.ZLIB:
        return None
    size_bytes = metadata.uncompressed_size
    if not 0 < size_bytes <= MESSAGE_BYTES_MAX:
        msg = f"a payload would have {size_bytes} bytes once it is decompressed: 1 to {MESSAGE_BYTES_MAX} are allowed"
        raise EntryError(msg)
    try:
        found = zlib.decompressobj().decompress(payload, size_bytes)
    except zlib.error as error:
        msg = f"a payload of {len(payload)} bytes is not what ZLIB makes ({error})"
        raise EntryError(msg) from error
    if len(found) != size_bytes:
        msg = f"a payload has {len(found)} bytes once it is decompressed, and its metadata says {size_bytes}"
        raise EntryError(msg)
    return found
