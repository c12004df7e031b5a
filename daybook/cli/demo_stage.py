"""The progress bars of the demo, one for each step."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, TaskID


class Stage:
    """Progress bars, one for each step of the demo."""

    def __init__(self, progress: Progress) -> None:
        """Show the bars on `progress`."""
        self._progress = progress

    @contextmanager
    def step(self, what: str, total: int | None = None) -> Iterator[TaskID]:
        """Begin a step, with a bar if `total` is known."""
        task = self._progress.add_task(what, total=total)
        yield task
        done = self._progress.tasks[task].total or 1
        self._progress.update(task, total=done, completed=done)

    def at(self, task: TaskID, completed: int) -> None:
        """Update the progress of a step."""
        self._progress.update(task, completed=completed)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(text)
