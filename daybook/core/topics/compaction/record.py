"""An entry of a compacted ledger: the entry of the topic, and behind it where that is and what is left of it. Numbers are big-endian.

    the entry, as a ledger of the topic has it
    words i64 each            of a batch: a set bit is a message that is left; none while nothing was removed
    ledger u64, entry u64     the position in the topic, which consumers receive as the message's id
    number of words u16, version u8

What belongs to the compaction stands at the end, so that whatever reads the head of an entry reads that of a compacted one, too.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from daybook.core.errors import CompactionError
from daybook.core.format.frame import Buffer
from daybook.core.topics.acks import words_of
from daybook.core.topics.ledger_list import Position

VERSION: Final = 1
_TAIL: Final = struct.Struct(">QQHB")


class CompactedEntry(NamedTuple):
    """What a compacted ledger has of an entry."""

    position: Position
    left: tuple[int, ...]
    """Words of 64 bits, signed as they travel: a set bit is a message that is left. Empty: all of them."""
    data: memoryview


def encode_compacted(position: Position, data: Buffer, kept: Sequence[bool] = ()) -> bytes:
    """The entry of a compacted ledger. `kept` says which messages of a batch are left, where some are not."""
    words = () if all(kept) else words_of(sum(1 << index for index, is_kept in enumerate(kept) if is_kept))
    return encode_left(position, data, words)


def encode_left(position: Position, data: Buffer, words: Sequence[int]) -> bytes:
    """The same, with the words of what an earlier compaction left."""
    tail = struct.pack(f">{len(words)}q", *words) + _TAIL.pack(*position, len(words), VERSION)
    return b"".join((data, tail))


def decode_compacted(payload: Buffer) -> CompactedEntry:
    """The inverse of `encode_compacted`; the data is a view. Raises CompactionError."""
    view = memoryview(payload)
    if len(view) < _TAIL.size:
        msg = f"an entry of a compacted ledger has {len(view)} bytes, fewer than every one has"
        raise CompactionError(msg)
    ledger_id, entry_id, count, version = _TAIL.unpack_from(view, len(view) - _TAIL.size)
    if version != VERSION:
        msg = f"an entry of a compacted ledger has version {version}, and this release reads {VERSION}: use a later one"
        raise CompactionError(msg)
    end = len(view) - _TAIL.size - 8 * count
    if end < 0:
        msg = f"an entry of a compacted ledger of {len(view)} bytes cannot have {count} words"
        raise CompactionError(msg)
    return CompactedEntry(
        Position(ledger_id, entry_id), struct.unpack_from(f">{count}q", view, end), view[:end]
    )
