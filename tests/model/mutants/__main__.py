"""`make mutants`: without each rule in turn, its test must turn red and a seed of the simulator must fail.

Without options both nets are tried on every mutant, and the table shows for each which check caught it and after how
many seeds. `UPDATE=1` keeps the seeds for `make test`, which replays them.
"""

import os
import time
from collections.abc import Iterable
from enum import Enum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from tests.model.mutants.registry import WAITING, Mutant, load_catalog, registered
from tests.model.mutants.runner import Outcome, Verdict, run_mutants
from tests.model.mutants.search import SEEDS_MAX, Found, search
from tests.model.mutants.seeds import load_seeds, save_seeds
from tests.process.chaos.records import write_record

console = Console()
app = typer.Typer(add_completion=False)


class Net(Enum):
    """What has to catch a mutant."""

    ALL = "all"
    TESTS = "tests"
    SEEDS = "seeds"


@app.command(help=__doc__)
def main(
    names: Annotated[list[str] | None, typer.Argument(help="these mutants only")] = None,
    rule: Annotated[list[int] | None, typer.Option(help="the mutants of this rule only")] = None,
    net: Annotated[Net, typer.Option(help="what has to catch them")] = Net.ALL,
    quick: Annotated[bool, typer.Option("--quick", help="leave out tests that start processes")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds may be tried on each")] = SEEDS_MAX,
    update: Annotated[bool, typer.Option("--update", help="keep the seeds for `make test`")] = False,
    listing: Annotated[bool, typer.Option("--list", help="show the mutants and run none")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="how many run at once")] = os.cpu_count() or 1,
) -> None:
    """Exit code 1 unless every mutant is caught by everything that has to catch it."""
    failures = load_catalog()
    for module, error in failures.items():
        console.print(
            f"[red]tests/model/mutants/catalog/{module}.py cannot be imported:[/] {escape(repr(error))}"
        )
    chosen = [m for m in registered() if (not rule or m.rule in rule) and (not names or m.name in names)]
    if not chosen:
        console.print("no mutant matches; --list shows all of them")
        raise typer.Exit(1)
    if listing:
        _print_list(chosen)
        raise typer.Exit(bool(failures))
    tested = [m for m in chosen if net is not Net.SEEDS and m.caught_by and not (quick and m.slow)]
    simulated = [m for m in chosen if net is not Net.TESTS and not m.not_simulated]
    started = time.monotonic()
    outcomes, found = _run(tested, simulated, seeds, jobs, update=update)
    _print_results(chosen, outcomes, found)
    missed = {name for name, outcome in outcomes.items() if outcome.verdict is not Verdict.CAUGHT}
    missed |= {name for name, one in found.items() if one.catch is None}
    seconds = time.monotonic() - started
    console.print(f"{len(chosen) - len(missed)} of {len(chosen)} mutants caught in {seconds:.0f} s")
    if not (rule or names or quick) and net is Net.ALL:
        _record(chosen, found, len(missed), seconds)
    raise typer.Exit(bool(missed or failures))


def _run(
    tested: list[Mutant], simulated: list[Mutant], seeds: int, jobs: int, *, update: bool
) -> tuple[dict[str, Outcome], dict[str, Found]]:
    """Try both nets, one after the other."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    outcomes: dict[str, Outcome] = {}
    found: dict[str, Found] = {}
    with Progress(*columns, TextColumn("{task.fields[last]}"), console=console) as progress:
        if tested:
            bar = progress.add_task("tests", total=len(tested), last="")
            for outcome in run_mutants(tested, jobs):
                outcomes[outcome.mutant.name] = outcome
                _advance(progress, bar, outcome.mutant)
        if simulated:
            bar = progress.add_task("seeds", total=len(simulated), last="")
            for one in search(simulated, seeds, jobs):
                found[one.mutant.name] = one
                if update:
                    _keep(found)
                _advance(progress, bar, one.mutant)
    return outcomes, found


def _advance(progress: Progress, bar: TaskID, mutant: Mutant) -> None:
    progress.update(bar, advance=1, last=f"rule {mutant.rule}: {mutant.name}")


def _print_list(mutants: Iterable[Mutant]) -> None:
    """What there is."""
    table = Table("rule", "mutant", "takes out", "caught by")
    for found in mutants:
        table.add_row(str(found.rule), found.name, escape(found.why), found.caught_by or "seeds alone")
    console.print(table)


def _print_results(mutants: Iterable[Mutant], outcomes: dict[str, Outcome], found: dict[str, Found]) -> None:
    """One line for each mutant, rules apart, with what caught it; reasons where something is wrong or not simulated."""
    table = Table(
        "rule",
        Column("mutant", overflow="fold"),
        "test",
        "seeds",
        Column("caught by the check, or by the test alone", overflow="fold"),
        title="Mutants",
    )
    rule = 0
    for mutant in mutants:
        if rule and mutant.rule != rule:
            table.add_section()
        first, rule = mutant.rule != rule, mutant.rule
        seeds, check = _seeds_and_check(mutant, found.get(mutant.name))
        test = _verdict(outcomes.get(mutant.name))
        table.add_row(str(rule) if first else "", mutant.name, test, seeds, check)
    console.print(table)
    for rule, why in WAITING.items():
        console.print(f"rule {rule}: [dim]no mutant, {escape(why)}[/]", soft_wrap=True)
    for outcome in outcomes.values():
        if outcome.verdict is not Verdict.CAUGHT:
            console.print(f"[red]{outcome.mutant.name}[/]: {escape(outcome.reason)}", soft_wrap=True)


def _verdict(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    return "[green]red[/]" if outcome.verdict is Verdict.CAUGHT else f"[red]{outcome.verdict.value}[/]"


def _seeds_and_check(mutant: Mutant, found: Found | None) -> tuple[str, str]:
    if mutant.not_simulated:
        test = mutant.caught_by.partition("::")[2]
        return "–", f"{escape(test)} [dim](not simulated: {escape(mutant.not_simulated)})[/]"
    if found is None:
        return "", ""
    if found.catch is None:
        return f"[red]{found.seeds}[/]", f"[red]{escape(found.error) or 'no seed catches it'}[/]"
    return str(found.catch.tried), escape(found.catch.check)


def _keep(found: dict[str, Found]) -> None:
    """Write the seeds that were found over those that were known; forget mutants that are gone."""
    known = load_seeds()
    known |= {name: one.catch for name, one in found.items() if one.catch}
    names = {mutant.name for mutant in registered() if not mutant.not_simulated}
    missed = {name for name, one in found.items() if one.catch is None}
    save_seeds({name: catch for name, catch in known.items() if name in names - missed})


def _record(mutants: list[Mutant], found: dict[str, Found], missed: int, seconds: float) -> None:
    """Leave a line for docs/reliability.md."""
    catches = [one.catch for one in found.values() if one.catch]
    counts = {
        "mutants": len(mutants),
        "rules": len({mutant.rule for mutant in mutants}),
        "caught by seeds": len(catches),
        "rules caught by seeds": len({one.mutant.rule for one in found.values() if one.catch}),
        "not simulated": sum(bool(mutant.not_simulated) for mutant in mutants),
        "seeds tried": sum(one.catch.tried if one.catch else one.seeds for one in found.values()),
        "seeds for the rarest": max((catch.tried for catch in catches), default=0),
    }
    write_record("mutants", 0, counts, missed, seconds)


if __name__ == "__main__":
    app()
