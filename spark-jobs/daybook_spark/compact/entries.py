"""The entries of a part in a task, opened by what the broker's own compaction opens them with.

A batch that is compressed is decompressed by the codecs that pyarrow brings, so a job compacts topics that a broker does not.
"""

from collections.abc import Iterator

from daybook.core.topics.compaction.record import decode_compacted
from daybook.core.topics.ledger_list import Position
from daybook.wire.pulsar.compacting import OpenedEntry, open_entry
from daybook_spark.compact.plan import Part
from daybook_spark.options import Where
from daybook_spark.read.entries import read_range
from daybook_spark.rows.compression import uncompressed


def opened_entries(where: Where, part: Part) -> Iterator[OpenedEntry]:
    """Each entry once, in the topic's order. Raises CompactionError, and as `read_range`."""
    for entries, is_compacted in part.runs:
        for run in read_range(where, entries):
            for entry in run:
                if is_compacted:
                    stored = decode_compacted(entry.data)
                    yield open_entry(stored.position, stored.data, uncompressed, left=stored.left)
                else:
                    yield open_entry(Position(entries.ledger_id, entry.entry_id), entry.data, uncompressed)
