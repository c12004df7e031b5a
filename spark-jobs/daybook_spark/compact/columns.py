"""Batches in a compaction, as columns: without an object for any of their messages, where producers wrote them as they do.

The first pass gives Spark of each key the last message of a window, which is a part's next messages up to a bound. So Spark sorts and stores
few rows where keys are few, and no task holds more than a window. The second pass copies the bytes of the messages that stay. Any other entry
is opened message by message, which gives the same result.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from daybook.core.format.frame import Buffer
from daybook.core.topics.compaction.record import encode_compacted
from daybook.wire.pulsar.batches import is_batch
from daybook.wire.pulsar.compacting import REMOVED, with_messages
from daybook.wire.pulsar.entries import check_entry, decode_metadata
from daybook.wire.pulsar.errors import EntryError
from daybook_spark.compact.entries import StoredEntry
from daybook_spark.compact.places import ARROW, ROWS_MAX, Row, keyless_row, place_of, row_batch, rows_of
from daybook_spark.rows.batch_columns import BatchColumns, Chain, chain_of
from daybook_spark.rows.messages import StoredMessage
from daybook_spark.rows.spans import UnusualError

WINDOW_ROWS: Final = 256 * 1024
WINDOW_BYTES: Final = 32 * 1024 * 1024
"""Of the keys and places of a window; a window is over once it has so many rows or bytes."""
CHAIN_BYTES_MAX: Final = 4 * 1024 * 1024
CHAIN_MESSAGES_MIN: Final = 32
"""Of a batch behind single rows that is worth columns of its own."""
_SIZE_BYTES: Final = 4
"""Before the metadata of a message of a batch."""


def key_batches(part: int, entries: Iterable[StoredEntry]) -> Iterator[pa.RecordBatch]:
    """The rows of a part; at the end one that says so if not every message has a key. Raises CompactionError."""
    window = _Window(part)
    for entry in entries:
        window.add(entry)
        if window.is_full:
            yield from window.take()
    yield from window.take()
    if window.has_keyless:
        yield row_batch([keyless_row(part)])


def batch_left(entry: StoredEntry, indexes: set[int]) -> bytes | None:
    """What a compacted ledger has of a batch of which the messages at `indexes` stay, at least one; None for what has to be opened."""
    chain = _chain_of(entry)
    if chain is None or max(indexes) >= len(chain.ends):
        return None
    kept = [index in indexes for index in range(len(chain.ends))]
    data: Buffer = entry.data
    if not all(kept):
        pieces = [
            chain.data[begin - _SIZE_BYTES : end] if stays else REMOVED
            for begin, end, stays in zip(chain.metadata, chain.ends, kept, strict=True)
        ]
        data = with_messages(entry.data, chain.stored.metadata, pieces)
    return encode_compacted(entry.position, data, kept)


def _chain_of(entry: StoredEntry) -> Chain | None:
    """Where the messages of a batch are; None for what is none, is not as producers write it, or has a wrong checksum."""
    if entry.left:
        return None
    try:
        parts = check_entry(entry.data)
        metadata = decode_metadata(parts)
        if not is_batch(metadata) or metadata.encryption_keys:
            return None
        return chain_of(StoredMessage(entry.position.entry_id, metadata, parts.payload))
    except (EntryError, UnusualError):
        return None


class _Window:
    """Messages of a part that were not given to Spark yet."""

    def __init__(self, part: int) -> None:
        self._part = part
        self._chains: list[tuple[StoredEntry, Chain]] = []
        self._chain_bytes = self._chain_messages = 0
        self._rows: list[Row] = []
        """None while there are chains."""
        self._chunks: list[Row] = []
        self._batches: list[pa.RecordBatch] = []
        self._count = self._size_bytes = 0
        self.has_keyless = False
        """Whether the part has messages without a key, or an entry that cannot be judged."""

    @property
    def is_full(self) -> bool:
        return self._count >= WINDOW_ROWS or self._size_bytes >= WINDOW_BYTES or len(self._chunks) >= ROWS_MAX

    def add(self, entry: StoredEntry) -> None:
        chain = _chain_of(entry)
        if chain is None or (self._rows and len(chain.ends) < CHAIN_MESSAGES_MIN):
            self._end_chains()
            self._open(entry)
            return
        self._end_rows()
        self._chains.append((entry, chain))
        self._chain_bytes += len(chain.data)
        self._chain_messages += len(chain.ends)
        if self._chain_messages >= ROWS_MAX or self._chain_bytes >= CHAIN_BYTES_MAX:
            self._end_chains()

    def take(self) -> Iterator[pa.RecordBatch]:
        """Of each key the last message, and all chunks; the window is empty then."""
        self._end_chains()
        self._end_rows()
        if self._batches:
            yield from _last_of_keys(pa.Table.from_batches(self._batches))
        if self._chunks:
            yield row_batch(self._chunks)
        self._batches, self._chunks = [], []
        self._count = self._size_bytes = 0

    def _open(self, entry: StoredEntry) -> None:
        keyed = entry.opened().keyed
        rows = rows_of(self._part, entry.number, keyed)
        if keyed.chunk is not None:
            self._chunks += rows
            return
        self._rows += rows
        self.has_keyless |= not keyed.messages or any(
            each is not None and each.key is None for each in keyed.messages
        )
        if len(self._rows) >= ROWS_MAX:
            self._end_rows()

    def _end_rows(self) -> None:
        if self._rows:
            self._append(row_batch(self._rows))
            self._rows = []

    def _end_chains(self) -> None:
        chains, self._chains = self._chains, []
        self._chain_bytes = self._chain_messages = 0
        if not chains:
            return
        try:
            batch = self._of_chains(chains)
        except UnusualError:
            for entry, _ in chains:
                self._open(entry)
            self._end_rows()
        else:
            self._append(batch)

    def _append(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._count += batch.num_rows
        self._size_bytes += batch.nbytes

    def _of_chains(self, chains: list[tuple[StoredEntry, Chain]]) -> pa.RecordBatch:
        columns = BatchColumns([chain for _, chain in chains])
        if columns.is_compacted_out.any():
            raise UnusualError
        key = columns.column("key_as_it_is", pa.binary())
        of_batches = np.array([place_of(self._part, entry.number, 0) for entry, _ in chains], np.int64)
        places = columns.repeated(of_batches) + (columns.batch_index << 1) + columns.is_empty
        arrays = [
            key,
            pa.array(places),
            pa.array(np.ones(columns.count, np.int64)),
            pa.nulls(columns.count, pa.binary()),
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=ARROW)
        if key.null_count:
            self.has_keyless = True
            batch = batch.filter(key.is_valid())
        return batch


def _last_of_keys(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Of rows in the topic's order, all with a key, the last one of each key, and for how many messages it stands."""
    encoded = table["key"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    last = np.zeros(len(encoded.dictionary), np.int64)
    last[codes] = np.arange(len(codes))  # of a code that comes again the later place counts
    found = table.take(pa.array(last))
    counts = pa.array(np.bincount(codes, minlength=len(last)).astype(np.int64))
    at = ARROW.get_field_index("messages")
    yield from found.set_column(at, ARROW.field(at), counts).to_batches(max_chunksize=ROWS_MAX)
