"""What the witnesses saw: a line of JSON for each case, and the table of all of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

CASES: Final = (
    "batches and keys",
    "without batches",
    "compression",
    "chunks",
    "access modes",
    "exclusive",
    "shared",
    "failover",
    "cumulative ack",
    "individual ack",
    "ack within batches",
    "negative ack",
    "dead letters",
    "unsubscribe",
    "non-durable",
    "seek by id",
    "seek by time",
    "reader",
    "last message id",
    "partitions",
    "pattern",
    "lookups over HTTP",
    "unload",
    "subscribe during unloads",
    "refused at first",
)
"""What every witness has to see, in the order in which it does."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """One case of one witness."""

    case: str
    good: bool
    ms: int
    saw: str


def parse(line: str) -> Sighting | None:
    """The case that a line of a witness' standard output reports; None if it reports none."""
    if not line.startswith("{"):
        return None
    found = json.loads(line)
    return Sighting(str(found["case"]), bool(found["good"]), int(found["ms"]), str(found["saw"]))


def whole(seen: Sequence[Sighting], wanted: Sequence[str]) -> list[Sighting]:
    """One for each wanted case: a case that a witness never reported is a failure of its own."""
    by_case = {each.case: each for each in seen}
    return [
        by_case.get(case) or Sighting(case, good=False, ms=0, saw="the witness did not report it")
        for case in wanted
    ]


def table(sightings: dict[str, list[Sighting]]) -> Table:
    """All that the witnesses saw, by the name of the witness."""
    made = Table("case", "client", "", "time", "what it saw")
    by_case = zip(*sightings.values(), strict=True)
    for row in by_case:
        for name, each in zip(sightings, row, strict=True):
            mark = "[green]good[/]" if each.good else "[bold red]WRONG[/]"
            first = name == next(iter(sightings))
            made.add_row(each.case if first else "", name, mark, f"{each.ms / 1000:.1f} s", each.saw)
    return made
