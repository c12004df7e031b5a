"""Entries of ledgers as rows: their ids, and their payload as it is.

The columns are made of buffers. `pa.array` of a list would look at every entry, and would import pandas first, for half a second or more of every
worker's CPU, if it is there.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from daybook.core.format.entries import Entry, payloads_of
from daybook.core.format.payload_run import PayloadRun
from daybook.core.ids import EntryId, LedgerId

NUMBERED_ROWS_MAX: Final = 65_536
"""In a batch of rows without payload."""


def entry_rows(
    ledger_id: LedgerId, runs: Iterable[Sequence[Entry]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """A batch for each run of entries that follow each other, which the reader has bounded in bytes."""
    for run in runs:
        first, last = run[0].entry_id, run[-1].entry_id
        assert last - first + 1 == len(run), "a reader gives every entry"
        arrays = [
            _values(run) if field.name == "value" else _numbers(field.name, ledger_id, first, last)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def numbered_rows(
    ledger_id: LedgerId, first: EntryId, last: EntryId, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows without payload, which need no entry: a ledger has all ids up to its LAC."""
    for begin in range(first, last + 1, NUMBERED_ROWS_MAX):
        end = min(last, begin + NUMBERED_ROWS_MAX - 1)
        arrays = [_numbers(field.name, ledger_id, begin, end) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _numbers(name: str, ledger_id: LedgerId, first: EntryId, last: EntryId) -> pa.Array:
    """The column of a ledger's id, or of the ids of its entries first … last."""
    assert name in ("ledger_id", "entry_id"), name
    count = last - first + 1
    is_ledger = name == "ledger_id"
    values = np.full(count, ledger_id, np.int64) if is_ledger else np.arange(first, last + 1, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)])


def _values(run: Sequence[Entry]) -> pa.Array:
    payloads = payloads_of(run)
    if isinstance(payloads, PayloadRun):
        values = payloads.joined()
        assert len(values) < 2**31, "a reader bounds its runs far below what offsets of 32 bits reach"
        offsets = np.arange(0, len(values) + 1, payloads.entry_bytes, dtype=np.int32)
    else:
        offsets = np.fromiter(accumulate(map(len, payloads), initial=0), np.int32, len(run) + 1)
        values = b"".join(payloads)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(run), buffers)
