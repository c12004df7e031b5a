"""`python -m bench`: measure, then print and write the report."""

import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.bookkeeper import BookKeeperSide, MissingToolError
from bench.limits import measure_limits
from bench.report import write_report
from bench.result import Result
from bench.runner import run_side
from bench.sides import CACHE, DaybookSide, WorkloadError
from bench.workloads import workloads


def main(
    peer: Annotated[bool, typer.Option("--peer", help="also measure Apache BookKeeper")] = False,
    scale: Annotated[float, typer.Option(min=0.001, help="how much of the full counts to run")] = 1.0,
    only: Annotated[str, typer.Option(help="only workloads whose name contains this")] = "",
    out: Annotated[Path, typer.Option(help="where the report goes")] = Path("bench/out"),
    data: Annotated[
        Path | None, typer.Option(help="where the data goes; default: a temporary folder")
    ] = None,
    cache: Annotated[Path, typer.Option(help="where the peer's jars are kept")] = CACHE,
) -> None:
    """Measure Daybook, and with --peer Apache BookKeeper beside it, on this machine."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that both sides are stopped
    console = Console()
    work = [each for each in workloads(scale) if only in each.name]
    with tempfile.TemporaryDirectory(dir=data, prefix="daybook-bench-") as scratch:
        directory = Path(scratch)
        try:
            sides = [DaybookSide(directory), *([BookKeeperSide(directory, cache)] if peer else [])]
        except MissingToolError as error:
            console.print(f"[red]{error}[/]")
            raise typer.Exit(1) from error
        rows: list[Result] = []
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("the machine's own limits", total=None)
            if not only:
                rows += measure_limits(scale, directory)
            failures: list[WorkloadError] = []
            for side in sides:
                rows += run_side(
                    side,
                    work,
                    lambda step: progress.update(task, description=step),
                    failures.append,
                    is_peer=isinstance(side, BookKeeperSide),
                )
    write_report(rows, out, scale, console)
    for failure in failures:
        console.print(f"[red]not measured:[/] {failure}")
    if failures:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
