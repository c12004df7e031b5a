"""The output of commands: tables whose cells are never cut, because half a name is useless in a search.

On a terminal, or with COLUMNS set, cells fold to keep the width. Output to a file or another program has no width: each
row is one line, as with kubectl. The width is read at each print, so it does not depend on the environment at import.
"""

from typing import Any, Final

from rich.console import Console, ConsoleDimensions
from rich.table import Table

NO_LIMIT: Final = 100_000
"""The width of output that is not a terminal: more than any row needs."""


class Output(Console):
    """One of the process' standard streams."""

    @property
    def size(self) -> ConsoleDimensions:
        """The present numbers of columns and lines."""
        seen = super().size
        asked = self._environ.get("COLUMNS", "")
        if asked.isdecimal() and int(asked):
            return ConsoleDimensions(int(asked), seen.height)
        return seen if self.is_terminal else ConsoleDimensions(NO_LIMIT, seen.height)

    @size.setter
    def size(self, wanted: tuple[int, int]) -> None:
        """Set a fixed size, unless COLUMNS is set."""
        self._width, self._height = wanted

    def print(self, *objects: Any, **options: Any) -> None:
        """As `Console.print`; text that does not fit into a table's cell continues on the next line."""
        for each in objects:
            if isinstance(each, Table):
                for column in each.columns:
                    column.overflow = "fold"
        super().print(*objects, **options)


out: Final = Output(highlight=False)
err: Final = Output(stderr=True, highlight=False)
