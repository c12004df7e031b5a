"""docs/slo.md, made of the records of runs: `docs/records/slo.jsonl`, a line for each measurement of each run."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

from tests.paths import ROOT
from tools.slo.cases import QUORUMS

RECORDS: Final = ROOT / "docs" / "records" / "slo.jsonl"
PAGE: Final = ROOT / "docs" / "slo.md"

Record: TypeAlias = dict[str, Any]

HEAD: Final = """\
# What losses cost

What is lost (RPO) and how long it takes (RTO) when something dies, and what each choice of E, Qw and Qa survives. Every
figure was measured with real processes by the test that is named; `make test` runs the same tests and asserts what is
lost and what goes on. `make slo` runs them {runs} times and writes this page from `docs/records/slo.jsonl`.

Times are of a machine with {cores} cores that ran client, ZooKeeper and all bookies, {dates}, commit {commits}: median and
longest of {runs} runs. They say what the protocol adds: how fast a lost process is started again, and how long a network takes to
tell that a machine is gone, comes on top and is not Daybook's.
"""

LOSSES: Final = """
## RPO and RTO

One writer, E=3 Qw=3 Qa=2 unless it says otherwise, an entry every 5 ms. "Next acknowledgement" is the longest time in which
nothing was acknowledged. "Recovered" is the time from the moment the writer is gone until another process has fenced, recovered and
closed its ledger and read its last entry, with the lost part still missing unless it came back by then. "Lost" counts
acknowledged entries that could not be read back, or not as they were written.

"""

NOTES: Final = """
- The dead bookie's copies are made anew once it has been away for the delay (a minute: `daybook audit --set-delay`); the time is that of the
  copies of this small ledger.
- A process that dies is noticed when its connection breaks; one that hangs, after 5 seconds. With Qa < Qw nobody waits for it.
- The writer's time is of a reader that knows at once that the writer is gone. Nothing in Daybook finds that out: whoever opens the ledger
  with recovery decides it.
- Open writers and readers do not notice that ZooKeeper is away. What needs metadata (create, open, close, recover, change an ensemble) waits for it; a
  ledger was created and written to {created} after it served again.
- All bookies at once, by SIGKILL: from the kill to the acknowledgement {total}, of which the start of the processes took {started}. Power cuts, where the disk
  forgets what was not synced, are `make power-cuts`.
- Entries that were appended and not acknowledged are unknown: they may be there or not (rule 13). They are no loss.
"""

MATRIX: Final = """
## What E, Qw and Qa survive

Bookies of one ensemble, killed at once, next to each other: the worst choice. From `{test}`, {runs} runs of all cases, all with the same outcome.

- **Writes, others there**: the cluster has other bookies, so the writer goes on with those (it needs E in all).
- **Writes, no others**: it goes on with Qa of every write set (rule 45), or waits until bookies are back.
- **Reads**: entries that had all Qw copies. In brackets: how many of 10 entries are left.
- **Recovery**: of a ledger whose writer is gone and whose last entries just reached Qa bookies, as many of these lost as can be. It
  refuses, and loses nothing, until bookies are back (rule 6, rule 8). Without others it also needs Qa bookies to take the last entries.
- For a while: what does not go on waits, and goes on when the bookies are back. **Lost after they came back: {lost} of all acknowledged entries**, in
  every case.
- For good: what Reads and Recovery show is what is left. An entry with all its copies outlives Qw − 1 bookies, one that was just acknowledged
  Qa − 1.

"""


def load(file: Path = RECORDS) -> list[Record]:
    """All records."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def page(records: Sequence[Record]) -> str:
    """The page that these records make."""
    runs = sorted({record["run"] for record in records})
    losses = [record for record in records if record["kind"] == "loss"]
    matrix = [record for record in records if record["kind"] == "matrix"]
    alls = [record for record in losses if "started_ms" in record]
    return "".join(
        (
            HEAD.format(
                runs=len(runs),
                cores=_each(record["cores"] for record in records),
                dates=_each(record["date"] for record in records),
                commits=_each(record["commit"] for record in records),
            ),
            LOSSES,
            _table(
                ("loss", "entries", "lost", "next acknowledgement", "recovered", "copies made anew", "test"),
                _loss_rows(losses),
            ),
            NOTES.format(
                created=_time([record["created_ms"] for record in losses if "created_ms" in record]),
                total=_time([record["next_ack_ms"] for record in alls]),
                started=_time([record["started_ms"] for record in alls]),
            ),
            MATRIX.format(
                test=_each(record["test"] for record in matrix),
                runs=len(runs),
                lost=sum(record["lost_for_a_while"] for record in matrix),
            ),
            _table(("E, Qw, Qa", "lost", *(title for title, _ in _COLUMNS)), _matrix_rows(matrix)),
            "\nOr, as the number of bookies of an ensemble that may be lost at once:\n\n",
            _table(("E, Qw, Qa", *(title for title, _ in _COLUMNS)), _summary_rows(matrix)),
        )
    )


def _loss_rows(losses: Sequence[Record]) -> list[list[str]]:
    rows = []
    for loss in dict.fromkeys(record["loss"] for record in losses):
        same = [record for record in losses if record["loss"] == loss]
        rows.append(
            [
                loss,
                f"{sum(record['acknowledged'] for record in same):,}",
                str(sum(record["lost"] for record in same)),
                _time([record["next_ack_ms"] for record in same]),
                _time([record["recovered_ms"] for record in same]),
                _time([record["healed_ms"] for record in same if "healed_ms" in record]),
                _each(f"`{record['test'].rpartition('::')[2]}`" for record in same),
            ]
        )
    return rows


_COLUMNS: Final = (
    ("writes, others there", "writes"),
    ("writes, no others", "writes_alone"),
    ("reads", "reads"),
    ("recovery, others there", "recovers"),
    ("recovery, no others", "recovers_alone"),
)


def _matrix_rows(matrix: Sequence[Record]) -> list[list[str]]:
    rows = []
    for quorum in QUORUMS:
        for lost in range(1, quorum[0] + 1):
            same = _of(matrix, quorum, lost)
            cells = [_yes_or_no(same, field) for _, field in _COLUMNS]
            if "no" in cells[2]:
                cells[2] += f" ({_each(str(record['kept_entries']) for record in same)})"
            rows.append([_name(quorum), str(lost), *cells])
    return rows


def _summary_rows(matrix: Sequence[Record]) -> list[list[str]]:
    rows = []
    for quorum in QUORUMS:
        survived = []
        for _, field in _COLUMNS:
            bad = [n for n in range(1, quorum[0] + 1) if not all(r[field] for r in _of(matrix, quorum, n))]
            survived.append(str(min(bad) - 1) if bad else f"{quorum[0]} (all)")
        rows.append([_name(quorum), *survived])
    return rows


def _of(matrix: Sequence[Record], quorum: Sequence[int], lost: int) -> list[Record]:
    wanted = [*quorum, lost]
    return [r for r in matrix if [r["ensemble"], r["write"], r["ack"], r["lost"]] == wanted]


def _name(quorum: Sequence[int]) -> str:
    return ", ".join(map(str, quorum))


def _yes_or_no(records: Sequence[Record], field: str) -> str:
    found = {record[field] for record in records}
    return "differs" if len(found) > 1 else "yes" if found == {True} else "**no**"


def _time(values_ms: Sequence[float]) -> str:
    """Median and longest."""
    if not values_ms:
        return ""
    return f"{_unit(median(values_ms))} (at most {_unit(max(values_ms))})"


def _unit(value_ms: float) -> str:
    return f"{value_ms / 1000:.1f} s" if value_ms >= 1000 else f"{value_ms:.0f} ms"


def _each(values: Iterable[Any]) -> str:
    return ", ".join(sorted({str(value) for value in values}))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
