"""Which message an entry is a chunk of. Most entries are none, and that costs a search in their metadata, without protobuf."""

import struct
from hashlib import blake2b
from typing import Final

from daybook.core.format.frame import Buffer
from daybook.core.topics.dispatch.chunks import Chunk
from daybook.wire.pulsar.entries import decode_metadata, split_entry
from daybook.wire.pulsar.errors import EntryError

_HEAD: Final = struct.Struct(">HII")
"""The magic number of a checksum, the checksum, the size of the metadata: how nearly every entry begins."""
_CHECKSUM: Final = 0x0E01
_CHUNK_ID: Final = b"\xe8\x01"
"""The tag of `chunk_id`; other fields may have these bytes, too."""


def chunk_of(entry: Buffer) -> Chunk | None:
    """The message, by its producer and its id, and whether this is its last chunk; None for any other entry."""
    if len(entry) > _HEAD.size:
        magic, _, metadata_bytes = _HEAD.unpack_from(entry)
        if magic == _CHECKSUM and _CHUNK_ID not in bytes(entry[_HEAD.size : _HEAD.size + metadata_bytes]):
            return None
    try:
        metadata = decode_metadata(split_entry(entry))
    except EntryError:
        return None
    if not metadata.HasField("chunk_id") or metadata.num_chunks_from_msg < 2:
        return None
    name = f"{metadata.producer_name}\0{metadata.uuid}".encode()
    message = blake2b(name, digest_size=16).digest()  # a name of any length costs no more memory
    return Chunk(message, metadata.chunk_id >= metadata.num_chunks_from_msg - 1)
