"""A progress bar on standard error, if that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from daybook.cli.output import err


@contextmanager
def progress(what: str, text: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar; call what this yields with the amount done and the total."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(text), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
