"""`python -m bench.broker`: load the brokers in turn, then print and write the report."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.bookkeeper import MissingToolError
from bench.broker import go_perf
from bench.broker.report import conditions, failures_of, write_report
from bench.broker.sides import (
    BrokerSide,
    DaybookSide,
    NullSide,
    PulsarSide,
    run_load,
    wait_until_it_serves,
)
from bench.broker.workloads import GO, Row, Workload, workloads
from bench.rounds import in_turn
from bench.sides import CACHE, WorkloadError, check_room, rss_anon_mib
from daybook.runtime.signals import exit_on_sigterm

BYTES_PER_MIB: Final = 1024 * 1024


def main(
    peer: Annotated[bool, typer.Option(help="also load Apache Pulsar")] = True,
    rounds: Annotated[int, typer.Option(min=1, help="how often everything is repeated")] = 3,
    scale: Annotated[float, typer.Option(min=0.001, help="how much of the full counts to run")] = 1.0,
    only: Annotated[str, typer.Option(help="only workloads whose name contains this")] = "",
    side: Annotated[str, typer.Option(help="only sides whose name contains this")] = "",
    out: Annotated[Path, typer.Option(help="where the report goes")] = Path("bench/out"),
    data: Annotated[
        Path | None, typer.Option(help="where the data goes; default: a temporary folder")
    ] = None,
    cache: Annotated[Path, typer.Option(help="where the peer's jars are kept")] = CACHE,
) -> None:
    """Load Daybook's brokers, a broker that does nothing, and Apache Pulsar's, on this machine."""
    exit_on_sigterm()
    console = Console()
    perf = go_perf.build(cache)
    if perf is None:
        console.print("there is no Go on the PATH, so the rows of its client are left out")
    work = [each for each in workloads(scale) if only in each.name and (perf or each.work != GO)]
    rows = [row for each in work for row in each.rows()]
    before = conditions()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(dir=data, prefix="daybook-bench-") as scratch, ExitStack() as running:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        progress = running.enter_context(Progress(*columns, console=console))
        task = progress.add_task("starting", total=None)
        sides = _start(Path(scratch), cache, side, running, console, peer=peer)
        for number in range(rounds):
            for each in work:
                for chosen in in_turn(sides, number + 1):
                    if each.takes_part(number, chosen.name):
                        progress.update(task, description=f"round {number + 1}: {each.name}, {chosen.name}")
                        try:
                            found = _measure(chosen, each, number, perf)
                            check_room(Path(scratch))
                            _take(found, each, chosen, rows)
                        except WorkloadError as error:
                            failures.append(f"{each.name}, {chosen.name}: {error}")
    write_report(rows, out, scale, before, console)
    failures = [*(f"not measured: {each}" for each in failures), *failures_of(rows)]
    for failure in failures:
        console.print(f"[red]{failure}[/]")
    if failures:
        raise typer.Exit(1)


def _start(
    directory: Path, cache: Path, wanted: str, running: ExitStack, console: Console, *, peer: bool
) -> Sequence[BrokerSide]:
    """The sides, serving; `running` stops them."""
    try:
        sides: list[BrokerSide] = [NullSide(), DaybookSide(directory)]
        if peer and wanted.lower() in PulsarSide.name.lower():
            sides.append(PulsarSide(directory, cache))
    except MissingToolError as error:
        console.print(f"[red]{error}[/]")
        raise typer.Exit(1) from error
    chosen = [each for each in sides if wanted.lower() in each.name.lower()]
    for each in chosen:
        running.callback(each.stop)
        each.start()
        wait_until_it_serves(each)
    return chosen


def _measure(side: BrokerSide, work: Workload, number: int, perf: Path | None) -> dict[str, float]:
    """The figures of one round of one workload on one side."""
    memory_mib = rss_anon_mib(side.broker_pids())
    topic = f"bench-{work.work}-{work.options.get('size', 0)}-{number}"
    if work.work == GO:
        assert perf is not None, "without it the row is left out"
        found = go_perf.publish(perf, side.url, topic, **work.options)
    else:
        found = run_load(side, work=work.work, topic=topic, **work.options)
    if "topics" in found:
        grown_mib = rss_anon_mib(side.broker_pids()) - memory_mib
        found["topics_per_100_mb"] = _topics_per_100_mb(found["topics"] / len(side.broker_pids()), grown_mib)
    return found


def _take(found: Mapping[str, float], work: Workload, side: BrokerSide, rows: Sequence[Row]) -> None:
    """Add the figures of a round to their rows."""
    for row in rows:
        if row.workload == work.name:
            row.rounds[side.name].append(found[row.figure.key])


def _topics_per_100_mb(topics: float, grown_mib: float) -> float:
    """Of the broker that has grown most, which has at least its share of the topics."""
    return topics * 1e8 / (max(grown_mib, 1.0) * BYTES_PER_MIB)


if __name__ == "__main__":
    typer.run(main)
