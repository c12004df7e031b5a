"""Compressed payloads of producers, undone by the codecs that pyarrow brings; ZLIB's format is the standard library's.

A producer names the size of what it has compressed. It is checked before memory is taken for it, and again afterwards, because both
come from somebody else.
"""

import zlib
from typing import Final

import pyarrow as pa

from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.errors import EntryError
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, MessageMetadata

UNCOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of one entry. A message has 5 MiB unless brokers allow more, and a batch has been in its producer's memory as a whole."""

_ARROW: Final = {
    CompressionType.LZ4: "lz4_raw",
    CompressionType.ZSTD: "zstd",
    CompressionType.SNAPPY: "snappy",
}


def uncompressed(metadata: MessageMetadata, payload: Buffer) -> memoryview:
    """The payload as its producer gave it to its client. Raises EntryError."""
    if metadata.compression == CompressionType.NONE:
        return memoryview(payload)
    name, size_bytes = CompressionType.Name(metadata.compression), metadata.uncompressed_size
    if size_bytes > UNCOMPRESSED_BYTES_MAX:
        msg = f"{size_bytes} bytes of payload, compressed with {name}: at most {UNCOMPRESSED_BYTES_MAX} are read"
        raise EntryError(msg)
    try:
        if metadata.compression == CompressionType.ZLIB:
            found = memoryview(zlib.decompressobj().decompress(payload, size_bytes + 1))
        else:
            found = _by_arrow(_ARROW[metadata.compression], payload, size_bytes)
    except (zlib.error, pa.ArrowException, OSError) as error:
        msg = f"payload of {len(payload)} bytes is not what {name} makes ({error})"
        raise EntryError(msg) from error
    if len(found) != size_bytes:
        msg = f"payload does not have the {size_bytes} bytes that its producer wrote, once {name} is undone"
        raise EntryError(msg)
    return found


def _by_arrow(codec_name: str, payload: Buffer, size_bytes: int) -> memoryview:
    """The payload decompressed, empty if it has fewer bytes than `size_bytes`.

    Arrow returns a buffer of the size that it is asked for, and where there is less, the rest is whatever was in memory. A buffer of
    one byte less must therefore be too small.
    """
    codec = pa.Codec(codec_name)
    if not size_bytes:
        return memoryview(b"")
    found = memoryview(codec.decompress(payload, decompressed_size=size_bytes))
    try:
        codec.decompress(payload, decompressed_size=size_bytes - 1)
    except (pa.ArrowException, OSError):
        return found
    return memoryview(b"")
