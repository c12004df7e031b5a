"""Prints lists of any length while it reads them, with one record in memory at a time.

A list that could not be read to its end is an error (rule 28): the exit code is not 0, and a printed JSON array lacks its
end, so that no program considers it complete.
"""

import json
import sys
from collections.abc import AsyncIterable, Sequence
from typing import Any, Final

from rich.table import Table

from daybook.cli.output import out

TABLE_ROWS_MAX: Final = 1000
"""The rows of a table stay in memory until it is printed, because they decide its columns; a longer list is several tables."""


async def print_json_array(records: AsyncIterable[Any]) -> None:
    """Print one JSON array, one record per line."""
    separator = "[\n"
    async for record in records:
        sys.stdout.write(separator + json.dumps(record))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")
    sys.stdout.flush()


async def print_tables(titles: Sequence[str], rows: AsyncIterable[Sequence[str]]) -> None:
    """Print tables of at most TABLE_ROWS_MAX rows; without rows, one table with titles only."""
    table = Table(*titles)
    async for row in rows:
        if table.row_count == TABLE_ROWS_MAX:
            out.print(table)
            table = Table(*titles)
        table.add_row(*row)
    out.print(table)
