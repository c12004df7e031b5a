"""What commands print on: a table's cells are never cut, because half a name finds nothing.

A terminal's width, or that which COLUMNS asks for, is kept by folding cells. What goes to a file or another program has
no width at all: a line of it is a row, whole, as kubectl's are. The width is asked for at each print, so that nothing
depends on what was set when this was imported.
"""

from typing import Any, Final

from rich.console import Console, ConsoleDimensions
from rich.table import Table

NO_LIMIT: Final = 100_000
"""Columns of what is no terminal: more than any row has."""


class Output(Console):
    """One of the process' standard streams."""

    @property
    def size(self) -> ConsoleDimensions:
        """Columns and lines that there are now."""
        seen = super().size
        asked = self._environ.get("COLUMNS", "")
        if asked.isdecimal() and int(asked):
            return ConsoleDimensions(int(asked), seen.height)
        return seen if self.is_terminal else ConsoleDimensions(NO_LIMIT, seen.height)

    @size.setter
    def size(self, wanted: tuple[int, int]) -> None:
        """Fixed from here on, where COLUMNS does not ask for another."""
        self._width, self._height = wanted

    def print(self, *objects: Any, **options: Any) -> None:
        """As `Console.print`; what does not fit into a table's cell goes on in its next line."""
        for each in objects:
            if isinstance(each, Table):
                for column in each.columns:
                    column.overflow = "fold"
        super().print(*objects, **options)


out: Final = Output(highlight=False)
err: Final = Output(stderr=True, highlight=False)
