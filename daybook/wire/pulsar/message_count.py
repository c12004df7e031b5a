"""How many messages an entry has, without protobuf: a broker asks it of every entry that it reads back for consumers.

Consumers grant permits in messages, and what a broker reads from a ledger has only the metadata of its producer to say how many there
are. Protobuf takes more than a microsecond for that, most of it for fields that nobody asks about. Clients write the fields in
the order of their numbers; whatever does not look so is left to protobuf.
"""

import re
import struct
from typing import Final

from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.entries import decode_metadata, split_entry
from daybook.wire.pulsar.errors import EntryError

_CHECKSUM: Final = 0x0E01
_HEAD: Final = struct.Struct(">HIIBB")
"""The magic number of a checksum, the checksum, the size of the metadata; then the tag and the size of the producer's name."""
_NAME_TAG: Final = 0x0A

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_number_fields: Final = re.compile(
    rb"\x10"
    + _VARINT  # sequence_id
    + rb"\x18"
    + _VARINT  # publish_time
    + rb"(?:\x40[\x00-\x7f])?(?:\x48"  # compression
    + _VARINT  # uncompressed_size
    + rb")?(?:\x58([\x80-\xff]{0,4}[\x00-\x7f]))?",  # num_messages_in_batch
).match


def count_messages(entry: Buffer) -> int:
    """The messages of an entry: those of its batch, else 1, also for bytes that no producer should have sent."""
    if len(entry) > _HEAD.size:
        magic, _, metadata_bytes, tag, name_bytes = _HEAD.unpack_from(entry)
        if magic == _CHECKSUM and tag == _NAME_TAG and name_bytes < 0x80:
            end = _HEAD.size - 2 + metadata_bytes
            found = _number_fields(entry, _HEAD.size + name_bytes, end)
            if found is not None:
                count = found[1]
                if count is not None:
                    return _number(count)
                if found.end() == end:
                    return 1
    return _by_protobuf(entry)


def _number(varint: bytes) -> int:
    number = 0
    for byte in reversed(varint):
        number = number << 7 | byte & 0x7F
    return max(1, number)


def _by_protobuf(entry: Buffer) -> int:
    try:
        return max(1, decode_metadata(split_entry(entry)).num_messages_in_batch)
    except EntryError:
        return 1
