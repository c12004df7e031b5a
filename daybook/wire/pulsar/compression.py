"""Compressed payloads of producers, undone: ZLIB by the standard library, LZ4, ZSTD and SNAPPY by the codecs that PyArrow brings.

PyArrow is the extra `offload`, which not every process has, and takes a while to import: it is imported for the first payload that
needs it, or by `load_codecs` where nobody may wait. A producer names the size of what it has compressed. That is checked before memory
is taken for it, and again afterwards, because both come from somebody else.
"""

import sys
import zlib
from collections.abc import Mapping
from typing import Final

from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.errors import CodecMissingError, EntryError
from daybook.wire.pulsar.frames import MESSAGE_BYTES_MAX
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, MessageMetadata

UNCOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of one entry, for jobs. A message has 5 MiB unless brokers allow more, and a batch has been in its producer's memory as a whole."""

_ARROW: Final[Mapping[int, str]] = {
    CompressionType.LZ4: "lz4_raw",
    CompressionType.ZSTD: "zstd",
    CompressionType.SNAPPY: "snappy",
}


def uncompressed(
    metadata: MessageMetadata, payload: Buffer, bytes_max: int = MESSAGE_BYTES_MAX
) -> memoryview:
    """The payload as its producer gave it to its client.

    Raises EntryError for one that is damaged, or larger than `bytes_max`; CodecMissingError.
    """
    if metadata.compression == CompressionType.NONE:
        return memoryview(payload)
    name, size_bytes = CompressionType.Name(metadata.compression), metadata.uncompressed_size
    if size_bytes > bytes_max:
        msg = (
            f"a payload would have {size_bytes} bytes once {name} is undone: at most {bytes_max} are allowed"
        )
        raise EntryError(msg)
    if metadata.compression == CompressionType.ZLIB:
        found = _by_zlib(payload, size_bytes)
    else:
        found = _by_arrow(name, _ARROW[metadata.compression], payload, size_bytes)
    if len(found) != size_bytes:
        msg = f"a payload does not have the {size_bytes} bytes that its metadata says, once {name} is undone"
        raise EntryError(msg)
    return found


def needs_loading(metadata: MessageMetadata) -> bool:
    """Whether `uncompressed` would import PyArrow first."""
    return metadata.compression in _ARROW and "pyarrow" not in sys.modules


def load_codecs() -> None:
    """Import PyArrow. Raises CodecMissingError."""
    try:
        import pyarrow as pa  # noqa: F401 - it is only loaded
    except ImportError as error:
        raise CodecMissingError from error


def _by_zlib(payload: Buffer, size_bytes: int) -> memoryview:
    """The payload decompressed, up to a byte more than `size_bytes`."""
    try:
        return memoryview(zlib.decompressobj().decompress(payload, size_bytes + 1))
    except zlib.error as error:
        raise _damaged("ZLIB", payload, error) from error


def _by_arrow(name: str, codec_name: str, payload: Buffer, size_bytes: int) -> memoryview:
    """The payload decompressed, empty if it has fewer bytes than `size_bytes`.

    Arrow returns a buffer of the size that it is asked for, and where there is less, the rest is whatever was in memory. A buffer of
    one byte less must therefore be too small.
    """
    load_codecs()
    import pyarrow as pa

    codec = pa.Codec(codec_name)
    if not size_bytes:
        return memoryview(b"")
    try:
        found = memoryview(codec.decompress(payload, decompressed_size=size_bytes))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(name, payload, error) from error
    try:
        codec.decompress(payload, decompressed_size=size_bytes - 1)
    except (pa.ArrowException, OSError):
        return found
    return memoryview(b"")


def _damaged(name: str, payload: Buffer, error: Exception) -> EntryError:
    return EntryError(f"a payload of {len(payload)} bytes is not what {name} makes ({error})")
