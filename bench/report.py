"""What was measured, for people: a JSON file, a table, a plot, and the ratios where there is a peer."""

import json
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.interpreter import python_build
from bench.pace import failure
from bench.result import Result
from bench.rounds import OURS, PEER, Ratio, Row, ratios_of

Column = tuple[str, Callable[[Result], Any], str]
THROUGHPUT: Final[Sequence[Column]] = (
    ("entries/s", lambda row: row.entries_per_s, ",.0f"),
    ("MB/s", lambda row: row.mb_per_s, ",.1f"),
    ("undrained/s", lambda row: row.before_drain_per_s, ",.0f"),
    ("read/s", lambda row: row.read_per_s, ",.0f"),
    ("RSS MiB", lambda row: row.rss_anon_mib, ",.0f"),
)
TIMES: Final[Sequence[Column]] = (
    ("p50 ms", lambda row: row.p50_ms, ".2f"),
    ("p99 ms", lambda row: row.p99_ms, ".2f"),
    ("p99.9 ms", lambda row: row.p999_ms, ".2f"),
    ("of its rate", lambda row: row.part_of_rate, ".1%"),
    ("recovery ms", lambda row: row.recovery_ms, ",.0f"),
    ("RSS MiB", lambda row: row.rss_anon_mib, ",.0f"),
)
MANY: Final[Sequence[Column]] = (
    ("s", lambda row: row.seconds, ".2f"),
    ("first entries s", lambda row: row.first_entries_s, ".2f"),
    ("client CPU %", lambda row: row.client_cpu_percent, ".1f"),
    ("bookie CPU %", lambda row: row.bookie_cpu_percent, ".1f"),
    ("RSS MiB", lambda row: row.rss_anon_mib, ",.0f"),
)
WIDTH: Final = 160
"""Of tables in a file: the usual 80 columns cut figures off."""
LATENCY: Final = "from when an entry was due where there is a rate, from its sending where there is none"
"""What latencies count from, for the record: that of a former run may say nothing of it, and then it was the sending everywhere."""


def write_report(
    rows: Sequence[Row], rounds_s: Sequence[float], directory: Path, scale: float, console: Console
) -> None:
    """Write `bench.json` and `bench.png` into `directory`, and print tables; `rounds_s` is how long each round took."""
    directory.mkdir(parents=True, exist_ok=True)
    ratios = ratios_of(rows)
    record = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": python_build(),
        "grpcio": version("grpcio"),
        "lmdb": version("lmdb"),
        "scale": scale,
        "latency": LATENCY,
        "rounds_s": list(rounds_s),
        "rows": [row.record() for row in rows],
        "ratios": [ratio.record() for ratio in ratios],
    }
    (directory / "bench.json").write_text(json.dumps(record, indent=2) + "\n")
    medians = [row.median for row in rows]
    many = [row for row in medians if row.seconds is not None or row.client_cpu_percent is not None]
    times = [row for row in medians if row.p50_ms is not None or row.recovery_ms is not None]
    throughput = [row for row in medians if row not in many and row not in times]
    for title, chosen, columns in (
        ("Throughput", throughput, THROUGHPUT),
        ("Latency (at a rate: from when an entry was due) and recovery", times, TIMES),
        ("Many ledgers", many, MANY),
    ):
        if chosen:
            console.print(results_table(title, chosen, columns))
    if ratios:
        console.print(ratio_table(ratios))
    plot(rows, directory / "bench.png")
    console.print(f"rounds took {', '.join(f'{seconds / 60:.1f}' for seconds in rounds_s)} minutes")
    console.print(python_build())
    console.print(f"written: {directory / 'bench.json'}, {directory / 'bench.png'}")


def results_table(title: str, rows: Sequence[Result], columns: Sequence[Column]) -> Table:
    """Rows with the figures they have: the medians of all rounds."""
    table = Table("side", "workload", title=title)
    for name, _, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        values = [(read(row), form) for _, read, form in columns]
        cells = ("" if value is None else format(value, form) for value, form in values)
        table.add_row(row.side, shown_name(row), *cells)
    return table


def shown_name(row: Result) -> str:
    """The name of a row, which says whether it failed."""
    return f"{row.name} [red]failed[/]" if row.is_failed else row.name


def failures_of(rows: Sequence[Row]) -> list[str]:
    """A sentence for each row that did not reach its rate."""
    return [
        failure(f"{row.side}, {row.name}", row.entries_per_s, row.rate_per_s)
        for row in (each.median for each in rows)
        if row.is_failed and row.entries_per_s is not None
    ]


def ratio_table(ratios: Sequence[Ratio]) -> Table:
    """Daybook's figure divided by BookKeeper's of the same round: rates should be above 1, times below."""
    table = Table("workload", "figure", title=f"{OURS} ÷ {PEER}, round by round")
    for name in (OURS, PEER, "÷ in each round", "median", "least to largest"):
        table.add_column(name, justify="right", no_wrap=True)
    for ratio in ratios:
        rounds = "  ".join(f"{value:.2f}" for value in ratio.rounds.values())
        failed = f" [red]failed: {', '.join(ratio.failed)}[/]" if ratio.failed else ""
        least, largest = ratio.spread
        table.add_row(
            *(f"{ratio.workload}{failed}", ratio.figure, f"{ratio.ours:,.2f}", f"{ratio.theirs:,.2f}"),
            *(rounds, f"{ratio.median:.2f}", f"{least:.2f} to {largest:.2f}"),
        )
    return table


def plot(rows: Sequence[Row], path: Path) -> None:
    """Rates and latencies as bars, a panel for each kind, with the rounds as points."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels: list[tuple[str, Callable[[Result], float | None]]] = [
        ("write, entries/s (drain counted)", lambda row: row.entries_per_s if row.p50_ms is None else None),
        ("catch-up read, entries/s", lambda row: row.read_per_s),
        ("p50, ms", lambda row: row.p50_ms),
        ("p99, ms", lambda row: row.p99_ms),
        ("many ledgers, s", lambda row: row.seconds),
        ("idle ledgers, client's CPU, %", lambda row: row.client_cpu_percent),
    ]
    figure, axes = plt.subplots(3, 2, figsize=(14, 11), constrained_layout=True)
    colours = {OURS: "#2a6f97", PEER: "#c9704a", "machine": "#8d99ae"}
    for axis, (title, read) in zip(axes.flat, panels, strict=True):
        for row in rows:
            median = row.median
            value = read(median)
            if value is not None:
                bar = f"{median.name} ({median.side}{', failed' if median.is_failed else ''})"
                axis.barh(bar, value, color=colours[median.side])
                points = [point for each in row.rounds.values() if (point := read(each)) is not None]
                axis.plot(points, [bar] * len(points), "k.", markersize=4)
        axis.invert_yaxis()
        axis.set_xscale("log" if title.endswith("ms") else "linear")
        axis.set_title(title)
        axis.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
