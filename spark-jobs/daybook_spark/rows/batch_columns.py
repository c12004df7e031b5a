"""Batches as columns: the messages of several batches at a time, without an object for any of them.

Producers write batches in one way only: the fields of a message in the order of their numbers, the size of its payload among them. Here this
way alone is read, and fast. A batch that looks otherwise raises UnusualError and is unpacked message by message, as `batches` of
the wire format does it; that also says what is wrong with it.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from daybook.wire.pulsar.compression import UNCOMPRESSED_BYTES_MAX, uncompressed
from daybook_spark.rows.messages import TIME_MS_MAX, StoredMessage
from daybook_spark.rows.spans import (
    BYTES,
    PADDING,
    VARINT,
    Bools,
    Ints,
    Records,
    Spans,
    UnusualError,
    all_of,
    gather,
    read_records,
)

_SIZE: Final = struct.Struct(">I")
PROPERTIES, KEY, PAYLOAD_SIZE, COMPACTED_OUT, EVENT_TIME, ORDERING_KEY, SEQUENCE_ID, NULL_VALUE, NULL_KEY = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    10,
)
"""Fields of SingleMessageMetadata that columns have."""
_KINDS: Final = {
    PROPERTIES: BYTES,
    KEY: BYTES,
    PAYLOAD_SIZE: VARINT,
    COMPACTED_OUT: VARINT,
    EVENT_TIME: VARINT,
    6: VARINT,
    ORDERING_KEY: BYTES,
    SEQUENCE_ID: VARINT,
    NULL_VALUE: VARINT,
    NULL_KEY: VARINT,
}
_PROPERTY: Final = {1: BYTES, 2: BYTES}
_BEFORE_THE_SIZE: Final = frozenset({PROPERTIES << 3 | BYTES, KEY << 3 | BYTES})
_TAG_OF_SIZE: Final = PAYLOAD_SIZE << 3


class Chain(NamedTuple):
    """A batch, and where its messages are."""

    stored: StoredMessage
    data: bytes
    """The messages, decompressed."""
    metadata: list[int]
    """Where the metadata of each message begins; as many values as there are messages."""
    payload: list[int]
    """Where its payload begins, which is the end of its metadata."""
    ends: list[int]


def chain_of(stored: StoredMessage) -> Chain:
    """The messages of a batch. Raises EntryError where it cannot be decompressed, UnusualError."""
    data = bytes(uncompressed(stored.metadata, stored.payload, UNCOMPRESSED_BYTES_MAX))
    metadata: list[int] = []
    payload: list[int] = []
    ends: list[int] = []
    size_at = _SIZE.unpack_from
    at = 0
    try:
        for _ in range(stored.metadata.num_messages_in_batch):
            (size,) = size_at(data, at)
            begin = found = at + 4
            while (tag := data[found]) != _TAG_OF_SIZE:
                if tag not in _BEFORE_THE_SIZE:
                    raise UnusualError
                skipped = data[found + 1]
                if skipped > 127:
                    if data[found + 2] > 127:
                        raise UnusualError
                    skipped += (data[found + 2] << 7) - 128
                    found += 1
                found += 2 + skipped
            length = data[found + 1]
            if length > 127:
                length += (data[found + 2] << 7) - 128
                if data[found + 2] > 127:
                    length += (data[found + 3] << 14) - (128 << 7)
                    if data[found + 3] > 127:
                        length += (data[found + 4] << 21) - (128 << 14)
                        if data[found + 4] > 127:
                            raise UnusualError
            metadata.append(begin)
            payload.append(begin + size)
            at = begin + size + length
            ends.append(at)
    except (struct.error, IndexError) as error:
        raise UnusualError from error
    if at != len(data):
        raise UnusualError
    return Chain(stored, data, metadata, payload, ends)


class BatchColumns:
    """The columns of messages of some batches. Raises UnusualError, also from `column`."""

    def __init__(self, chains: Sequence[Chain]) -> None:
        self._chains = chains
        self._counts = np.array([len(chain.ends) for chain in chains])
        self.count = int(self._counts.sum())
        whole = b"".join([*(chain.data for chain in chains), PADDING])
        self._data = np.frombuffer(whole, np.uint8)
        self._buffer = pa.py_buffer(whole)
        begins = np.array(list(accumulate((len(chain.data) for chain in chains), initial=0))[:-1])
        shift = np.repeat(begins, self._counts)

        def joined(parts: list[list[int]]) -> Ints:
            found: Ints = np.concatenate([np.array(part, np.int64) for part in parts])
            found += shift
            return found

        self._payload = joined([chain.payload for chain in chains])
        self._ends = joined([chain.ends for chain in chains])
        starts = joined([chain.metadata for chain in chains])
        self._singles: Records = read_records(self._data, starts, self._payload, _KINDS, repeated=PROPERTIES)
        has_size, sizes = self._singles.numbers(PAYLOAD_SIZE)
        if not has_size.all() or (sizes.astype(np.int64) != self._ends - self._payload).any():
            raise UnusualError

    def of_entries(self, values: list[object], kind: pa.DataType) -> pa.Array:
        """A column in which all messages of a batch have its value."""
        index = np.repeat(np.arange(len(self._chains), dtype=np.int32), self._counts)
        return pa.array(values, kind).take(pa.array(index))

    def repeated(self, values: Ints) -> Ints:
        """A value of each batch, for each of its messages."""
        found: Ints = np.repeat(values, self._counts)
        return found

    @property
    def batch_index(self) -> Ints:
        """Where in its batch each message is."""
        return self._batch_index()

    @property
    def is_compacted_out(self) -> Bools:
        """Which messages a compaction has removed."""
        return self._singles.flags(COMPACTED_OUT)

    @property
    def is_empty(self) -> Bools:
        """Which messages have no value, or an empty one."""
        found: Bools = self._singles.flags(NULL_VALUE) | (self._ends == self._payload)
        return found

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """A column of messages."""
        of_name: Mapping[str, Callable[[pa.DataType], pa.Array]] = {
            "batch_index": self._index_column,
            "event_time": self._event_time,
            "sequence_id": self._sequence_id,
            "key": self._key,
            "key_as_it_is": self._key_as_it_is,
            "ordering_key": self._ordering_key,
            "properties": self._properties,
            "value": self._value,
        }
        return of_name[name](kind)

    def _batch_index(self) -> Ints:
        return np.concatenate([np.arange(count) for count in self._counts.tolist()])

    def _bytes(self, spans: Spans, kind: pa.DataType) -> pa.Array:
        return _as(gather(self._buffer, spans), kind)

    def _index_column(self, kind: pa.DataType) -> pa.Array:
        return pa.array(self._batch_index().astype(np.int32), kind)

    def _event_time(self, kind: pa.DataType) -> pa.Array:
        _, times_ms = self._singles.numbers(EVENT_TIME)
        if np.max(times_ms) > TIME_MS_MAX:
            raise UnusualError
        return pa.array(times_ms.astype(np.int64) * 1000, pa.int64(), mask=times_ms == 0).cast(kind)

    def _sequence_id(self, kind: pa.DataType) -> pa.Array:
        has, own = self._singles.numbers(SEQUENCE_ID)
        of_batches = np.array([chain.stored.metadata.sequence_id for chain in self._chains], np.uint64)
        counted = np.repeat(of_batches, self._counts) + self._batch_index().astype(np.uint64)
        return pa.array(np.where(has, own, counted).view(np.int64), kind)

    def _key(self, kind: pa.DataType) -> pa.Array:
        has, starts, ends = self._singles.spans(KEY)
        return self._bytes(Spans(has & ~self._singles.flags(NULL_KEY), starts, ends), kind)

    def _key_as_it_is(self, kind: pa.DataType) -> pa.Array:
        """Also where the message says that it has none, as a compaction takes it."""
        return self._bytes(self._singles.spans(KEY), kind)

    def _ordering_key(self, kind: pa.DataType) -> pa.Array:
        return self._bytes(self._singles.spans(ORDERING_KEY), kind)

    def _value(self, kind: pa.DataType) -> pa.Array:
        has: Bools = ~self._singles.flags(NULL_VALUE)
        return self._bytes(Spans(has, self._payload, self._ends), kind)

    def _properties(self, kind: pa.DataType) -> pa.Array:
        counts, starts, ends = self._singles.repeated(PROPERTIES)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int32)
        found = read_records(self._data, starts, ends, _PROPERTY)
        names, values = found.spans(1), found.spans(2)
        if not (names.has.all() and values.has.all()):
            raise UnusualError
        keys = self._bytes(all_of(names.starts, names.ends), kind.key_type)
        self._check_names_differ(keys, counts)
        items = self._bytes(all_of(values.starts, values.ends), kind.item_type)
        return pa.MapArray.from_arrays(pa.array(offsets), keys, items).cast(kind)

    def _check_names_differ(self, keys: pa.Array, counts: Ints) -> None:
        """Of two properties with one name the later counts, which is left to others."""
        if np.max(counts, initial=0) > 1:
            encoded = keys.dictionary_encode()
            codes = encoded.indices.to_numpy().astype(np.int64)
            messages = np.repeat(np.arange(len(counts)), counts)
            if len(np.unique(messages * len(encoded.dictionary) + codes)) < len(codes):
                raise UnusualError


def _as(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bytes as a column has them: text is checked to be text."""
    try:
        return found if found.type == kind else found.cast(kind)
    except pa.ArrowInvalid as error:
        raise UnusualError from error
