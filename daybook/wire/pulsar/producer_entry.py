"""Whether a broker may store what a producer sent, which it asks for each entry: compiled in the images, unlike the rest of entries.py."""

import struct
from typing import Final

from crc32c import crc32c

from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.entries import MAGIC_CHECKSUM, check_entry
from daybook.wire.pulsar.errors import EntryError

_BEGIN: Final = struct.Struct(">HII")
"""A magic number, a checksum and the size of the metadata: how nearly every entry begins."""
_CHECKED_FROM: Final = 6
"""Where what the checksum covers begins: behind the magic number and the checksum."""


def check_producer_entry(entry: Buffer) -> None:
    """Raise EntryError, EntryChecksumError unless a broker may store what a producer sent; fast where it may."""
    size_bytes = len(entry)
    if size_bytes >= _BEGIN.size:
        magic, checksum, metadata_bytes = _BEGIN.unpack_from(entry)
        if magic == MAGIC_CHECKSUM and metadata_bytes <= size_bytes - _BEGIN.size:
            checked = entry[_CHECKED_FROM:]
            if crc32c(checked) == checksum:
                return
    if check_entry(entry).broker_metadata:
        msg = "an entry begins with the metadata of a broker, which a producer has to leave out"
        raise EntryError(msg)
