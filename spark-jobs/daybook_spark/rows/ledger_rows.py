"""Entries of ledgers as rows: their ids, and their payload as it is."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from daybook.core.format.frame import Entry
from daybook.core.ids import EntryId, LedgerId

NUMBERED_ROWS_MAX: Final = 65_536
"""In a batch of rows without payload."""


def entry_rows(
    ledger_id: LedgerId, runs: Iterable[tuple[Entry, ...]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """A batch for each run of entries, which the reader has bounded in bytes."""
    for run in runs:
        arrays = [pa.array(_column(field.name, ledger_id, run), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(
    name: str, ledger_id: LedgerId, run: tuple[Entry, ...]
) -> list[LedgerId] | list[EntryId] | list[bytes]:
    if name == "ledger_id":
        return [ledger_id] * len(run)
    return [entry_id for entry_id, _ in run] if name == "entry_id" else [data for _, data in run]


def numbered_rows(
    ledger_id: LedgerId, first: EntryId, last: EntryId, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows without payload, which need no entry: a ledger has all ids up to its LAC."""
    for begin in range(first, last + 1, NUMBERED_ROWS_MAX):
        ids = range(begin, min(last + 1, begin + NUMBERED_ROWS_MAX))
        columns = {"ledger_id": [ledger_id] * len(ids), "entry_id": ids}
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
