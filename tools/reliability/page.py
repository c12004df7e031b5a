"""Writes docs/reliability.md from the records of runs, so that no figure in it is written by hand.

Usage: python -m tools.reliability [--records FILE]. FILE is what runs left behind (tests/process/chaos/records.py); its
lines are added to those that the page stands on, docs/records/reliability.jsonl, so that anyone can make the page again.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Final, TypeAlias

from tests.model.sim.regressions import REGRESSIONS
from tests.model.sim.trace import STATES
from tests.paths import ROOT

KEPT: Final = ROOT / "docs" / "records" / "reliability.jsonl"
PAGE: Final = ROOT / "docs" / "reliability.md"
TEMPLATE: Final = Path(__file__).with_suffix(".template")
FIELDS: Final = ("kind", "seed", "counts", "violations", "seconds", "commit", "date")
Record: TypeAlias = dict[str, Any]


class UnknownRecordError(ValueError):
    """A line that is no record of a run of a known kind; the message says which and what to do."""


@dataclass
class Row:
    """Runs of one kind and one commit, added up."""

    kind: str
    commit: str
    date: str = ""
    seeds: list[tuple[int, int]] = field(default_factory=list)
    """Spans (first, last), in order."""
    counts: Counter[str] = field(default_factory=Counter)
    violations: int = 0
    seconds: float = 0.0

    def __getitem__(self, name: str) -> int:
        """One of the counts; 0 if it was not counted."""
        return self.counts[name]

    @property
    def family(self) -> str:
        """The kind without its part: "bit-flips: store" is of the family "bit-flips"."""
        return self.kind.partition(":")[0]

    @property
    def part(self) -> str:
        """The part of the kind, or nothing."""
        return self.kind.partition(": ")[2]

    def starting(self, prefix: str) -> Counter[str]:
        """The counts under a prefix, without it."""
        return Counter(
            {name.removeprefix(prefix): n for name, n in self.counts.items() if name.startswith(prefix)}
        )

    @property
    def repaired(self) -> int:
        """How many of the violations are repaired, with their seeds among the tests."""
        if self.family != "simulator":
            return 0
        return sum(
            found.commit == self.commit and any(first <= seed <= last for first, last in self.seeds)
            for seed, found in REGRESSIONS.items()
        )

    def add(self, record: Record) -> None:
        """One more run."""
        self.counts.update(record["counts"])
        self.violations += record["violations"]
        self.seconds += record["seconds"]
        self.date = max(self.date, record["date"])
        span = (record["seed"], record["seed"] + max(1, record["counts"].get("seeds", 1)) - 1)
        self.seeds = _joined([*self.seeds, span])


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring spans become one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


# -- records -----------------------------------------------------------------------------------------------------------


def load(file: Path) -> list[Record]:
    """The records of a file; none if it is missing. Raises UnknownRecordError."""
    if not file.exists():
        return []
    records = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        record = json.loads(line)
        if not isinstance(record, dict) or tuple(record) != FIELDS:
            msg = f"{file}:{number} is no record of a run: it must have the fields {', '.join(FIELDS)}, in this order"
            raise UnknownRecordError(msg)
        if record["kind"].partition(":")[0] not in FAMILIES:
            msg = f"{file}:{number}: nothing is known of the kind {record['kind']!r}: teach it to FAMILIES"
            raise UnknownRecordError(msg)
        records.append(record)
    return records


def take(records: Iterable[Record], kept: Path) -> int:
    """Add the records that are not there yet to those that the page stands on; how many."""
    before = load(kept)
    new = [record for record in records if record not in before]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in new)
    return len(new)


def summed(records: Iterable[Record]) -> list[Row]:
    """A row for each kind and commit: kinds as in FAMILIES, the commits of a kind in the order of the records.

    Of runs with one kind, commit and seed the longest stands: the same work done twice is no more work.
    """
    longest: dict[tuple[str, str, int], Record] = {}
    for record in records:
        key = record["kind"], record["commit"], record["seed"]
        if key not in longest or record["seconds"] > longest[key]["seconds"]:
            longest[key] = record
    rows: dict[tuple[str, str], Row] = {}
    for (kind, commit, _), record in longest.items():
        rows.setdefault((kind, commit), Row(kind, commit)).add(record)
    order = list(FAMILIES)
    return sorted(rows.values(), key=lambda row: order.index(row.family))


# -- what each kind of run did -----------------------------------------------------------------------------------------


def _seeds(count: int) -> str:
    return f"{count:,} {'seed' if count == 1 else 'seeds'}"


def _simulator(row: Row) -> str:
    hours = row["simulated_seconds"] / 3600
    rate = row["seeds"] / row.seconds
    return f"{_seeds(row['seeds'])} ({rate:,.0f} a second), {row['events']:,} events, {hours:,.1f} simulated hours"


def _explorer(row: Row) -> str:
    whole = f"{row['complete']} of {row['explorations']} explorations complete"
    return f"{row['worlds']:,} worlds, {row['steps']:,} steps within {row.part} bounds, {whole}"


def _mutants(row: Row) -> str:
    caught = row["mutants"] - row.violations
    return (
        f"{caught:,} of {row['mutants']:,} mutants of {row['rules']} rules caught; {row['caught by seeds']:,} by seeds of the "
        f"simulator, the rarest after {row['seeds for the rarest']:,}"
    )


def _chaos(row: Row) -> str:
    faults = row.starting("fault: ")
    seeds = sum(last - first + 1 for first, last in row.seeds)
    return (
        f"{_seeds(seeds)}, {faults.total():,} faults of {len(faults)} classes, "
        f"{row['acknowledged entries']:,} entries acknowledged in {row['ledgers']:,} ledgers"
    )


def _power_cuts(row: Row) -> str:
    return f"{row['cuts']:,} cuts, {row['acknowledged entries']:,} entries acknowledged"


def _bit_flips(row: Row) -> str:
    return f"{row['bits']:,} bits of the {row.part}"


def _fuzz(row: Row) -> str:
    if row.part:
        return f"{row.counts.total():,} messages and calls {row.part}, in {len(row.counts)} ways"
    return f"{row.counts.total():,} inputs, {len(row.counts)} targets"


@dataclass(frozen=True)
class Family:
    """A kind of run: its name on the page, what it did, and how it is done again."""

    title: str
    did: Callable[[Row], str]
    again: str
    exhausts: bool = False
    """It does the same at every commit: figures are those of the last one."""


FAMILIES: Final = {
    "simulator": Family("Simulator", _simulator, "make sim SEEDS={first}..{last}"),
    "explorer": Family("Explorer", _explorer, "make explore BOUNDS={part}", exhausts=True),
    "mutants": Family("Mutants", _mutants, "make mutants", exhausts=True),
    "chaos": Family("Chaos", _chaos, "make chaos SEED={first} SEEDS={count}"),
    "power cuts": Family("Power cuts", _power_cuts, "make power-cuts CUTS={cuts} SEED={first} SEEDS={count}"),
    "bit-flips": Family("Bit flips", _bit_flips, "make bit-flips", exhausts=True),
    "fuzz": Family("Fuzzer", _fuzz, "make fuzz MINUTES={minutes}"),
}


def _again(row: Row) -> str:
    first, last = row.seeds[0][0], row.seeds[-1][1]
    runs = sum(end - begin + 1 for begin, end in row.seeds)
    return FAMILIES[row.family].again.format(
        first=first,
        last=last,
        count=last - first + 1,
        part=row.part,
        cuts=row["cuts"] // runs,
        minutes=max(1, round(row.seconds / 60)),
    )


# -- the page ----------------------------------------------------------------------------------------------------------


def page(records: Sequence[Record]) -> str:
    """docs/reliability.md."""
    rows = summed(records)
    of = {family: [row for row in rows if row.family == family] for family in FAMILIES}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        figures=_figures(of),
        runs=_runs(rows),
        alarms=_alarms(),
        faults=_faults(of["simulator"], of["chaos"]),
        states=_states(of["simulator"]),
        power_cuts=_counted(of["power cuts"]),
        bit_flips=_bits(_last_of_each(of["bit-flips"])),
        fuzz=_counted(row for row in of["fuzz"] if not row.part),
        wire=_counted(row for row in of["fuzz"] if row.part),
    )


def _last_of_each(rows: Iterable[Row]) -> list[Row]:
    """Of each kind the row of its last commit."""
    return list({row.kind: row for row in rows}.values())


def _total(rows: Iterable[Row]) -> Counter[str]:
    return sum((row.counts for row in rows), Counter())


def _figures(of: dict[str, list[Row]]) -> str:
    counts = {
        family: _total(_last_of_each(rows) if FAMILIES[family].exhausts else rows)
        for family, rows in of.items()
    }
    simulated, chaos = counts["simulator"], counts["chaos"]
    faults = [name for name, count in (simulated + chaos).items() if name.startswith("fault: ") and count]
    states = [name for name, count in simulated.items() if name.startswith("state: ") and count]
    mutants = _last_of_each(of["mutants"])
    missed = sum(row.violations for row in mutants)
    seeds = sum(last - first + 1 for row in of["chaos"] for first, last in row.seeds)
    figures: dict[str, int | str] = {
        "violations": sum(row.violations - row.repaired for rows in of.values() for row in rows),
        "alarms of the simulator, each repaired": sum(row.repaired for row in of["simulator"]),
        "seeds simulated": simulated["seeds"],
        "events simulated": simulated["events"],
        "hours simulated": simulated["simulated_seconds"] // 3600,
        "classes of faults": len(faults),
        "named states reached": f"{len(states)} of {len(STATES)}",
        "worlds explored": counts["explorer"]["worlds"],
        "mutants caught": f"{counts['mutants']['mutants'] - missed} of {counts['mutants']['mutants']}",
        "seeds of chaos with real processes": seeds,
        "faults injected into real processes": sum(
            n for name, n in chaos.items() if name.startswith("fault: ")
        ),
        "power cuts of all bookies at once": counts["power cuts"]["cuts"],
        "bits flipped, each in turn": counts["bit-flips"]["bits"],
        "hostile inputs": counts["fuzz"].total(),
    }
    return _table(("figure", "so far"), [(name, _number(value)) for name, value in figures.items()])


def _runs(rows: Sequence[Row]) -> str:
    return _table(
        ("what", "amount", "violations", "commit", "date", "machine time", "command"),
        [
            (
                FAMILIES[row.family].title,
                FAMILIES[row.family].did(row),
                _violations(row),
                f"`{row.commit}`",
                row.date,
                _time(row.seconds),
                f"`{_again(row)}`",
            )
            for row in rows
        ],
    )


def _violations(row: Row) -> str:
    left = row.violations - row.repaired
    return f"**{left}**" if left else f"0, {row.repaired} repaired" if row.repaired else "0"


def _alarms() -> str:
    return _table(
        ("seed", "what it was", "repaired in", "found at"),
        [
            (
                str(seed),
                found.why,
                "**shipped code**" if found.in_product else "the simulator",
                f"`{found.commit}`" if found.commit else "–",
            )
            for seed, found in REGRESSIONS.items()
        ],
    )


def _faults(simulated: Sequence[Row], chaos: Sequence[Row]) -> str:
    inside, outside = (_under("fault: ", rows) for rows in (simulated, chaos))

    def told(counts: Counter[str], name: str) -> str:
        return _number(counts[name]) if name in counts else "–"

    return _table(
        ("fault", "simulator", "real processes"),
        [
            (name, told(inside, name), told(outside, name))
            for name in sorted({*inside, *outside}, key=str.lower)
        ],
    )


def _states(simulated: Sequence[Row]) -> str:
    reached = _under("state: ", simulated)
    return _table(
        ("state", "meaning", "reached"), [(name, why, _number(reached[name])) for name, why in STATES.items()]
    )


def _under(prefix: str, rows: Iterable[Row]) -> Counter[str]:
    """Counts under a prefix, with those that are 0: they are news, too."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(row.starting(prefix))
    return found


def _counted(rows: Iterable[Row]) -> str:
    """Everything that was counted, over all commits."""
    return _table(("", "so far"), [(name, _number(count)) for name, count in sorted(_total(rows).items())])


def _bits(rows: Sequence[Row]) -> str:
    """A line for each image and place."""
    outcomes = sorted({_outcome(name) for row in rows for name in row.counts if name != "bits"})
    lines = []
    for row in rows:
        places = dict.fromkeys(name.rpartition(": ")[0] for name in row.counts if name != "bits")
        for place in places:
            counts = [row[f"{place}: {outcome}"] for outcome in outcomes]
            lines.append((row.part, place, _number(sum(counts)), *map(_number, counts)))
    return _table(("image", "place", "bits", *outcomes), lines)


def _outcome(name: str) -> str:
    return name.rpartition(": ")[2]


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return "No run of this kind is on record."
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def _number(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.reliability", description=__doc__)
    parser.add_argument("--records", type=Path, help="add the runs of this file first")
    options = parser.parse_args()
    if options.records is not None:
        if not options.records.exists():
            parser.error(
                f"{options.records} does not exist: name the file that runs left behind (DAYBOOK_RECORDS)"
            )
        try:
            print(f"{take(load(options.records), KEPT)} new records in {KEPT.relative_to(ROOT)}")
        except UnknownRecordError as error:
            parser.error(str(error))
    PAGE.write_text(page(load(KEPT)), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0
