"""What was measured of brokers, for people: a table with ratios and aims, a JSON file and a plot."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.broker.workloads import NULL, OURS, PEER, REACHED, Row
from bench.interpreter import python_build
from bench.pace import failure

SIDES: Final = (NULL, OURS, PEER)
COLOURS: Final[Mapping[str, str]] = {OURS: "#2a6f97", PEER: "#c9704a", NULL: "#8d99ae"}


def conditions() -> dict[str, Any]:
    """What else the machine does: figures of a busy one are worth little."""
    return {"cores": os.cpu_count(), "load average": [round(load, 2) for load in os.getloadavg()]}


def write_report(
    rows: Sequence[Row], directory: Path, scale: float, before: Mapping[str, Any], console: Console
) -> None:
    """Write `broker.json` and `broker.png` into `directory`, and print the table."""
    directory.mkdir(parents=True, exist_ok=True)
    record = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": python_build(),
        "pulsar-client": version("pulsar-client"),
        "scale": scale,
        "machine before": dict(before),
        "machine after": conditions(),
        "rows": [_record(row) for row in rows],
    }
    (directory / "broker.json").write_text(json.dumps(record, indent=2) + "\n")
    console.print(_table(rows))
    plot(rows, directory / "broker.png")
    console.print(f"{python_build()}; before: {before}, after: {record['machine after']}")
    console.print(f"written: {directory / 'broker.json'}, {directory / 'broker.png'}")


def _record(row: Row) -> dict[str, Any]:
    return {
        "workload": row.workload,
        "figure": row.figure.name,
        "unit": row.figure.unit,
        "better": row.figure.better,
        "medians": row.medians,
        "aim": row.aim,
        "is_met": row.is_met,
        "failed": list(row.failed_sides),
        "rounds": row.rounds,
    }


def _table(rows: Sequence[Row]) -> Table:
    table = Table(
        "workload", "figure", title="Brokers under an unmodified pulsar-client, medians of all rounds"
    )
    for name in (*SIDES, f"÷ {PEER}", f"÷ {NULL}", "aim", "met"):
        table.add_column(name, justify="right", no_wrap=True)
    named = ""
    for row in rows:
        medians, form = row.medians, row.figure.form
        ours = medians.get(OURS)
        cells = [
            "" if side not in medians else format(medians[side], form) + _mark(row, side) for side in SIDES
        ]
        cells += [
            "" if not ours or not medians.get(side) else f"{ours / medians[side]:.2f}"
            for side in (PEER, NULL)
        ]
        bound = {"more": "≥", "less": "≤"}[row.figure.better]
        cells.append("" if row.aim is None else f"{bound} {format(row.aim, form)}")
        cells.append({None: "", True: "yes", False: "[red]no[/]"}[row.is_met])
        shown = "" if row.workload == named else row.workload
        named = row.workload
        table.add_row(shown, f"{row.figure.name} {row.figure.unit}".strip(), *cells)
    return table


def _mark(row: Row, side: str) -> str:
    return " [red]failed[/]" if side in row.failed_sides else ""


def failures_of(rows: Sequence[Row]) -> list[str]:
    """A sentence for each side of a workload that did not reach the rate."""
    return [
        failure(f"{row.workload}, {side}", row.medians[side], row.rate_per_s)
        for row in rows
        if row.figure.key == REACHED
        for side in row.failed_sides
    ]


def plot(rows: Sequence[Row], path: Path) -> None:
    """A panel for each figure, with a bar for each side and the rounds as points."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    columns = 3
    lines = max(1, -(-len(rows) // columns))
    figure, axes = plt.subplots(
        lines, columns, figsize=(15, 2.2 * lines), constrained_layout=True, squeeze=False
    )
    for axis in list(axes.flat)[len(rows) :]:
        axis.set_visible(False)
    for axis, row in zip(axes.flat, rows, strict=False):
        for side in (side for side in SIDES if side in row.medians):
            bar = f"{side}, failed" if side in row.failed_sides else side
            axis.barh(bar, row.medians[side], color=COLOURS[side])
            axis.plot(row.rounds[side], [bar] * len(row.rounds[side]), "k.", markersize=4)
        if row.aim is not None:
            axis.axvline(row.aim, color="black", linestyle="--", linewidth=1)
        axis.invert_yaxis()
        axis.set_title(f"{row.workload}: {row.figure.name} {row.figure.unit}", fontsize=9)
        axis.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
