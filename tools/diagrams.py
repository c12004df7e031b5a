"""`python -m tools.diagrams`: draw docs/states.md from the tables of transitions in the code.

A module that owns states with transitions has a table `TRANSITIONS`: (from, to) → why, both of one enum. The first state
of the table is where a machine begins; a state that nothing leads out of is where it ends. Every module of the packages
below that assigns that name gets a section.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.paths import ROOT

PAGE: Final = ROOT / "docs" / "states.md"
PACKAGES: Final = {
    "daybook": ROOT,
    "daybook_bookie": ROOT / "bookie-image",
    "daybook_operator": ROOT / "operator",
}
TABLE: Final = re.compile(r"^TRANSITIONS\b", re.MULTILINE)
HEAD: Final = """# States

What has a state that changes, and why it changes. `make diagrams` writes this page from the tables `TRANSITIONS` in the code;
each section names the file that owns its table, and that file begins with the theory. A change that is not in its
table is refused, or an assertion fails.
"""


@dataclass(frozen=True, slots=True)
class Table:
    """The transitions of one module."""

    path: Path
    theory: str
    transitions: Mapping[tuple[Enum, Enum], str]

    @property
    def states(self) -> list[Enum]:
        """Every state that the table names, in the order of their enum."""
        (first, _), *_ = self.transitions
        named = {state for pair in self.transitions for state in pair}
        return [state for state in type(first) if state in named]

    @property
    def first(self) -> Enum:
        """Where a machine begins."""
        return next(iter(self.transitions))[0]

    @property
    def last(self) -> list[Enum]:
        """Where it ends."""
        left = {before for before, _ in self.transitions}
        return [state for state in self.states if state not in left]


def tables() -> Iterator[Table]:
    """The tables of all packages, by path."""
    for package, folder in PACKAGES.items():
        for path in sorted((folder / package).rglob("*.py")):
            if TABLE.search(path.read_text(encoding="utf-8")):
                name = ".".join(path.relative_to(folder).with_suffix("").parts)
                module = import_module(name)
                theory = (inspect.getdoc(module) or "").partition("\n\n")[0]
                yield Table(path.relative_to(ROOT), theory, module.TRANSITIONS)


def section(table: Table) -> str:
    """A table as a diagram, with what its states mean where their names do not say it."""
    theory = " ".join(table.theory.split())
    lines = [f"## {table.path}", "", theory, "", "```mermaid", "stateDiagram-v2"]
    lines.append(f"    [*] --> {table.first.name}")
    lines += [
        f"    {old.name} --> {new.name}: {_label(why)}" for (old, new), why in table.transitions.items()
    ]
    lines += [f"    {state.name} --> [*]" for state in table.last]
    lines.append("```")
    told = [state for state in table.states if isinstance(state.value, str) and state.value != state.name]
    if told:
        lines += ["", "| state | meaning |", "|---|---|"]
        lines += [f"| {state.name} | {state.value} |" for state in told]
    return "\n".join(lines) + "\n"


def _label(why: str) -> str:
    """A label as Mermaid takes it, which ends a statement at a semicolon."""
    return why.replace(";", ",")


def page() -> str:
    """The page."""
    return "\n".join([HEAD, *map(section, tables())])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
