"""Prints lists of any length as they come: a hundred thousand ledgers are one record in memory, not all.

A list that could not be read to its end is an error (rule 28): the exit code says so, and what was printed of a JSON
array stays without its end, so that no program takes it for the whole.
"""

import json
import sys
from collections.abc import AsyncIterable, Sequence
from typing import Any, Final

from rich.table import Table

from daybook.cli.output import out

TABLE_ROWS_MAX: Final = 1000
"""A table's columns fit its rows, so it is held until it is printed: a longer list is several tables."""


async def print_json_array(records: AsyncIterable[Any]) -> None:
    """One JSON array, a record on each line."""
    separator = "[\n"
    async for record in records:
        sys.stdout.write(separator + json.dumps(record))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")
    sys.stdout.flush()


async def print_tables(titles: Sequence[str], rows: AsyncIterable[Sequence[str]]) -> None:
    """Tables of at most TABLE_ROWS_MAX rows; of no rows one with titles alone."""
    table = Table(*titles)
    async for row in rows:
        if table.row_count == TABLE_ROWS_MAX:
            out.print(table)
            table = Table(*titles)
        table.add_row(*row)
    out.print(table)
