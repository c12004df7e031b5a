"""The entries of a part in a task, which are opened by what the broker's own compaction opens them with.

A batch that is compressed is decompressed as a broker does it, but may be larger.
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from daybook.core.format.frame import Buffer
from daybook.core.topics.compaction.record import decode_compacted
from daybook.core.topics.ledger_list import Position
from daybook.wire.pulsar.compacting import OpenedEntry, open_entry
from daybook.wire.pulsar.compression import UNCOMPRESSED_BYTES_MAX, uncompressed
from daybook.wire.pulsar.pulsar_pb2 import MessageMetadata
from daybook_spark.compact.plan import Part
from daybook_spark.options import Where
from daybook_spark.read.entries import read_range


class StoredEntry(NamedTuple):
    """An entry of the topic."""

    position: Position
    number: int
    """Which entry of its part it is, counted from 1."""
    data: Buffer
    left: tuple[int, ...] = ()
    """What a former compaction left of its batch, in words; nothing where it removed nothing."""

    def opened(self) -> OpenedEntry:
        """Its messages. Raises CompactionError."""
        return open_entry(self.position, self.data, _uncompress, left=self.left)


def stored_entries(where: Where, part: Part) -> Iterator[StoredEntry]:
    """Each entry once, in the topic's order. Raises CompactionError, and as `read_range`."""
    numbers = count(1)
    for entries, is_compacted in part.runs:
        for run in read_range(where, entries):
            for entry, number in zip(run, numbers, strict=False):  # the run is first: its end takes no number
                if is_compacted:
                    stored = decode_compacted(entry.data)
                    yield StoredEntry(stored.position, number, stored.data, stored.left)
                else:
                    yield StoredEntry(Position(entries.ledger_id, entry.entry_id), number, entry.data)


def _uncompress(metadata: MessageMetadata, payload: Buffer) -> Buffer:
    return uncompressed(metadata, payload, UNCOMPRESSED_BYTES_MAX)
