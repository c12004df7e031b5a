"""`python -m tests.mutants`: judge the mutants, print a table, and fail if one is not caught."""

import argparse
import os
import sys
import time

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.mutants.registry import Mutant, load_catalog, registered
from tests.mutants.runner import Outcome, Verdict, run_mutants

_COLOURS = {Verdict.CAUGHT: "green", Verdict.SURVIVED: "red", Verdict.BROKEN: "yellow"}


def main(arguments: list[str]) -> int:
    """Run what the arguments select; 0 if every mutant is caught."""
    options = _parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    failures = load_catalog()
    for module, error in failures.items():
        console.print(f"[red]tests/mutants/catalog/{module}.py cannot be imported:[/] {escape(repr(error))}")
    chosen = [m for m in registered() if _is_chosen(m, options)]
    if options.list:
        console.print(_list_table(chosen))
        return bool(failures)
    if not chosen:
        console.print("no mutant matches; `--list` shows all of them")
        return 1
    started = time.monotonic()
    outcomes = []
    with console.status("running mutants") as status:
        for outcome in run_mutants(chosen, options.jobs):
            outcomes.append(outcome)
            status.update(f"{len(outcomes)} of {len(chosen)} mutants judged")
    console.print(_outcome_table(outcomes))
    caught = sum(outcome.verdict is Verdict.CAUGHT for outcome in outcomes)
    console.print(f"{caught} of {len(outcomes)} mutants caught in {time.monotonic() - started:.1f} s")
    return int(caught < len(outcomes) or bool(failures))


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="run only these mutants")
    parser.add_argument("--rule", type=int, action="append", default=[], help="run only this rule's mutants")
    parser.add_argument("--quick", action="store_true", help="leave out those whose test starts processes")
    parser.add_argument("--list", action="store_true", help="show the mutants and run none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    return parser.parse_args(arguments)


def _is_chosen(mutant: Mutant, options: argparse.Namespace) -> bool:
    """Whether the command line selects `mutant`."""
    return (
        (not options.rule or mutant.rule in options.rule)
        and (not options.names or mutant.name in options.names)
        and not (options.quick and mutant.slow)
    )


def _list_table(mutants: list[Mutant]) -> Table:
    """What there is."""
    table = Table("rule", "mutant", "takes out", "caught by")
    for found in mutants:
        table.add_row(str(found.rule), found.name, escape(found.why), found.caught_by)
    return table


def _outcome_table(outcomes: list[Outcome]) -> Table:
    """What became of them; reasons only where something is wrong."""
    table = Table("rule", "mutant", "verdict", "seconds", "reason")
    for outcome in sorted(outcomes, key=lambda o: (o.mutant.rule, o.mutant.name)):
        colour = _COLOURS[outcome.verdict]
        table.add_row(
            str(outcome.mutant.rule),
            outcome.mutant.name,
            f"[{colour}]{outcome.verdict.value}[/]",
            f"{outcome.seconds:.2f}",
            escape(outcome.reason),
        )
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
