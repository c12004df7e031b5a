"""Records of protobuf, read for many messages at a time by NumPy: which fields each has, and where in a buffer their bytes are.

To read a record by itself costs several microseconds in Python, and a batch has a thousand. Here each step reads the next field of all
records. Only what producers write is understood: known fields, each of its own wire type and, unless it is repeated, at most once.
Anything else raises UnusualError, and the caller reads the records one by one, which says what is wrong with them, if anything is.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

PADDING: Final = bytes(16)
"""What a buffer needs behind its records: the last number may seem to go on there."""
VARINT: Final = 0
BYTES: Final = 2
_MORE: Final = 0x80
_BITS: Final = 7
_SHIFT_MAX: Final = 63


class UnusualError(Exception):
    """Records that have to be read one by one."""


class Spans(NamedTuple):
    """Where something of each record is: from `starts` up to `ends`, ascending; nothing where `has` is false."""

    has: Bools
    starts: Ints
    ends: Ints


class Repeated(NamedTuple):
    """The values of a repeated field, in order of their records: `counts` of each record."""

    counts: Ints
    starts: Ints
    ends: Ints


class Records:
    """The fields of some records."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers: dict[int, tuple[Bools, npt.NDArray[np.uint64]]] = {}
        self._bytes: dict[int, Spans] = {}
        self._repeated: dict[int, list[tuple[Ints, Ints, Ints]]] = {}

    def numbers(self, field: int) -> tuple[Bools, npt.NDArray[np.uint64]]:
        """Which records have a number, and the numbers, 0 for those without."""
        if field not in self._numbers:
            self._numbers[field] = np.zeros(self._count, np.bool_), np.zeros(self._count, np.uint64)
        return self._numbers[field]

    def flags(self, field: int) -> Bools:
        """Which records have a boolean that is true."""
        found: Bools = self.numbers(field)[1] != 0
        return found

    def spans(self, field: int) -> Spans:
        """Where the bytes of a field are."""
        if field not in self._bytes:
            none = (np.zeros(self._count, np.int64) for _ in range(2))
            self._bytes[field] = Spans(np.zeros(self._count, np.bool_), *none)
        return self._bytes[field]

    def repeated(self, field: int) -> Repeated:
        """Where the bytes of the values of a field are."""
        found = self._repeated.get(field)
        if found is None:
            none = np.zeros(0, np.int64)
            return Repeated(np.zeros(self._count, np.int64), none, none)
        rows, starts, ends = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        return Repeated(np.bincount(rows, minlength=self._count), starts[order], ends[order])

    # What `read_records` found; each raises UnusualError for a record that has the field already.

    def put_numbers(self, field: int, rows: Ints, values: npt.NDArray[np.uint64]) -> None:
        """A number of each of these records."""
        has, found = self.numbers(field)
        _once(has, rows)
        found[rows] = values

    def put_bytes(self, field: int, rows: Ints, starts: Ints, ends: Ints) -> None:
        """Bytes of each of these records."""
        spans = self.spans(field)
        _once(spans.has, rows)
        spans.starts[rows], spans.ends[rows] = starts, ends

    def put_repeated(self, field: int, rows: Ints, starts: Ints, ends: Ints) -> None:
        """One more value of each of these records."""
        self._repeated.setdefault(field, []).append((rows, starts, ends))


def _once(has: Bools, rows: Ints) -> None:
    if has[rows].any():
        raise UnusualError
    has[rows] = True


def read_records(
    data: npt.NDArray[np.uint8], starts: Ints, ends: Ints, kinds: Mapping[int, int], repeated: int = 0
) -> Records:
    """The fields of the records that are `data[start:end]`, whose fields `kinds` names with their wire types.

    `data` ends with `PADDING`. `repeated` is the one field that may come several times. Raises UnusualError.
    """
    records = Records(len(starts))
    tags = {number << 3 | kind: number for number, kind in kinds.items()}
    rows = np.flatnonzero(starts < ends)
    at, ends = starts[rows], ends[rows]
    while len(rows):
        found = data[at]
        values, after = _varints(data, at + 1)
        for tag in np.unique(found).tolist():
            field = tags.get(tag)
            if field is None:
                raise UnusualError
            chosen = slice(None) if (mine := found == tag).all() else np.flatnonzero(mine)
            if kinds[field] == VARINT:
                records.put_numbers(field, rows[chosen], values[chosen])
                continue
            begin = after[chosen].copy()
            sizes = values[chosen]
            if (sizes > np.uint64(len(data))).any():
                raise UnusualError
            after[chosen] = begin + sizes.astype(np.int64)
            put = records.put_repeated if field == repeated else records.put_bytes
            put(field, rows[chosen], begin, after[chosen])
        if (after > ends).any():
            raise UnusualError
        left = np.flatnonzero(after < ends)
        rows, at, ends = rows[left], after[left], ends[left]
    return records


def _varints(data: npt.NDArray[np.uint8], at: Ints) -> tuple[npt.NDArray[np.uint64], Ints]:
    """The numbers that begin at `at`, and where what is behind them begins. Raises UnusualError for one that is too long."""
    found = data[at]
    values = (found & (_MORE - 1)).astype(np.uint64)
    at = at + 1
    shift = 0
    more = np.flatnonzero(found & _MORE)
    while len(more):
        shift += _BITS
        if shift > _SHIFT_MAX or np.max(at[more]) >= len(data):
            raise UnusualError
        found = data[at[more]]
        values[more] |= (found & (_MORE - 1)).astype(np.uint64) << np.uint64(shift)
        at[more] += 1
        more = more[(found & _MORE) != 0]
    return values, at


def gather(data: pa.Buffer, spans: Spans) -> pa.Array:
    """The bytes of spans as a binary array, null where there is none.

    Arrow takes every second one of the pieces into which the spans and what is between them divide the buffer.
    """
    count = len(spans.starts)
    offsets = np.zeros(2 * count + 1, np.int32)
    ends = np.maximum.accumulate(np.where(spans.has, spans.ends, 0))
    offsets[2::2] = ends
    offsets[1::2] = np.where(spans.has, spans.starts, ends)
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), data])
    every_second = np.arange(1, 2 * count, 2, dtype=np.int32)
    return pieces.take(pa.array(every_second, mask=None if spans.has.all() else ~spans.has))


def all_of(starts: Ints, ends: Ints) -> Spans:
    """Spans of which none is missing."""
    return Spans(np.ones(len(starts), np.bool_), starts, ends)
