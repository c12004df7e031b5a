"""`python -m bench`: measure, then print and write the report."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.bookkeeper import BookKeeperSide, MissingToolError
from bench.limits import measure_limits
from bench.report import WIDTH, failures_of, write_report
from bench.result import Result
from bench.rounds import in_turn, rows_of
from bench.runner import run_side
from bench.sides import CACHE, DaybookSide, Side
from bench.workloads import Workload, workloads
from daybook.runtime.signals import exit_on_sigterm


def main(
    peer: Annotated[bool, typer.Option("--peer", help="also measure Apache BookKeeper")] = False,
    rounds: Annotated[
        int, typer.Option(min=1, help="how often everything is repeated, the sides in turn")
    ] = 1,
    scale: Annotated[float, typer.Option(min=0.001, help="how much of the full counts to run")] = 1.0,
    only: Annotated[str, typer.Option(help="only workloads whose name contains this")] = "",
    out: Annotated[Path, typer.Option(help="where the report goes")] = Path("bench/out"),
    data: Annotated[
        Path | None, typer.Option(help="where the data goes; default: a temporary folder")
    ] = None,
    cache: Annotated[Path, typer.Option(help="where the peer's jars are kept")] = CACHE,
) -> None:
    """Measure Daybook, and with --peer Apache BookKeeper beside it, on this machine."""
    exit_on_sigterm()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    work = [each for each in workloads(scale) if only in each.name]
    with tempfile.TemporaryDirectory(dir=data, prefix="daybook-bench-") as scratch:
        directory = Path(scratch)
        try:
            sides: list[Side] = [
                DaybookSide(directory),
                *([BookKeeperSide(directory, cache)] if peer else []),
            ]
        except MissingToolError as error:
            console.print(f"[red]{error}[/]")
            raise typer.Exit(1) from error
        results: list[tuple[int, Result]] = []
        rounds_s: list[float] = []
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("the machine's own limits", total=None)
            if not only:
                results += ((1, each) for each in measure_limits(scale, directory))
            failures: list[str] = []
            for number in range(1, rounds + 1):
                begin = time.perf_counter()
                results += _one_round(
                    number, sides, work, lambda step: progress.update(task, description=step), failures
                )
                rounds_s.append(time.perf_counter() - begin)
    rows = rows_of(results)
    write_report(rows, rounds_s, out, scale, console)
    failures = [*(f"not measured: {each}" for each in failures), *failures_of(rows)]
    for failure in failures:
        console.print(f"[red]{failure}[/]")
    if failures:
        raise typer.Exit(1)


def _one_round(
    number: int,
    sides: Sequence[Side],
    work: list[Workload],
    on_step: Callable[[str], None],
    failures: list[str],
) -> Iterator[tuple[int, Result]]:
    """All workloads on each side, with the number of the round; what could not be measured goes to `failures`."""
    for side in in_turn(sides, number):
        for each in run_side(
            side,
            work,
            lambda step: on_step(f"round {number}: {step}"),
            lambda error: failures.append(f"round {number}: {error}"),
            is_peer=isinstance(side, BookKeeperSide),
        ):
            yield number, each


if __name__ == "__main__":
    typer.run(main)
