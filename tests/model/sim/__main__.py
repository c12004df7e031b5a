"""`make sim SEEDS=a..b` runs a range of seeds over all cores; `make sim SEED=n TRACE=1` replays one as a trace."""

import os
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.model.sim.campaign import Campaign
from tests.model.sim.run import Summary, replay_command
from tests.model.sim.scenario import run_seed
from tests.model.sim.trace import FAULTS, STATES
from tests.process.chaos.records import records_file

_SHOWN = 10
_STATES_NEED_SEEDS = 2000
"""A shorter run may miss a rare state without anything being wrong."""

console = Console()
app = typer.Typer(add_completion=False)


@app.command()
def main(
    seeds: Annotated[str, typer.Option(help="the range a..b, both included")] = "0..9999",
    seed: Annotated[int | None, typer.Option(help="run this one only")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="print what happens, event by event")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = os.cpu_count() or 1,
) -> None:
    """Simulate the core under faults. Exit code 1 if the promise was broken or a named state never reached.

    What a range came to is noted every 10,000 seeds, and when SIGINT or SIGTERM ends it early.
    """
    if seed is not None:
        raise typer.Exit(_run_one(seed, tracing=trace))
    first, last = _parse(seeds)
    started = time.monotonic()
    summary = _run_many(first, last, jobs)
    _show(summary, time.monotonic() - started)
    missing = summary.tally.missing_states() if summary.seeds >= _STATES_NEED_SEEDS else []
    for name in missing:
        console.print(f"[red]never reached:[/] {name} ({STATES[name]})")
    raise typer.Exit(1 if summary.failures or missing else 0)


def _parse(seeds: str) -> tuple[int, int]:
    first, _, last = seeds.partition("..")
    try:
        bounds = int(first), int(last or first)
    except ValueError:
        bounds = (1, 0)
    if bounds[0] > bounds[1]:
        msg = f"{seeds!r} is no range of seeds: write a..b, as in 0..9999"
        raise typer.BadParameter(msg)
    return bounds


def _run_one(seed: int, *, tracing: bool) -> int:
    result = run_seed(seed, tracing=tracing)
    for line in result.trace:
        print(line.rstrip("\n"))
    verdict = f"FAILED: {result.failure}" if result.failure else "the promise held"
    print(
        f"seed {seed}: {result.events} events, {result.simulated_us / 1e6:.2f} simulated seconds, "
        f"{result.acked} entries acknowledged; {verdict}"
    )
    if result.failure and not tracing:
        print(f"see how: {replay_command(seed)}")
    return 1 if result.failure else 0


def _run_many(first: int, last: int, jobs: int) -> Summary:
    columns = (
        TextColumn("seeds"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(),
    )

    def show(part: Summary) -> None:
        total = campaign.total
        for result in part.failures[: max(0, _SHOWN - len(total.failures) + len(part.failures))]:
            console.print(f"[red]seed {result.seed}[/]: {result.failure}", highlight=False, soft_wrap=True)
            console.print(f"    {replay_command(result.seed)}")
        progress.update(task, completed=total.seeds, failed=len(total.failures))

    campaign = Campaign(first, last, jobs=jobs, on_part=show)
    with Progress(*columns, console=console) as progress, campaign.stopping_on_signals():
        task = progress.add_task("seeds", total=last - first + 1, failed=0)
        campaign.run()
    if campaign.is_stopped:
        console.print(f"stopped after seed {first + campaign.total.seeds - 1}")
    console.print(f"noted in {records_file()}", soft_wrap=True)
    return campaign.total


def _show(summary: Summary, seconds: float) -> None:
    table = Table(title="Simulation", show_header=False)
    rate = (
        f"{summary.seeds / seconds:,.0f}/s, {summary.seeds / max(summary.cpu_seconds, 1e-9):,.0f}/s of a core"
    )
    table.add_row("seeds", f"{summary.seeds:,}  ({rate})")
    table.add_row("events", f"{summary.events:,}")
    table.add_row("simulated hours", f"{summary.simulated_us / 3.6e9:.2f}")
    table.add_row("entries acknowledged", f"{summary.acked:,}")
    table.add_row("violations", f"{len(summary.failures)}")
    table.add_section()
    for name in FAULTS:
        table.add_row(f"fault: {name}", f"{summary.tally.faults[name]:,}")
    table.add_section()
    for name in STATES:
        table.add_row(f"state: {name}", f"{summary.tally.states[name]:,}")
    console.print(table)


if __name__ == "__main__":
    app()
